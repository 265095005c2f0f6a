"""Private servers that speak as Google Cloud Storage and Azure Blob Storage do, to the library.

Neither is those services. They keep blobs in memory and answer the requests that `obstore` sends,
with the rules on which a warehouse stands, as the documentation of the services has them: a put on
the condition that there is no blob, or still the same one, is refused with 412 (Azure's with 409,
where there is one); a blob that was written has another generation (Google) or e-tag (Azure); equal
content has an equal e-tag at Google, whatever was there between; a delete of what is not there is a
404; Azure gives no suffix of a blob. Signatures and tokens are not looked at.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import threading
import time
import uuid
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.objects.http_listener import Listener
from tests.objects.s3_server import yaml_of

PAGE = 1000
"""So many blobs are listed by one answer."""


@dataclass(frozen=True, slots=True)
class Blob:
    data: bytes
    version: int
    at: float


class Blobs:
    """All blobs, by bucket and key; every write has a version of its own."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.found: dict[tuple[str, str], Blob] = {}
        self.parts: dict[tuple[str, str, str], bytes] = {}
        """Parts of uploads that are not complete, by bucket, upload or key, and part."""
        self._versions = itertools.count(1_700_000_000_000_001)

    def write(self, bucket: str, key: str, data: bytes) -> Blob:
        with self.lock:
            made = Blob(data, next(self._versions), time.time())
            self.found[bucket, key] = made
            return made

    def list_names(
        self, bucket: str, prefix: str, delimiter: str, after: str
    ) -> tuple[list[tuple[str, Blob | None]], str]:
        """A page of keys with their blobs, and of folders with none; where the next page begins."""
        with self.lock:
            keys = {key: blob for (home, key), blob in self.found.items() if home == bucket}
        names: dict[str, Blob | None] = {}
        for key in sorted(key for key in keys if key.startswith(prefix)):
            folder, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            names[prefix + folder + cut if cut else key] = None if cut else keys[key]
        page = [(name, names[name]) for name in sorted(names) if name > after]
        return page[:PAGE], page[PAGE - 1][0] if len(page) > PAGE else ""


