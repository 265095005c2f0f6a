"""The proxy before Spark's Connect server: it checks each request, pins its views, passes it on.

Answers pass through as the bytes that they are, but for one: `spark.sql` is answered with the
relation that a client sends from then on, which must be the client's own text, to be pinned at
every action, and not the pinned one.

1. Every request needs the token, if there is one; the server behind has another, so that nobody
   reaches it but by this way.
2. Plans to be executed or analyzed are checked, and read views as of one head.
3. Requests about running queries and sessions pass. What brings files, or is not known, is refused.
"""

from __future__ import annotations

import hmac
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from pyspark.errors import PySparkException
from pyspark.sql.connect.proto import base_pb2 as messages

from viewkeeper.errors import (
    DefinitionError,
    HorizonError,
    RefusedRequestError,
    SparkUnavailableError,
    ViewkeeperError,
)
from viewkeeper.readers.connect.connect_settings import check_settings
from viewkeeper.readers.connect.pinned_plan import NamedViews, PlanPins
from viewkeeper.readers.connect.pinned_views import PinnedViews, ViewPin
from viewkeeper.readers.connect.plan_check import ANALYSES, check_references, refuse_kind
from viewkeeper.readers.connect.running_operations import Key, RunningOperations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVICE = "/spark.connect.SparkConnectService/"
PASSED = ("Interrupt", "FetchErrorDetails", "GetStatus")
MESSAGE_BYTES = 128 << 20
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_metadata_size", 8 << 20),
    ("grpc.absolute_max_metadata_size", 16 << 20),
)
SERVER_OPTIONS = (
    *OPTIONS,
    # Two servers at one port would share its clients.
    ("grpc.so_reuseport", 0),
    # Clients of Spark ask every minute whether we are there; by default that is an offence.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
)

ANALYSIS = "org.apache.spark.sql.AnalysisException"
CODES: dict[type[Exception], tuple[Any, str]] = {
    RefusedRequestError: (
        grpc.StatusCode.PERMISSION_DENIED,
        "java.lang.UnsupportedOperationException",
    ),
    DefinitionError: (grpc.StatusCode.INVALID_ARGUMENT, ANALYSIS),
    HorizonError: (grpc.StatusCode.INVALID_ARGUMENT, ANALYSIS),
    PySparkException: (grpc.StatusCode.INVALID_ARGUMENT, ANALYSIS),
    SparkUnavailableError: (grpc.StatusCode.UNAVAILABLE, "java.lang.RuntimeException"),
}
"""Of an error, the code, and the class by which clients choose the class of theirs."""

EXPECTED = (ViewkeeperError, PySparkException, grpc.RpcError)


@dataclass(frozen=True, slots=True)
class ConnectTokens:
    """What clients must know, if anything, and what the server behind must hear."""

    client: str | None
    server: str


