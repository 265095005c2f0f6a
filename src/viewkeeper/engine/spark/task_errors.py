"""Our own errors, carried out of Spark tasks.

Spark keeps nothing of a task's exception but its text, and that text may quote the values of rows.
Whoever writes rows can thus write into it. So an error of ours travels as data, never as something
that is executed: a kind out of `KINDS` and its facts as JSON, behind a marker with a secret that
the driver draws for one job and that only the tasks of that job know. A text without the marker is
what it seems: an expression of the view failed on a row, which is an `ExpressionError`.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from viewkeeper import errors
from viewkeeper.errors import ExpressionError, ViewkeeperError

T = TypeVar("T")
Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

KINDS: Mapping[str, type[ViewkeeperError]] = {
    kind.__name__: kind
    for kind in (
        errors.ViewkeeperError,
        errors.NotCompiledError,
        errors.ProjectError,
        errors.DefinitionError,
        errors.UnsupportedError,
        errors.SourceError,
        errors.SourceAwayError,
        errors.SchemaError,
        errors.ConversionError,
        errors.GapError,
        errors.DamagedSourceError,
        errors.UnexpectedSourceError,
        errors.UnexpectedViewError,
        errors.NotLoadedError,
        errors.RunEndingError,
        errors.BarrierError,
        errors.BrokenQueryError,
        errors.ExpressionError,
        errors.StateError,
        errors.WarehouseError,
        errors.LockedError,
        errors.CorruptError,
        errors.RequestTroubleError,
        errors.HorizonError,
        errors.RegistryError,
        errors.RegistryAwayError,
        errors.OrderError,
        errors.IdentityError,
        errors.ClosedGroupError,
        errors.FencedError,
        errors.StaleReporterError,
        errors.TrimmedError,
        errors.AccessError,
        errors.HistoryError,
        errors.RefusedRequestError,
        errors.SparkUnavailableError,
        errors.JobLostError,
        errors.SimulationError,
        errors.ExpectationError,
    )
}
"""What a task may raise; a test compares it with every error that there is."""

DETAIL_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True)
class Courier:
    """Carries the errors of one job: sent with its tasks, it also unpacks them in the driver."""

    secret: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def wrap_stage(self, stage: Stage) -> Stage:
        """A stage of the job that packs our errors."""

        def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            try:
                yield from stage(batches)
            except ViewkeeperError as error:
                raise RuntimeError(self.pack_error(error)) from None

        return packed

    def run_job(self, job: Callable[[], T]) -> T:
        """Run the job; what a task raised of ours is raised here."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        from viewkeeper.warehouse.rows.spark_frames import blame_data_files

        try:
            with blame_data_files():
                return job()
        except (PySparkException, Py4JJavaError) as error:
            raise self.unpack_error(str(error)) from error

    def pack_error(self, error: ViewkeeperError) -> str:
        """The error as a text that survives wherever a task's error is quoted."""
        kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in KINDS)
        text = json.dumps({"kind": kind, "facts": vars(error)}, default=str)
        return f"viewkeeper-error:{self.secret}:{base64.b64encode(text.encode()).decode()}:"

    def unpack_error(self, text: str) -> ViewkeeperError:
        """The error of ours that a task packed, or else what Spark says about a row."""
        marked = re.search(rf"viewkeeper-error:{self.secret}:([A-Za-z0-9+/=]+):", text)
        found = _read_error(marked.group(1)) if marked else None
        if found is not None:
            return found
        return ExpressionError(
            "an expression of the view failed in Spark", detail=shorten_detail(text)
        )


def shorten_detail(text: str) -> str:
    """The first line of what Spark says, fit to be shown and logged: it may quote a row's values.

    >>> shorten_detail("The value '\\x1b[2J' is no number.\\nmore")
    "The value '\\\\x1b[2J' is no number."
    """
    line = text.strip().split("\n")[0]
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line[: DETAIL_LENGTH_MAX + 1])
    if len(shown) <= DETAIL_LENGTH_MAX:
        return shown
    return f"{shown[:DETAIL_LENGTH_MAX]}..."


def _read_error(packed: str) -> ViewkeeperError | None:
    """The error of a payload; None if it is damaged."""
    try:
        content = json.loads(base64.b64decode(packed, validate=True))
    except (ValueError, RecursionError):
        return None
    match content:
        case {"kind": str() as name, "facts": {"message": str() as message} as facts}:
            kind = KINDS.get(name)
        case _:
            return None
    texts = all(isinstance(facts.get(key), str | None) for key in ("detail", "hint"))
    if kind is None or not texts:
        return None
    error = kind.__new__(kind)
    error.args = (message,)
    vars(error).update({"detail": None, "hint": None}, **facts)
    return error
