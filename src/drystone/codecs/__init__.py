"""The codec chain as a value, its Zarr v2, Zarr v3 and decoder forms, and translation from file formats' filters."""
