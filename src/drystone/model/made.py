"""What decides the values of a coordinate that outputs write themselves: a rule and its input, but no values.

Who publishes a coordinate makes its values from granules' own, from names or attributes, or from an origin and a step. Who
proves it must come to the same values without that code, so the whole carries what both begin with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drystone.model.options import AxisOptions

__all__ = ["AxisRule"]


@dataclass(frozen=True, slots=True)
class AxisRule:
    """How one axis of the whole has its values.

    Parameters
    ----------
    options
        What the config says of the axis.
    source
        Path within granules of the coordinate that they are placed by; "" where that is a name, an attribute or the list.
    origin
        Of slots: the first place's value as text, a number or an ISO 8601 time; None for other axes.
    granule_id
        int32 (m,): of each run of places that a granule takes, in order of ``dest``; the first counts where two differ.
    src, count, dest
        int64 (m,): of the run, along the axis.
    places
        int64: the axis' place of each published value; None: all, in order.

    Examples
    --------
    >>> one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
    >>> rule = AxisRule(AxisOptions("time", step="1D"), "/time", "2000-01-01", np.zeros(1, np.int32), zero, one, zero)
    >>> rule.taken(np.arange(5, 9)).taken(np.array([3, 1])).places.tolist()
    [8, 6]
    """

    options: AxisOptions
    source: str
    origin: str | None
    granule_id: NDArray[np.int32]
    src: NDArray[np.int64]
    count: NDArray[np.int64]
    dest: NDArray[np.int64]
    places: NDArray[np.int64] | None = None

    def taken(self, places: NDArray[np.int64]) -> AxisRule:
        """The rule of a coordinate that takes some places of this one's."""
        return replace(self, places=np.asarray(places if self.places is None else self.places[places], np.int64))
