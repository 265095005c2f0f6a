"""How calls of a registry travel: JSON objects, checked where they arrive.

A request is `POST /v1/<call>` with an object of arguments; the answer is `{"result": ...}`, or
`{"error": {...}}` with the kind of one of our errors, so that a caller sees the same error wherever
the registry is. Neither side believes the other: whatever comes in is bounded, and has the type
that it must have, or it is a MalformedError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

from viewkeeper.errors import (
    AccessError,
    ClosedGroupError,
    FencedError,
    IdentityError,
    OrderError,
    RegistryAwayError,
    RegistryError,
    StaleReporterError,
    TrimmedError,
)
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_protocol import (
    VOID,
    Assignment,
    Facts,
    GroupStatus,
    Member,
    Ordered,
    Owner,
    RegistryStatus,
    Reporter,
    Reports,
)

PREFIX = "/v1/"
SECRET_HEADER = "Viewkeeper-Secret"
"""With it goes the secret of the member that a request speaks for."""
IDS_MAX = 10_000
"""Ids in one request or answer."""
BODY_BYTES_MAX = 1 << 20
ANSWER_BYTES_MAX = 16 << 20
TEXT_CHARACTERS_MAX = 500
NAMES_MAX = 1_000
WAIT_SECONDS_MAX = 20.0
LEASE_SECONDS_MAX = 3600.0
_INTEGER_MAX = (1 << 63) - 1
_MANY = 1_000_000
_WORDS_MAX = 2_000
_KINDS = {
    kind.__name__: kind
    for kind in (
        AccessError,
        ClosedGroupError,
        FencedError,
        IdentityError,
        OrderError,
        RegistryAwayError,
        RegistryError,
        StaleReporterError,
        TrimmedError,
    )
}


class MalformedError(ValueError):
    """A request that no client of ours sends, or an answer that no service of ours gives."""


def read_json(data: bytes) -> object:
    """What a text of JSON says; numbers that JSON does not have are refused."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedError("the body must be JSON") from error


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedError(f"{name} is no number of JSON")


