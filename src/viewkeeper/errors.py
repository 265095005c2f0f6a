"""Every error that Viewkeeper raises on purpose.

The world's failures are typed errors; our own mistakes are assertions. An error has a primary line
that names the object with its kind (`source "shop": ...`), an optional detail, and a hint with the
exact way out. Facts that a program may want are attributes.

    ViewkeeperError
    ├── ProjectError            viewkeeper.yml or the project folder is wrong
    ├── DefinitionError         a view's SQL is wrong; knows the place in the text
    │   └── UnsupportedError    ... or asks for what cannot be maintained yet
    ├── SourceError             something about one source
    │   ├── SourceAwayError     it cannot be reached now; waiting may help
    │   ├── SchemaError         a table or column is missing or cannot be kept exactly
    │   ├── ConversionError     a stored value does not fit its column's type
    │   ├── GapError            the source no longer has changes that are still needed
    │   ├── BarrierError        a table was emptied; what lies before that cannot be read any more
    │   │   └── BrokenQueryError    ... because a schema change came between a question and it
    │   ├── DamagedSourceError  a file that is kept for it, or that it is read from, is damaged
    │   └── UnexpectedSourceError   its code, or a library's, failed as nobody foresaw
    ├── NotLoadedError          views were never loaded, and a refresh could not load them
    ├── NotCompiledError        only Spark can say what a view means, and it is not to be asked
    ├── RunEndingError          a request came too late for the run that it was made to
    ├── UnexpectedViewError     the maintenance of one view failed as nobody foresaw
    ├── ExpressionError         a row made an expression of a view fail
    ├── StateError              what is stored of a view contradicts the changes of its input
    ├── WarehouseError          something about the warehouse folder
    │   ├── LockedError         another process maintains it
    │   ├── CorruptError        a file in it cannot be believed
    │   └── HorizonError        a state was asked for that is no longer, or not yet, kept
    ├── RegistryError           something about the registry of a group of views
    │   ├── RegistryAwayError   it does not answer now; waiting may help
    │   ├── OrderError          an id was reported that does not fit the order
    │   ├── IdentityError       this is not the registry that a member remembers
    │   ├── ClosedGroupError    the order of a group has ended; its members join again
    │   ├── TrimmedError        an order is asked for from before where it is kept
    │   ├── AccessError         who asks may not do this: a secret or a token is missing or wrong
    │   └── FencedError         somebody else has taken over; who was before must stop
    │       └── StaleReporterError  ... the reports of one source
    ├── SimulationError         a simulated run did not end, or the text of one is wrong
    │   └── ExpectationError    a script expects what did not happen
    ├── HistoryError            a history to be checked is wrong; knows the place in it
    ├── RefusedRequestError     a client of an endpoint asks for what readers may not do
    ├── SparkUnavailableError   Spark or Java cannot be started
    └── JobLostError            a job on Spark was cancelled at its time limit, or lost
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec


class ViewkeeperError(Exception):
    """The root: a primary line, then detail, then a hint."""

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"  detail: {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        """Errors are part of what tasks, and the processes of a simulation, give back; PySpark and
        the pool pickle that. Nothing that quotes foreign text is ever unpickled by us.
        """
        return (_rebuild_error, (type(self), dict(self.__dict__), self.args))


def _rebuild_error(
    kind: type[ViewkeeperError], facts: dict[str, object], args: tuple[object, ...]
) -> ViewkeeperError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


def suggest_nearest(word: str, known: Iterable[str]) -> str:
    """A clause for a hint: the known word that is nearest to one that is not known, if any is.

    >>> suggest_nearest("shpo", ["shop", "crm"])
    '; did you mean "shop"?'
    """
    # A long word would take long to compare, and nobody means another one by it.
    close = get_close_matches(word[:100], list(known), n=1, cutoff=0.5)
    return f'; did you mean "{close[0]}"?' if close else ""


def suggest_names(name: str, known: Iterable[str]) -> str:
    """A hint: the known names that are nearest to one that is not known, or some of all.

    >>> suggest_names("ordres", ["orders", "item"]), suggest_names("x", ["orders", "item"])
    ('did you mean "orders"?', 'there are: "item", "orders"')
    """
    names = list(known)
    if close := get_close_matches(name, names, n=3, cutoff=0.5):
        return "did you mean " + " or ".join(f'"{match}"' for match in close) + "?"
    return "there are: " + (", ".join(f'"{match}"' for match in sorted(names)[:10]) or "none")


DOCTOR_HINT = "`viewkeeper doctor` prints the statements that grant what is missing"
"""The hint of an error about missing rights; what doctor itself finds says it without."""


def reload_hint(views: Iterable[str] = ()) -> str:
    """The hint that asks to load views again; without names, those of the object in the message.

    What is stored of a view is shown until its load is complete, and a running maintainer is asked
    to do it, so the hint names that command and not `run --full-refresh`.

    >>> reload_hint(["lines", "totals"])
    '`viewkeeper refresh lines totals` loads them again'
    >>> reload_hint()
    '`viewkeeper refresh VIEW` loads its views again'
    """
    names = tuple(views)
    what = "its views" if not names else "it" if len(names) == 1 else "them"
    return f"`viewkeeper refresh {' '.join(names or ('VIEW',))}` loads {what} again"


def require_libraries(what: str, extra: str, names: Iterable[str]) -> None:
    """A ProjectError unless these libraries of an extra are installed."""
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        raise ProjectError(
            f"{what} needs {', '.join(missing)}, which is not installed",
            hint=f'pip install "viewkeeper[{extra}]"',
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        # A package that it would be in is not there either.
        return False


class ProjectError(ViewkeeperError):
    """The project file or folder is wrong."""


class DefinitionError(ViewkeeperError):
    """A view's SQL is wrong, at a place that the user can look at."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        line: int | None = None,
        column: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        where = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{where}: {message}" if where else message, detail=detail, hint=hint)
        self.path = path
        self.line = line
        self.column = column


