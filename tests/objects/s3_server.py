"""A private S3 server: moto's, in a process of its own, which enforces conditional puts.

`ObjectServer` is what tests know of it, and of those that speak other languages (`cloud_servers`).
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Protocol

from viewkeeper.storage.objects.object_address import ObjectAddress
from viewkeeper.storage.objects.object_path import ObjectPath
from viewkeeper.storage.objects.object_storage import ObjectStorage

SECONDS = 30.0


class ObjectServer(Protocol):
    """A private server in which warehouses can lie."""

    @property
    def options(self) -> dict[str, str]:
        """The part `storage` of a project file."""

    @property
    def yaml(self) -> str:
        """The same as text."""

    @property
    def lake_options(self) -> dict[str, str]:
        """How another tool is told of the server."""

    def new_url(self) -> str:
        """The address of a warehouse that is not there yet."""


class PrivateS3:
    """A server; every warehouse has a bucket of its own, because this server searches whole buckets
    to list a few objects."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._log = log.open("wb")
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        self._wait_until_ready()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        return {
            "access_key_id": "test",
            "allow_http": "true",
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "secret_access_key": "secret",
        }

    @property
    def yaml(self) -> str:
        return yaml_of(self.options)

    @property
    def lake_options(self) -> dict[str, str]:
        return {
            "aws_access_key_id": "test",
            "aws_secret_access_key": "secret",
            "aws_endpoint": self.endpoint,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    def new_url(self) -> str:
        bucket = f"b{uuid.uuid4().hex}"
        self._make_bucket(bucket)
        return f"s3://{bucket}/some/path"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)
        self._log.close()

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + SECONDS
        while True:
            try:
                self._make_bucket("first")
                return
            except (urllib.error.URLError, ConnectionError):
                assert self._process.poll() is None, "the server has ended"
                assert time.monotonic() < end, "the server does not answer"
                time.sleep(0.1)

    def _make_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=5):
            pass


def yaml_of(options: dict[str, str]) -> str:
    """The part `storage:` of a project file."""
    return "storage: {" + ", ".join(f"{key}: {value}" for key, value in options.items()) + "}\n"


def root_at(server: ObjectServer, url: str, local: Path) -> ObjectPath:
    """A warehouse as one process sees it; another call is another process."""
    address = ObjectAddress(url, tuple(sorted(server.options.items())), str(local))
    return ObjectPath(ObjectStorage(address))
