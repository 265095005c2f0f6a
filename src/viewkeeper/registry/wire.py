"""How calls of a registry travel: JSON objects, checked where they arrive.

A request is `POST /v1/<call>` with an object of arguments; the answer is `{"result": ...}`, or
`{"error": {...}}` with the kind of one of our errors, so that a caller sees the same error wherever
the registry is. Everything that comes in is bounded: texts, numbers, and how many of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from viewkeeper.errors import (
    ClosedGroupError,
    FencedError,
    IdentityError,
    OrderError,
    RegistryAwayError,
    RegistryError,
    StaleReporterError,
)
from viewkeeper.registry.ids import GlobalId
from viewkeeper.registry.order import (
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
IDS_MAX = 10_000
"""Ids in one request or answer."""
BODY_BYTES_MAX = 1 << 20
ANSWER_BYTES_MAX = 16 << 20
TEXT_CHARACTERS_MAX = 500
NAMES_MAX = 1_000
WAIT_SECONDS_MAX = 20.0
LEASE_SECONDS_MAX = 3600.0
_INTEGER_MAX = (1 << 63) - 1
_KINDS = {
    kind.__name__: kind
    for kind in (
        ClosedGroupError,
        FencedError,
        IdentityError,
        OrderError,
        RegistryAwayError,
        RegistryError,
        StaleReporterError,
    )
}


class MalformedError(ValueError):
    """A request that no client of ours sends."""


class Arguments:
    """The arguments of one request; whatever is not as it must be is a MalformedError."""

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

    def integers(self, name: str) -> list[int]:
        return [_integer(value, name) for value in self._list(name, IDS_MAX)]

    def seconds(self, name: str, most: float) -> float:
        value = self._body.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise MalformedError(f"{name} must be between 0 and {most:g}")
        return float(value)

    def reporter(self) -> Reporter:
        inner = Arguments(self._body.get("reporter"))
        names = (inner.text("group"), inner.text("source"), inner.text("member"))
        return Reporter(*names, inner.integer("token"), None)

    def facts(self) -> Facts:
        inner = Arguments(self._body.get("facts"))
        sources = inner._body.get("sources")
        if not isinstance(sources, dict) or len(sources) > NAMES_MAX:
            raise MalformedError(f"sources must be an object of at most {NAMES_MAX} names")
        read = {_text(name, "sources"): _texts(tables, name) for name, tables in sources.items()}
        parents = _texts(inner._body.get("parents"), "parents")
        together, warehouse = (
            inner.text(name) if inner._body.get(name) else "" for name in ("together", "warehouse")
        )
        awaited = Arguments(inner._body.get("awaits", {}))
        awaits = {source: awaited.integer(source) for source in awaited._body}
        return Facts(read, parents, together, awaits, warehouse)

    def _list(self, name: str, most: int) -> list[Any]:
        return _list(self._body.get(name), name, most)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_CHARACTERS_MAX:
        raise MalformedError(f"{name} must be a text of 1 to {TEXT_CHARACTERS_MAX} characters")
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


def write_order(found: Sequence[Ordered]) -> list[list[object]]:
    return [[each.n, each.id.source, each.id.position] for each in found]


def read_order(data: Sequence[Sequence[Any]]) -> tuple[Ordered, ...]:
    """
    >>> read_order(write_order([Ordered(1, GlobalId("shop", 7))]))
    (Ordered(n=1, id=GlobalId(source='shop', position=7)),)
    """
    return tuple(Ordered(n, GlobalId(source, position)) for n, source, position in data)


def read_members(data: Sequence[Mapping[str, Any]]) -> tuple[Member, ...]:
    return tuple(
        Member(
            name=each["name"],
            facts=Facts(**each["facts"]),
            reached=each["reached"],
            seen=each["seen"],
        )
        for each in data
    )


def read_assignment(data: Mapping[str, Any]) -> Assignment:
    members = read_members(data["members"])
    return Assignment(data["group"], data["identity"], members, data["closed"])


def read_status(data: Mapping[str, Any]) -> RegistryStatus:
    groups = tuple(
        GroupStatus(
            name=group["name"],
            identity=group["identity"],
            last=group["last"],
            members=read_members(group["members"]),
            reports=tuple(Reports(**each) for each in group["reports"]),
            closed=group["closed"],
        )
        for group in data["groups"]
    )
    owner = data["owner"]
    return RegistryStatus(data["registry"], Owner(**owner) if owner else None, groups)


def write_error(error: RegistryError) -> dict[str, object]:
    facts = {"what": error.what, "detail": error.detail, "hint": error.hint}
    return {"error": {"kind": type(error).__name__, **facts}}


def read_error(registry: str, data: Mapping[str, Any]) -> RegistryError:
    """The error that a service answered with, about the registry as the caller names it."""
    kind = _KINDS.get(str(data.get("kind")), RegistryError)
    detail, hint = data.get("detail"), data.get("hint")
    return kind(registry, str(data.get("what")), detail=detail, hint=hint)


def write_reporter(reporter: Reporter) -> dict[str, object]:
    return asdict(reporter)
