"""Emitters: published forms made of references alone, Icechunk and kerchunk Parquet."""
