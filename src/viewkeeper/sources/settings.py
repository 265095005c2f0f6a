"""The settings of one source: an entry of `sources:` in the project file, checked and resolved.

Settings travel to tasks as they stand in the project file; `${NAME}` references are resolved where
the source is opened, so that a secret is never part of a job, a plan or a record.

YAML can do more than settings need, and all of it has been used against readers: aliases that name
aliases grow without end when they are written out, and a key that occurs twice silently overrides
itself. Both are refused here, as are texts that no file name, database or console takes (a zero
byte, half a character). Anchors, aliases and merge keys as such are allowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import yaml

from viewkeeper.errors import ProjectError, suggest_nearest
from viewkeeper.storage.storage_path import StoragePath

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(kb|mb|gb|tb)")
_NUMBER_MAX = 2**53
_WORD_MAX = 100
_BYTES = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a kind of source: what its value must be, and an example of one.

    `read_size` is bytes written like 10gb, `is_switched_on` true or false; `mapping` and `list` are
    checked further by the kind.
    """

    name: str
    type: Literal["text", "number", "size", "switch", "list", "mapping"]
    example: str
    required: bool = False
    one_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One entry of `sources:`.

    `folder` is the project's, which paths are relative to; `home` is the folder where this source
    may keep files of its own, inside the warehouse. Where that is in object storage, `home` is of
    this machine and can be lost, and what the source remembers is below `kept`.
    """

    name: str
    kind: str
    options: Mapping[str, object]
    folder: str
    home: str = ""
    kept: StoragePath | None = None

    @property
    def global_name(self) -> str:
        """What the database is called in every project that reads it."""
        return str(self.options.get("global", self.name))

    def read_text(self, option: str, default: str = "") -> str:
        """The value with its references resolved."""
        value = str(self.options.get(option, default))
        return _REFERENCE.sub(lambda match: read_environment(self.name, match.group(1)), value)

    def read_url(self) -> str:
        """The url with its references resolved; what they stand for may have any characters."""
        value = str(self.options["url"])
        if "://" not in value:
            return self.read_text("url")
        return _REFERENCE.sub(
            lambda match: quote(read_environment(self.name, match.group(1)), safe=""), value
        )

    def read_number(self, option: str, default: float) -> float:
        value = self.options.get(option, default)
        assert isinstance(value, int | float)
        return float(value)

    def is_switched_on(self, option: str) -> bool:
        """Whether an option is on; it is off where it is not given."""
        return self.options.get(option) is True

    def read_size(self, option: str, default: int) -> int:
        value = self.options.get(option)
        return default if value is None else size_of(str(value))

    def read_path(self, option: str = "path") -> Path:
        """A path, relative to the project's folder."""
        return Path(self.folder, self.read_text(option))


def check_options(settings: SourceSettings, known: Iterable[Option]) -> None:
    """Refuse an unknown or missing option, or a value of the wrong type."""
    options = {option.name: option for option in known}
    for name in settings.options:
        if name not in options:
            raise ProjectError(
                f'source "{settings.name}": unknown option "{name}"',
                hint=(
                    f"options of {settings.kind}: "
                    f"{', '.join(options)}{suggest_nearest(str(name), options)}"
                ),
            )
    for option in options.values():
        if option.name in settings.options:
            _check_option(settings, option, settings.options[option.name])
        elif option.required:
            raise ProjectError(
                f'source "{settings.name}": option "{option.name}" is missing',
                hint=f"for example {option.name}: {option.example}",
            )


def _check_option(settings: SourceSettings, option: Option, value: object) -> None:
    fits = {
        "text": isinstance(value, str) and bool(value),
        "number": isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= _NUMBER_MAX,
        "size": isinstance(value, str) and bool(_SIZE.fullmatch(value.strip().lower())),
        "switch": isinstance(value, bool),
        "list": isinstance(value, list),
        "mapping": isinstance(value, dict),
    }[option.type]
    words = {"number": "a number >= 0", "size": "a size like 10gb", "switch": "true or false"}
    what = words.get(option.type, f"a {option.type}")
    if fits and option.one_of and value not in option.one_of:
        fits, what = False, "one of " + ", ".join(option.one_of)
    if not fits:
        raise ProjectError(
            f'source "{settings.name}": option "{option.name}" must be {what}',
            hint=f"for example {option.name}: {option.example}",
        )


def size_of(text: str) -> int:
    """
    >>> size_of("64mb")
    67108864
    """
    match = _SIZE.fullmatch(text.strip().lower())
    assert match is not None
    return int(float(match.group(1)) * _BYTES[match.group(2)])


def shorten_value(value: object) -> str:
    """A value of a project file, for an error."""
    text = repr(value)
    return text if len(text) <= _WORD_MAX else text[:_WORD_MAX] + "..."


def read_environment(source: str, name: str) -> str:
    """The value of an environment variable that a source's settings refer to."""
    value = os.environ.get(name)
    if value is None:
        raise ProjectError(
            f'source "{source}": the environment variable {name} is not set',
            hint=f"export {name}=... before starting viewkeeper",
        )
    return value


BYTES_MAX = 512 << 10
VALUES_MAX = 100_000
# What PyYAML's own constructors raise at odd values besides YAMLError, such as the day 2024-02-30.
_FAILURES = (ValueError, LookupError, ArithmeticError, AttributeError, TypeError)


def read_yaml(file: Path) -> object:
    """What a file says; a ProjectError if it cannot be read or is no YAML for us."""
    try:
        if file.stat().st_size > BYTES_MAX:
            raise ProjectError(
                f"{file}: larger than {BYTES_MAX >> 10} KB", hint="is it a project file?"
            )
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProjectError(f"{file}: not valid YAML", detail=str(error)) from error
    except (OSError, ValueError) as error:
        raise ProjectError(f"{file}: cannot be read", detail=str(error)) from error
    return parse_yaml(text, str(file))


def parse_yaml(text: str, where: str) -> object:
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _check_size(root, {}, set())
            value: object = loader.construct_document(root)
            return value
        finally:
            loader.dispose()
    except RecursionError as error:
        raise ProjectError(f"{where}: nested too deeply") from error
    except (yaml.YAMLError, *_FAILURES) as error:
        raise ProjectError(f"{where}: not valid YAML", detail=str(error)) from error


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which constructs plain values only, and refuses a key twice."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    problem = f'the key "{key.value}" occurs twice'
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node

    def construct_scalar(self, node: Any) -> Any:
        value = super().construct_scalar(node)
        if isinstance(value, str) and not _is_plain(value):
            problem = "a text has a zero byte, or half a character"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return value


def _is_plain(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _check_size(node: Any, known: dict[int, int], above: set[int]) -> int:
    """How many values a node has when all aliases are written out, if that is not too many."""
    if id(node) in above:
        raise yaml.MarkedYAMLError(problem="a value holds itself", problem_mark=node.start_mark)
    if id(node) not in known:
        above.add(id(node))
        count = 1
        if isinstance(node, yaml.CollectionNode):
            for each in node.value:
                parts = each if isinstance(each, tuple) else (each,)
                count += sum(_check_size(part, known, above) for part in parts)
        if count > VALUES_MAX:
            problem = f"more than {VALUES_MAX} values, aliases written out"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        above.discard(id(node))
        known[id(node)] = count
    return known[id(node)]
