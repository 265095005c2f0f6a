"""The files of a warehouse, wherever it lies: each function asks the storage of the place.

Those that read and list are methods of a `StoragePath` itself. `storage_protocol` says what each
of these means on a disk and in object storage.
"""

from __future__ import annotations

import re
from pathlib import Path

from viewkeeper.errors import ProjectError
from viewkeeper.storage import disk
from viewkeeper.storage.disk import Guard, no_guard
from viewkeeper.storage.local_storage import LocalStorage
from viewkeeper.storage.objects.object_address import ObjectAddress
from viewkeeper.storage.objects.object_path import ObjectPath
from viewkeeper.storage.objects.object_requests import check_storage_options
from viewkeeper.storage.objects.object_storage import ObjectStorage
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.storage_protocol import FileFacts, NewFile, Storage
from viewkeeper.storage.warehouse_address import scheme_of

translate_os_errors = disk.translate_os_errors

_LOCAL = LocalStorage()

LOCAL_FOLDER = "local"
"""Where a project with a warehouse in object storage keeps files of this machine."""


def storage_of(place: StoragePath) -> Storage:
    """The storage in which a place lies."""
    return place.storage if isinstance(place, ObjectPath) else _LOCAL


def open_address(
    address: str, folder: Path, options: object, local: str | None, where: str
) -> StoragePath:
    """A warehouse by its address in a project file: a folder relative to the project's, or an
    address in object storage, for which there may be options and a `local` folder."""
    scheme = scheme_of(address)
    if scheme is None:
        for key, given in (("storage", options), ("local", local)):
            if given:
                raise ProjectError(
                    f'{where}: "{key}" is for a warehouse in object storage',
                    detail=f'"warehouse" is the folder {address}',
                    hint=f"remove `{key}:`, or name an address like s3://bucket/path",
                )
        return folder / address
    pairs = check_storage_options(scheme, options, where)
    if not re.fullmatch(r"[a-z0-9]+://[^/?#\s]+(/[^/?#\s]+)*/?", address):
        raise ProjectError(
            f'{where}: "{address}" is no address of a warehouse',
            hint=f"{scheme}://bucket/path, without blanks, empty parts, ? and #",
        )
    place = str(folder / (local or LOCAL_FOLDER))
    return ObjectPath(ObjectStorage(ObjectAddress(address.rstrip("/"), pairs, place)))


def create_new(place: StoragePath, data: bytes, guard: Guard = no_guard) -> None:
    """Create a file that must not exist yet; FileExistsError if somebody else made it."""
    storage_of(place).create_new(place, data, guard)


def replace_file(
    place: StoragePath,
    data: bytes,
    guard: Guard = no_guard,
    *,
    durable: bool = True,
    whole: bool = True,
) -> None:
    """Give a file new content; what is not `durable` or `whole` may be lost by a power cut."""
    storage_of(place).replace_file(place, data, guard, durable=durable, whole=whole)


def begin_file(folder: StoragePath, name: str) -> NewFile:
    """Begin a file of a folder, under a name that no other attempt has."""
    return storage_of(folder).begin_file(folder, name)


def remove_file(place: StoragePath) -> None:
    """Remove a file if it is there."""
    storage_of(place).remove_file(place)


def remove_tree(folder: StoragePath) -> None:
    """Remove a folder and all that is in it."""
    storage_of(folder).remove_tree(folder)


def file_size(place: StoragePath) -> int:
    """The bytes of a file; FileNotFoundError if it is not there."""
    return require_facts(place).size


def require_facts(place: StoragePath) -> FileFacts:
    """What is known of a file; FileNotFoundError if it is not there."""
    facts = storage_of(place).file_facts(place)
    if facts is None:
        raise FileNotFoundError(str(place))
    return facts


def read_mark(place: StoragePath) -> object | None:
    """What differs once a file or folder was changed; None without one."""
    facts = storage_of(place).file_facts(place)
    return None if facts is None else facts.mark


def make_folder(folder: StoragePath) -> None:
    """Create a folder, and those above it, durably."""
    storage_of(folder).make_folder(folder)


def sync_folder(folder: StoragePath) -> None:
    """Make the names in a folder durable."""
    storage_of(folder).sync_folder(folder)


def remove_temporaries(folder: StoragePath, guard: Guard = no_guard) -> None:
    """Remove what a killed process left half made; only under the lock."""
    storage_of(folder).remove_temporaries(folder, guard)


def local_folder(root: StoragePath) -> Path:
    """Where files of this machine belong that can be lost."""
    return storage_of(root).local_folder(root)


def read_link(place: StoragePath) -> str | None:
    """The folder beside it to which a link leads; None if it is none. Object storage has none."""
    return disk.read_link(place) if isinstance(place, Path) else None


def replace_link(place: StoragePath, target: str, guard: Guard) -> None:
    """Let a link lead to the folder `target` beside it, at once; only on a disk."""
    assert isinstance(place, Path), "object storage has no links"
    disk.replace_link(place, target, guard)
