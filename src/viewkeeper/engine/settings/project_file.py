"""The project file: `viewkeeper.yml`, read into frozen settings with a default for everything.

A minimal file names the warehouse and the sources. Unknown keys are errors that suggest the nearest
known key; paths are relative to the file. Durations are written `500ms`, `1s`, `5m`, `2h`, `7d`;
sizes `64mb`, `2gb`.

All projects that name one registry (`registry:`) are one environment, and the registry puts them
into groups: two projects whose views must agree are in one, whether or not they know of each other.
Nothing about groups is configured, except that projects with the same label `together` are in one
in any case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from viewkeeper.engine.settings.algorithm_settings import (
    DEFAULT,
    AlgorithmSettings,
    read_algorithm,
    read_level,
)
from viewkeeper.engine.settings.evolution_settings import EvolutionSettings, read_evolution
from viewkeeper.engine.settings.hook_settings import HookSettings, read_hooks
from viewkeeper.engine.settings.view_words import (
    GapPolicy,
    RefreshMode,
    ViewWords,
    read_gaps,
    read_refresh,
)
from viewkeeper.errors import ProjectError, suggest_nearest
from viewkeeper.sources.kinds import check_settings, clock_settings
from viewkeeper.sources.settings import SourceSettings, read_yaml, shorten_value
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import local_folder, open_address
from viewkeeper.storage.warehouse_address import require_folder
from viewkeeper.view.definition import CLOCK

_KEYS = ("url", "member", "token", "together", "ca")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where the registry is, and how this project is called among its members.

    `token` is what a service asks for; `${NAME}` in it and in the url is an environment variable.
    `ca` is a file with the certificates that sign for an `https://` service, where the machine does
    not know them.
    """

    url: str
    member: str
    token: str | None = None
    together: str = ""
    ca: str | None = None


def read_registry(raw: object, folder: Path, where: str) -> RegistrySettings | None:
    """The part `registry` of the project file; `registry: URL` is its short form."""
    if raw is None:
        return None
    facts: Mapping[str, Any] = {"url": raw} if isinstance(raw, str) else _check_mapping(raw, where)
    for key, value in facts.items():
        if key not in _KEYS:
            raise ProjectError(
                f'{where}: unknown key "registry.{key}"',
                hint=f"keys: {', '.join(_KEYS)}{suggest_nearest(str(key), _KEYS)}",
            )
        if not isinstance(value, str) or not value:
            raise ProjectError(f'{where}: "registry.{key}" must be a text')
    if "url" not in facts:
        raise ProjectError(
            f'{where}: "registry.url" is missing', hint="for example registry: ../registry.db"
        )
    member = facts.get("member", folder.resolve().name)
    rest = (facts.get("token"), facts.get("together", ""), facts.get("ca"))
    return RegistrySettings(facts["url"], member, *rest)


