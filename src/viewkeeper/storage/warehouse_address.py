"""Where a warehouse is, as people write it: a folder, or the address of a place in object storage.

`./warehouse` is a folder, relative to the project's. `s3://bucket/path` is none: a program that
joined it to a folder would make one that is called `s3:`, fill it, and say that all is well.
"""

from __future__ import annotations

import re
from pathlib import Path

from viewkeeper.errors import ProjectError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(?!/*[A-Za-z]:)")


def scheme_of(address: str) -> str | None:
    """The scheme of an address; None if it is a folder.

    >>> scheme_of("s3://bucket/path"), scheme_of("./warehouse"), scheme_of("/data/a:/b")
    ('s3', None, None)

    A path object has taken one of two slashes away, and is still no folder:

    >>> scheme_of(str(Path("s3://bucket/path")))
    's3'
    """
    found = _SCHEME.match(address)
    return found[1].lower() if found else None


def require_address(place: object, where: str) -> None:
    """A ProjectError if an address was taken for a path, which has only one of its slashes."""
    if isinstance(place, Path):
        require_folder(place, where)


def require_folder(address: str | Path, where: str) -> None:
    """A ProjectError if an address is not that of a folder; `where` says who named it."""
    scheme = scheme_of(str(address))
    if scheme is not None:
        raise ProjectError(
            f'{where}: "{address}" is not a folder',
            detail=f"addresses with {scheme}: are not supported here",
            hint="name a folder on a local or shared disk, for example ./warehouse",
        )
