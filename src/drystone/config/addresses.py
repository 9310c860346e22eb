"""Addresses as users write them: ``place:relative/path``, or a bare path, which starts at the config's own folder.

A bare path becomes an address of the implicit place :data:`HERE`. What would climb out of its place, and absolute paths
and URLs, are refused with the two lines that name a place for them: the table keeps addresses, and an archive that moves
must need one line changed, not a million rows.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

__all__ = ["CREDENTIAL_HINT", "HERE", "PLACE_PATTERN", "SCHEMES", "WORK", "has_credentials", "parse_address", "parse_url"]

HERE = "here"
WORK = "work"
SCHEMES = ("file", "s3", "gs", "az", "abfs", "http", "https", "memory")
PLACE_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]*$"

CREDENTIAL_HINT = (
    "credentials never go into a config: put them in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY) or the usual profile files, and take this one out of every "
    "copy of the file"
)

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):(.*)\Z", re.DOTALL)
# query keys of signed URLs
_SIGNED = {
    "awsaccesskeyid",
    "sig",
    "signature",
    "x-amz-credential",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-signature",
}


def _name_a_place(root: str, rest: str) -> tuple[bool, str]:
    return False, f'name a place for it, storage: {{raw: {{url: "{root}"}}}}, and write raw:{rest}'


def parse_address(text: str) -> tuple[bool, str]:
    """``(True, address)``, or ``(False, hint)`` where it cannot be one.

    Examples
    --------
    >>> parse_address("raw:1981//a.nc"), parse_address("./out/sst.zarr")
    ((True, 'raw:1981/a.nc'), (True, 'here:out/sst.zarr'))
    >>> parse_address("/data/raw/*.nc")[1]
    'name a place for it, storage: {raw: {url: "file:/data/raw"}}, and write raw:*.nc'
    """
    text = text.strip()
    if has_credentials(text):
        return False, CREDENTIAL_HINT
    if "://" in text:
        root, _, rest = text.rpartition("/")
        return _name_a_place(root, rest)
    if text.startswith(("/", "~")):
        root, _, rest = _literal_folder(text)
        return _name_a_place(f"file:{root}", rest)
    match = _ADDRESS.match(text)
    place, key = (match[1], match[2]) if match else (HERE, text)
    if place in SCHEMES:
        root, _, rest = _literal_folder(text)
        return _name_a_place(root, rest)
    if key.startswith("/"):
        return False, f"a path in a place is relative: {place}:{key.lstrip('/')}"
    parts = [p for p in key.split("/") if p not in ("", ".")]
    if ".." in parts:
        if place != HERE:
            return False, f"it climbs out of the place {place}; name a place for the folder it means"
        root = "/".join(parts[: len(parts) - parts[::-1].index("..")])
        return _name_a_place(f"file:{root}", "/".join(parts[len(parts) - parts[::-1].index("..") :]))
    return True, f"{place}:{'/'.join(parts)}"


def _literal_folder(text: str) -> tuple[str, str, str]:
    """Split a path before its first wildcard, at a slash."""
    wild = next((i for i, c in enumerate(text) if c in "*?["), len(text))
    cut = text.rfind("/", 0, wild)
    return (text[:cut], "/", text[cut + 1 :]) if cut > 0 else (text, "", "")


def parse_url(text: str) -> tuple[bool, str]:
    """A place's root; one with credentials inside is refused, and they are not repeated.

    Examples
    --------
    >>> parse_url("file:./work"), parse_url("./raw"), parse_url("s3://bucket/prefix/")
    ((True, 'file:./work'), (True, './raw'), (True, 's3://bucket/prefix'))
    >>> parse_url("ftp://x")[1]
    'known schemes: file, s3, gs, az, abfs, http, https, memory, or a bare folder'
    """
    text = text.strip()
    scheme = text.partition(":")[0] if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text) else ""
    if scheme and scheme not in SCHEMES:
        return False, f"known schemes: {', '.join(SCHEMES)}, or a bare folder"
    if scheme and scheme != "file" and "://" not in text:
        return False, f"write {scheme}://…"
    if has_credentials(text):
        return False, "credentials"
    return True, text.rstrip("/") if len(text) > 1 else text


def has_credentials(url: str) -> bool:
    """Whether a URL carries a password or a signature.

    Examples
    --------
    >>> has_credentials("https://me:hunter2@host/x"), has_credentials("s3://bucket/a@b")
    (True, False)
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # no URL at all, such as http://[
        return False
    return "@" in parts.netloc or any(k.lower() in _SIGNED for k, _ in parse_qsl(parts.query, keep_blank_values=True))