def _check_mapping(raw: object, where: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise ProjectError(
            f'{where}: "registry" must be an address, or a mapping with `url`',
            hint="for example registry: ../registry.db",
        )
    return raw


FILE_NAME = "viewkeeper.yml"
VIEW_KEYS = ("evolution", "on_gap", "refresh")
"""What is said of a view beside its algorithm."""

_NUMBER_MAX = 2**53
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How batches are cut and where they run."""

    rows: int = 500_000
    """A batch starts at the latest when this many changes wait."""
    inline_rows: int = 20_000
    """Up to this many changes a batch runs in the driver, above it as one Spark job."""
    part_rows: int = 100_000
    """Origin rows that one task sweeps at a time."""
    page_rows: int = 100_000
    """Rows of an answer that are worked on at a time; of larger answers the rest is in a file."""
    wait_rows: int = 20_000_000
    """Changes of a source that a waiting view may hold back in its log before it is stale."""
    memory: int = 256 << 20
    """Bytes of changes held in memory before the update queue spills to files."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How the local session is made, when none is given."""

    master: str = "local[*,3]"
    memory: str = "2g"
    start: Literal["fast", "plain"] = "fast"
    """Whether the JVM of a local session is tuned to start quickly rather than to run for long."""
    job_minutes: float = 60.0
    """A Spark job that takes longer is cancelled and its batch tried again."""
    config: Mapping[str, str] = field(default_factory=dict)


OWN_FIELDS = ("folder", "file_name", "named_views")
"""What `Settings` has that is no key of the file."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that `viewkeeper.yml` says."""

    folder: Path
    warehouse: StoragePath
    """Its folder, or its address in object storage."""
    sources: Mapping[str, SourceSettings]
    """Those of the file, and the clock."""
    freshness: float = 0.0
    """The age in seconds that a committed change may reach before a view shows it; 0: none."""
    history: float = 3600.0
    """For how many seconds changes are kept, so that `verify --every-state` can look back."""
    retention: float = 7 * 86400.0
    """For how many seconds past states can be read; compaction folds what is older."""
    publish: float | None = None
    """Every how many seconds plain tables are published; None: only by command."""
    batch: BatchSettings = BatchSettings()
    spark: SparkSettings = SparkSettings()
    algorithm: AlgorithmSettings = field(default_factory=AlgorithmSettings)
    """What maintains the views that `views` does not name."""
    views: Mapping[str, AlgorithmSettings] = field(default_factory=dict)
    evolution: EvolutionSettings = field(default_factory=EvolutionSettings)
    """How views meet schema changes."""
    refresh: ViewWords[RefreshMode] = field(default_factory=lambda: ViewWords("incremental"))
    """Which views are maintained from changes, and which are computed again."""
    on_gap: ViewWords[GapPolicy] = field(default_factory=lambda: ViewWords("stop"))
    """What becomes of views whose sources have lost what they still need."""
    on_event: tuple[HookSettings, ...] = ()
    """Who is called when something wants attention."""
    local: Path | None = None
    """Where files of this machine belong that can be lost; None: in the warehouse's own folder."""
    storage: Mapping[str, str] = field(default_factory=dict)
    """How object storage is reached, with references to secrets as they are in the file."""
    access: Literal["owner", "group"] = "owner"
    """Who may read the files of the warehouse: its owner alone, or its group too."""
    lanes: Literal["auto", "never"] = "auto"
    """Whether expensive views may advance apart from the others."""
    registry: RegistrySettings | None = None
    """What orders the transactions that this project shares with others; None: nothing does."""
    file_name: str = FILE_NAME
    """What the project file is called."""
    named_views: tuple[str, ...] = ()
    """The views that the part `views` has entries for."""

    @property
    def project_file(self) -> Path:
        """The file that these settings were read from."""
        return self.folder / self.file_name

    def check_named_views(self, known: Collection[str]) -> None:
        """Refuse an entry of `views` for a view that the project does not have."""
        for name in self.named_views:
            if name not in known:
                raise ProjectError(
                    f'{self.project_file}: "views" names "{name}", and there is no such view',
                    hint=f"views of this project: {', '.join(sorted(known))}"
                    f"{suggest_nearest(name, known)}",
                )

    def algorithm_of(self, view: str) -> AlgorithmSettings:
        return self.views.get(view, self.algorithm)

    def with_algorithm(self, algorithm: str | None, level: str | None) -> Settings:
        """The same with another algorithm for every view, or another level to be content with."""
        if algorithm is not None:
            facts = {} if level is None else {"level": level}
            return replace(
                self, algorithm=read_algorithm(algorithm, facts, "--algorithm"), views={}
            )
        if level is None:
            return self
        accepted = read_level(level, "--level")
        return replace(
            self,
            algorithm=replace(self.algorithm, level=accepted),
            views={name: replace(chosen, level=accepted) for name, chosen in self.views.items()},
        )


def read_settings(path: Path) -> Settings:
    """The settings of a project: a folder with a `viewkeeper.yml`, or that file itself."""
    require_folder(path, "project")
    file = path / FILE_NAME if path.is_dir() else path
    if not file.is_file():
        raise ProjectError(
            f"no project here: {file} does not exist",
            hint="`viewkeeper init FOLDER` makes a sample project that runs as it is",
        )
    return _parse_settings(file.resolve(), _read_mapping(read_yaml(file), str(file)))


def _parse_settings(file: Path, raw: dict[str, Any]) -> Settings:
    known = (*(f.name for f in fields(Settings) if f.name not in OWN_FIELDS), "substitutes")
    _check_keys(raw, known, str(file))
    for required in ("warehouse", "sources"):
        if required not in raw:
            raise ProjectError(
                f'{file}: "{required}" is missing',
                hint="a minimal file has `warehouse: ./warehouse` and `sources: {crm: {kind: "
                "sqlite, path: crm.db}}`",
            )
    where = str(file)
    times = {
        key: read_duration(raw[key], f'{where}: "{key}"')
        for key in ("freshness", "history", "retention")
        if key in raw
    }
    publish = raw.get("publish")
    views = _read_views(_read_mapping(raw.get("views") or {}, f'{where}: "views"'), where)
    address = _check_type(raw["warehouse"], str, f'{where}: "warehouse"')
    options = raw.get("storage")
    local = raw.get("local") and _check_type(raw["local"], str, f'{where}: "local"')
    warehouse = open_address(address, file.parent, options, local, where)
    return Settings(
        folder=file.parent,
        file_name=file.name,
        warehouse=warehouse,
        local=file.parent / local if local else None,
        storage={key: str(value) for key, value in (options or {}).items()},
        sources=_read_sources(
            file, _read_mapping(raw["sources"], f'{where}: "sources"'), warehouse
        ),
        publish=None if publish in (None, False) else read_duration(publish, f'{where}: "publish"'),
        batch=_read_batch(_read_mapping(raw.get("batch") or {}, f'{where}: "batch"'), where),
        spark=_read_spark(_read_mapping(raw.get("spark") or {}, f'{where}: "spark"'), where),
        algorithm=read_algorithm(raw.get("algorithm", DEFAULT), {}, where),
        views=_read_algorithms(views, where),
        named_views=tuple(views),
        evolution=read_evolution(raw, views, where),
        on_gap=read_gaps(raw, views, where),
        refresh=read_refresh(raw, views, where),
        registry=read_registry(raw.get("registry"), file.parent, where),
        on_event=read_hooks(raw.get("on_event"), where, read_duration),
        access=_read_access(raw.get("access", "owner"), where),
        lanes=_read_lanes(raw.get("lanes", "auto"), where),
        **times,
    )


def _read_lanes(given: object, where: str) -> Literal["auto", "never"]:
    if given in ("auto", "never"):
        return "auto" if given == "auto" else "never"
    raise ProjectError(
        f'{where}: "lanes" is {given!r}',
        hint="lanes: auto lets expensive views advance apart from the others; lanes: never keeps "
        "all views of the project at one ts",
    )


def _read_access(given: object, where: str) -> Literal["owner", "group"]:
    if given == "owner" or given == "group":
        return "group" if given == "group" else "owner"
    raise ProjectError(
        f'{where}: "access" is {given!r}',
        hint="access: owner keeps the warehouse's files to its owner; access: group lets its group "
        "read them",
    )


def _read_sources(
    file: Path, raw: dict[str, Any], warehouse: StoragePath
) -> dict[str, SourceSettings]:
    sources, homes = {}, local_folder(warehouse).absolute() / "sources"
    for name, entry in raw.items():
        options = _read_mapping(entry, f'{file}: source "{name}"')
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ProjectError(
                f'{file}: source name "{name}" must be a plain word',
                hint="put a word that YAML reads differently in quotes",
            )
        if "kind" not in options:
            raise ProjectError(f'{file}: source "{name}" needs a kind', hint="kind: sqlite")
        kind = str(options.pop("kind"))
        home = str(homes / name)
        kept = kept_place_of(warehouse, name)
        sources[name] = SourceSettings(name, kind, options, str(file.parent), home, kept)
        check_settings(sources[name])
    if not sources:
        raise ProjectError(f'{file}: "sources" is empty', hint="name at least one source")
    home = str(homes / CLOCK)
    sources.setdefault(CLOCK, clock_settings(str(file.parent), home))
    return sources


def kept_place_of(warehouse: StoragePath, source: str) -> StoragePath | None:
    """Where a source's memory is in object storage; None if it is in the source's folder."""
    return None if isinstance(warehouse, Path) else warehouse / "sources" / source


def _read_batch(raw: dict[str, Any], where: str) -> BatchSettings:
    _check_keys(raw, tuple(f.name for f in fields(BatchSettings)), f'{where}: "batch"')
    values = {
        k: _check_type(v, int, f'{where}: "batch.{k}"') for k, v in raw.items() if k != "memory"
    }
    for key, value in values.items():
        if value < (0 if key == "inline_rows" else 1):
            raise ProjectError(f'{where}: "batch.{key}" is too small: {value}')
    if "memory" in raw:
        values["memory"] = _read_size(raw["memory"], f'{where}: "batch.memory"')
    return BatchSettings(**values)


def _read_spark(raw: dict[str, Any], where: str) -> SparkSettings:
    _check_keys(raw, tuple(f.name for f in fields(SparkSettings)), f'{where}: "spark"')
    values: dict[str, Any] = {
        k: _check_type(raw[k], str, f'{where}: "spark.{k}"')
        for k in ("master", "memory")
        if k in raw
    }
    if "job_minutes" in raw:
        values["job_minutes"] = float(_check_type(raw["job_minutes"], int, f"{where}: job_minutes"))
    if "start" in raw:
        if raw["start"] not in ("fast", "plain"):
            raise ProjectError(f'{where}: "spark.start" must be plain or fast')
        values["start"] = raw["start"]
    config = _read_mapping(raw.get("config") or {}, f'{where}: "spark.config"')
    return SparkSettings(**values, config={str(k): str(v) for k, v in config.items()})


def _read_views(raw: dict[str, Any], where: str) -> dict[str, dict[str, Any]]:
    for name in raw:
        _check_type(name, str, f"{where}: the name of a view")
    return {name: _read_mapping(entry, f'{where}: view "{name}"') for name, entry in raw.items()}


def _read_algorithms(
    views: Mapping[str, dict[str, Any]], where: str
) -> dict[str, AlgorithmSettings]:
    found = {}
    for name, entry in views.items():
        place = f'{where}: view "{name}"'
        facts = {key: value for key, value in entry.items() if key not in VIEW_KEYS}
        if facts and "algorithm" not in facts:
            raise ProjectError(f"{place} names no algorithm", hint="algorithm: sweep")
        if facts:
            found[name] = read_algorithm(facts["algorithm"], facts, place)
    return found


def _check_keys(raw: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in raw:
        if key not in known:
            raise ProjectError(
                f'{where}: unknown key "{key}"',
                hint=f"known keys: {', '.join(known)}{suggest_nearest(str(key), known)}",
            )


def _read_mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProjectError(f"{where} must be a mapping", hint="write `key: value` lines below it")
    return dict(value)


def _check_type(value: Any, kind: type[Any], where: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        word = {str: "a text", int: "a whole number"}[kind]
        raise ProjectError(f"{where} must be {word}, not {shorten_value(value)}")
    if kind is int and value > _NUMBER_MAX:
        raise ProjectError(f"{where} is too large")
    return value


def read_duration(value: object, where: str) -> float:
    return _read_measure(value, _SECONDS, where, "a duration like 500ms, 1s, 5m, 2h or 7d")


def _read_size(value: object, where: str) -> int:
    return int(_read_measure(value, _BYTES, where, "a size like 64mb or 2gb"))


def _read_measure(value: object, units: Mapping[str, float], where: str, what: str) -> float:
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]+)?)\s*([a-z]+)", str(value).strip().lower())
    if value == 0 and not isinstance(value, bool):
        return 0.0
    if not match or match.group(2) not in units:
        raise ProjectError(f"{where} must be {what}, not {shorten_value(value)}")
    return float(match.group(1)) * units[match.group(2)]
