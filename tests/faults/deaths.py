"""Dying by SIGKILL at a chosen step, from inside: before or after the k-th call of a function.

A step is written `module:function@k:before` or `...:after`, with `:text` behind it if only calls
with an argument that contains the text count. `sql@k:before:text` is the k-th SQL statement that
contains the text. `module:function@k:full` finds the disk full in that call and in all later ones.
The last line of a process that dies so is `died at` and the step.

Nothing is simulated: the kernel ends the process, buffers are lost, locks fall; and it is the
kernel that refuses to let a file grow, in whatever library writes it.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from viewkeeper.sources.sqlite.database import SqliteDatabase

_STEP = re.compile(r"(?P<target>[\w.:]+)@(?P<k>\d+):(?P<side>before|after|full)(:(?P<text>.*))?")

DIED = "died at "

FULL_BYTES = 64
"""How large a file may get on a full disk: large enough for the lock file's holder, no more."""

WAREHOUSE = "viewkeeper.warehouse"
STORAGE = "viewkeeper.storage"
ENGINE = "viewkeeper.engine"
SQLITE = "viewkeeper.sources.sqlite"

STEPS = {
    "plan": f"{STORAGE}.disk:create_new@{{}}:/plans/",
    "queue": "viewkeeper.updates.queue:UpdateQueue.seal_changes@{}",
    "lookup": f"{SQLITE}.snapshot:SqliteSnapshot.answer_lookup@{{}}",
    "sweep": f"{ENGINE}.batch.batch_runner:run_inline@{{}}",
    "data file": f"{WAREHOUSE}.group_commit:write_rows@{{}}",
    "task's file": f"{ENGINE}.batch.part_sweep:write_rows@{{}}",
    "history file": f"{ENGINE}.batch.change_archive:ChangeArchive._write_file@{{}}",
    "history index": f"{ENGINE}.batch.change_archive:ChangeArchive._write_index@{{}}",
    "record": f"{STORAGE}.disk:create_new@{{}}:/records/",
    "log entry": f"{WAREHOUSE}.lake.lake_table:LakeTable.commit@{{}}",
    "log entry written": f"{WAREHOUSE}.lake.delta_log:write_entry@{{}}",
    "head": f"{STORAGE}.disk:replace_file@{{}}:head.json",
    "segment": f"{STORAGE}.journal_file:JournalFile.create@{{}}",
    "journal": f"{STORAGE}.journal_file:JournalFile.append_frames@{{}}",
    "mark": f"{STORAGE}.journal_file:JournalFile.show_mark@{{}}",
    "journal synced": "os:fdatasync@{}",
    "flush": f"{WAREHOUSE}.group_commit:GroupCommit.flush_tables@{{}}",
    "flushed plans": f"{WAREHOUSE}.group_commit:write_numbered@{{}}",
    "flushed logs": f"{WAREHOUSE}.redo:OpenTables.redo_flush@{{}}",
    "commit": f"{WAREHOUSE}.store:Store.commit@{{}}",
    "spool": f"{ENGINE}.batch.batch_runner:BatchRunner.clean_spool@{{}}",
    "acknowledge": f"{SQLITE}.source:SqliteSource.acknowledge_position@{{}}",
    "trim": f"{SQLITE}.reader_registration:_trim_once@{{}}",
    "trim begun": "sql@{}:UPDATE _viewkeeper_database SET trimmed",
    "reader's position": "sql@{}:UPDATE _viewkeeper_reader SET position",
    "merge": f"{ENGINE}.upkeep:merge_tail@{{}}",
    "checkpoint": f"{WAREHOUSE}.lake.lake_table:LakeTable.write_checkpoint@{{}}",
    "fold": f"{STORAGE}.disk:replace_file@{{}}:folded.parquet",
    "folded file": f"{STORAGE}.disk:remove_file@{{}}:.json",
    "replaced file": f"{STORAGE}.disk:remove_file@{{}}:.parquet",
    "history forgotten": f"{ENGINE}.batch.change_archive:ChangeArchive.forget_before@{{}}",
    "follow": f"{SQLITE}.source:SqliteSource.follow_tables@{{}}",
    "capture": "sql@{}:INSERT INTO _viewkeeper_reader",
    "link": "os:link@{}",
    "rename": "os:replace@{}",
    "fsync": "os:fsync@{}",
    "unlink": "os:unlink@{}",
}
"""Every step of a commit, of its aftermath and of upkeep, by name."""

