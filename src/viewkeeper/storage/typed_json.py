"""From JSON to values of the types that a class declares, or an error that says where it is wrong.

A dataclass is read from an object with its fields, a tuple or list from an array, a mapping from an
object; a field that is missing has its default. Nothing is guessed: a truth value is not a number,
a number is not a text, an unknown name is an error. All mistakes are `ValueError`s, which
`sealed_json.decoding` turns into the error for the file.

>>> @dataclasses.dataclass(frozen=True)
... class Place:
...     at: int
...     name: str = ""
>>> read_typed(Place, {"at": 3})
Place(at=3, name='')
>>> read_typed(Place, {"at": True})
Traceback (most recent call last):
ValueError: at: True is not a whole number
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
Readers = Mapping[Any, Callable[[Any], Any]]
"""Functions that read values of types which are not JSON's: from what is there to the value."""

WIDEST = 1 << 64


def read_typed(kind: type[T], value: object, readers: Readers | None = None) -> T:
    """A value of the type `kind`; a ValueError names the place that is wrong."""
    return typing.cast("T", _read_value(kind, value, readers or {}))


def _read_value(kind: Any, value: Any, readers: Readers) -> Any:
    if kind in readers:
        return readers[kind](value)
    if kind in _PLAIN:
        return _PLAIN[kind](value)
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, readers)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(arguments, value, readers)
    if origin is typing.Literal:
        return _expect(value, value in arguments, f"one of {', '.join(map(str, arguments))}")
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _expect(value, isinstance(value, dict), "an object")
        return {
            _read_text(name): _read_at(name, arguments[1], each, readers)
            for name, each in value.items()
        }
    assert origin is not None, f"{kind} cannot be read from JSON"
    return _read_array(origin, arguments, value, readers)


def _read_array(origin: Any, arguments: tuple[Any, ...], value: Any, readers: Readers) -> Any:
    _expect(value, isinstance(value, list), "an array")
    if origin is not tuple:
        return [_read_at(i, arguments[0], each, readers) for i, each in enumerate(value)]
    if arguments[-1] is Ellipsis:
        return tuple(_read_at(i, arguments[0], each, readers) for i, each in enumerate(value))
    _expect(value, len(value) == len(arguments), f"an array of {len(arguments)}")
    pairs = zip(arguments, value, strict=True)
    return tuple(_read_at(i, kind, each, readers) for i, (kind, each) in enumerate(pairs))


def _read_union(kinds: tuple[Any, ...], value: Any, readers: Readers) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    (only,) = (kind for kind in kinds if kind is not types.NoneType)
    return _read_value(only, value, readers)


def _read_fields(kind: Any, value: Any, readers: Readers) -> Any:
    _expect(value, isinstance(value, dict), "an object")
    hints = _field_types(kind)
    _expect([*value], value.keys() <= hints.keys(), f"made of {', '.join(hints)}")
    lacking = [f.name for f in dataclasses.fields(kind) if _is_needed(f) and f.name not in value]
    _expect([*value], not lacking, f"complete without {', '.join(lacking)}")
    return kind(
        **{name: _read_at(name, hints[name], each, readers) for name, each in value.items()}
    )


@cache
def _field_types(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _read_at(place: object, kind: Any, value: Any, readers: Readers) -> Any:
    try:
        return _read_value(kind, value, readers)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _read_number(value: Any) -> float:
    _expect(value, isinstance(value, (int, float)) and not isinstance(value, bool), "a number")
    return float(value) if abs(value) < WIDEST else _expect(value, False, "a number of that size")


def _read_whole(value: Any) -> int:
    fine = isinstance(value, int) and not isinstance(value, bool) and abs(value) < WIDEST
    return int(_expect(value, fine, "a whole number"))


def _read_text(value: Any) -> str:
    return str(_expect(value, isinstance(value, str), "a text"))


def _read_truth(value: Any) -> bool:
    return bool(_expect(value, isinstance(value, bool), "true or false"))


def _expect(value: Any, fine: bool, what: str) -> Any:
    if not fine:
        raise ValueError(f"{str(value)[:80]} is not {what}")
    return value


_PLAIN: dict[Any, Callable[[Any], Any]] = {
    int: _read_whole,
    float: _read_number,
    str: _read_text,
    bool: _read_truth,
    Any: lambda value: value,
    object: lambda value: value,
}
