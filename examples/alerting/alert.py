"""A program for `on_event:` that opens and closes incidents at an address of yours.

In viewkeeper.yml:

    on_event:
      - command: [python, alert.py, "${ALERT_URL}"]
        events: [view_stopped, source_away, change_proposed, view_resumed, source_back]

Viewkeeper starts it once for each event, with the event as JSON on its standard input. What is told
to the address has a key for each view or source, by which a service for incidents knows which one
is open: `trigger` opens it or adds to it, `resolve` closes it. An address that does not take it is
an error: Viewkeeper logs that the hook failed.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

RESOLVING = ("view_resumed", "source_back")
SECONDS = 5.0


def incident_of(event: dict[str, Any]) -> dict[str, Any]:
    """What to tell of an event.

    >>> found = incident_of({"project": "shop", "event": "source_back", "source": "crm"})
    >>> found["action"], found["key"]
    ('resolve', 'shop/source/crm')
    """
    kind = "view" if event.get("view") else "source"
    name = event.get("view") or event.get("source") or "project"
    # A program that shows texts as HTML must escape them: names are as databases have them.
    text = "\n".join(each for each in (event.get("text"), event.get("hint")) if each)
    return {
        "key": f"{event['project']}/{kind}/{name}",
        "action": "resolve" if event["event"] in RESOLVING else "trigger",
        "severity": "critical" if event["event"] == "view_stopped" else "warning",
        "summary": f"{event['event'].replace('_', ' ')}: {name}",
        "text": text,
        "time": event.get("time"),
    }


def send_incident(address: str, incident: dict[str, Any]) -> None:
    """Tell an address, which must take it (2xx)."""
    body = json.dumps(incident).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS):
        pass


if __name__ == "__main__":
    send_incident(sys.argv[1], incident_of(json.load(sys.stdin)))
