"""YAML as a project file may have it: plain values, of bounded size, and nothing said twice.

YAML can do more than settings need, and all of it has been used against readers: aliases that name
aliases grow without end when they are written out, and a key that occurs twice silently overrides
itself. Both are refused here, as are texts that no file name, database or console takes (a zero
byte, half a character). Anchors, aliases and merge keys as such are allowed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from viewkeeper.errors import ProjectError

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
