"""Published values against the granules, by a witness that shares no code with what wrote them."""
