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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")
Reader = Callable[[Any], Any]
Readers = Mapping[Any, Reader]
"""Functions that read values of types which are not JSON's: from what is there to the value."""

KnownReaders = frozenset[tuple[Any, Reader]]
WIDEST = 1 << 64


def read_typed(kind: type[T], value: object, readers: Readers | None = None) -> T:
    """A value of the type `kind`; a ValueError names the place that is wrong."""
    wanted: Any = kind
    return typing.cast("T", _reader_of(wanted, frozenset((readers or {}).items()))(value))


@lru_cache(maxsize=1024)
def _reader_of(kind: Any, readers: KnownReaders) -> Reader:
    """The function that reads values of a type.

    It is made once: a warehouse of many views has hundreds of thousands of values in its head, and
    asking for each what its type consists of costs ten times as much as reading it.
    """
    if (read := {**_PLAIN, **dict(readers)}.get(kind)) is not None:
        return read
    if dataclasses.is_dataclass(kind):
        return _fields_reader(kind, readers)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _union_reader(arguments, readers)
    if origin is typing.Literal:
        return _literal_reader(arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_reader(_reader_of(arguments[1], readers))
    assert origin is not None, f"{kind} cannot be read from JSON"
    if origin is not tuple:
        return _list_reader(_reader_of(arguments[0], readers))
    if arguments[-1] is Ellipsis:
        read_list = _list_reader(_reader_of(arguments[0], readers))
        return lambda value: tuple(read_list(value))
    return _row_reader([_reader_of(each, readers) for each in arguments])


def _list_reader(read: Reader) -> Reader:
    def read_list(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _unfit(value, "an array")
        found: list[Any] = []
        try:
            for each in value:
                found.append(read(each))
        except ValueError as error:
            raise ValueError(f"{len(found)}: {error}") from error
        return found

    return read_list


def _row_reader(reads: Sequence[Reader]) -> Reader:
    def read_row(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _unfit(value, "an array")
        if len(value) != len(reads):
            raise _unfit(value, f"an array of {len(reads)}")
        found: list[Any] = []
        try:
            for read, each in zip(reads, value, strict=True):
                found.append(read(each))
        except ValueError as error:
            raise ValueError(f"{len(found)}: {error}") from error
        return tuple(found)

    return read_row


def _mapping_reader(read: Reader) -> Reader:
    def read_mapping(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _unfit(value, "an object")
        return {_read_text(name): _read_at(name, read, each) for name, each in value.items()}

    return read_mapping


def _union_reader(kinds: tuple[Any, ...], readers: KnownReaders) -> Reader:
    only, *others = (kind for kind in kinds if kind is not types.NoneType)
    # Which one of several it is nothing here can tell; whoever has such a field reads it by itself.
    read = _refuse_choice if others else _reader_of(only, readers)
    if types.NoneType not in kinds:
        return read
    return lambda value: None if value is None else read(value)


def _refuse_choice(value: Any) -> Any:
    raise _unfit(value, "of one type alone")


def _literal_reader(words: tuple[Any, ...]) -> Reader:
    def read_word(value: Any) -> Any:
        if value not in words:
            raise _unfit(value, f"one of {', '.join(map(str, words))}")
        return value

    return read_word


def _fields_reader(kind: Any, readers: KnownReaders) -> Reader:
    needed = [field.name for field in dataclasses.fields(kind) if _is_needed(field)]
    reads: dict[str, Reader] = {}

    def read_fields(value: Any) -> Any:
        if not reads:
            # Only now: a class may have fields of its own type.
            reads.update({name: _reader_of(each, readers) for name, each in _field_types(kind)})
        if not isinstance(value, dict):
            raise _unfit(value, "an object")
        if not value.keys() <= reads.keys():
            raise _unfit([*value], f"made of {', '.join(reads)}")
        if lacking := [name for name in needed if name not in value]:
            raise _unfit([*value], f"complete without {', '.join(lacking)}")
        return kind(**{name: _read_at(name, reads[name], each) for name, each in value.items()})

    return read_fields


def _field_types(kind: Any) -> Iterator[tuple[str, Any]]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        yield field.name, hints[field.name]


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _read_at(place: object, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _read_number(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _unfit(value, "a number")
    if not abs(value) < WIDEST:
        raise _unfit(value, "a number of that size")
    return float(value)


def _read_whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not abs(value) < WIDEST:
        raise _unfit(value, "a whole number")
    return value


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise _unfit(value, "a text")
    return value


def _read_truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _unfit(value, "true or false")
    return value


def _unfit(value: Any, what: str) -> ValueError:
    return ValueError(f"{str(value)[:80]} is not {what}")


_PLAIN: dict[Any, Reader] = {
    int: _read_whole,
    float: _read_number,
    str: _read_text,
    bool: _read_truth,
    Any: lambda value: value,
    object: lambda value: value,
}
