"""Scanners: one granule to rows, from its metadata alone."""
