"""Single requests to object storage, by the library `obstore`.

The library repeats what failed (connection errors, timeouts, 429 and 5xx), a limited number of
times and within a limited time. What it then says is one of a few errors of ours: the object is not
there, is there already, is another one than was expected, or a `RequestTroubleError`, after which
nobody knows whether the request was carried out.

The services differ in little. The *tag*, by which an object is replaced if it is unchanged, is the
e-tag at S3 and Azure, and the generation at Google. Google and Azure refuse to delete what is not
there, and Azure gives the end of an object only to those who know its size.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from viewkeeper.errors import (
    ProjectError,
    RequestTroubleError,
    WarehouseError,
    suggest_nearest,
)
from viewkeeper.storage.objects.object_address import ObjectAddress

RETRIES_MAX = 8
RETRY_SECONDS_MAX = 20.0
REQUEST_SECONDS = "15s"
CONNECT_SECONDS = "5s"
CHUNK_BYTES = 16 << 20
"""Larger objects are sent in parts of this size."""

OPTIONS = {
    "s3": {
        "endpoint": "aws_endpoint",
        "region": "aws_region",
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
        "virtual_hosted_style": "aws_virtual_hosted_style_request",
    },
    "gs": {"service_account": "google_service_account", "endpoint": "google_base_url"},
    "az": {
        "account_name": "azure_storage_account_name",
        "account_key": "azure_storage_account_key",
        "sas_token": "azure_storage_sas_key",
        "endpoint": "azure_endpoint",
    },
}
"""Per scheme, the options of the project file, and what the library calls them."""

ALLOW_HTTP = "allow_http"

TAGS = {"s3": "e_tag", "gs": "version", "az": "e_tag"}
"""Per scheme, what the library calls that by which an object is replaced if it is unchanged."""

_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")
# A completion that was sent again, after its answer was lost, finds no parts.
_NO_UPLOAD = re.compile(r"NoSuchUpload")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ObjectExistsError(Exception):
    """An object was to be created, and there is one."""


class OtherObjectError(Exception):
    """An object was to be replaced, and it is another one than was expected."""


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """An object as the service describes it; `tag` changes with its content, and is empty in a list
    of objects."""

    key: str
    size: int
    tag: str
    changed_at: float


class ObjectRequests(Protocol):
    """What the service can be asked. Every call is one request, or one per part or page."""

    def get(self, key: str) -> tuple[bytes, ObjectFacts]:
        """An object and its facts; FileNotFoundError if it is not there."""

    def get_range(self, key: str, start: int, stop: int) -> bytes: ...

    def get_end(self, key: str, count: int) -> tuple[bytes, int]:
        """The last bytes of an object, and its size."""

    def head(self, key: str) -> ObjectFacts: ...

    def put(self, key: str, data: bytes | Path, expected: str | None, is_new: bool) -> str:
        """Put an object: if there is none (`is_new`), if its tag is `expected`, or in any case."""

    def list_all(self, prefix: str) -> Iterator[ObjectFacts]: ...

    def list_folder(self, prefix: str) -> tuple[list[str], list[ObjectFacts]]:
        """Folders and objects directly below a prefix."""

    def delete(self, keys: Sequence[str]) -> None: ...


def check_storage_options(scheme: str, options: object, where: str) -> tuple[tuple[str, str], ...]:
    """The part `storage` of the project file, as pairs of texts."""
    if scheme not in OPTIONS:
        raise ProjectError(
            f'{where}: "warehouse" has the scheme {scheme}:',
            hint=f"a folder, or one of {', '.join(f'{known}://' for known in OPTIONS)}",
        )
    if options is None:
        return ()
    known = (*OPTIONS[scheme], ALLOW_HTTP)
    if not isinstance(options, dict):
        raise ProjectError(
            f'{where}: "storage" must be a mapping', hint=f"keys: {', '.join(known)}"
        )
    for key, value in options.items():
        if key not in known:
            raise ProjectError(
                f'{where}: unknown key "storage.{key}"',
                hint=f"keys for {scheme}: {', '.join(known)}{suggest_nearest(str(key), known)}",
            )
        wanted = bool if key in (ALLOW_HTTP, "virtual_hosted_style") else str
        if not isinstance(value, wanted):
            kind = "true or false" if wanted is bool else "a text"
            raise ProjectError(f'{where}: "storage.{key}" must be {kind}')
    return tuple(
        (key, str(value).lower() if isinstance(value, bool) else value)
        for key, value in sorted(options.items())
    )


def library_options(address: ObjectAddress) -> dict[str, str]:
    """The options as the library, and `deltalake`, call them, with references resolved."""
    names = {**OPTIONS[address.scheme], ALLOW_HTTP: ALLOW_HTTP}
    return {
        names[key]: _REFERENCE.sub(lambda match: _read_environment(match[1]), value)
        for key, value in address.options
    }


def _read_environment(name: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise ProjectError(
            f'"storage" names the environment variable {name}, which is not set',
            hint=f"export {name}=... for this process, and for Spark's executors if there are some",
        )
    return found


class ObstoreRequests:
    """Requests by `obstore`."""

    def __init__(self, address: ObjectAddress) -> None:
        self._address = address
        self._tag = TAGS[address.scheme]
        self._has_ends = address.scheme != "az"
        try:
            import obstore
            from obstore import exceptions, store
        except ImportError as error:
            raise ProjectError(
                f'warehouse "{address.url}": the library obstore is missing',
                hint='pip install "viewkeeper[s3]"',
            ) from error
        self._library: Any = obstore
        self._errors: Any = exceptions
        options = library_options(address)
        is_http = options.pop(ALLOW_HTTP, "false") == "true"
        with self._translating_settings():
            # The keys are known by their names only, which are checked with the settings.
            config: Any = options
            self._store = store.from_url(
                address.url,
                config=config,
                client_options={
                    "allow_http": is_http,
                    "timeout": REQUEST_SECONDS,
                    "connect_timeout": CONNECT_SECONDS,
                },
                retry_config={
                    "max_retries": RETRIES_MAX,
                    "retry_timeout": timedelta(seconds=RETRY_SECONDS_MAX),
                },
            )

    def get(self, key: str) -> tuple[bytes, ObjectFacts]:
        with self._translating(key):
            found = self._library.get(self._store, key)
            return bytes(found.bytes()), self._facts_of(found.meta)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        with self._translating(key):
            return bytes(self._library.get_range(self._store, key, start=start, end=stop))

    def get_end(self, key: str, count: int) -> tuple[bytes, int]:
        if not self._has_ends:
            size = self.head(key).size
            start = max(0, size - count)
            return (self.get_range(key, start, size) if size else b""), size
        with self._translating(key):
            options = {"range": {"suffix": count}}
            found = self._library.get(self._store, key, options=options)
            return bytes(found.bytes()), int(found.meta["size"])

    def head(self, key: str) -> ObjectFacts:
        with self._translating(key):
            return self._facts_of(self._library.head(self._store, key))

    def put(self, key: str, data: bytes | Path, expected: str | None, is_new: bool) -> str:
        mode: Any = "create" if is_new else "overwrite"
        if expected is not None:
            mode = {self._tag: expected}
        large = isinstance(data, Path) and data.stat().st_size > CHUNK_BYTES
        with self._translating(key, is_put=True):
            answer = self._library.put(
                self._store, key, data, mode=mode, use_multipart=large, chunk_size=CHUNK_BYTES
            )
        return str(answer[self._tag])

    def list_all(self, prefix: str) -> Iterator[ObjectFacts]:
        with self._translating(prefix):
            for page in self._library.list(self._store, prefix or None):
                yield from map(_listed_facts, page)

    def list_folder(self, prefix: str) -> tuple[list[str], list[ObjectFacts]]:
        with self._translating(prefix):
            found = self._library.list_with_delimiter(self._store, prefix or None)
        folders = [str(name) for name in found["common_prefixes"]]
        return folders, [_listed_facts(each) for each in found["objects"]]

    def delete(self, keys: Sequence[str]) -> None:
        with self._translating(keys[0] if keys else ""):
            try:
                self._library.delete(self._store, [*keys])
            except FileNotFoundError as error:
                if _NO_BUCKET.search(str(error)):
                    raise
                # One was not there, and the library may not have come to all others.
                for key in keys:
                    with suppress(FileNotFoundError):
                        self._library.delete(self._store, key)

    def _facts_of(self, meta: Any) -> ObjectFacts:
        return replace(_listed_facts(meta), tag=str(meta[self._tag]))

    @contextmanager
    def _translating_settings(self) -> Iterator[None]:
        """Nothing is asked while the storage is opened: what fails is how that is described."""
        try:
            yield
        except self._errors.BaseError as error:
            raise ProjectError(
                f'warehouse "{self._address.url}": its storage cannot be opened',
                detail=_first_lines(error),
                hint="correct `storage:` in viewkeeper.yml, or the environment variables and files "
                "that it names",
            ) from error

    @contextmanager
    def _translating(self, key: str, *, is_put: bool = False) -> Iterator[None]:
        where = f"{self._address.url}/{key}" if key else self._address.url
        errors = self._errors
        try:
            yield
        except FileNotFoundError as error:
            if is_put and _NO_UPLOAD.search(str(error)):
                raise RequestTroubleError(
                    f'warehouse object "{where}": the storage has no parts of it any more',
                    detail=_first_lines(error),
                    hint="nothing is lost: run again",
                ) from error
            # Nothing is put into, or missing from, a bucket that is not there.
            if is_put or _NO_BUCKET.search(str(error)):
                raise self._bucket_error(error) from error
            raise FileNotFoundError(where) from error
        except errors.AlreadyExistsError as error:
            raise ObjectExistsError(where) from error
        except errors.PreconditionError as error:
            raise OtherObjectError(where) from error
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            raise WarehouseError(
                f'warehouse object "{where}": access is denied',
                detail=_first_lines(error),
                hint="check `storage:` in viewkeeper.yml and what its credentials may do: read, "
                "write, list and delete below this address",
            ) from error
        except (errors.NotSupportedError, errors.InvalidPathError) as error:
            raise WarehouseError(
                f'warehouse object "{where}": the storage cannot be asked for this',
                detail=_first_lines(error),
                hint="this is a mistake of Viewkeeper: please report it",
            ) from error
        except errors.BaseError as error:
            if _NO_BUCKET.search(str(error)):
                # What is listed is not missing: the library has no other name for it.
                raise self._bucket_error(error) from error
            raise RequestTroubleError(
                f'warehouse object "{where}": the storage gives no answer',
                detail=_first_lines(error),
                hint="nothing is lost: check the endpoint and the network, then run again",
            ) from error

    def _bucket_error(self, error: Exception) -> WarehouseError:
        return WarehouseError(
            f'warehouse "{self._address.url}": there is no such bucket',
            detail=_first_lines(error),
            hint="make the bucket first, or correct `warehouse:` in viewkeeper.yml",
        )


def _listed_facts(meta: Any) -> ObjectFacts:
    changed = meta["last_modified"].timestamp()
    return ObjectFacts(str(meta["path"]), int(meta["size"]), "", changed)


def _first_lines(error: BaseException) -> str:
    text = str(error).partition("\nDebug source")[0]
    return " ".join(text.split())[:500]
