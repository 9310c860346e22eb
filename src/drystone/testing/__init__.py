"""The place for what plugins are tested with; nothing is here yet."""
