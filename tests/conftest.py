"""Fixtures that every test may ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator

# before netCDF4, which points the HDF5 library of h5py at plugins that were built for its own
import hdf5plugin  # noqa: F401 - registers its filters
import pytest
from services.fault_proxy import FaultProxy
from services.s3 import ACCESS_KEY, SECRET_KEY, Bucket, S3Server

# one processor per test process is enough, and Dask's dashboard and NumPy's thread pools are no part of any test
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DASK_DISTRIBUTED__DASHBOARD__LINK", "")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Plans are the same on every machine: what `drystone doctor` measured on this one is not read."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """An S3 server with one empty bucket, for the whole session; write under a prefix of your own."""
    with S3Server(tmp_path_factory.mktemp("s3")) as bucket:
        yield bucket


@pytest.fixture
def s3(s3_server: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """The server's bucket, with its credentials in the environment and every other AWS setting out of it."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    return s3_server


@pytest.fixture
def fault_proxy(s3: Bucket) -> Iterator[FaultProxy]:
    """A proxy in front of the S3 server; without faults until ``set`` is called."""
    with FaultProxy(s3.endpoint) as proxy:
        yield proxy
