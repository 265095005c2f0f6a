"""What can be asked of a service, and by whom.

Reading is open to whoever has the service's token. What changes something is done for a member, and
only with that member's secret: nobody joins, claims, reports or goes on in another one's name. What
concerns others - letting a member leave, taking ids back, forgetting a secret - is for the
administrator.

A reader that waits for new ids is woken by the register that brings them, or by the join that
closes its group.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from viewkeeper.errors import AccessError
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_protocol import Reporter
from viewkeeper.order.service import wire_format
from viewkeeper.order.service.wire_format import Arguments, MalformedError
from viewkeeper.order.store.stored_registry import StoredRegistry


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as far as it has shown that."""

    secret: str | None = None
    is_administrator: bool = False


class Calls:
    """The calls, each a method of its name, and who waits for news."""

    def __init__(self, store: StoredRegistry) -> None:
        self._store = store
        self._news = threading.Condition()
        self._count = 0
        self._grouping = store.grouping
        self._ends = False
        self._known: dict[str, Callable[[Arguments, Caller], object]] = {
            "join": self._join,
            "leave": self._leave,
            "members": self._members,
            "claim": self._claim,
            "release": self._release,
            "register": self._register,
            "order": self._order,
            "reached": self._reached,
            "status": self._status,
            "take_back": self._take_back,
            "forget_secret": self._forget_secret,
        }

    def answer(self, call: str, arguments: Arguments, caller: Caller) -> object:
        """What is answered, as JSON can have it."""
        if call not in self._known:
            raise MalformedError(f"there is no call {call[:40]!a}")
        identity = arguments.optional("identity")
        if identity is not None:
            self._store.check_identity(arguments.text("group"), identity)
        return self._known[call](arguments, caller)

    def end(self) -> None:
        """Let nobody wait any more."""
        with self._news:
            self._ends = True
            self._news.notify_all()

    # For everybody

    def _members(self, given: Arguments, _: Caller) -> object:
        return [asdict(member) for member in self._store.members(given.text("group"))]

    def _order(self, given: Arguments, _: Caller) -> object:
        end = time.monotonic() + given.seconds("wait", wire_format.WAIT_SECONDS_MAX)
        group, after = given.text("group"), given.integer("after")
        limit = min(given.integer("limit"), wire_format.IDS_MAX)
        while True:
            # Read before looking: what comes between a look and the wait ends the wait.
            seen = self._count
            found = self._store.order(group, after, limit)
            left = end - time.monotonic()
            if found or left <= 0 or self._ends:
                return wire_format.write_order(found)
            self._wait(seen, left)

    def _status(self, given: Arguments, _: Caller) -> object:
        return asdict(self._store.status())

    # For members

    def _join(self, given: Arguments, caller: Caller) -> object:
        member, remembered = given.text("member"), given.optional("remembered")
        if caller.secret is None:
            raise AccessError(
                self._store.name,
                f'"{member}" must join with a secret of its own, and none was sent',
                hint="its version of Viewkeeper is older than the service's: install the same one; "
                "a secret is then made by itself",
            )
        found = self._store.join(member, given.facts(), remembered, caller.secret)
        self._tell_grouping()
        return asdict(found)

    def _claim(self, given: Arguments, caller: Caller) -> object:
        seconds = given.seconds("seconds", wire_format.LEASE_SECONDS_MAX)
        names = (given.text("group"), given.text("source"), given.text("member"))
        self._store.check_secret(names[2], caller.secret)
        reporter = self._store.claim(*names, seconds)
        return None if reporter is None else wire_format.write_reporter(reporter)

    def _release(self, given: Arguments, caller: Caller) -> object:
        self._store.release(self._reporter(given, caller))
        return None

    def _register(self, given: Arguments, caller: Caller) -> object:
        reporter = self._reporter(given, caller)
        ids = [GlobalId(reporter.source, position) for position in given.integers("positions")]
        n = self._store.register(given.text("group"), ids, reporter)
        self._tell()
        return n

    def _reporter(self, given: Arguments, caller: Caller) -> Reporter:
        reporter = given.reporter()
        self._store.check_secret(reporter.member, caller.secret)
        return reporter

    def _reached(self, given: Arguments, caller: Caller) -> object:
        group, member, n = given.text("group"), given.text("member"), given.integer("n")
        self._store.check_secret(member, caller.secret)
        self._store.reached(group, member, n)
        return None

    def _leave(self, given: Arguments, caller: Caller) -> object:
        """A member may leave by itself; another one is sent away by the administrator."""
        member = given.text("member")
        if not caller.is_administrator:
            if caller.secret is None:
                self._check_administrator(caller)
            self._store.check_secret(member, caller.secret)
        self._store.leave(member)
        self._tell_grouping()
        return None

    # For the administrator

    def _take_back(self, given: Arguments, caller: Caller) -> object:
        self._check_administrator(caller)
        names = (given.text("group"), given.text("source"))
        return self._store.take_back(*names, given.integer("position"))

    def _forget_secret(self, given: Arguments, caller: Caller) -> object:
        self._check_administrator(caller)
        self._store.forget_secret(given.text("member"))
        return None

    def _check_administrator(self, caller: Caller) -> None:
        if not caller.is_administrator:
            raise AccessError(
                self._store.name,
                "this is for the administrator of the service",
                hint="name the variable that holds the administrator's token with --token-env; "
                "`viewkeeper registry serve` has its own with --admin-token-env",
            )

    # News

    def _tell_grouping(self) -> None:
        """Members join every few seconds, mostly with what they said before: no news."""
        now = self._store.grouping
        if now is not self._grouping:
            self._grouping = now
            self._tell()

    def _tell(self) -> None:
        """There may be new ids, or a group may have been closed."""
        with self._news:
            self._count += 1
            self._news.notify_all()

    def _wait(self, seen: int, seconds: float) -> None:
        """Until there is news after `seen` pieces of it, or the time is over."""
        with self._news:
            self._news.wait_for(lambda: self._count != seen or self._ends, seconds)
