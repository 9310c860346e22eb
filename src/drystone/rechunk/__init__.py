"""From values to a sharded Zarr store: plan, kernel, write cells, receipts, metadata."""
