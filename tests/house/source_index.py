"""The source, parsed once: modules, classes and functions, with what the house rules ask of them.

Classes are found by name, since a name belongs to one class; a base that is not ours is not there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def parse_text(text: str) -> ast.Module:
    """A text of Python, parsed once for all rules."""
    return ast.parse(text)


@cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """Everything in a text of Python, in the order of `ast.walk`, which is too slow to repeat."""
    return tuple(ast.walk(parse_text(text)))


@dataclass(frozen=True)
class SourceModule:
    """A module by its path below the package, like `engine/loop.py`, and its text."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return parse_text(self.text)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        return nodes_of(self.text)

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2].removesuffix(".py")

    @cached_property
    def classes(self) -> list[SourceClass]:
        return [SourceClass(self, node) for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def functions(self) -> list[SourceFunction]:
        """Those of the module and of its classes, not those inside of functions."""
        return list(_functions_in(self, self.tree, ""))

    @cached_property
    def docstrings(self) -> list[tuple[str, ast.Constant]]:
        """Every docstring with the name of what it describes."""
        nodes: list[tuple[str, ast.AST]] = [("", self.tree)]
        nodes += [(found.node.name, found.node) for found in self.classes]
        nodes += [
            (node.name, node)
            for node in self.nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        return [
            (name, node.body[0].value)
            for name, node in nodes
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node) is not None
            and isinstance(node.body[0], ast.Expr)
            and isinstance(node.body[0].value, ast.Constant)
        ]

    @cached_property
    def texts(self) -> list[ast.Constant]:
        """Every text of the code, that is, not the docstrings and notes."""
        notes = {
            id(node.value)
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        return [
            node
            for node in self.nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in notes
        ]


def _functions_in(module: SourceModule, node: ast.AST, owner: str) -> Iterator[SourceFunction]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions_in(module, child, child.name)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield SourceFunction(module, child, owner)
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _functions_in(module, child, owner)


@dataclass(frozen=True)
class SourceFunction:
    """A function or method; `owner` is the class, or empty."""

    module: SourceModule
    node: Function
    owner: str

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def key(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name

    @property
    def is_public(self) -> bool:
        return not self.name.startswith("_") and not self.owner.startswith("_")

    @property
    def is_property(self) -> bool:
        names = {ast.unparse(d).rpartition(".")[2] for d in self.node.decorator_list}
        return bool(names & {"property", "cached_property", "setter"})

    @property
    def returns_bool(self) -> bool:
        return self.node.returns is not None and ast.unparse(self.node.returns) == "bool"


@dataclass(frozen=True)
class SourceClass:
    """A class with what it declares itself."""

    module: SourceModule
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return self.node.name

    @cached_property
    def base_names(self) -> tuple[str, ...]:
        bases = (b.value if isinstance(b, ast.Subscript) else b for b in self.node.bases)
        return tuple(ast.unparse(base).rpartition(".")[2] for base in bases)

    @property
    def lines(self) -> int:
        return (self.node.end_lineno or self.node.lineno) - self.node.lineno + 1

    @cached_property
    def methods(self) -> list[Function]:
        return [
            node
            for node in self.node.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    @property
    def is_dataclass(self) -> bool:
        return any("dataclass" in ast.unparse(d) for d in self.node.decorator_list)

    @property
    def is_protocol(self) -> bool:
        return "Protocol" in self.base_names

    @property
    def is_abstract(self) -> bool:
        marks = {ast.unparse(d) for method in self.methods for d in method.decorator_list}
        return (
            self.is_protocol
            or "ABC" in self.base_names
            or any("abstractmethod" in mark for mark in marks)
        )

    @cached_property
    def attributes(self) -> set[str]:
        """Fields and what methods assign to themselves; constants of the class are none."""
        fields = {
            node.target.id
            for node in self.node.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and "ClassVar" not in ast.unparse(node.annotation)
        }
        assigned = {
            node.attr
            for node in ast.walk(self.node)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }
        return fields | assigned


class SourceIndex:
    """All modules of the package."""

    def __init__(self, modules: Sequence[SourceModule]) -> None:
        self.modules = modules
        self.classes = [found for module in modules for found in module.classes]
        self.functions = [found for module in modules for found in module.functions]
        self._by_name = {found.name: found for found in self.classes}

    def bases_of(self, found: SourceClass) -> list[SourceClass]:
        """The classes of ours that a class inherits from directly."""
        return [self._by_name[name] for name in found.base_names if name in self._by_name]

    def ancestors_of(self, found: SourceClass) -> list[SourceClass]:
        """A class and all that it inherits from, those that only declare left out."""
        line, seen = [found], {found.name}
        for each in line:
            for base in self.bases_of(each):
                if base.name not in seen and not base.is_protocol:
                    seen.add(base.name)
                    line.append(base)
        return line

    def is_error(self, found: SourceClass) -> bool:
        names = {name for each in self.ancestors_of(found) for name in each.base_names}
        return bool(names & {"Exception", "BaseException", "ValueError", "RuntimeError"})
