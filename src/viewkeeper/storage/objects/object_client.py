"""Operations on objects whose outcome is known.

A request whose answer was lost may have been carried out. So nothing is concluded from a failure:
the object is read, and what is there decides. This is why whatever is created under a name that
others could use too has something of its writer in it (`object_journal`, `object_lease`): equal
bytes are ours.

The library repeats requests by itself, and the second of two equal conditional puts is refused
because of the first. So a refusal is looked into in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from viewkeeper.errors import RequestTroubleError
from viewkeeper.storage.objects.object_requests import (
    ObjectExistsError,
    ObjectFacts,
    ObjectRequests,
    OtherObjectError,
)

ATTEMPTS = 4
"""So often a request without an answer is sent, each time with the library's own repetitions."""

DELETED_AT_ONCE = 1000

T = TypeVar("T")


class ObjectClient:
    """Reads, creates, replaces and removes the objects of one warehouse."""

    def __init__(self, requests: Callable[[], ObjectRequests]) -> None:
        self._open_requests = requests
        self._opened: ObjectRequests | None = None

    @property
    def _requests(self) -> ObjectRequests:
        """Opened when first used: settings are read by those who never ask for an object, too."""
        if self._opened is None:
            self._opened = self._open_requests()
        return self._opened

    def read(self, key: str) -> bytes:
        """The content of an object; FileNotFoundError if it is not there."""
        return self.read_tagged(key)[0]

    def read_tagged(self, key: str) -> tuple[bytes, str]:
        """The content of an object, and its tag."""
        data, facts = _insist(lambda: self._requests.get(key))
        return data, facts.tag

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return _insist(lambda: self._requests.get_range(key, start, stop))

    def read_end(self, key: str, count: int) -> tuple[bytes, int]:
        """The last bytes of an object, `count` at most, and its size."""
        return _insist(lambda: self._requests.get_end(key, count))

    def find_facts(self, key: str) -> ObjectFacts | None:
        """What is known of an object; None if it is not there."""
        try:
            return _insist(lambda: self._requests.head(key))
        except FileNotFoundError:
            return None

    def find_tag(self, key: str) -> str | None:
        """The tag of an object; None if it is not there."""
        facts = self.find_facts(key)
        return None if facts is None else facts.tag

    def create(self, key: str, data: bytes) -> str:
        """Create an object that must not be there; its tag. FileExistsError if another one is."""
        for left in reversed(range(ATTEMPTS)):
            try:
                return self._requests.put(key, data, None, True)
            except (ObjectExistsError, OtherObjectError, RequestTroubleError) as error:
                found = self._read_if_there(key)
                if found is not None and found[0] == data:
                    return found[1]
                if found is not None:
                    raise FileExistsError(key) from error
                if not left and isinstance(error, RequestTroubleError):
                    raise
        raise FileExistsError(key)

    def replace(self, key: str, data: bytes, expected: str) -> str | None:
        """Replace an object with a tag; the new tag, None if another writer was faster."""
        for left in reversed(range(ATTEMPTS)):
            try:
                return self._requests.put(key, data, expected, False)
            except (ObjectExistsError, OtherObjectError, RequestTroubleError) as error:
                found = self._read_if_there(key)
                if found is not None and found[0] == data:
                    return found[1]
                if found is None or found[1] != expected:
                    return None
                if not left and isinstance(error, RequestTroubleError):
                    raise
        return None

    def put(self, key: str, data: bytes | Path) -> str:
        """Put an object under a name that nobody else uses; its tag."""
        return _insist(lambda: self._requests.put(key, data, None, False))

    def list_keys(self, prefix: str) -> list[str]:
        """All keys that begin so."""
        return [facts.key for facts in self.list_facts(prefix)]

    def list_facts(self, prefix: str) -> list[ObjectFacts]:
        """All objects whose keys begin so."""
        return _insist(lambda: [*self._requests.list_all(prefix)])

    def list_folder(self, prefix: str) -> list[str]:
        """The keys of objects and folders directly below a prefix."""
        folders, objects = _insist(lambda: self._requests.list_folder(prefix))
        return [*folders, *(facts.key for facts in objects)]

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects, those that are there."""
        for start in range(0, len(keys), DELETED_AT_ONCE):
            _insist(partial(self._requests.delete, keys[start : start + DELETED_AT_ONCE]))

    def _read_if_there(self, key: str) -> tuple[bytes, str] | None:
        try:
            return self.read_tagged(key)
        except FileNotFoundError:
            return None


def _insist(request: Callable[[], T]) -> T:
    """Send a request that can be carried out more than once, until there is an answer."""
    for _ in range(ATTEMPTS - 1):
        try:
            return request()
        except RequestTroubleError:
            # The last attempt says what is wrong.
            continue
    return request()
