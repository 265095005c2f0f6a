"""Why views are not up to date, as the last maintainer has noted it.

The record of a view says why it has stopped. That it could not be loaded, that it waits for a
source, or that it is being loaded again is known to the maintainer alone; it is kept for people in
one small file beside the tables, which `status` and readers of a view that is not there show. The
file is not durable and nothing depends on it: where it is missing or torn, nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from viewkeeper.errors import WarehouseError
from viewkeeper.storage import sealed_json, typed_json
from viewkeeper.storage.storage_path import StoragePath

FILE = "waiting.json"
KIND = "file of waiting views"
_WAY_OUT = "nothing to do: the next run writes it again"


@dataclass(frozen=True, slots=True)
class WaitingReasons:
    """Per view that is not up to date, why; `failed` are those whose load has gone wrong."""

    views: Mapping[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()


def read_waiting(root: StoragePath) -> WaitingReasons:
    """What is known of the views that are not up to date."""
    try:
        body = sealed_json.unseal_file(root / FILE, KIND, _WAY_OUT)
        return typed_json.read_typed(WaitingReasons, body)
    except (OSError, ValueError, LookupError, TypeError, WarehouseError):
        # Whatever is wrong with it, the next run writes it again.
        return WaitingReasons()


def write_waiting(root: StoragePath, found: WaitingReasons) -> None:
    """Replace what is known of the views that are not up to date."""
    body = asdict(found)
    sealed_json.write_sealed(root / FILE, KIND, body, durable=False, whole=False)