class ConnectProxy(grpc.GenericRpcHandler):  # type: ignore[misc]  # the library has no types
    """Answers the requests of clients by those of a Connect server behind it."""

    def __init__(
        self, channel: Any, spark: SparkSession, views: PinnedViews, tokens: ConnectTokens
    ) -> None:
        self._channel = channel
        self._spark = spark
        self._views = views
        self._tokens = tokens
        self._operations = RunningOperations(views.release_pin)

    def service(self, handler_call_details: Any) -> Any:
        """What answers a method."""
        name = str(handler_call_details.method).removeprefix(SERVICE)
        streams = {"ExecutePlan": self._execute_plan, "ReattachExecute": self._reattach}
        answers: dict[str, Callable[[bytes, Any], bytes]] = {
            "AnalyzePlan": self._analyze_plan,
            "Config": self._answer_config,
            "ReleaseExecute": self._release_execute,
            "ReleaseSession": self._release_session,
            **{each: self._passing(each) for each in PASSED},
        }
        if name in streams:
            return grpc.unary_stream_rpc_method_handler(_translate_stream_errors(streams[name]))
        if name in answers:
            return grpc.unary_unary_rpc_method_handler(_translate_errors(answers[name]))
        return grpc.stream_unary_rpc_method_handler(_translate_errors(self._refuse_method(name)))

    def _refuse_method(self, name: str) -> Callable[[Any, Any], bytes]:
        def refuse(_: Any, context: Any) -> bytes:
            self._admit(context)
            raise refuse_kind(name, "a request")

        return refuse

    def _admit(self, context: Any) -> tuple[tuple[str, str | bytes], ...]:
        """Refuse who does not know the token; the metadata for the server behind."""
        given = context.invocation_metadata()
        if self._tokens.client is not None:
            said = [str(value) for key, value in given if key == "authorization"]
            wanted = f"Bearer {self._tokens.client}"
            if len(said) != 1 or not hmac.compare_digest(said[0].encode(), wanted.encode()):
                context.abort(
                    grpc.StatusCode.UNAUTHENTICATED,
                    "the token is missing or wrong: sc://HOST:PORT/;token=TOKEN",
                )
        return (("authorization", f"Bearer {self._tokens.server}"),)

    def _ask_server(self, name: str, data: bytes, context: Any) -> bytes:
        metadata = self._admit(context)
        call = self._channel.unary_unary(SERVICE + name)
        answer: bytes = call(data, metadata=metadata, timeout=_time_left(context))
        return answer

    def _ask_stream(self, name: str, data: bytes, context: Any) -> Iterator[bytes]:
        call = self._channel.unary_stream(SERVICE + name)
        stream = call(data, metadata=self._admit(context), timeout=_time_left(context))
        context.add_callback(stream.cancel)
        return iter(stream)

    def _passing(self, name: str) -> Callable[[bytes, Any], bytes]:
        return lambda data, context: self._ask_server(name, data, context)

    def _execute_plan(self, data: bytes, context: Any) -> Iterator[bytes]:
        self._admit(context)
        request = _read_message(messages.ExecutePlanRequest, data)
        text = _statement_of(request.plan)
        if not request.operation_id:
            request.operation_id = str(uuid.uuid4())
        key = (request.session_id, request.operation_id)
        pin = self._pin_request(request)
        self._operations.begin_operation(key, pin, text)
        return self._answer_stream("ExecutePlan", request.SerializeToString(), context, key, text)

    def _reattach(self, data: bytes, context: Any) -> Iterator[bytes]:
        self._admit(context)
        request = _read_message(messages.ReattachExecuteRequest, data)
        key = (request.session_id, request.operation_id)
        text = self._operations.resume_operation(key)
        return self._answer_stream("ReattachExecute", data, context, key, text)

    def _answer_stream(
        self, name: str, data: bytes, context: Any, key: Key, text: Any
    ) -> Iterator[bytes]:
        try:
            for answer in self._ask_stream(name, data, context):
                yield answer if text is None else _with_statement(answer, text)
        finally:
            self._operations.leave_stream(key)

    def _pin_request(self, request: Any) -> ViewPin:
        """Check a request and let it read one head; what it reads is pinned then."""
        named = NamedViews(self._views.read_newest())
        named.take_plan(request)
        pin = self._views.pin_views(named.head, named.used)
        try:
            PlanPins(self._spark, named, pin).pin_plan(request)
        except BaseException:
            self._views.release_pin(pin)
            raise
        return pin

    def _analyze_plan(self, data: bytes, context: Any) -> bytes:
        self._admit(context)
        request = _read_message(messages.AnalyzePlanRequest, data)
        kind = request.WhichOneof("analyze")
        if kind not in ANALYSES:
            raise refuse_kind(kind or "", "an analysis")
        pin = self._pin_request(request)
        try:
            return self._ask_server("AnalyzePlan", request.SerializeToString(), context)
        finally:
            self._views.release_pin(pin)

    def _answer_config(self, data: bytes, context: Any) -> bytes:
        self._admit(context)
        request = _read_message(messages.ConfigRequest, data)
        check_settings(request)
        return self._ask_server("Config", request.SerializeToString(), context)

    def _release_execute(self, data: bytes, context: Any) -> bytes:
        request = _read_message(messages.ReleaseExecuteRequest, data)
        answer = self._ask_server("ReleaseExecute", data, context)
        if request.WhichOneof("release") == "release_all":
            self._operations.end_operation((request.session_id, request.operation_id))
        return answer

    def _release_session(self, data: bytes, context: Any) -> bytes:
        request = _read_message(messages.ReleaseSessionRequest, data)
        answer = self._ask_server("ReleaseSession", data, context)
        self._operations.end_session(request.session_id)
        return answer


