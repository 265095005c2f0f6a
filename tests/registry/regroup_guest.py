"""A process that joins and leaves until its input ends: what others take their orders under.

    python -m tests.registry.regroup_guest URL MEMBER PARENT PARENT

It reads the views of both parents, which puts all three into one group, then of one, then it
leaves. `turn N` is printed after each of these. It rests in between: a fast machine would change
groups more often than the registry remembers them.
"""

from __future__ import annotations

import sys
import threading

from tests.registry.order_places import SECRET
from viewkeeper.order.registry_address import open_registry
from viewkeeper.order.registry_protocol import MemberFacts

REST_SECONDS = 0.01


def main(url: str, member: str, one: str, other: str) -> None:
    ends = threading.Event()
    threading.Thread(target=listen, args=(ends,), daemon=True).start()
    registry = open_registry(url, secret=SECRET)
    turn = 0
    print("ready", flush=True)
    while not ends.is_set():
        match turn % 3:
            case 0:
                registry.join_registry(member, MemberFacts({}, parents=(one, other)))
            case 1:
                registry.join_registry(member, MemberFacts({}, parents=(one,)))
            case _:
                registry.leave_registry(member)
        turn += 1
        print(f"turn {turn}", flush=True)
        ends.wait(REST_SECONDS)
    registry.close()


def listen(ends: threading.Event) -> None:
    sys.stdin.read()
    ends.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