JOURNAL = ("segment", "journal", "mark", "journal synced", "flush", "flushed plans", "flushed logs")
"""Steps of commits that the journal takes: whose results are no files of their own."""

ONCE = ("segment",)
"""What a short run surely does no more than once."""

REPORT_STEPS = {
    "groups": f"{ENGINE}.batch.state_indexes:StateIndexes.find_groups@{{}}",
    "groups advanced": f"{ENGINE}.batch.staged_run:advance_fold@{{}}",
    "stored parent": f"{ENGINE}.batch.state_indexes:StateIndexes.find_stored@{{}}",
    "index made": f"{ENGINE}.batch.state_indexes:rebuild_index@{{}}",
    "index file": "viewkeeper.stages.key_index:_write_base@{}",
    "index opened": "viewkeeper.stages.key_index:_read_base@{}",
    "index applied": f"{ENGINE}.batch.state_indexes:StateIndexes.note_rows@{{}}",
    "index's own": "viewkeeper.stages.key_index:KeyIndex.apply_rows@{}",
    "keys recomputed": f"{ENGINE}.batch.staged_run:advance_recompute@{{}}",
    "values compared": f"{ENGINE}.batch.staged_run:compare_side@{{}}",
    "rows exploded": f"{ENGINE}.batch.batch_runner:split_rows@{{}}",
    "tick": "viewkeeper.sources.clock.source:ClockSource.read_changes@{}",
}
"""Every step that reports add."""

SPARK_STEPS = {
    "load": f"{ENGINE}.load.loader:load_view@{{}}",
    "job": f"{ENGINE}.batch.batch_runner:run_on_spark@{{}}",
    "compaction": f"{WAREHOUSE}.compact:compact_view@{{}}",
    "compacted log": f"{WAREHOUSE}.redo:OpenTables._redo_rewrite@{{}}",
}
"""Every step that needs Spark, and the log of what it has rewritten."""

REFRESH_STEPS = {
    "new table": f"{WAREHOUSE}.store:Store.new_table@{{}}",
    "loaded": f"{ENGINE}.load.loader:load_view@{{}}",
    "swap": f"{ENGINE}.load.loader:ViewLoad.take_changes@{{}}",
    "swapped": f"{ENGINE}.load.loader:Loader.end_parts@{{}}",
}
"""Every step of a refresh beside what is stored, but for its record."""

LANE_STEPS = {
    "lane begun": f"{ENGINE}.lanes.lane_batch:Lanes.begin_batch@{{}}",
    "lane swept": f"{ENGINE}.lanes.lane_batch:LaneBatch._sweep@{{}}",
    "lane handed over": f"{ENGINE}.lanes.lane_batch:LaneBatch.take_outcome@{{}}",
    "lane committed": f"{ENGINE}.plan_runner:PlanRunner._commit_lane@{{}}",
}
"""Every step of a view that advances apart."""

RECOVERY = {
    "journal resumed": f"{WAREHOUSE}.group_commit:GroupCommit.resume_journal@{{}}",
    "journal copied": f"{WAREHOUSE}.group_commit:JournalWriter.copy_frames@{{}}",
    "cut back": f"{WAREHOUSE}.lake.delta_log:cut_back@{{}}",
    "redo": f"{WAREHOUSE}.redo:OpenTables.redo_record@{{}}",
    "redone head": f"{STORAGE}.disk:replace_file@{{}}:head.json",
    "unknown files": f"{WAREHOUSE}.recovery:remove_unknown@{{}}",
    "spool emptied": f"{WAREHOUSE}.recovery:empty_folder@{{}}",
    "plan replayed": f"{ENGINE}.plan_runner:PlanRunner.finish_plan@{{}}",
}
"""Every step of a restart."""

ALL_STEPS = {
    **STEPS,
    **REPORT_STEPS,
    **SPARK_STEPS,
    **REFRESH_STEPS,
    **LANE_STEPS,
    **RECOVERY,
}

