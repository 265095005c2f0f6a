"""What the modules of a package import and use, read from their syntax trees.

An import counts wherever it stands: at the top, inside a function, under TYPE_CHECKING, or as
`import_module("...")`. What Python imports by itself, the packages around a module, does not count;
naming such a package does. What may be imported is for `test_layering` to say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = "viewkeeper"


@dataclass(frozen=True, slots=True)
class Reference:
    """A dotted name that a module imports or uses, and the line."""

    name: str
    line: int
    imported: bool


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its dotted name and all that it refers to."""

    name: str
    references: tuple[Reference, ...]


def starts(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def part_of(name: str, package: str = TOP) -> str:
    """What of a package a name is in: a package or a single module below it."""
    return name.removeprefix(f"{package}.").split(".")[0] if starts(name, package) else name


def read_modules(folder: Path) -> list[Module]:
    """Every module below `folder`, which is taken to be the package viewkeeper."""
    paths = sorted(folder.rglob("*.py"))
    names = {path: name_of(path, folder) for path in paths}
    known = frozenset(names.values())
    return [Module(names[path], tuple(find_references(path, names[path], known))) for path in paths]


def name_of(path: Path, folder: Path) -> str:
    parts = (TOP, *path.relative_to(folder).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find_references(path: Path, module: str, known: frozenset[str]) -> Iterator[Reference]:
    tree = ast.parse(path.read_text(), str(path))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        for local, target in imports_of(node, package):
            aliases[local] = target
            yield Reference(nearest(target, known), getattr(node, "lineno", 0), imported=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and (used := resolve(node, aliases)):
            yield Reference(used, node.lineno, imported=False)


def imports_of(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Pairs of the name that an import binds and the dotted name that it stands for."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield alias.asname or alias.name, alias.name
        case ast.ImportFrom(module=base, names=names, level=level):
            around = package.split(".")[: len(package.split(".")) + 1 - level] if level else []
            origin = ".".join([*around, *([base] if base else [])])
            for alias in names:
                target = origin if alias.name == "*" else f"{origin}.{alias.name}"
                yield alias.asname or alias.name, target
        case ast.Call(
            func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(target)), *_],
        ):
            yield f"import_module of {target}", target


def nearest(target: str, known: frozenset[str]) -> str:
    """Cut a name of ours back to the module that holds it; leave others whole."""
    name = target
    while starts(name, TOP) and name not in known and "." in name:
        name = name.rpartition(".")[0]
    return name


def resolve(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """The dotted name behind `a.b.c`, where `a` was imported or is the builtin `open`."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    if node.id == "open" and not attributes:
        return "open"
    # `import a.b` binds `a`, and is kept in `aliases` under its full name.
    for length in range(len(attributes), -1, -1):
        bound = ".".join([node.id, *attributes[:length]])
        if bound in aliases:
            return ".".join([aliases[bound], *attributes[length:]])
    return None
