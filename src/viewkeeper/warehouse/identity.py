"""What a warehouse is called at its sources and by its children: made once, with the warehouse.

Replication slots, triggers and followers are named after it, so another name would leave them
behind and begin anew: a damaged file is an error, never a new identity.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from viewkeeper.storage import disk
from viewkeeper.storage.sealed_json import decoding, seal, unseal_data
from viewkeeper.storage.typed_json import read_typed

FILE = "identity"

_MEND = (
    "restore the file from a backup; without one, remove it and load all views again "
    "(viewkeeper run --full-refresh VIEW for each): the sources then follow under a new name, and "
    "viewkeeper doctor shows what they still keep under the old one"
)
_PLAIN = re.compile(rb"[A-Za-z0-9 _-]{1,100}\n?")


def read_identity(root: Path) -> str:
    """The identity of a warehouse; FileNotFoundError if it has none yet."""
    path = root / FILE
    data = path.read_bytes()
    # Written before such files were sealed: the bare name.
    if _PLAIN.fullmatch(data):
        return data.decode().strip()
    with decoding(path, "identity", _MEND):
        name = read_typed(str, unseal_data(data, path, "identity", _MEND))
        if not _PLAIN.fullmatch(name.encode()):
            raise ValueError("not a name")
        return name


def make_identity(root: Path) -> str:
    """The identity of a warehouse, made if it has none yet."""
    try:
        return read_identity(root)
    except FileNotFoundError:
        pass
    disk.make_folder(root)
    name = uuid.uuid4().hex
    try:
        disk.create_new(root / FILE, seal("identity", name))
    except FileExistsError:
        # Another process was faster; its answer is as good.
        return read_identity(root)
    return name