def _read_message(kind: Any, data: bytes) -> Any:
    """A request; the library that reads it has a limit to what is inside of what."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RefusedRequestError(
            "the request cannot be read",
            detail=str(error),
            hint="a plan may have about 45 steps on each other: add several columns at once with "
            "withColumns or select, or write it as spark.sql(SELECT ...)",
        ) from None


def _statement_of(plan: Any) -> Any:
    """The relation of a `spark.sql`, None for a query; other commands are refused."""
    match plan.WhichOneof("op_type"):
        case "root":
            return None
        case "command":
            kind = plan.command.WhichOneof("command_type")
            if kind != "sql_command":
                raise refuse_kind(kind or "", "a command")
            command = plan.command.sql_command
            if command.input.WhichOneof("rel_type") == "with_relations":
                check_references(command.input.with_relations)
            if command.sql or command.input.WhichOneof("rel_type") != "sql":
                raise RefusedRequestError(
                    "this form of spark.sql is refused", hint="use a client of Spark 4"
                )
            return type(command.input).FromString(command.input.SerializeToString())
        case kind:
            raise refuse_kind(kind or "", "a request")


def _with_statement(answer: bytes, text: Any) -> bytes:
    """An answer that gives the client its own text back."""
    response = messages.ExecutePlanResponse.FromString(answer)
    if response.WhichOneof("response_type") != "sql_command_result":
        return answer
    response.sql_command_result.relation.CopyFrom(text)
    data: bytes = response.SerializeToString()
    return data


def _time_left(context: Any) -> float | None:
    """The client's own deadline; without one the library says more than clocks can add."""
    left = context.time_remaining()
    return None if left is None or left > 1e8 else float(left)


def _translate_errors(answer: Callable[[Any, Any], bytes]) -> Callable[[Any, Any], bytes]:
    """The same, with errors as clients understand them."""

    def call(request: Any, context: Any) -> bytes:
        try:
            return answer(request, context)
        except EXPECTED as error:
            _abort_request(error, context)

    return call


def _translate_stream_errors(
    answer: Callable[[bytes, Any], Iterator[bytes]],
) -> Callable[[bytes, Any], Iterator[bytes]]:
    def call(request: bytes, context: Any) -> Iterator[bytes]:
        try:
            yield from answer(request, context)
        except EXPECTED as error:
            _abort_request(error, context)

    return call


def _abort_request(error: Exception, context: Any) -> NoReturn:
    """What the server behind says passes as it is; our own errors get a code and their text."""
    if isinstance(error, grpc.RpcError):
        context.set_trailing_metadata(error.trailing_metadata() or ())
        context.abort(error.code(), error.details())
    found = (each for kind, each in CODES.items() if isinstance(error, kind))
    code, java = next(found, (grpc.StatusCode.FAILED_PRECONDITION, "java.lang.RuntimeException"))
    facts = error_details_pb2.ErrorInfo(
        reason=java, domain="org.apache.spark", metadata={"classes": json.dumps([java])}
    )
    status = status_pb2.Status(code=code.value[0], message=str(error))
    status.details.add().Pack(facts)
    context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("the library raises what ends a request")
