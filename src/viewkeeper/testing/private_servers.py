"""Private database servers: for `viewkeeper demo --sources mixed`, tests and benchmarks.

Each server has a data folder of its own, listens on loopback at a free port, and ends with the
process that started it. No server that is already on the machine is assumed or touched. PostgreSQL
refuses to run as root, so there it runs as the first of some unprivileged users that exist.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from viewkeeper.errors import ProjectError

START_SECONDS = 60.0
_USERS = ("postgres", "mysql", "nobody")


class PrivateServer(ABC):
    """A server process with its data below `folder`; use `start`, `kill`, `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder if can_enter(folder) else self._temporary_folder()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def _temporary_folder(self) -> Path:
        """A folder that the server's user can enter, for as long as this object is there."""
        folder = Path(tempfile.mkdtemp(prefix="viewkeeper-server-"))
        folder.chmod(0o711)
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder / "server"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Make the data folder if there is none, start, and wait until the server answers."""
        if not self._data_folder.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            give_away(self.folder)
            self._create_data()
        log = open(self.folder / "server.log", "ab")  # noqa: SIM115 - the server's own output
        with log:
            self._process = subprocess.Popen(
                self._server_command(), stdout=log, stderr=log, cwd=self.folder, **popen_options()
            )
        end = time.monotonic() + START_SECONDS
        while not self._is_answering():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise ProjectError(
                    f"{type(self).__name__} did not start",
                    detail=(self.folder / "server.log").read_text()[-2000:],
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """End it in an orderly way; nothing happens if it is not running."""
        self._end_process(self._stop_signal)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end_process(signal.SIGKILL)

    def _end_process(self, how: int) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        self._process.wait(timeout=START_SECONDS)
        self._process = None

    _stop_signal: int = signal.SIGTERM

    @property
    def _data_folder(self) -> Path:
        return self.folder / "data"

    @abstractmethod
    def _create_data(self) -> None:
        """Make the data folder."""

    @abstractmethod
    def _server_command(self) -> Sequence[str]:
        """What starts the server."""

    @abstractmethod
    def _is_answering(self) -> bool:
        """Whether it takes connections."""

    def _run_program(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, cwd=self.folder, **popen_options())
        if done.returncode:
            output = (done.stdout + done.stderr).decode(errors="replace")
            raise ProjectError(f"{Path(command[0]).name} failed", detail=output[-2000:])


class PrivatePostgres(PrivateServer):
    """PostgreSQL with logical decoding on; the superuser is `postgres`, its password `secret`."""

    # Fast: sessions are ended, not waited for.
    _stop_signal = signal.SIGINT

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder)
        self._programs = postgres_programs()
        self._settings = {
            "wal_level": "logical",
            "max_replication_slots": "40",
            "max_wal_senders": "40",
            "max_prepared_transactions": "20",
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "log_min_messages": "warning",
            **(settings or {}),
        }

    def url_of(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}:secret@127.0.0.1:{self.port}/{database}"

    def _create_data(self) -> None:
        password = self.folder / "password"
        password.write_text("secret\n")
        give_away(password)
        initdb = str(self._programs / "initdb")
        arguments = ("-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--no-sync")
        self._run_program(
            initdb, "-D", str(self._data_folder), *arguments, "--locale=C", f"--pwfile={password}"
        )

    def _server_command(self) -> Sequence[str]:
        options = [word for k, v in self._settings.items() for word in ("-c", f"{k}={v}")]
        server = str(self._programs / "postgres")
        return [server, "-D", str(self._data_folder), "-p", str(self.port), *options]

    def _is_answering(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url_of(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class PrivateMariadb(PrivateServer):
    """MariaDB with a row binlog; the superuser is `root`, its password `secret`."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder)
        self._settings = {
            "log-bin": "binlog",
            "server-id": "1",
            "binlog-format": "ROW",
            "binlog-row-image": "FULL",
            "binlog-row-metadata": "FULL",
            "innodb-flush-log-at-trx-commit": "2",
            "sync-binlog": "0",
            "innodb-buffer-pool-size": "128M",
            "bind-address": "127.0.0.1",
            "character-set-server": "utf8mb4",
            # Else 127.0.0.1 would be called localhost, which is another user.
            "skip-name-resolve": "1",
            **(settings or {}),
        }

    def url_of(self, database: str = "", user: str = "root") -> str:
        return f"mariadb://{user}:secret@127.0.0.1:{self.port}/{database}"

    def _create_data(self) -> None:
        installer = find_program("mariadb-install-db", "mysql_install_db")
        self._run_program(
            installer,
            "--no-defaults",
            f"--datadir={self._data_folder}",
            self._tmpdir_option,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )
        statements = (
            "CREATE OR REPLACE USER root@'127.0.0.1' IDENTIFIED BY 'secret';\n"
            "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        (self.folder / "first.sql").write_text(statements)
        give_away(self.folder / "first.sql")

    @property
    def _tmpdir_option(self) -> str:
        """A server that starts removes all temporary tables of its folder, whosever they are."""
        return f"--tmpdir={self.folder}"

    def _server_command(self) -> Sequence[str]:
        first = self.folder / "first.sql"
        begin = (
            [f"--init-file={first}"] if not (self._data_folder / "binlog.000001").exists() else []
        )
        return [
            find_program("mariadbd", "mysqld"),
            "--no-defaults",
            f"--datadir={self._data_folder}",
            self._tmpdir_option,
            f"--port={self.port}",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            *(f"--{key}={value}" for key, value in self._settings.items()),
            *begin,
        ]

    def _is_answering(self) -> bool:
        import pymysql

        try:
            pymysql.connect(
                host="127.0.0.1", port=self.port, user="root", password="secret", connect_timeout=2
            ).close()
        except pymysql.err.OperationalError:
            return False
        return True


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def postgres_programs() -> Path:
    """The folder with initdb and postgres; Debian keeps it out of PATH."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3])
    )
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    if found is None:
        raise ProjectError(
            "PostgreSQL is not installed on this machine",
            hint="sudo apt-get install -y postgresql",
        )
    return Path(found).resolve().parent


def find_program(*names: str) -> str:
    """The first of these programs that is installed."""
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    for name in names:
        if found := shutil.which(name, path=places):
            return found
    raise ProjectError(
        f"{names[0]} is not installed on this machine",
        hint="sudo apt-get install -y mariadb-server",
    )


def popen_options() -> dict[str, Any]:
    """As whom a server runs: ourselves, or somebody else where we are root.

    Ctrl-C is for us to handle: it does not reach a server.
    """
    if os.getuid() != 0:
        return {"start_new_session": True}
    user = _unprivileged_user()
    return {
        "user": user.pw_uid,
        "group": user.pw_gid,
        "extra_groups": [],
        "start_new_session": True,
    }


def can_enter(folder: Path) -> bool:
    """Whether the server's user gets into a folder; we change nobody's permissions for that."""
    if os.getuid() != 0:
        return True
    above = [parent for parent in folder.absolute().parents if parent.exists()]
    return all(parent.stat().st_mode & 0o001 for parent in above)


def give_away(path: Path) -> None:
    """Let the server's user own a path."""
    if os.getuid() == 0:
        user = _unprivileged_user()
        os.chown(path, user.pw_uid, user.pw_gid)


def _unprivileged_user() -> pwd.struct_passwd:
    for name in _USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ProjectError("there is no unprivileged user that a private server could run as")
