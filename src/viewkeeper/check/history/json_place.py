"""JSON values that know their place in the file, so that whatever is wrong can be pointed at.

A place is written as a path from the top, `states[2].rows[0]`. A key that is not known, is missing
or occurs twice is an error: in a file that people write, each is a slip of the pen. The other way,
`layout_json` writes JSON that people can read: what fits on a line is on one line.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from viewkeeper.errors import HistoryError

WIDTH = 100


@dataclass(frozen=True, slots=True)
class JsonPlace:
    """A value, its place in a file, and the file."""

    value: Any
    where: str = ""
    path: str | None = None

    def error_here(self, message: str, hint: str | None = None) -> HistoryError:
        return HistoryError(message, path=self.path, place=self.where or None, hint=hint)

    def read_keys(
        self, required: Iterable[str], optional: Iterable[str] = ()
    ) -> dict[str, JsonPlace]:
        """The values of an object that has these keys and no others."""
        found = self.read_object()
        names = [*required, *optional]
        for name, at in found.items():
            if name not in names:
                close = difflib.get_close_matches(name[:100], names, n=1, cutoff=0.5)
                meant = f'did you mean "{close[0]}"? ' if close else ""
                raise at.error_here(
                    f'"{name}" is not known here', f"{meant}known: {', '.join(names)}"
                )
        for name in required:
            if name not in found:
                raise self.error_here(f'"{name}" is missing', f'add "{name}" here')
        return found

    def read_object(self) -> dict[str, JsonPlace]:
        """The values of an object, by its keys."""
        if not isinstance(self.value, dict):
            raise self.error_here(f"expected an object, got {_shorten_json(self.value)}")
        start = f"{self.where}." if self.where else ""
        return {k: JsonPlace(v, f"{start}{k}", self.path) for k, v in self.value.items()}

    def read_list(self) -> list[JsonPlace]:
        """The values of a list."""
        if not isinstance(self.value, list):
            raise self.error_here(f"expected a list, got {_shorten_json(self.value)}")
        return [JsonPlace(v, f"{self.where}[{i}]", self.path) for i, v in enumerate(self.value)]

    def read_string(self) -> str:
        if not isinstance(self.value, str):
            raise self.error_here(f"expected a text, got {_shorten_json(self.value)}")
        return self.value

    def read_boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.error_here(f"expected true or false, got {_shorten_json(self.value)}")
        return self.value

    def read_number(self, least: int) -> int:
        value = self.value
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.error_here(
                f"expected a whole number from {least}, got {_shorten_json(value)}"
            )
        return value


def read_json(text: str, path: str | None) -> JsonPlace:
    """The whole of a JSON text."""
    top = JsonPlace(None, "", path)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise top.error_here(f'"{twice}" occurs twice in one object', "keep one of them")
        return found

    def refused(word: str) -> Any:
        raise top.error_here(
            f"{word} is no JSON", 'write "Infinity" as a text; NaN cannot be compared'
        )

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=refused)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise JsonPlace(None, where, path).error_here(f"not valid JSON: {error.msg}") from None
    except RecursionError:
        raise top.error_here("nested too deeply") from None
    except ValueError as error:
        # Python reads no integers of thousands of digits.
        raise top.error_here(f"not valid JSON: {error}") from None
    return JsonPlace(value, "", path)


def layout_json(value: object, indent: int = 0, room: int = WIDTH) -> str:
    """A value as JSON.

    >>> print(layout_json({"a": [1, 2], "b": "x" * 90}).replace("x", ""))
    {
      "a": [1, 2],
      "b": ""
    }
    """
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) <= room - indent or not isinstance(value, dict | list) or not value:
        return line
    deeper = "\n" + " " * (indent + 2)
    if isinstance(value, dict):
        keys = [json.dumps(key, ensure_ascii=False) + ": " for key in value]
        lines = [
            key + layout_json(inner, indent + 2, room - len(key))
            for key, inner in zip(keys, value.values(), strict=True)
        ]
        begin, end = "{", "}"
    else:
        lines = [layout_json(inner, indent + 2, room) for inner in value]
        begin, end = "[", "]"
    return begin + deeper + f",{deeper}".join(lines) + "\n" + " " * indent + end


def _shorten_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
