"""How calls of a registry travel: JSON objects, checked where they arrive.

A request is `POST /v1/<call>` with an object of arguments; the answer is `{"result": ...}`, or
`{"error": {...}}` with the kind of one of our errors, so that a caller sees the same error wherever
the registry is. Neither side believes the other: whatever comes in is bounded, and has the type
that it must have, or it is a MalformedError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

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
    GroupMember,
    OrderedId,
)

T = TypeVar("T")
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


class MalformedMessageError(ValueError):
    """A request that no client of ours sends, or an answer that no service of ours gives."""


def read_json(data: bytes) -> object:
    """What a text of JSON says; numbers that JSON does not have are refused."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedMessageError("the body must be JSON") from error


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedMessageError(f"{name} is no number of JSON")


class CallArguments:
    """A JSON object that was sent; whatever is not as it must be is a MalformedError."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, dict):
            raise MalformedMessageError("the body must be a JSON object")
        self.body: Mapping[str, Any] = body

    def require_text(self, name: str) -> str:
        return _check_text(self.body.get(name), name)

    def optional_text(self, name: str) -> str | None:
        return None if self.body.get(name) is None else self.require_text(name)

    def require_integer(self, name: str) -> int:
        return _check_integer(self.body.get(name), name)

    def require_integers(self, name: str) -> list[int]:
        return [
            _check_integer(value, name) for value in _check_list(self.body.get(name), name, IDS_MAX)
        ]

    def require_seconds(self, name: str, most: float) -> float:
        value = _check_number(self.body.get(name, 0), name)
        if not 0 <= value <= most:
            raise MalformedMessageError(f"{name} must be between 0 and {most:g}")
        return value

    def require_record(self, name: str, kind: type[T]) -> T:
        return read_record(kind, self.body.get(name))


def _check_text(value: object, name: str, least: int = 1) -> str:
    if not isinstance(value, str) or not least <= len(value) <= TEXT_CHARACTERS_MAX:
        raise MalformedMessageError(
            f"{name} must be a text of 1 to {TEXT_CHARACTERS_MAX} characters"
        )
    if "\0" in value or any("\ud800" <= each <= "\udfff" for each in value):
        raise MalformedMessageError(f"{name} has a character that no text can be stored with")
    return value


def _check_list(values: object, name: str, most: int) -> list[Any]:
    if not isinstance(values, list) or len(values) > most:
        raise MalformedMessageError(f"{name} must be a list of at most {most}")
    return values


def _check_integer(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _INTEGER_MAX:
        raise MalformedMessageError(f"{name} must be a whole number, not negative, of 63 bits")
    return value


def _check_number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedMessageError(f"{name} must be a number")
    if abs(value) > _INTEGER_MAX or not math.isfinite(value):
        raise MalformedMessageError(f"{name} must be a number of a size that something can have")
    return float(value)


def _check_boolean(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise MalformedMessageError(f"{name} must be true or false")
    return value


_CHECKS: Mapping[Any, Callable[[object, str], object]] = {
    str: _check_text,
    int: _check_integer,
    float: _check_number,
    bool: _check_boolean,
}


def read_record(kind: type[T], data: object) -> T:
    """A value of a dataclass from an object with its fields; names that it does not have are left
    alone, as a later version may send them."""
    sent, types = CallArguments(data).body, get_type_hints(kind)
    given = {}
    for field in fields(cast("Any", kind)):
        value = sent.get(field.name)
        is_left_out = field.name not in sent and field.default_factory is not MISSING
        if not is_left_out and (value or field.default != ""):
            given[field.name] = _read_value(types[field.name], value, field.name)
    return kind(**given)


def _read_value(kind: Any, value: object, name: str) -> object:
    if kind in _CHECKS:
        return _CHECKS[kind](value, name)
    if is_dataclass(kind):
        return read_record(cast("type[object]", kind), value)
    origin, (inner, *_, last) = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else _read_value(inner, value, name)
    if origin is tuple:
        listed = _check_list(value, name, _MANY if is_dataclass(inner) else NAMES_MAX)
        return tuple(_read_value(inner, each, name) for each in listed)
    if not isinstance(value, dict) or len(value) > NAMES_MAX:
        raise MalformedMessageError(f"{name} must be an object of at most {NAMES_MAX} names")
    return {_check_text(key, name): _read_value(last, each, name) for key, each in value.items()}


def write_order(found: Sequence[OrderedId]) -> list[list[object]]:
    return [[each.n, each.id.source, each.id.position] for each in found]


def read_order(data: object) -> tuple[OrderedId, ...]:
    """
    >>> read_order(write_order([OrderedId(1, GlobalId("shop", 7))]))
    (OrderedId(n=1, id=GlobalId(source='shop', position=7)),)
    """
    return tuple(
        _read_ordered_id(_check_list(each, "an id", 3))
        for each in _check_list(data, "order", IDS_MAX)
    )


def _read_ordered_id(row: Sequence[object]) -> OrderedId:
    if len(row) != 3:
        raise MalformedMessageError("an id has a number, a source and a position")
    source = _check_text(row[1], "source", len(VOID))
    return OrderedId(
        _check_integer(row[0], "n"), GlobalId(source, _check_integer(row[2], "position"))
    )


def read_members(data: object) -> tuple[GroupMember, ...]:
    return tuple(read_record(GroupMember, each) for each in _check_list(data, "members", _MANY))


def read_number(data: object) -> int:
    return _check_integer(data, "the answer")


def read_nothing(data: object) -> None:
    if data is not None:
        raise MalformedMessageError("there is nothing to be answered to this")


def write_error(error: RegistryError) -> dict[str, object]:
    facts = {"what": error.what, "detail": error.detail, "hint": error.hint}
    return {"error": {"kind": type(error).__name__, **facts}}


def read_error(registry: str, data: Mapping[str, Any]) -> RegistryError:
    """The error that a service answered with, about the registry as the caller names it."""
    kind = _KINDS.get(str(data.get("kind")), RegistryError)
    what, detail, hint = (_printable_text(data.get(name)) for name in ("what", "detail", "hint"))
    return kind(registry, what or "it refuses this, and does not say why", detail=detail, hint=hint)


def _printable_text(value: object) -> str | None:
    """Words of a service, for a terminal: what is no plain character there is not shown."""
    if not isinstance(value, str) or not value:
        return None
    return "".join(each if each.isprintable() else " " for each in value[:_WORDS_MAX])
