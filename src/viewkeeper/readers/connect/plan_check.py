"""What a plan of Spark Connect may have: everything that reads views, and nothing else.

A client sends a tree of messages. Kinds of relations, expressions and commands are allowed by name;
what is not listed is refused, and so is what a newer client may invent. Functions are those that a
query over views may call (`viewkeeper.view.sql.functions`). Whatever runs code of the client, names
a file or another table, writes, or keeps something in the session is not on the lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from viewkeeper.errors import RefusedRequestError
from viewkeeper.readers.connect.catalogue_answers import QUESTIONS
from viewkeeper.view.sql import functions

RELATIONS = frozenset(
    {
        *("read", "project", "filter", "join", "set_op", "sort", "limit", "aggregate", "sql"),
        *("local_relation", "sample", "offset", "deduplicate", "range", "subquery_alias"),
        *("repartition", "to_df", "with_columns_renamed", "show_string", "drop", "tail"),
        *("with_columns", "hint", "unpivot", "to_schema", "repartition_by_expression"),
        *("collect_metrics", "html_string", "as_of_join", "with_relations", "transpose"),
        *("lateral_join", "fill_na", "drop_na", "replace", "summary", "crosstab", "describe"),
        *("cov", "corr", "approx_quantile", "freq_items", "sample_by", "catalog"),
    }
)
EXPRESSIONS = frozenset(
    {
        *("literal", "unresolved_attribute", "unresolved_function", "expression_string"),
        *("unresolved_star", "alias", "cast", "unresolved_regex", "sort_order", "lambda_function"),
        *("window", "unresolved_extract_value", "update_fields"),
        *("unresolved_named_lambda_variable", "call_function", "named_argument_expression"),
        *("subquery_expression",),
    }
)
PLANS, COMMANDS = frozenset({"root", "command"}), frozenset({"sql_command"})
CATALOGUE = QUESTIONS | {"current_database", "current_catalog"}
ANALYSES = frozenset(
    {
        *("schema", "explain", "tree_string", "is_local", "is_streaming", "spark_version"),
        *("ddl_parse", "same_semantics", "semantic_hash", "json_to_ddl"),
    }
)
REASONS = {
    "write_operation": "it writes",
    "write_operation_v2": "it writes",
    "write_stream_operation_start": "it writes",
    "merge_into_table_command": "it writes",
    "register_function": "functions of a client run code here",
    "register_table_function": "functions of a client run code here",
    "register_data_source": "data sources of a client run code here",
    "common_inline_user_defined_function": "functions of a client run code here",
    "common_inline_user_defined_table_function": "functions of a client run code here",
    "map_partitions": "functions of a client run code here",
    "group_map": "functions of a client run code here",
    "co_group_map": "functions of a client run code here",
    "create_dataframe_view": "a temporary view would keep the state of one ts, and be joined with "
    "others; keep the DataFrame instead",
    "persist": "a cache would keep the state of one ts; collect the rows instead",
    "checkpoint_command": "a checkpoint would keep the state of one ts; collect the rows instead",
    "AddArtifacts": "files and large tables of a client are not taken",
    "ArtifactStatus": "files and large tables of a client are not taken",
}
WITH_SCHEMA = ("from_json", "from_xml", "from_csv", "from_avro")
"""Functions whose second argument can be a schema as JSON."""
STREAM_HINT = "a Spark job of your own reads changes as a stream, by the data source `viewkeeper`"
HINT = "this endpoint reads the views of a project: `spark.table(NAME)`, `spark.sql(SELECT ...)`"


def refuse_kind(kind: str, where: str = "a plan") -> RefusedRequestError:
    """The error for a part of a request that is not on the lists."""
    return RefusedRequestError(
        f"{kind or 'something unknown'} in {where} is refused", detail=REASONS.get(kind), hint=HINT
    )


def messages_in(message: Any) -> Iterator[Any]:
    """A message and all messages inside of it, outer ones first; who takes one may change it before
    it asks for the next."""
    waiting = [message]
    while waiting:
        current = waiting.pop()
        yield current
        for field, value in current.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                inner = field.message_type.fields_by_name["value"].message_type
                waiting.extend(value.values() if inner is not None else ())
            elif field.is_repeated:
                waiting.extend(value)
            else:
                waiting.append(value)


def check_message(message: Any) -> None:
    """RefusedRequestError if a message by itself, without those inside, asks for too much."""
    match message.DESCRIPTOR.full_name:
        case "spark.connect.Plan":
            # A compressed plan could not be looked into.
            _require_kind(message.WhichOneof("op_type"), PLANS)
        case "spark.connect.Command":
            _require_kind(message.WhichOneof("command_type"), COMMANDS)
        case "spark.connect.Relation":
            _require_kind(message.WhichOneof("rel_type"), RELATIONS)
            if message.WhichOneof("rel_type") == "with_relations":
                check_references(message.with_relations)
        case "spark.connect.Read":
            if message.is_streaming:
                raise RefusedRequestError("streams are refused", hint=STREAM_HINT)
            if message.WhichOneof("read_type") != "named_table":
                raise RefusedRequestError("only views can be read, no files", hint=HINT)
        case "spark.connect.Catalog":
            _require_kind(message.WhichOneof("cat_type"), CATALOGUE)
        case "spark.connect.Expression":
            _require_kind(message.WhichOneof("expr_type"), EXPRESSIONS)
        case "spark.connect.Expression.UnresolvedFunction":
            if message.is_user_defined_function:
                raise refuse_kind("register_function")
            _check_function(message.function_name)
            if message.function_name.lower() in WITH_SCHEMA and len(message.arguments) > 1:
                _check_schema(message.arguments[1].literal.string)
        case "spark.connect.LocalRelation":
            _check_schema(message.schema)
        case "spark.connect.AnalyzePlanRequest.JsonToDDL":
            _check_schema(message.json_string)
        case "spark.connect.CallFunction":
            _check_function(message.function_name)
        case "spark.connect.DataType.UDT" | "google.protobuf.Any":
            raise refuse_kind(message.DESCRIPTOR.name)


def _require_kind(kind: str | None, allowed: frozenset[str]) -> None:
    if kind not in allowed:
        raise refuse_kind(kind or "")


def check_references(relations: Any) -> None:
    """RefusedRequestError for a text that names DataFrames: Spark would keep these as temporary
    views of the session."""
    if relations.root.WhichOneof("rel_type") == "sql":
        raise RefusedRequestError(
            "DataFrames in the text of a query are refused",
            hint="name the views themselves, or call methods of the DataFrame",
        )


def _check_function(name: str) -> None:
    word = name.strip("`").lower()
    if word not in functions.IN_QUERY:
        raise RefusedRequestError(
            f"the function {name}() is refused",
            detail=functions.REFUSED.get(word),
            hint=functions.missing_function_hint(word),
        )


def _check_schema(text: str) -> None:
    """A schema as JSON can name a class of Java as the type of a column, which would be loaded."""
    if "{" not in text:
        return

    def check_pairs(pairs: list[tuple[str, Any]]) -> None:
        if ("type", "udt") in pairs:
            raise refuse_kind("UDT")

    try:
        json.loads(text, object_pairs_hook=check_pairs)
    except (ValueError, RecursionError):
        raise RefusedRequestError("a schema cannot be read", hint="write it as `id INT`") from None