FULL = {
    "plan": f"{WAREHOUSE}.metadata.plan_files:write_plan@{{}}",
    "data file": f"{WAREHOUSE}.group_commit:write_rows@{{}}",
    "task's file": f"{ENGINE}.batch.part_sweep:write_rows@{{}}",
    "spilled changes": "viewkeeper.updates.queue:UpdateQueue.append_changes@{}",
    "history": f"{ENGINE}.batch.change_archive:ChangeArchive.keep_changes@{{}}",
    "record": f"{WAREHOUSE}.metadata.plan_files:write_record@{{}}",
    "log entry": f"{WAREHOUSE}.redo:OpenTables.redo_record@{{}}",
    "head": f"{STORAGE}.disk:replace_file@{{}}:head.json",
    "merge": f"{ENGINE}.upkeep:merge_tail@{{}}",
    "history forgotten": f"{ENGINE}.batch.change_archive:ChangeArchive.forget_before@{{}}",
    "fold": f"{WAREHOUSE}.metadata.plan_files:fold_files@{{}}",
}
"""Every step that needs space in the warehouse."""


def full(name: str, k: int) -> str:
    """A step that finds no space, as text for `arm`."""
    return FULL[name].format(f"{k}:full")


def step(name: str, k: int, side: str) -> str:
    """A named step as text for `arm`."""
    target, _, text = ALL_STEPS[name].partition("@{}")
    return f"{target}@{k}:{side}{text}"


def name_of_step(text: str) -> str:
    """The name of a step that `arm` got; the first one, where two names are one step."""
    found = _STEP.fullmatch(text)
    assert found, f"no step: {text}"
    plain = f"{found['target']}@{{}}" + (f":{found['text']}" if found["text"] else "")
    return next(name for name, each in ALL_STEPS.items() if each == plain)


def arm(text: str) -> None:
    """Make this process die at a step."""
    found = _STEP.fullmatch(text)
    assert found, f"no step: {text}"
    moment = Moment(int(found["k"]), found["side"] == "after", found["text"] or "", text)
    if found["target"] == "sql":
        setattr(SqliteDatabase, "_connect_mode", _traced(SqliteDatabase._connect_mode, moment))  # noqa: B010
        return
    owner, name = find_target(found["target"])
    wrap = _refused if found["side"] == "full" else _lethal
    setattr(owner, name, wrap(getattr(owner, name), moment))


def find_target(target: str) -> tuple[Any, str]:
    """The module or class that has the function of a step, and the function's name."""
    module, _, path = target.partition(":")
    owner: Any = import_module(module)
    *outer, name = path.split(".")
    for each in outer:
        owner = getattr(owner, each)
    return owner, name


@dataclass(slots=True)
class Moment:
    """The k-th call that mentions a text, counted down."""

    k: int
    after: bool
    text: str
    step: str

    def is_now(self, arguments: str) -> bool:
        self.k -= self.text in arguments
        return self.k == 0 and self.text in arguments


def _lethal(real: Callable[..., Any], moment: Moment) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        now = moment.is_now(" ".join(map(str, args)) if moment.text else "")
        if now and not moment.after:
            die(moment.step)
        try:
            return real(*args, **options)
        finally:
            # A call that fails is one too, like the removal of a file that is not there.
            if now:
                die(moment.step)

    return call


def _refused(real: Callable[..., Any], moment: Moment) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        moment.is_now("")
        size, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        if moment.k <= 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_BYTES, most))
        try:
            return real(*args, **options)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))

    return call


def _traced(connect: Callable[..., sqlite3.Connection], moment: Moment) -> Callable[..., Any]:
    """SQLite tells of a statement when it begins, so a side makes no difference here."""

    def connected(*args: Any) -> sqlite3.Connection:
        connection = connect(*args)
        connection.set_trace_callback(lambda sql: die(moment.step) if moment.is_now(sql) else None)
        return connection

    return connected


def die(step: str) -> NoReturn:
    """End here and now, as by the kernel's hand."""
    os.write(1, f"{DIED}{step}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed processes go no further")
