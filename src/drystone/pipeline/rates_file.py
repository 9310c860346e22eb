"""Where measured rates lie: one file for each host and version of drystone, in the user's cache folder.

``$XDG_CACHE_HOME/drystone/rates/<host>-<version>.json``, ``~/.cache`` without the variable. Places are added as they are
measured; what a plan reads is never measured by the plan.
"""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import replace

from drystone import __version__
from drystone.model.rates import Rates
from drystone.plan.predict import UNMEASURED
from drystone.storage.local import LocalStore

__all__ = ["load_rates", "rates_path", "save_rates"]


def rates_path() -> str:
    """The file of this host and version.

    Examples
    --------
    >>> rates_path().endswith(".json")
    True
    """
    # the specification says that a relative path does not count
    cache = os.environ.get("XDG_CACHE_HOME", "")
    folder = cache if os.path.isabs(cache) else os.path.join(os.path.expanduser("~"), ".cache")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{socket.gethostname()}-{__version__}")
    return os.path.join(folder, "drystone", "rates", f"{name}.json")


def load_rates() -> tuple[Rates | None, str]:
    """What was measured on this host; without it, why nothing can be predicted."""
    path = rates_path()
    try:
        with open(path, encoding="utf-8") as f:
            return Rates.from_json(json.load(f)), ""
    except FileNotFoundError:
        return None, UNMEASURED
    except OSError as error:
        return None, f"{UNMEASURED} ({path} cannot be read: {error.strerror})"
    except (ValueError, KeyError, TypeError):
        return None, f"{UNMEASURED} ({path} holds no rates)"


def save_rates(rates: Rates) -> str:
    """Write the file, places that were measured before kept; returns its path.

    Raises
    ------
    StorageError
        It cannot be written.
    """
    before, _ = load_rates()
    if before is not None:
        places = dict(before.places)
        for key, place in rates.places.items():
            known = places.get(key)
            if place.write is None and known is not None:  # only read this time
                place = replace(place, write_one=known.write_one, write=known.write, put=known.put, write_cpu=known.write_cpu)
            places[key] = place
        rates = replace(rates, places=places)
    path = rates_path()
    folder, name = os.path.split(path)
    LocalStore(folder).put(name, json.dumps(rates.to_json(), indent=1).encode())
    return path