class Arguments:
    """A JSON object that was sent; whatever is not as it must be is a MalformedError."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, dict):
            raise MalformedError("the body must be a JSON object")
        self._body: Mapping[str, Any] = body

    def text(self, name: str) -> str:
        return _text(self._body.get(name), name)

    def optional(self, name: str) -> str | None:
        return None if self._body.get(name) is None else self.text(name)

    def integer(self, name: str) -> int:
        return _integer(self._body.get(name), name)

    def position(self, name: str) -> int | None:
        return None if self._body.get(name) is None else self.integer(name)

    def integers(self, name: str) -> list[int]:
        return [_integer(value, name) for value in self._list(name, IDS_MAX)]

    def number(self, name: str) -> float:
        return _number(self._body.get(name), name)

    def boolean(self, name: str) -> bool:
        value = self._body.get(name)
        if not isinstance(value, bool):
            raise MalformedError(f"{name} must be true or false")
        return value

    def seconds(self, name: str, most: float) -> float:
        value = _number(self._body.get(name, 0), name)
        if not 0 <= value <= most:
            raise MalformedError(f"{name} must be between 0 and {most:g}")
        return value

    def objects(self, name: str) -> Iterator[Arguments]:
        return (Arguments(each) for each in self._list(name, _MANY))

    def reporter(self) -> Reporter:
        return read_reporter(self._body.get("reporter"))

    def facts(self) -> Facts:
        inner = Arguments(self._body.get("facts"))
        sources = inner._mapping("sources")
        read = {_text(name, "sources"): _texts(tables, name) for name, tables in sources.items()}
        parents = _texts(inner._body.get("parents"), "parents")
        together, warehouse = (
            inner.text(name) if inner._body.get(name) else "" for name in ("together", "warehouse")
        )
        awaited = inner._mapping("awaits") if "awaits" in inner._body else {}
        awaits = {_text(name, "awaits"): _integer(at, "awaits") for name, at in awaited.items()}
        return Facts(read, parents, together, awaits, warehouse)

    def _mapping(self, name: str) -> Mapping[str, Any]:
        value = self._body.get(name)
        if not isinstance(value, dict) or len(value) > NAMES_MAX:
            raise MalformedError(f"{name} must be an object of at most {NAMES_MAX} names")
        return value

    def _list(self, name: str, most: int) -> list[Any]:
        return _list(self._body.get(name), name, most)


def _text(value: object, name: str, least: int = 1) -> str:
    if not isinstance(value, str) or not least <= len(value) <= TEXT_CHARACTERS_MAX:
        raise MalformedError(f"{name} must be a text of 1 to {TEXT_CHARACTERS_MAX} characters")
    if "\0" in value or any("\ud800" <= each <= "\udfff" for each in value):
        raise MalformedError(f"{name} has a character that no text can be stored with")
    return value


def _list(values: object, name: str, most: int) -> list[Any]:
    if not isinstance(values, list) or len(values) > most:
        raise MalformedError(f"{name} must be a list of at most {most}")
    return values


def _texts(values: object, name: str) -> tuple[str, ...]:
    return tuple(_text(value, name) for value in _list(values, name, NAMES_MAX))


def _integer(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _INTEGER_MAX:
        raise MalformedError(f"{name} must be a whole number, not negative, of 63 bits")
    return value


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedError(f"{name} must be a number")
    if abs(value) > _INTEGER_MAX or not math.isfinite(value):
        raise MalformedError(f"{name} must be a number of a size that something can have")
    return float(value)


def write_order(found: Sequence[Ordered]) -> list[list[object]]:
    return [[each.n, each.id.source, each.id.position] for each in found]


def read_order(data: object) -> tuple[Ordered, ...]:
    """
    >>> read_order(write_order([Ordered(1, GlobalId("shop", 7))]))
    (Ordered(n=1, id=GlobalId(source='shop', position=7)),)
    """
    return tuple(_ordered(_list(each, "an id", 3)) for each in _list(data, "order", IDS_MAX))


def _ordered(row: Sequence[object]) -> Ordered:
    if len(row) != 3:
        raise MalformedError("an id has a number, a source and a position")
    source = _text(row[1], "source", len(VOID))
    return Ordered(_integer(row[0], "n"), GlobalId(source, _integer(row[2], "position")))


def read_members(data: object) -> tuple[Member, ...]:
    return tuple(_member(Arguments(each)) for each in _list(data, "members", _MANY))


def _member(each: Arguments) -> Member:
    return Member(each.text("name"), each.facts(), each.integer("reached"), each.number("seen"))


def read_assignment(data: object) -> Assignment:
    found = Arguments(data)
    members = tuple(_member(each) for each in found.objects("members"))
    names = (found.text("group"), found.text("identity"))
    return Assignment(*names, members, found.boolean("closed"), found.integer("opened"))


def read_status(data: object) -> RegistryStatus:
    found = Arguments(data)
    groups = tuple(_group(each) for each in found.objects("groups"))
    owner = found._body.get("owner")
    return RegistryStatus(
        found.text("registry"), _owner(Arguments(owner)) if owner else None, groups
    )


def _group(found: Arguments) -> GroupStatus:
    return GroupStatus(
        *(found.text("name"), found.text("identity"), found.integer("last")),
        members=tuple(_member(each) for each in found.objects("members")),
        reports=tuple(_reports(each) for each in found.objects("reports")),
        closed=found.boolean("closed"),
    )


def _reports(found: Arguments) -> Reports:
    names = (found.text("source"), found.text("member"))
    token, lease = found.integer("token"), found.number("lease")
    return Reports(*names, token, lease, found.position("position"))


def _owner(found: Arguments) -> Owner:
    return Owner(found.text("holder"), found.integer("epoch"), found.number("lease"))


def read_number(data: object) -> int:
    return _integer(data, "the answer")


def read_nothing(data: object) -> None:
    if data is not None:
        raise MalformedError("there is nothing to be answered to this")


def write_error(error: RegistryError) -> dict[str, object]:
    facts = {"what": error.what, "detail": error.detail, "hint": error.hint}
    return {"error": {"kind": type(error).__name__, **facts}}


def read_error(registry: str, data: Mapping[str, Any]) -> RegistryError:
    """The error that a service answered with, about the registry as the caller names it."""
    kind = _KINDS.get(str(data.get("kind")), RegistryError)
    what, detail, hint = (_words(data.get(name)) for name in ("what", "detail", "hint"))
    return kind(registry, what or "it refuses this, and does not say why", detail=detail, hint=hint)


def _words(value: object) -> str | None:
    """Words of a service, for a terminal: what is no plain character there is not shown."""
    if not isinstance(value, str) or not value:
        return None
    return "".join(each if each.isprintable() else " " for each in value[:_WORDS_MAX])


def write_reporter(reporter: Reporter) -> dict[str, object]:
    return asdict(reporter)


def read_reporter(data: object) -> Reporter:
    found = Arguments(data)
    names = (found.text("group"), found.text("source"), found.text("member"))
    return Reporter(*names, found.integer("token"), found.position("position"))
