"""PostgreSQL as a source: one face over the parts of either way of capture.

By logical decoding, the stream of a replication slot goes into a spool; positions are those of
commits in PostgreSQL's log. Transaction ids say what a snapshot contains, never positions, and all
tasks share one snapshot (`decoding`). Servers that do not allow logical decoding are captured by
triggers (`triggers`). Both ways describe tables and check questions alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from viewkeeper.sources.bucket_state import open_state_files
from viewkeeper.sources.postgres.answers.questions import PostgresQuestions
from viewkeeper.sources.postgres.database_description import PostgresDescriber
from viewkeeper.sources.postgres.decoding.capture import SlotCapture
from viewkeeper.sources.postgres.decoding.follow import SlotFollower
from viewkeeper.sources.postgres.decoding.slot import slot_names
from viewkeeper.sources.postgres.decoding.source_stream import DecodingLook, SourceStream
from viewkeeper.sources.postgres.decoding.spool_reader import SpoolReader
from viewkeeper.sources.postgres.doctor import SlotDoctor
from viewkeeper.sources.postgres.postgres_server import PostgresConnections, PostgresServer
from viewkeeper.sources.postgres.triggers.capture import TriggerCapture
from viewkeeper.sources.postgres.triggers.doctor import TriggerDoctor
from viewkeeper.sources.postgres.triggers.follow import TriggerFollower
from viewkeeper.sources.postgres.triggers.log_reader import TriggerLogReader, TriggerLook
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.updates.source_protocol import (
    Boundary,
    DetachResult,
    Finding,
    Health,
    Opener,
    Source,
    TableBatches,
    TableDescription,
    Tables,
    TableSize,
)


@dataclass(slots=True)
class PostgresSource:
    """One PostgreSQL database, followed by one project, by the parts of one way of capture."""

    name: str
    describer: PostgresDescriber
    log: SourceStream | TriggerCapture
    follower: SlotFollower | TriggerFollower
    look: DecodingLook | TriggerLook
    reader: SpoolReader | TriggerLogReader
    doctor: SlotDoctor | TriggerDoctor

    def describe_source(self) -> str:
        return self.log.describe_source()

    def handle_of(self, name: str) -> str:
        return self.describer.handle_of(name)

    def describe_table(self, handle: str) -> TableDescription:
        return self.describer.describe_table(handle)

    def estimate_size(self, table: str) -> TableSize:
        return self.describer.estimate_size(table)

    def follow_tables(self, tables: Tables) -> int:
        return self.follower.follow_tables(tables)

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        return self.look.look_for_transactions(after)

    def has_news(self) -> bool | None:
        return self.look.has_news()

    def inherit_from(self, connection_name: str) -> None:
        if isinstance(self.log, SourceStream):
            self.log.inherit_from(connection_name)

    def has_passed(self, position: int) -> bool:
        return self.look.has_passed(position)

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        return self.reader.read_changes(tables, after, until)

    def prepare_snapshots(self, after: int, tables: Tables) -> AbstractContextManager[Opener]:
        return self.reader.prepare_snapshots(after, tables)

    def acknowledge_position(self, position: int) -> None:
        self.log.acknowledge_position(position)

    def begin_hold(self, name: str, seconds: float) -> None:
        self.log.begin_hold(name, seconds)

    def end_hold(self, name: str) -> None:
        self.log.end_hold(name)

    def read_health(self, positions: Iterable[int]) -> Health:
        return self.doctor.read_health(positions)

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        return self.doctor.diagnose_source(tables)

    def detach_source(self, force: bool = False) -> DetachResult:
        return self.follower.detach_source(force)

    def close(self) -> None:
        self.log.close()


def open_source(settings: SourceSettings, reader: str) -> Source:
    """The source that the settings describe; nothing is connected yet."""
    is_triggered = settings.read_text("capture", "decoding") == "triggers"
    open_database = _open_triggers if is_triggered else _open_decoding
    return open_database(PostgresServer(settings), open_state_files(settings), reader)


def _open_decoding(server: PostgresServer, files: StateFiles, reader: str) -> PostgresSource:
    capture = SlotCapture(server, slot_names(server.settings, reader), files)
    connections = PostgresConnections(server, capture.close_stream)
    describer = PostgresDescriber(connections, files, is_streamed=True)
    questions = PostgresQuestions(describer)
    stream = SourceStream(describer, capture)
    look = DecodingLook(stream, describer, questions)
    follower = SlotFollower(stream, describer, look)
    spool_reader = SpoolReader(stream, describer, questions)
    doctor = SlotDoctor(describer, follower)
    parts = (describer, stream, follower, look, spool_reader, doctor)
    return PostgresSource(describer.source, *parts)


def _open_triggers(server: PostgresServer, files: StateFiles, reader: str) -> PostgresSource:
    describer = PostgresDescriber(PostgresConnections(server), files, is_streamed=False)
    questions = PostgresQuestions(describer)
    capture = TriggerCapture(describer, reader)
    follower = TriggerFollower(capture, describer)
    look = TriggerLook(capture, describer)
    log_reader = TriggerLogReader(capture, describer, questions)
    doctor = TriggerDoctor(capture, describer)
    parts = (describer, capture, follower, look, log_reader, doctor)
    return PostgresSource(describer.source, *parts)
