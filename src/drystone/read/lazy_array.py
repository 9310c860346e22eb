"""A combined array as xarray reads its own backends: nothing is fetched before values are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from drystone.fetch.fetcher import Fetcher
from drystone.model.placement import CombinedArray

__all__ = ["LazyArray"]


class LazyArray(BackendArray):
    """Values of one combined array through references; pickles, and may be read from several threads.

    Parameters
    ----------
    array
        Of the whole.
    fetcher
        Reads it.
    """

    __slots__ = ("array", "dtype", "fetcher", "shape")

    def __init__(self, array: CombinedArray, fetcher: Fetcher) -> None:
        self.array = array
        self.fetcher = fetcher
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:  # noqa: ANN401  xarray's own words
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> NDArray[np.generic]:
        return self.fetcher.read(self.array, key)
