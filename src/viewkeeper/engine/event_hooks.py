"""Hooks: programs and addresses that are called when something wants attention.

An observer puts what it hears into a queue, and a thread calls the hooks one after the other, each
within its time. Nobody who maintains waits for them: if so many events come that the queue is full,
or a hook fails, that is logged and everything goes on. A program gets the event as JSON on its
standard input, and is killed with all that it started when its time is over; an address gets the
same JSON by POST, and is not followed elsewhere. At the end of a run what is left in the queue is
still sent, within the time of one hook.

The JSON has names, numbers and the way out, and no value of a row, as the log.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.message import Message
from http.client import HTTPException
from typing import IO

from viewkeeper.engine.event_log import LOGGER
from viewkeeper.engine.report import Observer, ObserverGroup, StateChange
from viewkeeper.engine.settings.hook_settings import HookSettings
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.errors import ProjectError, ViewkeeperError

WAITING_MAX = 100
END_SECONDS = 15.0
TEXT_MAX = 300


class EventHooks(Observer):
    """An observer that calls hooks for changes of state: what stays wrong is one."""

    def __init__(self, settings: Settings) -> None:
        self._hooks = settings.on_event
        self._folder = settings.folder
        # Bounded by who puts events in, so that the end always finds room: see `on_state_change`.
        self._waiting: queue.SimpleQueue[tuple[HookSettings, StateChange] | None]
        self._waiting = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._call_hooks, name="viewkeeper-hooks", daemon=True
        )

    def use_settings(self, settings: Settings) -> None:
        """Call the hooks of these settings for what comes from now on."""
        self._hooks = settings.on_event

    @contextmanager
    def calling_hooks(self) -> Iterator[None]:
        """Call them for as long as the block lasts, and a little longer."""
        self._thread.start()
        try:
            yield
        finally:
            self._waiting.put(None)
            self._thread.join(END_SECONDS)

    def on_state_change(self, change: StateChange) -> None:
        for hook in (hook for hook in self._hooks if change.kind in hook.events):
            if self._waiting.qsize() >= WAITING_MAX:
                _log_failure(hook.name, f"too many events wait; {change.kind} was left out")
            else:
                self._waiting.put((hook, change))

    def _call_hooks(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            self._call_hook(*waiting)

    def _call_hook(self, hook: HookSettings, change: StateChange) -> None:
        try:
            body = json.dumps(event_body(change, self._folder.name, time.time())).encode()
            if hook.command:
                _run_command(hook, body, str(self._folder))
            else:
                _post_body(hook, body)
        except (OSError, ValueError, HTTPException, subprocess.SubprocessError) as error:
            _log_failure(hook.name, failure_text(error))
        except ViewkeeperError as error:
            _log_failure(hook.name, error.message)


@contextmanager
def using_hooks(settings: Settings, observer: Observer) -> Iterator[Observer]:
    """The observer, and the hooks of a project if it has some."""
    if not settings.on_event:
        yield observer
        return
    hooks = EventHooks(settings)
    with hooks.calling_hooks():
        yield ObserverGroup(observer, hooks)


def event_body(change: StateChange, project: str, at: float) -> Mapping[str, object]:
    """The JSON that a hook gets."""
    return {
        "event": change.kind,
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
        "project": project,
        "view": change.view,
        "source": change.source,
        "ts": change.ts,
        "text": change.text,
        "hint": change.hint,
    }


def failure_text(error: Exception) -> str:
    """What is said of an error: an address, with what it may hold of secrets, is not."""
    match error:
        case urllib.error.HTTPError():
            return f"it answered with {error.code}"
        case urllib.error.URLError():
            return f"it cannot be reached: {error.reason}"
        case OSError(strerror=str() as reason):
            return reason
    return type(error).__name__


def _run_command(hook: HookSettings, body: bytes, folder: str) -> None:
    words = [fill_variables(word) for word in hook.command]
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        start_new_session=True,
    )
    try:
        process.communicate(body, timeout=hook.seconds)
    except subprocess.TimeoutExpired:
        raise ProjectError(f"it took longer than {hook.seconds:g} s, and was killed") from None
    finally:
        # What it has started may hold its pipes; none of it outlives its time.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
    if process.returncode:
        raise ProjectError(f"it ended with {process.returncode}")


def _post_body(hook: HookSettings, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "viewkeeper"}
    request = urllib.request.Request(fill_variables(hook.url), body, headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(request, timeout=hook.seconds) as answer:
        answer.read(1)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An address that sends us elsewhere has failed."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        return None


def fill_variables(text: str) -> str:
    """A text with its `${NAME}` from the environment."""

    def value_of(found: re.Match[str]) -> str:
        value = os.environ.get(found[1])
        if value is None:
            raise ProjectError(f"the environment variable {found[1]} is not set")
        return value

    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", value_of, text)


def _log_failure(name: str, what: str) -> None:
    text = " ".join(what.split())[:TEXT_MAX]
    extra = {"event": "hook_failed", "facts": {"hook": name}}
    logging.getLogger(LOGGER).warning("hook %s failed: %s", name, text, extra=extra)
