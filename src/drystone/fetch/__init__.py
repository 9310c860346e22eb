"""From references to values: ranges, coalesced and bounded, decoded in threads into one array."""