class UnsupportedError(DefinitionError):
    """Valid SQL that cannot be maintained; refused at definition, never maintained wrongly.

    `others` are refusals of other parts of the same text, as far as they were looked for.
    """

    others: tuple[UnsupportedError, ...] = ()

    def with_others(self, errors: Iterable[UnsupportedError]) -> UnsupportedError:
        """The same error, which knows of these at other places."""
        places = {(self.line, self.column)}
        for error in errors:
            if (error.line, error.column) not in places:
                places.add((error.line, error.column))
                self.others = (*self.others, error)
        return self


class SourceError(ViewkeeperError):
    """Something about one source."""

    def __init__(
        self, source: str, message: str, *, detail: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(f'source "{source}": {message}', detail=detail, hint=hint)
        self.source = source


class SourceAwayError(SourceError):
    """The source cannot be reached now; the views that need it wait, the others go on."""


class SchemaError(SourceError):
    """A table or column does not exist, or cannot be captured or kept exactly.

    `is_unreadable`: the table is there, and needs from its readers what we do not have.
    """

    def __init__(
        self,
        source: str,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        is_unreadable: bool = False,
    ) -> None:
        super().__init__(source, message, detail=detail, hint=hint)
        self.is_unreadable = is_unreadable


class ConversionError(SourceError):
    """A stored value does not fit the type that its column declares."""


class GapError(SourceError):
    """Changes that are still needed are gone from the source's log."""


class BarrierError(SourceError):
    """Rows that were there before a position are gone and were not listed.

    What must still ask that table becomes visible together with the transaction at that position.
    """

    def __init__(self, source: str, table: str, position: int) -> None:
        super().__init__(
            source,
            f'table "{table}" was emptied at position {position}',
            detail="what it held before that is not known any more",
            hint="nothing to do: the next batch includes that transaction",
        )
        self.table = table
        self.position = position


class BrokenQueryError(BarrierError):
    """A question met a table, or a column, that is gone, is another one, or was rewritten.

    Whoever asked gives up what it has of the batch; the next look reports the schema change.
    """

    def __init__(self, source: str, table: str, what: str) -> None:
        """`what` says in a few words what was found, like "column price is gone"."""
        SourceError.__init__(
            self,
            source,
            f'table "{table}" has changed its shape: {what}',
            hint="nothing to do: the next look reports the change, and the views follow it",
        )
        self.table = table
        self.what = what


class DamagedSourceError(SourceError):
    """A file that we keep for one source, or read it from, cannot be believed."""


class UnexpectedSourceError(SourceError):
    """The code of a source, or a library that it uses, failed in a way that nobody foresaw.

    The views that need the source stop, the others go on. `traceback` is kept in `trace_file` of
    the warehouse folder.
    """

    def __init__(self, source: str, cause: BaseException) -> None:
        self.trace_file = _trace_file("source", source)
        hint = _REPORT.format(self.trace_file)
        super().__init__(source, _unexpected_text(cause), detail=place_of(cause), hint=hint)
        self.traceback = _trace_text(cause)


class UnexpectedViewError(ViewkeeperError):
    """The maintenance of one view failed in a way that nobody foresaw; the others go on.

    `traceback` is kept in `trace_file` of the warehouse folder.
    """

    def __init__(self, view: str, cause: BaseException) -> None:
        self.trace_file = _trace_file("view", view)
        hint = _REPORT.format(self.trace_file)
        super().__init__(
            f'view "{view}": {_unexpected_text(cause)}', detail=place_of(cause), hint=hint
        )
        self.view = view
        self.traceback = _trace_text(cause)


class NotLoadedError(ViewkeeperError):
    """Views were never loaded, and a refresh could not load them; `reasons` has why, by view."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        names = ", ".join(f'"{name}"' for name in reasons)
        one = len(reasons) == 1
        told = [why if one else f'view "{name}": {why}' for name, why in reasons.items()]
        super().__init__(
            f"view{'' if one else 's'} {names}: could not be loaded",
            detail="\n".join(told).replace("\n", "\n    "),
            hint="mend that, then refresh again; refresh(strict=False) returns the report instead",
        )
        self.reasons = dict(reasons)


class NotCompiledError(ViewkeeperError):
    """Spark has not said yet what a view means, and no Spark is to be started for it."""

    def __init__(self, view: str) -> None:
        super().__init__(
            f'view "{view}": not compiled yet', hint=f"`viewkeeper explain {view}` asks Spark"
        )
        self.view = view


class RunEndingError(ViewkeeperError):
    """A request came too late for the session that it was made to."""

    def __init__(self) -> None:
        super().__init__("the run is ending", hint="nothing was changed: ask again afterwards")


_REPORT = (
    "this is a mistake in Viewkeeper or in a library: report it, with the file {} of the warehouse "
    "folder; `viewkeeper run` tries again"
)
_TRACE_CHARACTERS = 20_000


PASSING = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Nobody's errors: an interrupt by the user, and the end of the interpreter or a generator."""


@contextmanager
def blame_view(view: str) -> Iterator[None]:
    """Inside, every exception is an error of ours; one that nobody foresaw is of this view."""
    try:
        yield
    except (ViewkeeperError, *PASSING):
        raise
    except BaseException as error:
        # Not only Exception: a panic of a library in Rust derives from BaseException.
        raise UnexpectedViewError(view, error) from error


def _trace_file(kind: str, name: str) -> str:
    return f"tracebacks/{kind}-{re.sub(r'[^A-Za-z0-9_]+', '-', name)[:60]}.txt"


def _unexpected_text(cause: BaseException) -> str:
    # It may quote what a stranger wrote, so nothing in it may act on a terminal.
    plain = "".join(c if c.isprintable() else " " for c in str(cause)[:3000])
    text = " ".join(plain.split())[:300]
    return f"unexpected {type(cause).__name__}" + (f": {text}" if text else "")


def place_of(cause: BaseException) -> str | None:
    """The function and the line that raised an error, if that is known."""
    frames = traceback.extract_tb(cause.__traceback__)
    if not frames:
        return None
    last = frames[-1]
    return f"in {last.name}, {'/'.join(last.filename.split('/')[-3:])}:{last.lineno}"


def _trace_text(cause: BaseException) -> str:
    return "".join(traceback.format_exception(cause))[-_TRACE_CHARACTERS:]


class ExpressionError(ViewkeeperError):
    """An expression of a view failed on a row; that view stops, the others go on."""


class StateError(ViewkeeperError):
    """What a view remembers and the changes of its input contradict each other; the view stops."""


class WarehouseError(ViewkeeperError):
    """Something about the warehouse folder."""


class LockedError(WarehouseError):
    """Another process holds the warehouse.

    `seen` is what the lock was, if its holder renews it: one that stays the same for the length of
    a lease can be taken over.
    """

    seen: object = None

    def seen_as(self, seen: object) -> LockedError:
        """The same error, which knows what the lock was."""
        self.seen = seen
        return self


class CorruptError(WarehouseError):
    """A file of the warehouse cannot be believed."""


class RequestTroubleError(WarehouseError):
    """A request had no answer, or one that says nothing: it may have been carried out or not."""


class HorizonError(WarehouseError):
    """A state outside the kept window was asked for."""


class RegistryError(ViewkeeperError):
    """Something about one registry; `registry` is where it is, without secrets."""

    def __init__(
        self, registry: str, what: str, *, detail: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(f'registry "{registry}": {what}', detail=detail, hint=hint)
        self.registry = registry
        self.what = what


class RegistryAwayError(RegistryError):
    """The registry does not answer now; what it ordered already can still be applied."""


class OrderError(RegistryError):
    """An id was reported that does not fit the order; nothing of the report was accepted."""


class IdentityError(RegistryError):
    """The registry is not the one that a member remembers, or an older copy of it."""


class ClosedGroupError(RegistryError):
    """The order of this group has ended; who has taken all of it joins again."""


class TrimmedError(RegistryError):
    """All members had passed this part of an order, and it is not kept any more."""


class AccessError(RegistryError):
    """The caller is not known to be who it says, or may not do this; nothing was changed."""


class FencedError(RegistryError):
    """Another process has taken over; the one that gets this has changed nothing and must stop."""


class StaleReporterError(FencedError):
    """Another claim on the source was granted since this reporter made its own."""


class HistoryError(ViewkeeperError):
    """A history to be checked is wrong, at a place that the user can look at."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        place: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        where = "".join(f"{part}: " for part in (path, place) if part)
        super().__init__(f"{where}{message}", detail=detail, hint=hint)
        self.path = path
        self.place = place


class RefusedRequestError(ViewkeeperError):
    """A client asks an endpoint that is read only for something else."""


class SparkUnavailableError(ViewkeeperError):
    """Spark or Java cannot be started."""


class JobLostError(ViewkeeperError):
    """A job on Spark took too long and was cancelled, or its executors were lost; what needs it is
    tried again."""


class SimulationError(ViewkeeperError):
    """A simulated run did not end, or the text of one cannot be read."""


class ExpectationError(SimulationError):
    """What a script expects at some line did not happen."""
