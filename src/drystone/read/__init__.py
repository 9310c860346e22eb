"""References as xarray sees them: lazy arrays over the fetcher."""
