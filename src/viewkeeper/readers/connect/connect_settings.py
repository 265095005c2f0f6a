"""Which settings of the session clients of an endpoint may read and set.

What SQL means is ours to say (`viewkeeper.engine.spark.spark_session.PINNED`), and the settings of
the context hold secrets. So clients read those of Spark SQL and of Connect, and set those that only
say how an answer looks or is computed.
"""

from __future__ import annotations

from typing import Any

from viewkeeper.errors import RefusedRequestError

READABLE = ("spark.sql.", "spark.python.sql.", "spark.connect.session.", "spark.api.mode")
SECRET = "spark.sql.catalog."
"""Catalogues of the project's own may have passwords."""
SETTABLE = frozenset(
    {
        *("spark.sql.session.timeZone", "spark.sql.shuffle.partitions", "spark.sql.timestampType"),
        *("spark.sql.adaptive.enabled", "spark.sql.autoBroadcastJoinThreshold"),
        *("spark.sql.ansi.enabled", "spark.sql.repl.eagerEval.enabled"),
        *("spark.sql.repl.eagerEval.maxNumRows", "spark.sql.repl.eagerEval.truncate"),
        *("spark.sql.execution.arrow.maxRecordsPerBatch",),
        *("spark.sql.execution.pandas.structHandlingMode",),
        *("spark.sql.execution.arrow.useLargeVarTypes",),
        *("spark.sql.execution.arrow.pyspark.enabled", "spark.sql.execution.pyspark.binaryAsBytes"),
        *("spark.sql.connect.serverStacktrace.enabled", "spark.sql.pyspark.jvmStacktrace.enabled"),
    }
)


def check_settings(request: Any) -> None:
    """RefusedRequestError if a request sets or reads what it may not; what may fail silently is
    left out."""
    operation = request.operation
    match operation.WhichOneof("op_type"):
        case "set":
            refused = [pair for pair in operation.set.pairs if pair.key not in SETTABLE]
            if refused and not operation.set.silent:
                raise _setting_refusal(refused[0].key, "set", ", ".join(sorted(SETTABLE)))
            for pair in refused:
                operation.set.pairs.remove(pair)
        case "unset":
            for key in operation.unset.keys:
                if key not in SETTABLE:
                    raise _setting_refusal(key, "set", ", ".join(sorted(SETTABLE)))
        case "get" | "get_option" | "is_modifiable" as kind:
            _check_keys(getattr(operation, kind).keys)
        case "get_with_default":
            _check_keys([pair.key for pair in operation.get_with_default.pairs])
        case kind:
            raise RefusedRequestError(
                f"{kind or 'something unknown'} of settings is refused",
                hint="ask for a setting by its name",
            )


def _check_keys(keys: Any) -> None:
    for key in keys:
        if not key.startswith(READABLE) or key.startswith(SECRET):
            raise _setting_refusal(key or "the whole list", "read", f"{READABLE[0]}*")


def _setting_refusal(key: str, how: str, able: str) -> RefusedRequestError:
    return RefusedRequestError(f"{key}: clients may not {how} it", hint=f"they may {how}: {able}")
