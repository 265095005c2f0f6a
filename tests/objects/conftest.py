"""The S3 server of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.objects.s3_server import PrivateS3


@pytest.fixture(scope="package")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateS3]:
    server = PrivateS3(tmp_path_factory.mktemp("s3") / "server.log")
    yield server
    server.stop()
