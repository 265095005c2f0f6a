"""Hashes of members' secrets in a store, and whether one that was sent is right.

Only a service asks: it cannot tell callers apart by anything else. A member without a hash has
never joined through a service, or an administrator let it begin again; the next join gives one.
"""

from __future__ import annotations

from viewkeeper.errors import AccessError
from viewkeeper.order.member_secret import is_secret, secret_hash
from viewkeeper.order.store.store_database import StatementRunner

_SELECT = "SELECT hash FROM registry_secret WHERE member = ?"


def admit_secret(registry: str, rows: StatementRunner, member: str, secret: str) -> None:
    """At a join: the first secret of a member is kept, any other one is an AccessError."""
    found = rows(_SELECT, member)
    if not found:
        rows(
            "INSERT INTO registry_secret (member, hash) VALUES (?, ?)", member, secret_hash(secret)
        )
    elif not is_secret(secret, found[0][0]):
        raise _another_secret_error(registry, member)


def check_secret(registry: str, rows: StatementRunner, member: str, secret: str | None) -> None:
    """An AccessError unless it is the one that the member joined with."""
    found = rows(_SELECT, member)
    if not found:
        raise AccessError(
            registry,
            f'the service has no member "{member}" that may ask for this',
            hint="it must join first, through the service",
        )
    if secret is None:
        raise AccessError(
            registry,
            f'nobody may speak for "{member}" without its secret, and none was sent',
            hint="its version of Viewkeeper is older than the service's: install the same one",
        )
    if not is_secret(secret, found[0][0]):
        raise _another_secret_error(registry, member)


def forget_secret(rows: StatementRunner, member: str) -> None:
    rows("DELETE FROM registry_secret WHERE member = ?", member)


def _another_secret_error(registry: str, member: str) -> AccessError:
    return AccessError(
        registry,
        f'"{member}" has joined with another secret',
        detail="somebody else has this name, or the file with the secret was lost",
        hint="give this project another name with `registry: member:`; if it is the same member, "
        f"the administrator runs `viewkeeper registry forget URL {member}`, and it joins again",
    )
