"""Constructs that make rows of rows, and those that only Spark evaluates."""

from __future__ import annotations

from tests.sql.construct_forms import RESULT, Construct

GENERATORS = "Rows made of rows, and what only Spark evaluates"

GENERATOR_CONSTRUCTS = (
    Construct(
        GENERATORS,
        "explode of a split text",
        "SELECT t.id, w.word FROM crm.tickets t "
        "LATERAL VIEW explode(split(t.note || ',' || t.kind, ',')) w AS word",
    ),
    Construct(
        GENERATORS,
        "posexplode, outer",
        "SELECT o.id, p.at, p.part FROM shop.orders o "
        "LATERAL VIEW OUTER posexplode(split(o.note, '')) p AS at, part",
    ),
    Construct(
        GENERATORS,
        "an aggregate over it",
        "SELECT word, count(*) AS n, max(id) AS last FROM "
        "(SELECT o.id, explode(split(o.note || '-' || o.kind, '-')) AS word FROM shop.orders o) "
        "GROUP BY word",
        RESULT,
    ),
    Construct(
        GENERATORS,
        "a join over it",
        "SELECT w.id, w.word, c.name FROM (SELECT t.id, "
        "explode(split(t.kind || ' ' || t.level, ' ')) AS word FROM crm.tickets t) w "
        "LEFT JOIN crm.customers c ON cast(c.customer AS string) = w.word",
    ),
    Construct(
        GENERATORS,
        "a pattern, below a join",
        "SELECT c.customer, w.word FROM crm.customers c LEFT JOIN "
        "(SELECT o.customer, explode(split(o.note || ';' || o.kind || ',' || o.id, '[,;]')) "
        "AS word FROM shop.orders o) w ON w.customer = c.customer",
        besides=("what is made, because only Spark cuts by a pattern and the join asks for it",),
    ),
    Construct(
        GENERATORS,
        "explode of a sequence",
        "SELECT o.id, explode(sequence(o.day, date_add(o.day, 2))) AS day FROM shop.orders o",
    ),
    Construct(
        GENERATORS,
        "stack, and explode of an array that is written out",
        "SELECT t.id, s.what, s.amount, e.level FROM crm.tickets t "
        "LATERAL VIEW stack(2, 'kind', t.kind, 'level', t.level) s AS what, amount "
        "LATERAL VIEW explode(array(t.level, 0)) e AS level",
    ),
    Construct(
        GENERATORS,
        "UNPIVOT",
        "SELECT id, what, amount FROM (SELECT t.id, t.kind, t.level FROM crm.tickets t) "
        "UNPIVOT (amount FOR what IN (kind, level))",
    ),
    Construct(
        GENERATORS,
        "JSON: from_json with a schema, and its elements",
        "SELECT t.id, e.a, e.b FROM crm.tickets t LATERAL VIEW explode(from_json("
        """'[{"a":' || t.kind || ',"b":"' || t.note || '"},{"a":' || t.level || '}]', """
        "'array<struct<a: bigint, b: string>>')) x AS e WHERE e.a > 0",
    ),
    Construct(
        GENERATORS,
        "JSON: get_json_object, json_tuple, a field of from_json",
        """SELECT id, get_json_object(doc, '$.a') AS a, from_json(doc, 'b BIGINT').b AS b, j.c """
        """FROM (SELECT o.id, '{"a":"' || o.note || '","b":' || o.kind || ',"c":[1]}' AS doc """
        "FROM shop.orders o) LATERAL VIEW json_tuple(doc, 'c') j AS c",
    ),
    Construct(
        GENERATORS,
        "LATERAL with a generator",
        "SELECT t.id, w.col AS word FROM crm.tickets t, LATERAL explode(split(t.note, 'u')) w",
        besides=("the different texts that are split",),
    ),
    Construct(
        GENERATORS,
        "patterns",
        "SELECT o.id, regexp_extract(o.note, '([a-z])', 1) AS letter, "
        "regexp_replace(o.note, '[aeiou]', '*') AS masked, split(o.note, '')[0] AS first "
        "FROM shop.orders o WHERE o.note RLIKE '^[a-z]+$' OR o.note IS NULL",
    ),
    Construct(
        GENERATORS,
        "a pattern under max",
        "SELECT o.kind, max(regexp_extract(o.note, '([a-z])', 1)) AS letter, count(*) AS n "
        "FROM shop.orders o GROUP BY o.kind",
        RESULT,
        besides=("the values, because only Spark computes them and max asks for them",),
    ),
    Construct(
        GENERATORS,
        "a computed key that only Spark evaluates",
        "SELECT o.id, t.id AS ticket FROM shop.orders o "
        "JOIN (SELECT t.id, initcap(t.note) AS note FROM crm.tickets t) t "
        "ON t.note = initcap(o.note)",
    ),
)
