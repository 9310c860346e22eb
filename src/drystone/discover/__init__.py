"""Listers: which granules there are."""