class BlobHandler(BaseHTTPRequestHandler):
    """What both have in common: reading a request, writing an answer, a blob or a part of it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    blobs: Blobs
    refused: list[str]

    def log_message(self, *_: object) -> None: ...

    def handle_one(self) -> None:
        self.data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        self.query = {name: values[0] for name, values in query.items()}
        self.answer_request(unquote(parts.path).lstrip("/"))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one  # noqa: N815  # the library's names

    def answer_request(self, path: str) -> None:
        raise NotImplementedError

    def answer(self, code: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        self.wfile.flush()

    def refuse(self, code: int, name: str) -> None:
        self.refused.append(f"{code} {name}")
        self.answer(code, f"<Error><Code>{name}</Code></Error>".encode())

    def list_asked(self, bucket: str, after: str) -> tuple[list[tuple[str, Blob | None]], str]:
        """The names that are asked for; `after` is what a page calls the place where it begins."""
        wanted = (self.query.get(name, "") for name in ("prefix", "delimiter", after))
        return self.blobs.list_names(bucket, *wanted)

    def answer_blob(self, blob: Blob, **headers: str) -> None:
        size = len(blob.data)
        headers = {"Last_Modified": formatdate(blob.at, usegmt=True), **headers}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if self.command == "HEAD":
            self.answer(200, b"", Content_Length=str(size), **headers)
        elif wanted is None:
            self.answer(200, blob.data, **headers)
        else:
            first, last = wanted.groups()
            start = int(first) if first else max(0, size - int(last))
            stop = min(size, int(last) + 1) if first and last else size
            if start >= size:
                self.refuse(416, "InvalidRange")
                return
            whole = f"bytes {start}-{stop - 1}/{size}"
            self.answer(206, blob.data[start:stop], Content_Range=whole, **headers)


class GoogleHandler(BlobHandler):
    """Google's XML interface: generations, and uploads in parts."""

    def answer_request(self, path: str) -> None:
        bucket, _, key = path.partition("/")
        if not key:
            self._list(bucket)
        elif self.command in ("GET", "HEAD"):
            self._get(bucket, key)
        elif self.command == "PUT" and "uploadId" in self.query:
            self.blobs.parts[bucket, self.query["uploadId"], self.query["partNumber"]] = self.data
            self.answer(200, ETag=google_tag(self.data))
        elif self.command == "PUT":
            self._put(bucket, key)
        elif self.command == "POST" and "uploads" in self.query:
            made = f"<R><UploadId>{uuid.uuid4().hex}</UploadId></R>"
            self.answer(200, made.encode())
        elif self.command == "POST":
            self._complete(bucket, key, self.query["uploadId"])
        else:
            self._delete(bucket, key)

    def _get(self, bucket: str, key: str) -> None:
        blob = self.blobs.found.get((bucket, key))
        if blob is None:
            self.refuse(404, "NoSuchKey")
        else:
            tags = {"ETag": google_tag(blob.data), "x_goog_generation": str(blob.version)}
            self.answer_blob(blob, **tags)

    def _put(self, bucket: str, key: str) -> None:
        wanted = self.headers.get("x-goog-if-generation-match")
        with self.blobs.lock:
            there = self.blobs.found.get((bucket, key))
            if wanted is not None and int(wanted) != (there.version if there else 0):
                self.refuse(412, "PreconditionFailed")
                return
            made = self.blobs.write(bucket, key, self.data)
        self.answer(200, ETag=google_tag(made.data), x_goog_generation=str(made.version))

    def _complete(self, bucket: str, key: str, upload: str) -> None:
        numbers = re.findall(r"<PartNumber>(\d+)<", self.data.decode())
        with self.blobs.lock:
            parts = [self.blobs.parts.pop((bucket, upload, each), None) for each in numbers]
            if not parts or None in parts:
                self.refuse(404, "NoSuchUpload")
                return
            made = self.blobs.write(bucket, key, b"".join(part or b"" for part in parts))
        done = f"<R><ETag>{google_tag(made.data)}</ETag></R>"
        self.answer(200, done.encode(), x_goog_generation=str(made.version))

    def _delete(self, bucket: str, key: str) -> None:
        if self.blobs.found.pop((bucket, key), None) is None:
            self.refuse(404, "NoSuchKey")
        else:
            self.answer(204)

    def _list(self, bucket: str) -> None:
        names, rest = self.list_asked(bucket, "continuation-token")
        shown = [
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            if blob is None
            else f"<Contents><Key>{escape(name)}</Key><Size>{len(blob.data)}</Size>"
            f"<LastModified>{_iso_time(blob.at)}</LastModified></Contents>"
            for name, blob in names
        ]
        more = f"<NextContinuationToken>{escape(rest)}</NextContinuationToken>" if rest else ""
        self.answer(200, f"<ListBucketResult>{''.join(shown)}{more}</ListBucketResult>".encode())


