"""What the last batch of each view asked, how fresh its last batches were, and how many rows stand
behind its largest key.

These are figures for people, kept beside the tables in one small file that `status` reads. It is
not durable and nothing depends on it: where it is missing or torn, nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from viewkeeper.errors import WarehouseError
from viewkeeper.storage import sealed_json, typed_json
from viewkeeper.storage.storage_path import StoragePath

FILE = "activity.json"
KIND = "file of activity"
_WAY_OUT = "nothing to do: the next batch writes it again"


@dataclass(frozen=True, slots=True)
class ViewActivity:
    """A view in its last batch.

    `asked_rows` are the rows that the sources gave for its lookups. `largest_keys` has, for every
    fold of the view, the most rows that one of its groups has, or has had since the fold's index
    was made. `freshness` are the median, the 95th and the 99th percentile of the seconds from the
    commit at a source to the commit here, over the last batches. `apart` is why the view advances
    apart from the others, if it does.
    """

    asked_rows: int = 0
    largest_keys: Mapping[str, int] = field(default_factory=dict)
    freshness: tuple[float, ...] = ()
    apart: str = ""


def read_activity(root: StoragePath) -> Mapping[str, ViewActivity]:
    """What is known of the last batches, by view."""
    try:
        body = sealed_json.unseal_file(root / FILE, KIND, _WAY_OUT)
        return typed_json.read_typed(dict[str, ViewActivity], body["views"])
    except (OSError, ValueError, LookupError, TypeError, WarehouseError):
        # Whatever is wrong with it, the next batch writes it again.
        return {}


def write_activity(root: StoragePath, views: Mapping[str, ViewActivity]) -> None:
    """Replace what is known of the last batches."""
    body = {"views": {name: asdict(view) for name, view in views.items()}}
    sealed_json.write_sealed(root / FILE, KIND, body, durable=False, whole=False)
