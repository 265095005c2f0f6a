"""The house style that no linter knows, as tests.

Each check takes a file and returns complaints: the line, what is wrong and what to do. Each is run
over the project and, further down, over a planted file that it must complain about.

The rules of the house (`tests.house.rules`) look at the whole source instead; what offends them for
now is listed in `tests/house/exceptions.txt`, which only shrinks.
"""

from __future__ import annotations

import ast
import importlib
import io
import re
import subprocess
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from tests.house import rules as house
from tests.house.exceptions import FILE, read_exceptions
from tests.house.source_index import SourceIndex, SourceModule, nodes_of, parse_text

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class File:
    """A text file of the project, by its path below `root`."""

    root: Path
    name: str

    @cached_property
    def text(self) -> str:
        return (self.root / self.name).read_text(encoding="utf-8")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def tree(self) -> ast.Module:
        return parse_text(self.text)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        return nodes_of(self.text)

    @cached_property
    def comments(self) -> dict[int, str]:
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


Complaints = Iterator[tuple[int, str]]
Check = Callable[[File], Complaints]


def project_files() -> list[File]:
    """What git tracks or would track, if it is text."""
    # A checkout may belong to another user than the one who tests it.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [File(ROOT, name) for name in sorted(set(listed.split("\0"))) if name]
    return [file for file in files if (ROOT / file.name).is_file() and is_text(file)]


def is_text(file: File) -> bool:
    return b"\0" not in (file.root / file.name).read_bytes()[:8192]


def has_prose(file: File) -> Complaints:
    prose = ast.get_docstring(file.tree) or ""
    wanted = file.tree.body and not file.name.endswith("__init__.py")
    if wanted and (len(prose) < 80 or len(prose.splitlines()) < 2):
        yield 1, "open the module with prose: what it is, the idea, what must hold"


def has_short_functions(file: File) -> Complaints:
    for node in file.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > 50:
                yield node.lineno, f"{node.name} has {length} lines; split it, 50 is the limit"


def is_short(file: File) -> Complaints:
    if len(file.lines) > 600:
        yield 600, f"{len(file.lines)} lines; cut it by concept, 600 is the limit"


def has_telling_name(file: File) -> Complaints:
    if re.search(r"(^|/)_?(utils?|helpers?|common|misc)(\.py|/)", file.name):
        yield 1, "name the module after what it holds"


def has_no_loose_ends(file: File) -> Complaints:
    for number, line in enumerate(file.lines, 1):
        if found := re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield number, f"do it, or say why not; no {found[0]} stays"


def has_no_print(file: File) -> Complaints:
    if file.name.startswith(("src/viewkeeper/cli/", "src/viewkeeper/demo/")):
        return
    for node in file.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        ):
            yield node.lineno, "return the text, or show it in cli"


def explains_broad_excepts(file: File) -> Complaints:
    for node in file.nodes:
        if not isinstance(node, ast.ExceptHandler) or not is_broad(node.type):
            continue
        reraises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
        near = [file.comments.get(line, "") for line in (node.lineno - 1, node.lineno)]
        near.append(file.comments.get(node.lineno + 1, ""))
        if not reraises and not any(is_reason(re.sub(r"noqa(: ?\w+)?", "", text)) for text in near):
            yield node.lineno, "catch what is expected, raise again, or say in a comment why not"


