"""Places behind a URL, as far as no service is needed."""

from __future__ import annotations

import os

import pytest

from drystone.errors import StorageError
from drystone.storage.remote import RemoteStore


def test_what_the_environment_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(StorageError, match=r"cannot open az://bucket/x: .*Account.*; credentials and the account come from"):
        RemoteStore("az://bucket/x")
