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
from viewkeeper.order.registry_protocol import MemberFacts, Reporter
from viewkeeper.order.service import wire_format
from viewkeeper.order.service.wire_format import CallArguments, MalformedMessageError
from viewkeeper.order.store.stored_registry import StoredRegistry


@dataclass(frozen=True, slots=True)
class ServiceCaller:
    """Who asks, as far as it has shown that."""

    secret: str | None = None
    is_administrator: bool = False


class ServiceCalls:
    """The calls, each a method of its name, and who waits for news."""

    def __init__(self, store: StoredRegistry) -> None:
        self._store = store
        self._news = threading.Condition()
        self._count = 0
        self._grouping = store.groups.grouping
        self._ends = False
        self._known: dict[str, Callable[[CallArguments, ServiceCaller], object]] = {
            "join": self._answer_join,
            "leave": self._answer_leave,
            "members": self._answer_members,
            "claim": self._answer_claim,
            "release": self._answer_release,
            "register": self._answer_register,
            "order": self._answer_order,
            "reached": self._answer_reached,
            "status": self._answer_status,
            "take_back": self._answer_take_back,
            "forget_secret": self._answer_forget_secret,
        }

    def answer_call(self, call: str, arguments: CallArguments, caller: ServiceCaller) -> object:
        """What is answered, as JSON can have it."""
        if call not in self._known:
            raise MalformedMessageError(f"there is no call {call[:40]!a}")
        identity = arguments.optional_text("identity")
        if identity is not None:
            self._store.groups.check_identity(arguments.require_text("group"), identity)
        return self._known[call](arguments, caller)

    def end_waits(self) -> None:
        """Let nobody wait any more."""
        with self._news:
            self._ends = True
            self._news.notify_all()

    # For everybody

    def _answer_members(self, given: CallArguments, _: ServiceCaller) -> object:
        return [asdict(member) for member in self._store.fetch_members(given.require_text("group"))]

    def _answer_order(self, given: CallArguments, _: ServiceCaller) -> object:
        end = time.monotonic() + given.require_seconds("wait", wire_format.WAIT_SECONDS_MAX)
        group, after = given.require_text("group"), given.require_integer("after")
        limit = min(given.require_integer("limit"), wire_format.IDS_MAX)
        while True:
            # Read before looking: what comes between a look and the wait ends the wait.
            seen = self._count
            found = self._store.fetch_order(group, after, limit)
            left = end - time.monotonic()
            if found or left <= 0 or self._ends:
                return wire_format.write_order(found)
            self._wait_for_news(seen, left)

    def _answer_status(self, given: CallArguments, _: ServiceCaller) -> object:
        return asdict(self._store.fetch_status())

    # For members

    def _answer_join(self, given: CallArguments, caller: ServiceCaller) -> object:
        member, remembered = given.require_text("member"), given.optional_text("remembered")
        if caller.secret is None:
            raise AccessError(
                self._store.name,
                f'"{member}" must join with a secret of its own, and none was sent',
                hint="its version of Viewkeeper is older than the service's: install the same one; "
                "a secret is then made by itself",
            )
        found = self._store.join_registry(
            member, given.require_record("facts", MemberFacts), remembered, caller.secret
        )
        self._announce_grouping()
        return asdict(found)

    def _answer_claim(self, given: CallArguments, caller: ServiceCaller) -> object:
        seconds = given.require_seconds("seconds", wire_format.LEASE_SECONDS_MAX)
        group, source, member = map(given.require_text, ("group", "source", "member"))
        self._store.groups.check_secret(member, caller.secret)
        reporter = self._store.claim_source(group, source, member, seconds)
        return None if reporter is None else asdict(reporter)

    def _answer_release(self, given: CallArguments, caller: ServiceCaller) -> object:
        self._store.release_claim(self._verified_reporter(given, caller))
        return None

    def _answer_register(self, given: CallArguments, caller: ServiceCaller) -> object:
        reporter = self._verified_reporter(given, caller)
        ids = [
            GlobalId(reporter.source, position) for position in given.require_integers("positions")
        ]
        n = self._store.register_ids(given.require_text("group"), ids, reporter)
        self._announce_news()
        return n

    def _verified_reporter(self, given: CallArguments, caller: ServiceCaller) -> Reporter:
        reporter = given.require_record("reporter", Reporter)
        self._store.groups.check_secret(reporter.member, caller.secret)
        return reporter

    def _answer_reached(self, given: CallArguments, caller: ServiceCaller) -> object:
        group, member = map(given.require_text, ("group", "member"))
        n = given.require_integer("n")
        self._store.groups.check_secret(member, caller.secret)
        self._store.note_reached(group, member, n)
        return None

    def _answer_leave(self, given: CallArguments, caller: ServiceCaller) -> object:
        """A member may leave by itself; another one is sent away by the administrator."""
        member = given.require_text("member")
        if not caller.is_administrator:
            if caller.secret is None:
                self._check_administrator(caller)
            self._store.groups.check_secret(member, caller.secret)
        self._store.leave_registry(member)
        self._announce_grouping()
        return None

    # For the administrator

    def _answer_take_back(self, given: CallArguments, caller: ServiceCaller) -> object:
        self._check_administrator(caller)
        names = (given.require_text("group"), given.require_text("source"))
        return self._store.take_back(*names, given.require_integer("position"))

    def _answer_forget_secret(self, given: CallArguments, caller: ServiceCaller) -> object:
        self._check_administrator(caller)
        self._store.forget_secret(given.require_text("member"))
        return None

    def _check_administrator(self, caller: ServiceCaller) -> None:
        if not caller.is_administrator:
            raise AccessError(
                self._store.name,
                "this is for the administrator of the service",
                hint="name the variable that holds the administrator's token with --token-env; "
                "`viewkeeper registry serve` has its own with --admin-token-env",
            )

    # News

    def _announce_grouping(self) -> None:
        """Members join every few seconds, mostly with what they said before: no news."""
        now = self._store.groups.grouping
        if now is not self._grouping:
            self._grouping = now
            self._announce_news()

    def _announce_news(self) -> None:
        """There may be new ids, or a group may have been closed."""
        with self._news:
            self._count += 1
            self._news.notify_all()

    def _wait_for_news(self, seen: int, seconds: float) -> None:
        """Until there is news after `seen` pieces of it, or the time is over."""
        with self._news:
            self._news.wait_for(lambda: self._count != seen or self._ends, seconds)
