"""The only part that imports Dask: many calls of one function, in this process or on a cluster, a window at a time."""
