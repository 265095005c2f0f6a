"""What a warehouse is called at its sources and by its children: made once, with the warehouse.

Replication slots, triggers and followers are named after it, so another name would leave them
behind and begin anew: a damaged file is an error, never a new identity. So is a missing one, once
there are views.
"""

from __future__ import annotations

import re
import uuid

from viewkeeper.errors import reload_hint
from viewkeeper.storage import stored_files
from viewkeeper.storage.sealed_json import (
    corrupt_error,
    seal_body,
    translate_decode_errors,
    unseal_data,
)
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.warehouse.metadata.head import read_head

FILE = "identity"

_MEND = (
    "restore the file from a backup; without one, put a new name into it (`uuidgen > {path}`), "
    f"then {reload_hint()}: the sources then follow under the new name, and `viewkeeper doctor` "
    "shows what they still keep under the old one"
)
_PLAIN = re.compile(rb"[A-Za-z0-9 _-]{1,100}\n?")


def read_identity(root: StoragePath) -> str:
    """The identity of a warehouse; FileNotFoundError if it has none yet."""
    path = root / FILE
    data = path.read_bytes()
    # Written before such files were sealed: the bare name.
    if _PLAIN.fullmatch(data):
        return data.decode().strip()
    mend = _MEND.format(path=path)
    with translate_decode_errors(path, "identity", mend):
        name = read_typed(str, unseal_data(data, path, "identity", mend))
        if not _PLAIN.fullmatch(name.encode()):
            raise ValueError("not a name")
        return name


def known_identity(root: StoragePath) -> str:
    """The identity of a warehouse, empty if it has none yet; a CorruptError if it has lost it."""
    try:
        return read_identity(root)
    except FileNotFoundError:
        if read_head(root).views:
            path = root / FILE
            detail = "it is missing, and there are views whose sources know them by it"
            raise corrupt_error(path, FILE, detail, _MEND.format(path=path)) from None
        return ""


def make_identity(root: StoragePath) -> str:
    """The identity of a warehouse, made if it has none yet."""
    if name := known_identity(root):
        return name
    stored_files.make_folder(root)
    name = uuid.uuid4().hex
    try:
        stored_files.create_new(root / FILE, seal_body("identity", name))
    except FileExistsError:
        # Another process was faster; its answer is as good.
        return read_identity(root)
    return name
