"""What a source keeps in its own folder of the warehouse: small sealed files.

They say which database was followed and up to where, so one that is damaged must not be taken for
one that is not there: the source would begin anew over a gap. It is an error of that source, and
the views over other sources go on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from viewkeeper.errors import CorruptError, SourceError, reload_hint
from viewkeeper.storage.sealed_json import translate_decode_errors, unseal_or_plain

T = TypeVar("T")


def read_state_file(path: Path, kind: str, decode: Callable[[Any], T]) -> T | None:
    """What a file holds; None if there is none, a SourceError if it cannot be believed.

    Files that were written before they were sealed are read too.
    """
    mend = f"restore {path} from a backup; without one, remove it, then {reload_hint()}"
    try:
        with translate_decode_errors(path, kind, mend):
            return decode(unseal_or_plain(path, kind, mend))
    except FileNotFoundError:
        return None
    except (CorruptError, OSError) as error:
        raise SourceError(
            path.parent.name,
            f"what it keeps in {path} cannot be believed (its {kind})",
            detail=error.detail if isinstance(error, CorruptError) else str(error),
            hint=mend,
        ) from error
