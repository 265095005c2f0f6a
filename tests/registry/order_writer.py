"""A process that reports a source until its input ends, and says what was acknowledged.

    python -m tests.registry.order_writer URL SOURCE

Its group is the one that it is in when it starts, and must stay open. It goes on after the last
registered position, in pieces of one to four ids, and sends every second piece again, as a reporter
does that got no answer. `ack N POSITION` is printed after the answer.
"""

from __future__ import annotations

import sys
import threading

from tests.registry.order_places import SECRET, reading
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_address import open_registry


def main(url: str, source: str) -> None:
    ends = threading.Event()
    threading.Thread(target=listen, args=(ends,), daemon=True).start()
    registry = open_registry(url, secret=SECRET)
    member = f"member of {source}"
    group = registry.join_registry(member, reading(source)).group
    reporter = registry.claim_source(group, source, member, 600)
    assert reporter is not None, "another member reports this source"
    position = reporter.position or 0
    print("ready", flush=True)
    while not ends.is_set():
        size = position % 4 + 1
        piece = [GlobalId(source, position + i + 1) for i in range(size)]
        position += size
        n = registry.register_ids(group, piece, reporter)
        if size % 2:
            assert registry.register_ids(group, piece, reporter) == n, "an id got a second number"
        print(f"ack {n} {position}", flush=True)
    registry.close()


def listen(ends: threading.Event) -> None:
    sys.stdin.read()
    ends.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
