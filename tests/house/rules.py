"""The rules of the house, one function each: what is wrong, and under which key it may be excepted.

They keep the source easy to search: one home and one name for each concept. A key has no folder and
no line in it, so that an exception outlives a move. `exceptions.txt` lists those that are allowed.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house.source_index import SourceClass, SourceIndex, SourceModule

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "viewkeeper"


@dataclass(frozen=True, slots=True)
class Offence:
    """What is wrong, at a place; `key` names it in the list of exceptions."""

    key: str
    place: str
    what: str


Rule = Callable[[SourceIndex], Iterator[Offence]]


def read_source(package: Path = PACKAGE) -> SourceIndex:
    files = sorted(package.rglob("*.py"))
    return SourceIndex(
        [
            SourceModule(file.relative_to(package).as_posix(), file.read_text(encoding="utf-8"))
            for file in files
        ]
    )


# -- 1: folders ------------------------------------------------------------------------------------

MODULES_MAX = 16


def folders_are_small(index: SourceIndex) -> Iterator[Offence]:
    counts = Counter(module.folder for module in index.modules if module.name != "__init__")
    for folder, count in counts.items():
        if count > MODULES_MAX:
            what = f"{count} modules; make sub-packages of its parts, {MODULES_MAX} is the limit"
            yield Offence(folder, folder, what)


def packages_have_prose(index: SourceIndex) -> Iterator[Offence]:
    for module in index.modules:
        prose = ast.get_docstring(module.tree) or ""
        if module.name == "__init__" and len(prose) < 80:
            what = "say in prose what the package is and the road through it"
            yield Offence(module.folder or "viewkeeper", module.path, what)


# -- 2: modules ------------------------------------------------------------------------------------

REPEATED = re.compile(
    r"source|snapshot|lookup|types|schema|log|doctor|state|follow|stream|capture"
    r"|settings|errors|rows|__init__"
)
"""Parts that several kinds of sources have, and packages their own of: they mean the same there."""
PARTICIPLE = re.compile(
    r"[a-z]{2,}(?<!ne)(?<!fe)(?<!se)(?<!spe)(?<!emb)(?<!sh)ed|told|kept|found|meant|brought|went|left"
    r"|sent|made|written|seen|known|held|gone|taken|given|begun|shown|drawn|lost|torn|built|bound"
    r"|done|said|sworn|spent|hidden|chosen|swept"
)
ADVERB = re.compile(r"apart|anew|beside|again|aside|ahead|away|back|beyond|together|afresh|stands")


def is_participle(word: str) -> bool:
    return PARTICIPLE.fullmatch(word) is not None


def modules_are_nouns(index: SourceIndex) -> Iterator[Offence]:
    for module in index.modules:
        words = module.name.split("_")
        if words[-1].endswith("ing") or (len(words) == 1 and is_participle(words[0])):
            what = "name the module by a noun, not by a gerund or participle"
            yield Offence(module.name, module.path, what)


def modules_have_one_name(index: SourceIndex) -> Iterator[Offence]:
    counts = Counter(module.name for module in index.modules)
    for module in index.modules:
        if counts[module.name] > 1 and not REPEATED.fullmatch(module.name):
            what = f"{counts[module.name]} modules are called so; each name is for one part"
            yield Offence(module.name, module.path, what)


# -- 3: functions ----------------------------------------------------------------------------------

BANNED = re.compile(r"told|tell|found|kept|meant|word|apart|brought|stands|beside|went|anew")
PREDICATES = ("is_", "has_", "can_", "needs_")
ACTION = re.compile(
    r"accept|add|admit|anchor|answer|begin|claim|create|drop|enable|end|forget|note|prove|read"
    r"|record|register|remove|require|run|wait|take|write|make|start|stop|close"
)
"""Verbs of functions that do something and say whether it happened."""


def has_poor_name(name: str) -> bool:
    return any(poor.fullmatch(name) for poor in (BANNED, ADVERB, PARTICIPLE))


def public_functions_are_verbs(index: SourceIndex) -> Iterator[Offence]:
    for found in index.functions:
        name = found.name
        if found.is_property or not found.is_public:
            continue
        if has_poor_name(name):
            what = f"{found.key}: name it by a verb phrase, or as noun_of"
            yield Offence(found.key, found.module.path, what)


def private_functions_are_no_participles(index: SourceIndex) -> Iterator[Offence]:
    for found in index.functions:
        name = found.name.lstrip("_")
        if found.is_property or found.is_public or "_" in name:
            continue
        if has_poor_name(name):
            what = f"{found.key}: name it by a verb phrase, or as noun_of"
            yield Offence(found.key, found.module.path, what)


def predicates_ask(index: SourceIndex) -> Iterator[Offence]:
    for found in index.functions:
        first = found.name.partition("_")[0]
        if not found.is_public or found.is_property or not found.returns_bool:
            continue
        if not found.name.startswith(PREDICATES) and not ACTION.fullmatch(first):
            what = f"{found.key}: begin a predicate with is_, has_ or can_"
            yield Offence(found.key, found.module.path, what)


# -- 4 and 5: classes ------------------------------------------------------------------------------

LINES_MAX, METHODS_MAX, ATTRIBUTES_MAX, ARGUMENTS_MAX = 300, 25, 12, 5


def classes_have_one_name(index: SourceIndex) -> Iterator[Offence]:
    by_name: dict[str, list[SourceClass]] = defaultdict(list)
    for found in index.classes:
        by_name[found.name].append(found)
    for name, classes in by_name.items():
        if len(classes) > 1:
            places = ", ".join(found.module.path for found in classes)
            yield Offence(name, places, f"{name}: {len(classes)} classes are called so")


def classes_are_composed(index: SourceIndex) -> Iterator[Offence]:
    for found in index.classes:
        for base in index.bases_of(found):
            if not base.is_abstract and not index.is_error(base):
                what = f"{found.name} inherits from {base.name}, which is concrete: have one"
                yield Offence(f"{found.name}({base.name})", found.module.path, what)


def classes_are_small(index: SourceIndex) -> Iterator[Offence]:
    for found in index.classes:
        line = index.ancestors_of(found)
        sizes = {
            "lines": (sum(each.lines for each in line), LINES_MAX),
            "methods": (len({m.name for each in line for m in each.methods}), METHODS_MAX),
            "attributes": (len({a for each in line for a in each.attributes}), ATTRIBUTES_MAX),
        }
        for what, (size, limit) in sizes.items():
            if size > limit and not (what == "attributes" and is_record(found)):
                text = f"{found.name} has {size} {what} with all it inherits; {limit} is the limit"
                yield Offence(f"{found.name} {what}", found.module.path, text)


def is_record(found: SourceClass) -> bool:
    """A frozen dataclass is a value: its fields are what it says, not what it juggles."""
    return any("frozen=True" in ast.unparse(d) for d in found.node.decorator_list)


def constructors_take_few(index: SourceIndex) -> Iterator[Offence]:
    for found in index.classes:
        for method in found.methods:
            given = method.args
            count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
            if method.name == "__init__" and count > ARGUMENTS_MAX and not index.is_error(found):
                what = f"{found.name} takes {count} arguments; {ARGUMENTS_MAX} is the limit"
                yield Offence(found.name, found.module.path, what)


# -- 6: attributes of others -----------------------------------------------------------------------


def nobody_writes_foreign_attributes(index: SourceIndex) -> Iterator[Offence]:
    ours = {name for found in index.classes for name in found.attributes}
    for module in index.modules:
        values = {a for found in module.classes if found.is_dataclass for a in found.attributes}
        for function in module.functions:
            made = _made_here(function.node, {found.name for found in module.classes})
            for node in ast.walk(function.node):
                if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
                    continue
                owner = ast.unparse(node.value)
                if owner in {"self", "cls"} | made or node.attr not in ours - values:
                    continue
                what = f"{function.key} writes {owner}.{node.attr}: let its owner do it"
                place = f"{module.path}:{node.lineno}"
                yield Offence(f"{function.key} {owner}.{node.attr}", place, what)


def _made_here(function: ast.AST, classes: set[str]) -> set[str]:
    """Variables that a function has just made of a class of its own module."""
    makers = classes | {"cls", "cls.__new__", "object.__new__"}
    makers |= {f"{name}.__new__" for name in classes}
    return {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) in makers
        for target in node.targets
        if isinstance(target, ast.Name)
    }


# -- 7: the engine ---------------------------------------------------------------------------------

KIND = re.compile(
    r"(?i)sqlite|postgres|mariadb|mysql|binlog|replica identity|pragma|FilesSource|DeltaLakeSource"
    r"|WarehouseSource|sources\.(files|delta_lake)|ALTER TABLE|CREATE (INDEX|PUBLICATION)"
)


def engine_names_no_kind(index: SourceIndex) -> Iterator[Offence]:
    for module in index.modules:
        if not module.path.startswith("engine/"):
            continue
        said = {(n.value, n.lineno) for n in module.texts if isinstance(n.value, str)}
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom):
                said |= {(f"{node.module}.{alias.name}", node.lineno) for alias in node.names}
            elif isinstance(node, ast.Name | ast.Attribute):
                said.add((node.id if isinstance(node, ast.Name) else node.attr, node.lineno))
        for text, line in sorted(said, key=lambda each: each[1]):
            if found := KIND.search(text):
                what = f"{found[0]}: the engine knows no kind of source; ask the source for it"
                yield Offence(f"{module.name} {found[0]}", f"{module.path}:{line}", what)


# -- 8: prose --------------------------------------------------------------------------------------


def reloads_have_one_hint(index: SourceIndex) -> Iterator[Offence]:
    for module in index.modules:
        if module.path == "errors.py" or module.path.startswith("cli/"):
            continue
        for text in module.texts:
            if re.search(r"--full-refresh|viewkeeper refresh |way out:", str(text.value)):
                what = "ask for a load by errors.reload_hint(views), and call it a hint"
                yield Offence(module.name, f"{module.path}:{text.lineno}", what)


TICKED = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")


def ticked_names_exist(index: SourceIndex) -> Iterator[Offence]:
    known = _known_words(index)
    for module in index.modules:
        for name, text in module.docstrings:
            for found in TICKED.finditer(str(text.value)):
                if not set(found[1].split(".")) <= known:
                    what = f"`{found[1]}` in the docstring of {name or 'the module'}: no such name"
                    yield Offence(found[1], f"{module.path}:{text.lineno}", what)


def _known_words(index: SourceIndex) -> set[str]:
    """Every word of the code: names, arguments, texts; folders and modules."""
    words = {*keyword.kwlist, *dir(builtins), "viewkeeper", "src", "tests", "py", "md"}
    for module in index.modules:
        words.update(re.split(r"[/.]", module.path))
        for node in module.nodes:
            for value in (getattr(node, part, None) for part in ("id", "attr", "arg", "name")):
                if isinstance(value, str):
                    words.update(value.split("."))
            if isinstance(node, ast.ImportFrom) and node.module:
                words.update(node.module.split("."))
        for text in module.texts:
            words.update(re.findall(r"\w+", str(text.value)))
    return words


NAMED_FILES = re.compile(r"\b(?:tests|docs|benchmarks|scripts|examples)/[\w/.-]*\w")


def named_files_exist(index: SourceIndex) -> Iterator[Offence]:
    for module in index.modules:
        for name, text in module.docstrings:
            for found in NAMED_FILES.finditer(str(text.value)):
                if not (ROOT / found[0]).exists():
                    what = f"{found[0]} in the docstring of {name or 'the module'}: no such file"
                    yield Offence(found[0], f"{module.path}:{text.lineno}", what)


DIALECT = re.compile(r"(?i)\b(told|goes|stands(?! for)|of now|anew|whoever)\b")


def first_lines_are_plain(index: SourceIndex) -> Iterator[Offence]:
    for module in index.modules:
        for name, text in module.docstrings:
            first = str(text.value).strip().partition("\n")[0]
            if found := DIALECT.search(first):
                what = f'"{found[0]}": a plain sentence, subject first, with the object named'
                yield Offence(
                    name or module.name, f"{module.path}:{text.lineno}", f"{what}: {first}"
                )


# -- 9: copies -------------------------------------------------------------------------------------

RUN_LINES = 10


def nothing_is_written_twice(index: SourceIndex) -> Iterator[Offence]:
    """No run of ten lines, without imports, docstrings, blank lines and lone brackets, twice."""
    places: dict[tuple[str, ...], tuple[str, int]] = {}
    for module in index.modules:
        lines = _code_lines(module)
        end = -1
        for start in range(len(lines) - RUN_LINES + 1):
            window = tuple(text for _, text in lines[start : start + RUN_LINES])
            first, line = places.setdefault(window, (module.path, lines[start][0]))
            is_other = (first, line) != (module.path, lines[start][0])
            if is_other and start > end:
                what = f"the same lines as {first}:{line}; write them once"
                names = sorted({Path(first).stem, module.name})
                yield Offence(" ".join(names), f"{module.path}:{lines[start][0]}", what)
            if is_other:
                end = start + RUN_LINES


def _code_lines(module: SourceModule) -> list[tuple[int, str]]:
    skipped: set[int] = set()
    for node in module.nodes:
        is_note = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (
            is_note or isinstance(node, ast.Import | ast.ImportFrom)
        ):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return [
        (number, line.strip())
        for number, line in enumerate(module.text.splitlines(), 1)
        if number not in skipped and re.search(r"\w", line)
    ]


RULES: tuple[Rule, ...] = (
    folders_are_small,
    packages_have_prose,
    modules_are_nouns,
    modules_have_one_name,
    public_functions_are_verbs,
    private_functions_are_no_participles,
    predicates_ask,
    classes_have_one_name,
    classes_are_composed,
    classes_are_small,
    constructors_take_few,
    nobody_writes_foreign_attributes,
    engine_names_no_kind,
    reloads_have_one_hint,
    ticked_names_exist,
    named_files_exist,
    first_lines_are_plain,
    nothing_is_written_twice,
)
