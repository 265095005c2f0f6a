"""`viewkeeper changes-feed`: the changes of a view as lines of JSON, for pipes.

The lines of a ts are written once it is committed, with an end after them. Whoever reads them keeps
the `since` of the last end that it has dealt with, and begins there the next time: nothing is
missed, and what came after that end comes again.

The feed reads what is committed, and nothing else: it goes on while the maintainer is restarted,
and waits while there is none. It ends when it is told to, or when nobody reads it any more.
"""

from __future__ import annotations

import select
import sys
import threading
import time
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.signals import stop_on_signals
from viewkeeper.errors import RequestTroubleError

if TYPE_CHECKING:
    from viewkeeper.readers.feed_formats import FeedFormat
    from viewkeeper.readers.view_feed import ViewFeed

LOOK_SECONDS = 0.05
"""How often a feed that follows looks for commits; a look is two questions to the storage."""

TROUBLE_SECONDS = 60.0
"""So long a feed that follows waits for storage that does not answer."""

EPILOG = """\b
Examples:
  viewkeeper changes-feed order_lines                        all that is kept, then leave
  viewkeeper changes-feed order_lines --since 12 --follow    what follows ts 12, until Ctrl-C
  viewkeeper changes-feed order_lines --follow | jq -c 'select(.event == "change")'
  viewkeeper changes-feed order_lines --format debezium --key order_id,product --follow

\b
Lines of --format json:
  {"event": "reset", ...}    forget all that came before: the view begins, or was loaded again
  {"event": "columns", ...}  the columns and their types
  {"event": "change", "ts": 12, "count": -1, "row": {...}}   one row less, at this ts
  {"event": "end", "ts": 12, "since": "12@order-lines-1..."} all up to this ts was written

Keep the "since" of the last end, and give it to --since the next time: nothing is missed, and what
came after it comes again. A ts alone will do unless the view was loaded again meanwhile.

Exit codes: 0 written, or ended by Ctrl-C; 2 the place is not kept any more, or usage; 141 nobody
reads the output any more."""


@click.command("changes-feed", epilog=EPILOG)
@click.argument("view")
@click.option(
    "--since",
    default="0",
    show_default=True,
    metavar="TS",
    help='The changes after this ts, or after the "since" of an end; 0 is the beginning.',
)
@click.option("--follow", is_flag=True, help="Go on with what is committed, until Ctrl-C.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "debezium"]),
    default="json",
    show_default=True,
    help="Our own lines, or Debezium's envelopes.",
)
@click.option(
    "--key",
    metavar="COLUMN,...",
    help="With debezium: columns by which a row is known, so that there are updates.",
)
@click.pass_obj
def changes_feed(
    invocation: Invocation, view: str, since: str, follow: bool, form: str, key: str | None
) -> int:
    """Write the changes of a view as lines of JSON, for pipes.

    Changes come in ts order, those of a ts together, and an end after them: what has ended is
    whole. Values are exact, as `viewkeeper query --format json` has them.
    """
    if key is not None and form != "debezium":
        raise click.UsageError("--key needs --format debezium")
    # First, because what is imported afterwards would import pandas.
    settings = invocation.read_settings()
    from viewkeeper.readers.feed_formats import DebeziumLines, JsonLines
    from viewkeeper.readers.view_feed import ViewFeed, parse_place

    feed = ViewFeed(settings.warehouse.absolute(), view, parse_place(since), time.monotonic)
    keys = [name.strip() for name in (key or "").split(",") if name.strip()]
    lines: FeedFormat = (
        JsonLines(view)
        if form == "json"
        else DebeziumLines(view, settings.folder.resolve().name, keys, time.time)
    )
    with stop_on_signals("the ts under way", said=lambda _: None) as stop:
        write_feed(feed, lines, stop)
        if follow:
            follow_feed(feed, lines, stop)
    return 0


def follow_feed(feed: ViewFeed, lines: FeedFormat, stop: threading.Event) -> None:
    """Write what is committed until it is to stop; storage that does not answer is waited for."""
    answered = time.monotonic()
    while not stop.wait(LOOK_SECONDS):
        _require_reader()
        try:
            if feed.has_news():
                write_feed(feed, lines, stop)
            answered = time.monotonic()
        except RequestTroubleError:
            if time.monotonic() - answered > TROUBLE_SECONDS:
                raise


def write_feed(feed: ViewFeed, lines: FeedFormat, stop: threading.Event) -> None:
    """Write what there is, up to the end of a ts if it is to stop."""
    from viewkeeper.readers.view_feed import FeedEnd

    for event in feed.read_events():
        for line in lines.write_event(event):
            sys.stdout.write(line + "\n")
        if isinstance(event, FeedEnd) and stop.is_set():
            break
    sys.stdout.flush()


def _require_reader() -> None:
    """A BrokenPipeError if nobody reads the output any more, which a write would find out late."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError, AttributeError):
        # What is no file, as in a test, has no other end.
        return
    if any(flags & (select.POLLERR | select.POLLNVAL) for _, flags in poll.poll(0)):
        raise BrokenPipeError
