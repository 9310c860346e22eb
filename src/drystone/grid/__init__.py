"""Chunk grids and selections as pure integers: no I/O, columnar inside."""