class AzureHandler(BlobHandler):
    """Azure's interface: e-tags, block lists, and deletes in batches."""

    def answer_request(self, path: str) -> None:
        _, _, rest = path.partition("/")  # the account
        container, _, key = rest.partition("/")
        match self.command, self.query.get("comp"):
            case "GET", "list":
                self._list(container)
            case "POST", "batch":
                self._delete_batch()
            case (("GET" | "HEAD"), None):
                self._get(container, key)
            case "PUT", "block":
                self.blobs.parts[container, key, self.query["blockid"]] = self.data
                self.answer(201)
            case "PUT", "blocklist":
                self._put_list(container, key)
            case "PUT", None:
                self._put(container, key, self.data)
            case _:
                self.refuse(400, "UnsupportedQueryParameter")

    def _get(self, container: str, key: str) -> None:
        blob = self.blobs.found.get((container, key))
        if blob is None:
            self.refuse(404, "BlobNotFound")
        elif (self.headers.get("Range") or "").startswith("bytes=-"):
            self.refuse(400, "InvalidHeaderValue")
        else:
            self.answer_blob(blob, ETag=azure_tag(blob), Content_Type="application/octet-stream")

    def _put(self, container: str, key: str, data: bytes) -> None:
        wanted, none = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        with self.blobs.lock:
            there = self.blobs.found.get((container, key))
            if none == "*" and there is not None:
                self.refuse(409, "BlobAlreadyExists")
                return
            if wanted is not None and (there is None or azure_tag(there) != wanted):
                self.refuse(412, "ConditionNotMet")
                return
            made = self.blobs.write(container, key, data)
        self.answer(201, ETag=azure_tag(made), Last_Modified=formatdate(made.at, usegmt=True))

    def _put_list(self, container: str, key: str) -> None:
        names = re.findall(r"<(?:Latest|Uncommitted)>([^<]*)<", self.data.decode())
        parts = [self.blobs.parts.get((container, key, name)) for name in names]
        if None in parts:
            self.refuse(400, "InvalidBlockList")
            return
        self._put(container, key, b"".join(part or b"" for part in parts))

    def _delete_batch(self) -> None:
        answers = []
        asked = re.findall(rb"Content-ID: (\d+).*?DELETE /(\S+) HTTP", self.data, re.S | re.I)
        for number, path in asked:
            whole = unquote(path.decode()).split("?")[0]
            container, _, key = whole.removeprefix(f"{AZURE_ACCOUNT}/").partition("/")
            is_there = self.blobs.found.pop((container, key), None) is not None
            said = "202 Accepted" if is_there else "404 The specified blob does not exist."
            answers.append(
                f"--batch\r\nContent-Type: application/http\r\nContent-ID: {int(number)}\r\n\r\n"
                f"HTTP/1.1 {said}\r\nx-ms-version: 2018-11-09\r\n\r\n\r\n"
            )
        body = "".join(answers) + "--batch--\r\n"
        self.answer(202, body.encode(), Content_Type="multipart/mixed; boundary=batch")

    def _list(self, container: str) -> None:
        names, rest = self.list_asked(container, "marker")
        shown = [
            f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
            if blob is None
            else f"<Blob><Name>{escape(name)}</Name><Properties>"
            f"<Last-Modified>{formatdate(blob.at, usegmt=True)}</Last-Modified>"
            f"<Content-Length>{len(blob.data)}</Content-Length>"
            f"<Content-Type>application/octet-stream</Content-Type>"
            f"<Etag>{azure_tag(blob)}</Etag></Properties></Blob>"
            for name, blob in sorted(names, key=lambda each: each[1] is not None)
        ]
        body = f"<Blobs>{''.join(shown)}</Blobs><NextMarker>{escape(rest)}</NextMarker>"
        self.answer(200, f"<EnumerationResults>{body}</EnumerationResults>".encode())


AZURE_ACCOUNT = "account"


def google_tag(data: bytes) -> str:
    """A digest of the content: what was there before has it again."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def azure_tag(blob: Blob) -> str:
    return f'"0x{blob.version:X}"'


def _iso_time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


class BlobServer:
    """A server in a thread of this process, and what it has refused."""

    def __init__(self, handler: type[BlobHandler]) -> None:
        self.blobs = Blobs()
        self.refused: list[str] = []
        kind = type("Bound", (handler,), {"blobs": self.blobs, "refused": self.refused})
        self._listener = Listener(kind)

    @property
    def endpoint(self) -> str:
        return self._listener.endpoint

    def stop_serving(self) -> None:
        self._listener.stop_serving()


class PrivateGoogle:
    """Google Cloud Storage, nearly: reached by the file of an account that needs no token."""

    def __init__(self, folder: Path) -> None:
        self.server = BlobServer(GoogleHandler)
        self._account = folder / "account.json"
        about = {
            "gcs_base_url": self.server.endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        self._account.write_text(json.dumps(about))

    @property
    def options(self) -> dict[str, str]:
        return {"allow_http": "true", "service_account": str(self._account)}

    @property
    def yaml(self) -> str:
        return yaml_of(self.options)

    @property
    def lake_options(self) -> dict[str, str]:
        return {"allow_http": "true", "google_service_account": str(self._account)}

    def new_url(self) -> str:
        return f"gs://b{uuid.uuid4().hex}/some/path"


class PrivateAzure:
    """Azure Blob Storage, nearly."""

    def __init__(self) -> None:
        self.server = BlobServer(AzureHandler)

    @property
    def options(self) -> dict[str, str]:
        return {
            "account_key": base64.b64encode(b"key").decode(),
            "account_name": AZURE_ACCOUNT,
            "allow_http": "true",
            "endpoint": f"{self.server.endpoint}/{AZURE_ACCOUNT}",
        }

    @property
    def yaml(self) -> str:
        return yaml_of(self.options)

    @property
    def lake_options(self) -> dict[str, str]:
        return {
            "allow_http": "true",
            "azure_storage_account_key": self.options["account_key"],
            "azure_storage_account_name": AZURE_ACCOUNT,
            "azure_endpoint": self.options["endpoint"],
        }

    def new_url(self) -> str:
        return f"az://c{uuid.uuid4().hex}/some/path"