def is_broad(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(
        each is None or (isinstance(each, ast.Name) and each.id in {"Exception", "BaseException"})
        for each in kinds
    )


def is_reason(text: str) -> bool:
    return len(text.strip(" #:-,")) >= 10


def explains_ignored_types(file: File) -> Complaints:
    if not re.search(r"type:\s*ignore", file.text):
        return
    for number, comment in file.comments.items():
        found = re.search(r"type:\s*ignore(\[[^\]]*\])?(.*)", comment)
        if found and not is_reason(found[2]):
            yield number, "say after it why the type checker is wrong"


def only_reexports(file: File) -> Complaints:
    """A package's face: docstring, imports, and names such as __all__ or __version__."""
    if not file.name.endswith("/__init__.py"):
        return
    for node in file.tree.body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.FunctionDef(name="__getattr__" | "__dir__"):
                # Together they are re-exports that are imported when first used.
                continue
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name.startswith("__"):
                    continue
        yield node.lineno, "move it into a module; __init__.py only re-exports"


# Put together from pieces, so that this file is not what it looks for.
HOSTS = "pypi/org pythonhosted/org npmjs/org npmjs/com debian/org maven/org anaconda/org crates/io"
REGISTRY = re.compile(
    "|".join(re.escape(host.replace("/", ".")) for host in HOSTS.split())
    + r"|https?://\S+/simple\b|//[\w.-]*(artifactory|nexus)[\w.-]*/"
)
MACHINE = re.compile(r"(?<![\w.~$}*-])/(work|root|home|Users)/")


def names_no_machine(file: File) -> Complaints:
    for number, line in enumerate(file.lines, 1):
        if found := REGISTRY.search(line):
            yield number, f"{found[0]}: leave package registries to each machine's settings"
        if found := MACHINE.search(line):
            yield number, f"{found[0]}: use a path relative to the project"


def has_live_links(file: File) -> Complaints:
    prose = re.sub(r"```.*?```|`[^`\n]*`", blank, file.text, flags=re.DOTALL)
    for link in re.finditer(r"\]\(\s*<?([^)\s>]+)", prose):
        target = link[1].partition("#")[0]
        if re.match(r"[a-z]+:", target) or not target:
            continue
        if not (file.root / file.name).parent.joinpath(target).exists():
            yield prose.count("\n", 0, link.start()) + 1, f"{target} does not exist"


def blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def is_brief(file: File) -> Complaints:
    if file.name == "README.md" and len(file.lines) >= 200:
        yield 200, "keep the README under 200 lines; move the rest to docs"


def is_source(file: File) -> bool:
    return file.name.startswith("src/") and is_python(file)


def is_python(file: File) -> bool:
    return file.name.endswith(".py")


def is_markdown(file: File) -> bool:
    return file.name.endswith(".md")


def is_any(file: File) -> bool:
    return True


CHECKS: dict[Check, Callable[[File], bool]] = {
    has_prose: is_source,
    has_telling_name: is_python,
    is_short: is_python,
    has_short_functions: is_python,
    has_no_loose_ends: is_source,
    has_no_print: is_source,
    explains_broad_excepts: is_source,
    explains_ignored_types: is_python,
    only_reexports: is_source,
    names_no_machine: is_any,
    has_live_links: is_markdown,
    is_brief: is_markdown,
}


@pytest.fixture(scope="module")
def files() -> list[File]:
    return project_files()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_project_is_tidy(check: Check, files: list[File]) -> None:
    complaints = [
        f"{file.name}:{line}: {what}"
        for file in files
        if CHECKS[check](file)
        for line, what in check(file)
    ]
    assert not complaints, "\n".join(["", *complaints])


def test_the_project_has_no_lock_file_that_names_hosts(files: list[File]) -> None:
    locks = {"uv.lock", "poetry.lock", "Pipfile.lock", "package-lock.json"}
    assert not [file.name for file in files if Path(file.name).name in locks]


def test_all_public_names_are_importable_and_documented() -> None:
    package = importlib.import_module("viewkeeper")
    public: list[str] = getattr(package, "__all__", [])
    assert public == sorted(set(public))
    for name in public:
        assert hasattr(package, name), f"__all__ has {name}, which viewkeeper does not"
        assert name == "__version__" or getattr(package, name).__doc__, f"{name}: no docstring"


def test_all_imported_names_are_public() -> None:
    face = File(ROOT, "src/viewkeeper/__init__.py")
    lazy = [node for top in face.tree.body if isinstance(top, ast.If) for node in top.body]
    imports = [node for node in lazy if isinstance(node, ast.ImportFrom)]
    assert imports
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    public = set(getattr(importlib.import_module("viewkeeper"), "__all__", []))
    assert names - {"annotations"} <= public


LONG = "def f():\n" + "    x = 1\n" * 50
SWALLOW = "try:\n    f()\nexcept Exception:{}\n    pass\n"
PLANTED: list[tuple[Check, str, str]] = [
    (has_prose, "src/viewkeeper/a.py", "x = 1\n"),
    (has_prose, "src/viewkeeper/a.py", '"""Short."""\n'),
    (has_telling_name, "src/viewkeeper/utils.py", ""),
    (has_telling_name, "src/viewkeeper/helpers/row.py", ""),
    (is_short, "src/viewkeeper/a.py", "x = 1\n" * 601),
    (has_short_functions, "src/viewkeeper/a.py", LONG),
    (has_no_loose_ends, "src/viewkeeper/a.py", "x = 1  # TODO later\n"),
    (has_no_print, "src/viewkeeper/a.py", "print(1)\n"),
    (explains_broad_excepts, "src/viewkeeper/a.py", SWALLOW.format("")),
    (explains_broad_excepts, "src/viewkeeper/a.py", SWALLOW.format("  # noqa: BLE001")),
    (explains_broad_excepts, "src/viewkeeper/a.py", "try:\n    f()\nexcept:\n    pass\n"),
    (explains_ignored_types, "src/viewkeeper/a.py", "x = f()  # type: ignore\n"),
    (explains_ignored_types, "src/viewkeeper/a.py", "x = f()  # type: ignore[call-arg]\n"),
    (only_reexports, "src/viewkeeper/__init__.py", "def f(): ...\n"),
    (only_reexports, "src/viewkeeper/__init__.py", "limit = 1\n"),
    (names_no_machine, "a.lock", "# from https://mirror.local/{}\n".format("simple")),
    (names_no_machine, "a.txt", "see " + "pypi/org".replace("/", ".") + "\n"),
    (names_no_machine, "a.txt", "cd /{}/ada/viewkeeper\n".format("home")),
    (has_live_links, "docs/a.md", "see [b](b.md#part)\n"),
    (has_live_links, "docs/a.md", "see [b](../src/b.py)\n"),
    (is_brief, "README.md", "line\n" * 200),
]
FINE: list[tuple[Check, str, str]] = [
    (has_prose, "src/viewkeeper/a.py", '"""' + "What it is.\n" * 8 + '"""\n'),
    (has_prose, "src/viewkeeper/__init__.py", "from viewkeeper.a import x\n"),
    (has_short_functions, "src/viewkeeper/a.py", LONG[: -len("    x = 1\n")]),
    (has_no_print, "src/viewkeeper/cli/a.py", "print(1)\n"),
    (explains_broad_excepts, "src/viewkeeper/a.py", SWALLOW.format("  # it ends with us anyway")),
    (
        explains_broad_excepts,
        "src/viewkeeper/a.py",
        "try:\n    f()\nexcept Exception:\n    raise\n",
    ),
    (explains_ignored_types, "src/viewkeeper/a.py", "f()  # type: ignore[x]  # stubs are wrong\n"),
    (only_reexports, "src/viewkeeper/__init__.py", '"""A."""\nimport a\n__all__ = ["a"]\n'),
    (names_no_machine, "a.md", "https://example.test/a/home/b and ./work/x\n"),
    (has_live_links, "a.md", "[a](a.md), [b](#b), [c](https://c.test), `[d](d.md)`\n"),
]


def complaints_about(folder: Path, check: Check, name: str, text: str) -> list[tuple[int, str]]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return list(check(File(folder, name)))


@pytest.mark.parametrize(("check", "name", "text"), PLANTED)
def test_the_checks_see(tmp_path: Path, check: Check, name: str, text: str) -> None:
    assert complaints_about(tmp_path, check, name, text)


@pytest.mark.parametrize(("check", "name", "text"), FINE)
def test_the_checks_allow(tmp_path: Path, check: Check, name: str, text: str) -> None:
    assert complaints_about(tmp_path, check, name, text) == []


def test_every_check_is_seen_to_fail() -> None:
    assert {check for check, _, _ in PLANTED} == set(CHECKS)


@pytest.fixture(scope="module")
def source() -> SourceIndex:
    return house.read_source()


EXCEPTIONS = read_exceptions(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("rule", house.RULES, ids=lambda rule: rule.__name__)
def test_the_house_is_kept(rule: house.Rule, source: SourceIndex) -> None:
    allowed = set(EXCEPTIONS.get(rule.__name__, {}))
    offences = list(rule(source))
    new = [f"{each.place}: {each.what}" for each in offences if each.key not in allowed]
    assert not new, "\n".join(["", *new])
    needless = sorted(allowed - {each.key for each in offences})
    advice = "not needed any more; `python -m tests.house.exceptions` removes them:"
    assert not needless, "\n".join(["", advice, *needless])


def test_exceptions_are_of_rules() -> None:
    assert set(EXCEPTIONS) <= {rule.__name__ for rule in house.RULES}


CONCRETE = "class A:\n    def f(self): ...\n\nclass B(A): ...\n"
LARGE = "class A:\n" + "".join(f"    def read_{n}(self): ...\n" for n in range(26))
ATTRIBUTES = "class A:\n    def __init__(self):\n" + "".join(
    f"        self.a{n} = {n}\n" for n in range(13)
)
WRITES = "class A:\n    def __init__(self): self.x = 1\n\ndef move_it(a): a.x = 2\n"
CONSTRUCTOR = "class A:\n    def __init__(self, a, b, c, d, e, f): ...\n"
COPIED = "".join(f"call_{n}(value)\n" for n in range(10))
HINT = 'hint = "viewkeeper run --full-refresh VIEW"\n'
REFRESH_HINT = 'hint = f"`viewkeeper refresh {name}` helps"\n'
OFFENCES: list[tuple[house.Rule, dict[str, str]]] = [
    (house.folders_are_small, {f"a/m{n}.py": "" for n in range(17)}),
    (house.packages_have_prose, {"a/__init__.py": '"""Short."""'}),
    (house.modules_are_nouns, {"a/asking.py": ""}),
    (house.modules_are_nouns, {"a/typed.py": ""}),
    (house.modules_have_one_name, {"a/order.py": "", "b/order.py": ""}),
    (house.public_functions_are_verbs, {"a.py": "def told(): ...\n"}),
    (house.public_functions_are_verbs, {"a.py": "class A:\n    def packed(self): ...\n"}),
    (house.private_functions_are_no_participles, {"a.py": "def _brought(): ...\n"}),
    (house.predicates_ask, {"a.py": "def empty(x) -> bool: ...\n"}),
    (house.classes_have_one_name, {"a.py": "class A: ...\n", "b.py": "class A: ...\n"}),
    (house.classes_have_one_name, {"a.py": "class _A: ...\n", "b.py": "class _A: ...\n"}),
    (house.classes_are_composed, {"a.py": CONCRETE}),
    (house.classes_are_small, {"a.py": LARGE}),
    (house.classes_are_small, {"a.py": ATTRIBUTES}),
    (house.classes_are_small, {"a.py": "class A:\n" + "    x = 1\n" * 300}),
    (
        house.constructors_take_few,
        {"a.py": "class A:\n    def __init__(s, a, b, c, d, e, f): ...\n"},
    ),
    (house.nobody_writes_foreign_attributes, {"a.py": WRITES}),
    (house.engine_names_no_kind, {"engine/a.py": "isinstance(x, WarehouseSource)\n"}),
    (house.engine_names_no_kind, {"engine/a.py": 'hint = "PRAGMA journal_mode"\n'}),
    (house.reloads_have_one_hint, {"a.py": HINT}),
    (house.reloads_have_one_hint, {"a.py": REFRESH_HINT}),
    (house.ticked_names_exist, {"a.py": '"""See `nowhere_to_be_found`."""\n'}),
    (house.named_files_exist, {"a.py": '"""See tests/nowhere/to_be_found.py."""\n'}),
    (house.first_lines_are_plain, {"a.py": '"""Whoever is told."""\n'}),
    (house.nothing_is_written_twice, {"a.py": COPIED, "b.py": COPIED}),
]
HARMLESS: list[tuple[house.Rule, dict[str, str]]] = [
    (house.modules_have_one_name, {"a/source.py": "", "b/source.py": ""}),
    (house.public_functions_are_verbs, {"a.py": "def read_needed(): ...\ndef feed(): ...\n"}),
    (house.predicates_ask, {"a.py": "def is_empty(x) -> bool: ...\n"}),
    (house.classes_have_one_name, {"a.py": "class _A: ...\n", "b.py": "class _B: ...\n"}),
    (house.classes_are_composed, {"a.py": CONCRETE.replace("class A:", "class A(Protocol):")}),
    (house.nobody_writes_foreign_attributes, {"a.py": "@dataclass\n" + WRITES}),
    (house.engine_names_no_kind, {"sources/a.py": 'hint = "PRAGMA journal_mode"\n'}),
    (house.reloads_have_one_hint, {"errors.py": HINT}),
    (house.ticked_names_exist, {"a.py": '"""See `f` and `a.f`."""\ndef f(): ...\n'}),
    (house.named_files_exist, {"a.py": '"""See tests/house/rules.py."""\n'}),
    (house.nothing_is_written_twice, {"a.py": COPIED, "b.py": COPIED[15:]}),
]


def planted(files: dict[str, str]) -> SourceIndex:
    return SourceIndex([SourceModule(path, text) for path, text in files.items()])


@pytest.mark.parametrize(("rule", "files"), OFFENCES)
def test_the_rules_see(rule: house.Rule, files: dict[str, str]) -> None:
    assert list(rule(planted(files)))


@pytest.mark.parametrize(("rule", "files"), HARMLESS)
def test_the_rules_allow(rule: house.Rule, files: dict[str, str]) -> None:
    assert list(rule(planted(files))) == []


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, _ in OFFENCES} == set(house.RULES)
