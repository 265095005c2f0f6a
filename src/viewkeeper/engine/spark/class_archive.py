"""An archive of the classes that Spark loads, so that the next start need not read them from jars.

Loading and checking some twenty thousand classes is most of what a start of Spark computes. Java
can keep them as it has laid them out in memory (class-data sharing): a session that starts with the
archive takes half of the time. The archive belongs to one Java and one set of jars, so its name is
a digest of both; with another one it is not found, and one that Java does not accept is passed over
(`-Xshare:auto`), never an error.

It is made once for each user, in the background, by a process of its own after the first session
of a command has ended (`viewkeeper.engine.spark.archive_maker`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from viewkeeper.storage.user_cache import user_cache_folder

MAKE_SECONDS = 600.0
MAKER = "viewkeeper.engine.spark.archive_maker"
QUIET = "-Xlog:cds=off,cds+dynamic=off"


def archive_path(flags: tuple[str, ...]) -> Path | None:
    """Where the archive for this Java, these jars and these flags is, or would be; None if that
    cannot be said."""
    java, jars = _find_java(), _find_jars()
    if java is None or jars is None:
        return None
    found = java.stat()
    facts = [f"{java} {found.st_size} {found.st_mtime_ns}", *flags]
    facts += sorted(f"{jar.name} {jar.stat().st_size}" for jar in jars.glob("*.jar"))
    digest = hashlib.sha256("\n".join([str(jars), *facts]).encode()).hexdigest()
    return user_cache_folder("java") / f"{digest[:32]}.jsa"


def archive_options(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Options by which Java uses the archive, if there is one."""
    path = archive_path(flags)
    if path is None or not path.exists():
        return ()
    return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto", QUIET)


def begin_archive(flags: tuple[str, ...]) -> bool:
    """Have the archive made in the background if there is none; whether that was begun."""
    path = archive_path(flags)
    if path is None or path.exists() or " " in str(path):
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _take_turn(path.with_suffix(".making")):
            return False
        subprocess.Popen(
            [sys.executable, "-m", MAKER, str(path), *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        # A folder that cannot be written: starts take as long as they take.
        return False
    return True


def _take_turn(mark: Path) -> bool:
    """Whether nobody else makes the archive now; one that began long ago has died."""
    if mark.exists() and time.time() - mark.stat().st_mtime > MAKE_SECONDS:
        mark.unlink(missing_ok=True)
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _find_java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


def _find_jars() -> Path | None:
    from importlib.util import find_spec

    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home, "jars")
    found = find_spec("pyspark")
    return Path(found.origin).parent / "jars" if found and found.origin else None
