"""Places and stores: where bytes lie, named once, reached through one small interface."""
