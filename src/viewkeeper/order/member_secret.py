"""A member's secret: what keeps others from speaking in its name at a registry's service.

The member makes it, keeps it in its warehouse in a file that only its owner can read, and sends it
with every call. The service stores a hash of the one that came with the first join, and refuses all
others. The member makes it, and not the service, because an answer can be lost: who gets none sends
the same secret again.

Secrets are random and long, so a plain hash of one tells nothing. Where members use a store
directly there are none: who may write a database may write anything in it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from viewkeeper.errors import CorruptError
from viewkeeper.storage import disk

FILE = "registry-secret"
_FORM = re.compile(rb"[0-9a-f]{64}\n?")


def member_secret(root: Path) -> str:
    """The secret of the member with this warehouse; made, durably, when it is first asked for."""
    path = root / FILE
    with disk.translate_os_errors("create", path):
        if not path.exists():
            _create_file(path, secrets.token_hex(32).encode())
        if path.stat().st_mode & 0o077:
            # A warehouse may be open to a group; this file is nobody's but the member's.
            os.chmod(path, 0o600)
        found = path.read_bytes()
    if not _FORM.fullmatch(found):
        raise CorruptError(
            f'warehouse file "{path}": this is not the secret of a member',
            hint="bring the file back from a copy; or remove it, have the registry's administrator "
            "run `viewkeeper registry forget URL MEMBER`, and run again",
        )
    return found.decode().strip()


def _create_file(path: Path, data: bytes) -> None:
    """Make the file, whole and readable by its owner only, unless another process just did."""
    temporary = path.parent / f"{disk.TEMPORARY}{path.name}-{secrets.token_hex(8)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
    disk.sync_folder(path.parent)


def secret_hash(secret: str) -> str:
    """What a registry stores of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def is_secret(secret: str, stored: str) -> bool:
    """Whether a hash is that of a secret; how long that takes says nothing about either."""
    return hmac.compare_digest(secret_hash(secret), stored)
