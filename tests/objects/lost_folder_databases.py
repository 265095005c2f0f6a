"""A small table of words in a database of each kind, for projects that lose their local folder."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pymysql.connections
from deltalake import DeltaTable, write_deltalake

import viewkeeper
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres

VIEW = "SELECT w.id, w.text FROM db.word w"
Words = dict[int, str]


class WordTable(ABC):
    """The table `word (id, text)`, as a source called `db`."""

    view = VIEW

    def __init__(self) -> None:
        self.words: Words = {n: f"word {n}" for n in range(20)}

    @property
    @abstractmethod
    def source(self) -> str:
        """The source's entry in a project file."""

    @abstractmethod
    def write(self, words: Words, gone: int) -> None:
        """One transaction: put these words, remove one."""

    def change(self, number: int) -> None:
        """A transaction of an insert, an update and a delete."""
        words, gone = {100 + number: f"new {number}", 10: f"changed {number}"}, number % 10
        self.write(words, gone)
        self.words.update(words)
        self.words.pop(gone, None)

    def expected(self) -> Counter[tuple[Any, ...]]:
        return Counter(self.words.items())

    @abstractmethod
    def close(self) -> None:
        """Let go of what the writer has open."""


class PostgresWords(WordTable):
    def __init__(self, server: PrivatePostgres, name: str, capture: str) -> None:
        super().__init__()
        self._capture = capture
        with psycopg.connect(server.url_of(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        self._url = server.url_of(name)
        self.writer = psycopg.connect(self._url, autocommit=True)
        self.writer.execute("CREATE TABLE word (id int PRIMARY KEY, text text)")
        self.writer.execute("ALTER TABLE word REPLICA IDENTITY FULL")
        self.write(self.words, -1)

    @property
    def source(self) -> str:
        return f"{{kind: postgres, url: '{self._url}', capture: {self._capture}}}"

    def write(self, words: Words, gone: int) -> None:
        with self.writer.transaction():
            for pair in words.items():
                self.writer.execute(
                    "INSERT INTO word VALUES (%s, %s)"
                    " ON CONFLICT (id) DO UPDATE SET text = excluded.text",
                    pair,
                )
            self.writer.execute("DELETE FROM word WHERE id = %s", (gone,))

    def close(self) -> None:
        self.writer.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
            " WHERE database = current_database() AND active"
        )
        self.writer.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database() AND NOT active"
        )
        self.writer.close()


class MariadbWords(WordTable):
    def __init__(self, server: PrivateMariadb, name: str) -> None:
        super().__init__()
        self._url = server.url_of(name)
        self.writer = pymysql.connections.Connection(
            host="127.0.0.1", port=server.port, user="root", password=b"secret", ssl_disabled=True
        )
        with self.writer.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
            cursor.execute(f"USE {name}")
            cursor.execute("CREATE TABLE word (id int PRIMARY KEY, text varchar(40))")
        self.write(self.words, -1)

    @property
    def source(self) -> str:
        return f"{{kind: mariadb, url: '{self._url}'}}"

    def write(self, words: Words, gone: int) -> None:
        with self.writer.cursor() as cursor:
            cursor.executemany("REPLACE INTO word VALUES (%s, %s)", [*words.items()])
            cursor.execute("DELETE FROM word WHERE id = %s", (gone,))
        self.writer.commit()

    def close(self) -> None:
        self.writer.close()


class FileWords(WordTable):
    """Two CSV files, of which the second is written again for every transaction and handed over."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._table = folder / "exports" / "word"
        self._table.mkdir(parents=True)
        self._put("a.csv", {1000: "never changed"})
        self._put("b.csv", self.words)

    @property
    def source(self) -> str:
        columns = "{word: {columns: {id: bigint, text: string}, key: [id]}}"
        path = self._table.parent
        return f"{{kind: files, format: csv, path: {path}, settle_seconds: 0.1, tables: {columns}}}"

    def write(self, words: Words, gone: int) -> None:
        after = {**self.words, **words}
        after.pop(gone, None)
        self._put("b.csv", after)

    def expected(self) -> Counter[tuple[Any, ...]]:
        return Counter([*self.words.items(), (1000, "never changed")])

    def _put(self, name: str, words: Words) -> None:
        lines = [f"{number},{text}" for number, text in words.items()]
        made = self._table.parent / name
        made.write_text("\n".join(["id,text", *lines]) + "\n")
        os.replace(made, self._table / name)
        (self._table / "_SUCCESS").touch()

    def close(self) -> None:
        """Nothing is open."""


class DeltaWords(WordTable):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = folder / "lake" / "word"
        write_deltalake(self._path, self._rows(self.words))

    @property
    def source(self) -> str:
        return f"{{kind: delta_lake, path: {self._path}}}"

    def write(self, words: Words, gone: int) -> None:
        gone_too = self._rows({gone: ""})
        table = DeltaTable(self._path)
        table.merge(
            self._rows(words), "s.id = t.id", source_alias="s", target_alias="t"
        ).when_matched_update_all().when_not_matched_insert_all().execute()
        DeltaTable(self._path).merge(
            gone_too, "s.id = t.id", source_alias="s", target_alias="t"
        ).when_matched_delete().execute()

    def _rows(self, words: Words) -> pa.Table:
        types: dict[str, pa.DataType] = {"id": pa.int32(), "text": pa.string()}
        return pa.table([[*words], [*words.values()]], schema=pa.schema(types))

    def close(self) -> None:
        """Nothing is open."""


class ParentWords(WordTable):
    """The view of a project over files, whose warehouse is a folder."""

    view = "SELECT w.id, w.text FROM db.words w"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._files = FileWords(folder)
        self._folder = folder / "parent"
        (self._folder / "views").mkdir(parents=True)
        (self._folder / "viewkeeper.yml").write_text(
            f"warehouse: ./warehouse\nsources: {{db: {self._files.source}}}\n"
        )
        text = f"CREATE MATERIALIZED VIEW words AS\n{VIEW};\n"
        (self._folder / "views" / "words.sql").write_text(text)
        self._refresh()

    @property
    def source(self) -> str:
        return f"{{kind: warehouse, path: {self._folder}}}"

    def write(self, words: Words, gone: int) -> None:
        self._files.write(words, gone)
        self._files.words = {n: text for n, text in {**self.words, **words}.items() if n != gone}
        self._refresh()

    def expected(self) -> Counter[tuple[Any, ...]]:
        return self._files.expected()

    def _refresh(self) -> None:
        with viewkeeper.open(self._folder) as project:
            project.refresh()

    def close(self) -> None:
        """Nothing is open."""
