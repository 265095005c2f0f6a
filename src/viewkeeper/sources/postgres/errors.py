"""The errors of what cannot be maintained over, and their hints.

A trouble belongs to a table and a position. Whoever reads that table past that position gets it;
a view that is loaded again begins after it.
"""

from __future__ import annotations

from viewkeeper.errors import GapError, SourceAwayError, SourceError, reload_hint
from viewkeeper.sources.postgres.types import quote_name


def unlogged_change_error(source: str, table: str) -> GapError:
    return GapError(
        source,
        f'table "{table}": a change could not be logged',
        detail="the trigger that would have logged it failed",
        hint=f"{reload_hint()}; `viewkeeper doctor` says whether the capture is whole",
    )


def no_old_row_error(source: str, table: str) -> GapError:
    quoted = ".".join(quote_name(part) for part in table.split(".", 1))
    return GapError(
        source,
        f'table "{table}": a row was changed whose old values were not logged',
        detail="its replica identity, or that of a partition, is no longer FULL",
        hint=f"ALTER TABLE {quoted} REPLICA IDENTITY FULL (and its partitions), "
        f"then {reload_hint()}",
    )


def partly_emptied_error(source: str, table: str) -> GapError:
    return GapError(
        source,
        f'table "{table}": one of its partitions was truncated',
        detail="the rows that went were not logged",
        hint=f"{reload_hint()}; DELETE instead of TRUNCATE is followed",
    )


def partition_gone_error(source: str, table: str) -> GapError:
    return GapError(
        source,
        f'table "{table}": a partition was dropped or detached',
        detail="the rows that went were not logged",
        hint=f"{reload_hint()}; DELETE before dropping a partition is followed",
    )


def gap_error(source: str, cause: str) -> GapError:
    return GapError(
        source,
        cause,
        detail="what was committed in between cannot be known any more",
        hint=reload_hint(),
    )


def retention_error(source: str, kept: str, allowed: str) -> SourceError:
    return GapError(
        source,
        f"its slot kept {kept} of the log and was dropped",
        detail=f"the option retention allows {allowed}",
        hint=f"{reload_hint()}; find out why nothing was acknowledged, or allow more",
    )


def unreadable_stream_error(source: str, what: str) -> SourceAwayError:
    return SourceAwayError(
        source,
        "what it sends cannot be read",
        detail=what,
        hint="nothing is taken of it, and it is read again; if this stays, look whether the url"
        " names the PostgreSQL server itself, and what lies between",
    )


def hold_lost_error(source: str) -> SourceAwayError:
    return SourceAwayError(
        source,
        "what was held of its log is gone",
        detail="the connection that held it has ended, and the maintainer has acknowledged since",
        hint="run it again",
    )


def format_size(size: int) -> str:
    """
    >>> format_size(3 << 29)
    '1.5 GB'
    """
    for unit, power in (("GB", 30), ("MB", 20), ("kB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.1f} {unit}"
    return f"{size} bytes"
