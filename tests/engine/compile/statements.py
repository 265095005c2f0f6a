"""Queries for the compiler, over four small tables with NULLs and duplicates.

`ACCEPTED` must give the rows and types that Spark gives for the text itself. `REFUSED` says for
each statement what the refusal is about. The tables are written by their names; `over_places` turns
them into the names that a compiled query has.
"""

from __future__ import annotations

import re

import pyarrow as pa

from viewkeeper.engine.compile.query_table import QueryTable
from viewkeeper.view.definition import Relation

DAY, LARGE, WHOLE, TEXT = pa.date32(), pa.int64(), pa.int32(), pa.string()
_COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "a": {
        "id": LARGE,
        "k": WHOLE,
        "g": WHOLE,
        "x": pa.float64(),
        "s": TEXT,
        "d": DAY,
        "p": pa.decimal128(10, 2),
    },
    "b": {
        "id": LARGE,
        "k": WHOLE,
        "g": WHOLE,
        "y": WHOLE,
        "s": TEXT,
        "t": pa.timestamp("us", "UTC"),
        "q": pa.decimal128(8, 3),
    },
    "c": {"k": WHOLE, "name": TEXT},
    "e": {"k": WHOLE, "y": WHOLE},
}
REQUIRED = {("a", "id"), ("b", "id"), ("c", "k")}
TABLES: dict[str, pa.Schema] = {
    table: pa.schema(
        [
            pa.field(name, kind, nullable=(table, name) not in REQUIRED)
            for name, kind in columns.items()
        ]
    )
    for table, columns in _COLUMNS.items()
}
UNIQUE = {"c": frozenset({("k",)})}

QUERY_TABLES = [
    QueryTable(Relation("shop", name), schema, UNIQUE.get(name, frozenset()))
    for name, schema in TABLES.items()
]

AFTER = (
    "where|left|right|full|join|inner|cross|natural|group|order|union|intersect|except|on|using"
    "|having|qualify|lateral|pivot|unpivot|limit|tablesample|semi|anti|window"
)
"""Words after a table that are no alias."""


def over_places(text: str) -> str:
    """The text with tables named as in a compiled query; each keeps its alias.

    >>> over_places("select id from a left join b z on a.k = z.k")
    'select id from __place_0 a left join __place_1 z on a.k = z.k'
    """
    numbers = {name: number for number, name in enumerate(TABLES)}
    pattern = rf"\b(from|join|,)(\s+)([abce])\b(?!\.|\()(\s+(?:as\s+)?(?!(?:{AFTER})\b)[a-z]\w*)?"

    def place(found: re.Match[str]) -> str:
        alias = found[4] or f" {found[3]}"
        return f"{found[1]}{found[2]}__place_{numbers[found[3]]}{alias}"

    return re.sub(pattern, place, text)


ACCEPTED: dict[str, str] = {
    # -- left, right, full
    "left": "select a.id, b.id b_id, b.y from a left join b on a.k = b.k and b.y > 1",
    "left where": "select a.id, b.y from a left join b on a.k = b.k where b.y > 1",
    "left is null": "select a.id from a left join b on a.k = b.k where b.id is null",
    "left, condition on the left": "select a.id, b.id i from a left join b"
    " on a.k = b.k and a.x > 0.6",
    "left, condition over both": "select a.id, b.id i from a left join b"
    " on a.k = b.k and a.g < b.y",
    "right": "select a.id, b.id b_id from a right join b on a.k = b.k and a.x > 0",
    "full": "select a.id, b.id b_id from a full join b on a.k = b.k",
    "full using": "select k, a.id, b.id b_id from a full join b using (k)",
    "full of more": "select u.k, u.n, v.m from (select k, count(*) n from a group by k) u"
    " full join (select k, max(y) m from b group by k) v on u.k = v.k",
    "full counted": "select count(*) n from a full join b on a.k = b.k",
    "natural": "select * from b natural join e",
    "natural left": "select * from b natural left join e",
    "left using chain": "select k, a.id, b.y, c.name from a left join b using (k)"
    " left join c using (k)",
    "left chain": "select a.id, b.y, c.name from a left join b on a.k = b.k"
    " left join c on b.g = c.k",
    "left chain of six": "select a.id, b.id i, c.name n, e.y ey, d.name m, f.y fy from a"
    " left join b on a.k = b.k and b.y > 2 left join c on b.g = c.k left join e on e.k = a.g"
    " left join c d on d.k = e.y left join e f on f.k = d.k and f.y = a.k",
    "left then inner": "select a.id, c.name from a left join b on a.k = b.k join c on c.k = a.g",
    "left, inner below": "select a.id, c.name from a left join b on a.k = b.k join c on c.k = b.g",
    "left of a join": "select a.id, u.name from a left join"
    " (select b.k, c.name from b join c on b.g = c.k) u on a.k = u.k",
    "left of a computed column": "select a.id, u.w from a left join"
    " (select k, coalesce(y, 0) w from b) u on a.k = u.k",
    "left of a filtered table": "select a.id, u.y from a left join"
    " (select k, y from b where y > 1) u on a.k = u.k",
    "left, null-safe": "select a.id, b.id i from a left join b on a.k <=> b.k",
    "null-safe below left": "select a.id, b.y, e.y ey from a left join b on a.k = b.k and b.y > 2"
    " left join e on e.k <=> b.g",
    "null-safe inner below left": "select a.id, b.y, e.y ey from a left join b"
    " on a.k = b.k and b.y > 2 join e on e.k <=> b.g",
    "self left": "select l.id, r.id rid from a l left join a r on l.k = r.g and r.x > 0.6",
    "left on two columns": "select a.id, b.id i from a left join b on a.k = b.k and a.g = b.g",
    "left on two tables": "select a.id, b.id i, e.y from a join b on a.k = b.k"
    " left join e on e.k = a.g and e.y = b.y",
    "left on a computed value": "select a.id, e.y from a left join e on a.g + 1 = e.k",
    "left on a computed right value": "select a.id, e.y from a left join e on a.g = e.k + 1",
    "left on unlike types": "select a.id, e.y from a left join e on a.id = e.k",
    "null-safe": "select a.id, b.id i from a join b on a.k <=> b.k",
    "semi anti": "select a.id from a left semi join b on a.k = b.k left anti join c on a.g = c.k",
    "cross": "select a.id, c.k from a cross join c where a.g + c.k = 3",
    "self join": "select l.id, r.id rid from a l join a r on l.k = r.g",
    "hint": "select /*+ BROADCAST(b), REPARTITION(2) */ a.id from a join b on a.k = b.k",
    # -- in and exists
    "in": "select * from a where k in (select k from b)",
    "not in, both not null": "select id from a where id not in (select id from b where y > 2)",
    "in or": "select id from a where k in (select k from b) or x > 0.5",
    "not in or": "select id from a where k not in (select k from b where b.g = a.g) or x > 0.5",
    "in in select": "select id, k in (select k from b) f from a",
    "in is null": "select id from a where (k in (select k from b)) is null",
    "in case": "select id, case when k in (select k from b) then 'y' else s end r from a",
    "in pair": "select id from a where (k, g) in (select k, g from b)",
    "in correlated": "select id from a where k in (select k from b where b.g = a.g and b.y > a.k)",
    "not in correlated": "select id from a where k not in (select k from b where b.g = a.g)",
    "in of an aggregate": "select id from a where k in"
    " (select k from b group by k having sum(y) > 4)",
    "exists": "select id from a where exists (select 1 from b where b.k = a.k and b.y > 1)",
    "not exists": "select id from a where not exists"
    " (select 1 from b where b.k = a.k and b.y > a.g)",
    "not exists with or": "select id from a where not exists"
    " (select 1 from b where b.k = a.k and (b.g = a.g or b.g is null))",
    "exists or exists": "select id from a where exists (select 1 from b where b.k = a.k)"
    " or exists (select 1 from c where c.k = a.g)",
    "exists in select": "select id, exists (select 1 from b where b.k = a.k) f from a",
    "exists nested": "select id from a where exists"
    " (select 1 from b where b.k = a.k and exists (select 1 from c where c.k = b.g))",
    "exists in join": "select a.id, b.id i2 from a join b on a.k = b.k"
    " and exists (select 1 from c where c.k = a.k)",
    "exists of a join": "select id from a where exists"
    " (select 1 from b join c on b.g = c.k where b.k = a.k)",
    "exists lower": "select id from a where exists (select 1 from b where upper(b.s) = upper(a.s))",
    "in having": "select g, count(*) n from a group by g having g in (select k from b)",
    "count bug": "select id, (select count(*) from b where b.k = a.k) n from a",
    "scalar compare": "select id from a where g < (select max(y) from b where b.k = a.k)",
    "scalar coalesce": "select id, coalesce((select sum(q) from b where b.k = a.k and b.g = a.g),"
    " 0) n from a",
    "lateral join": "select a.id, t.m from a, lateral (select max(y) m from b where b.k = a.k) t",
    # -- scalar subqueries without correlation
    "scalar": "select id, x / (select sum(x) from a) share from a",
    "scalar in where": "select id from a where p > (select avg(p) from a) and k > 0",
    "scalar of two": "select id from a"
    " where p > (select avg(q) from b) and k < (select max(y) from b)",
    "scalar twice": "select id, p / (select max(q) from b) r from a"
    " where p < (select max(q) from b)",
    "scalar in having": "select g, sum(p) v from a group by g"
    " having sum(p) > (select sum(p) / 4 from a)",
    "scalar over groups": "select g, sum(p) / (select sum(p) from a) share from a group by g",
    "scalar in a call": "select g, sum(p * (select max(y) from b)) v from a group by g",
    "scalar in a group": "select p > (select avg(p) from a) large, count(*) n from a group by 1",
    "scalar in case": "select id, case when k > (select min(y) from b) then (select max(y) from b)"
    " end v from a",
    "scalar nested": "select id from a where p > (select avg(q) from b"
    " where q < (select max(p) from a))",
    "scalar in a subquery": "select id from a where k in (select k from b"
    " where q > (select avg(q) from b))",
    "scalar of a scalar in": "select id from a where (select max(k) from b) in (select k from e)",
    "scalars alone": "select (select count(*) from a) n, (select max(y) from b) m",
    "scalar of nothing": "select id, (select y from b where b.id = -1) y from a",
    "scalar with having": "select id, (select count(*) from b having count(*) > 1000) n from a",
    "scalar over a join": "select a.id, b.y from a join b on a.k = b.k"
    " where a.p > (select avg(p) from a)",
    "scalar in on": "select a.id, b.y from a left join b on a.k = b.k"
    " and b.q > (select avg(q) from b)",
    "scalar in on of both": "select a.id, b.y from a left join b on a.k = b.k"
    " and a.p + b.q > (select avg(q) from b)",
    "scalar in inner on": "select a.id, b.y from a join b on a.k = b.k"
    " and a.p > (select avg(q) from b)",
    "scalar in a union": "select k from a where p > (select avg(p) from a)"
    " union all select k from b where q > (select avg(q) from b)",
    "scalar over a union": "select u.k from (select k, p v from a union all select k, q from b) u"
    " where u.v > (select avg(p) from a)",
    "scalar of distinct": "select id from a where k = (select distinct 1 from b)",
    "scalar without from": "select id, (select 7) n from a where k < (select 3)",
    "scalar, spark's words": "select id, lpad(s, (select max(y) from b), '*') w from a",
    "exists alone": "select id from a where exists (select 1 from b where y > 3)",
    "not exists alone": "select id from a where not exists (select 1 from b where y > 100)",
    "exists alone, selected": "select id, exists (select 1 from b where y > 3) f from a",
    "scalar of a row": "select b.id, (select name from c where c.k = b.k) n from b",
    "scalar of one row": "select a.id, (select b.y from b where b.id = a.id and b.y > 0) n from a",
    "scalar, count bug, having": "select id, (select count(*) from b where b.k = a.k"
    " having count(*) > 1) n from a",
    "scalar by order": "select id, (select max(y) from b where b.k < a.k) n from a",
    "scalars of scalars": "select id, (select count(*) from b where b.k = a.k"
    " and b.q > (select avg(q) from b)) n from a",
    "not in": "select id from a where k not in (select k from b where y > 2)",
    "not in what is never null": "select id from a where k not in (select k from c)",
    "not in nothing": "select id from a where k not in (select k from b where y > 1000)",
    "in and not in": "select id from a where k in (select k from b) and g not in (select y from e)",
    "in both columns": "select id from a where (k, g) in (select k, g from b)",
    # -- sets
    "union": "select k, s from a union select k, s from b",
    "union all": "select k, p v from a union all select y, q from b",
    "union all of three": "select k from a union all select k from b union all select k from c",
    "union below join": "select u.k, c.name from"
    " (select k from a union all select k from b) u left join c on u.k = c.k",
    "left of a union": "select a.id, u.z from a left join"
    " (select k, y z from b union all select k, y from e) u on u.k = a.k",
    "intersect": "select k, g from a intersect select k, g from b",
    "intersect all": "select k from a intersect all select k from b",
    "except": "select k, g from a except select k, g from b",
    "except same": "select k, g from a except select k, g from a where x > 0",
    "except all": "select k from a except all select k from b",
    "distinct": "select distinct g, s from a",
    "distinct of a join": "select distinct a.g, c.name from a left join c on a.k = c.k",
    # -- aggregates
    "count": "select count(*) n from a",
    "group": "select g, count(*) n, count(x) c, sum(p) s, avg(p) v, min(d) l, max(s) h"
    " from a group by g",
    "group of a left join": "select c.name, count(a.id) n, sum(a.p) s from c"
    " left join a on a.k = c.k group by c.name",
    "having": "select g, count(*) n from a group by g having count(*) > 5 and max(x) > 0",
    "having only": "select max(k) m from a having count(*) > 1000",
    "expressions over aggregates": "select g, sum(p) / count(*) r, round(avg(p), 1) v,"
    " coalesce(max(k), 0) + 1 m, concat(min(s), '-', max(s)) t from a group by g",
    "spark over aggregates": "select g, lpad(max(s), 4, '*') t, date_format(max(d), 'yyyy') y"
    " from a group by g",
    "group by expression": "select g + 1 + 2 z, count(*) n from a group by g + 1",
    "group by all": "select g + 1 as h, upper(s) u, count(*) n from a group by all",
    "group by alias": "select g + 1 as h, count(*) n from a group by h having n > 1",
    "group by ordinal": "select g, s, sum(p) t from a group by 1, 2",
    "group by constant": "select count(*) n, sum(k) s from a where x > 1e9 group by 'x'",
    "distinct aggregates": "select g, count(distinct k) a, sum(distinct k) b,"
    " count(distinct s, k) c, avg(p) d from a group by g",
    "distinct only": "select g, count(distinct k) n from a group by g",
    "distinct global": "select count(distinct k) n, sum(distinct g) m, count(*) c from a",
    "distinct filtered": "select g, count(distinct k) filter (where x > 0.7) n from a group by g",
    "distinct calls of a join": "select c.name, count(distinct a.g) n, count(a.id) m from c"
    " left join a on a.k = c.k group by c.name",
    "filter clause": "select g, count(*) filter (where x > 0) a, sum(p) filter (where k = 1) b,"
    " count(distinct k) filter (where x > 0) c, count_if(k > 1) d, bool_or(k > 1) e,"
    " every(k > 0) f from a group by g",
    "statistics": "select g, stddev(x) c, var_pop(x) e, corr(x, k) f, covar_samp(x, k) cs,"
    " variance(k) v, max_by(s, id) h, min_by(d, id) l from a group by g",
    "empty aggregate": "select count(*) n, sum(k) s, max(s) m from a where x > 1e9",
    "aggregate twice": "select n, count(*) m from (select g, count(*) n from a group by g)"
    " group by n",
    "aggregates joined": "select u.g, u.n, v.m from (select g, count(*) n from a group by g) u"
    " join (select k, sum(y) m from b group by k) v on u.g = v.k",
    "rows counted": "select count(*) n from (select g, sum(p) s from a group by g)",
    "rollup": "select g, s, sum(p) v, grouping(g) gg, grouping_id() gi from a"
    " group by rollup(g, s)",
    "cube": "select g, s, count(*) n from a group by cube(g, s)",
    "grouping sets": "select g, k, count(*) n, max(x) m from a"
    " group by grouping sets ((g), (k), ())",
    "rollup of a left join": "select c.name, a.g, count(*) n from a left join c on a.k = c.k"
    " group by rollup(c.name, a.g)",
    "unpivot": "select * from (select id, k, g from a) unpivot (val for col in (k, g))",
    "pivot": "select * from (select g, s, p from a)"
    " pivot (sum(p) as t, count(p) as n for s in ('u', 'v'))",
    "pivot of texts": "select * from (select g, s, k from a)"
    " pivot (max(s) for g in (1 as one, 2 as two))",
    "pivot filtered": "select u, v from (select g, s, p from a)"
    " pivot (count(p) for s in ('u', 'v')) where u > 1",
    # -- names, CTEs, constants
    "cte twice": "with t as (select k, sum(p) v from a group by k) select l.k, l.v from t l"
    " join (select max(v) m from t) r on l.v = r.m",
    "cte in subquery": "with t as (select k from b where y > 1) select id from a"
    " where k in (select k from t) and g in (select k from t)",
    "derived": "select z.k, z.w from (select k, y + 1 w from b where y > 1) z where z.w > 3",
    "lateral alias": "select k + 1 as k1, k1 * 2 as k2 from a",
    "values": "select v.k, v.n, a.id from (values (1, 'one'), (2, 'two'),"
    " (cast(null as int), 'none')) v(k, n) left join a on a.k = v.k",
    "range": "select r.id, a.id i from range(4) r left join a on a.id = r.id",
    "date spine": "select z.d, count(a.id) n from (select explode(sequence("
    "date '2024-01-01', date '2024-01-10')) d) z left join a on a.d = z.d group by z.d",
    "no from": "select 1 as one, 'x' as t",
    "pipe": "from a |> where k > 0 |> aggregate count(*) as n group by g",
    "order in a subquery": "select k, n from (select k, count(*) n from a group by k order by n)",
    # -- expressions
    "dates": "select id, year(d) y, month(d) m, date_trunc('month', d) t, d + interval 3 days e,"
    " date_add(d, 7) f, datediff(d, date '2024-01-01') n, date_format(d, 'yyyy-MM') ym,"
    " last_day(d) ld, extract(week from d) w, d - interval 2 day v, trunc(d, 'MM') tr from a",
    "intervals": "select id, d + interval 1 month e, add_months(d, 2) f,"
    " cast(d as timestamp) + interval '1' hour h from a",
    "case": "select id, case g when 1 then 'one' when 2 then s end r, if(k > 1, x, null) z,"
    " nullif(k, 2) nk, nvl(s, '-') ns, greatest(k, g) gr from a",
    "decimals": "select id, p * 1.5 a, p / 3 b, p + cast(2 as decimal(5,1)) c, round(p, 1) d,"
    " cast(p as int) e, -p f, p % 2 r, abs(p) ab from a",
    "strings": "select id, concat(s, '-', k) a, s || 'x' b, substr(s, 1, 1) c, length(s) d,"
    " trim(s) e, replace(s, 'u', 'it''s') f, s like 'u%' g, s rlike '^u' h, upper(s) i,"
    " lpad(s, 4, '*') j, left(s, 2) l, regexp_replace(s, 'u', 'z') m, right(s, 1) rr,"
    " split_part(s, '_', 1) sp, initcap(s) ic from a",
    "like escape": "select id from a where s like 'u!_%' escape '!' or s ilike 'V'",
    "between": "select id from a where k between 1 and g"
    " and d not between date '2024-01-03' and date '2024-01-05'",
    "in list": "select id from a where k in (1, 2, null) or s not in ('u', 'w')"
    " or g in (1,2,3,4,5,6,7,8,9,10,11,12)",
    "try": "select id, try_cast(s as int) a, try_divide(k, g - 1) b, try_add(k, g) c from a",
    "literals": "select id, timestamp '2024-01-02 03:04:05' ts, x'1F' bin, 1.5f fl, 1e300 db,"
    " 12345678901234567890.12 de, double('NaN') na, 5Y by, 6S sh, true tr,"
    " timestamp_ntz '2024-01-02 03:04:05.123' tn, cast(null as date) nd from a",
    "cast text": "select id, cast(x as string) a, cast(d as string) b, cast(p as double) c,"
    " cast(k as boolean) e, cast('2024-02-03' as date) f, cast(id as string) i from a",
    "timestamps": "select id, hour(t) h, minute(t) m, date_trunc('hour', t) tr, to_date(t) d,"
    " unix_timestamp(t) u, t + interval '90' minute v from b",
    "order of and": "select id from a where not (k = 1 and (g > 1 or s is null)) and x is not null",
    "null-safe where": "select id from a where k <=> g or not (k <=> 2)",
    "not in list with null": "select id from a where k not in (1, null)",
    "exists column in expression": "select id,"
    " if(exists (select 1 from b where b.k = a.k), k, -1) z from a",
    # -- generators
    "explode array": "select id, explode(array(k, g)) e from a",
    "explode split": "select id, x.p, x.w from a lateral view outer posexplode("
    "split(s || '-' || k, '-')) x as p, w",
    "explode pattern": "select w, count(*) n from a lateral view explode(split(s, '[uv]')) x as w"
    " group by w",
    "explode twice": "select id, w from a lateral view explode(split(s, ' ')) x as t"
    " lateral view explode(split(t, 'u')) y as w where length(w) < 3",
    "explode sequence": "select id, explode(sequence(d, date_add(d, 2))) e from a",
    "stack": "select id, stack(2, 'k', k, 'g') as (what, value) from a",
    "inline": "select id, inline(array(struct(k, s), struct(g as k, 'x' as s))) from a",
    "json": 'select id, e.u, e.v, j.c from (select id, \'[{"u":\' || k || \'},{"v":"\' || s'
    " || '\"}]' doc, '{\"c\":[1]}' other from a)"
    " lateral view explode(from_json(doc, 'array<struct<u: int, v: string>>')) x as e"
    " lateral view json_tuple(other, 'c') j as c",
    "json field": "select id, from_json('{\"a\":' || k || '}', 'a INT').a v,"
    " get_json_object('{\"a\":' || g || '}', '$.a') w from a",
    "with in two parts of from": "select x.id from (with u as (select id from a), "
    "z as (select 0 as c from u) select id from a) x left join (with u as (select distinct id "
    "from a), z as (select p.id from u p left join u q on p.id = q.id) select id from z) y "
    "on x.id = y.id",
    "lateral generator": "select a.id, f.col from a, lateral explode(split(a.s, 'u')) f",
    "map": "select id, explode(str_to_map(s || ':' || k)) from a",
    "case of patterns": "select id, case when s rlike '^u' then 'u' when k > 1 then initcap(s)"
    " else 'none' end c from a",
    # -- conditions that only Spark evaluates, in ON
    "left, spark on the right": "select a.id, b.y from a left join b"
    " on a.k = b.k and b.s rlike '^u'",
    "left, spark on the left": "select a.id, b.y from a left join b"
    " on a.k = b.k and a.s rlike '^u'",
    "left, spark on both": "select a.id, b.y from a left join b"
    " on a.k = b.k and lpad(a.s, 2, 'x') = lpad(b.s, 2, 'x')",
    "left of spark's filter": "select a.id, u.y from a left join"
    " (select k, y from b where s rlike '^u') u on a.k = u.k",
    # -- recomputes by key
    "window": "select id, sum(p) over (partition by g) t from a",
    "row_number": "select id, row_number() over (partition by g order by k) n from a",
    "qualify": "select id from a qualify row_number() over (partition by k order by g desc) = 1",
    "two windows": "select id, rank() over (partition by k order by g) r,"
    " lag(id, 2, -1) over (partition by g order by k) l from a",
    "ranges of months": "select id, sum(x) over (partition by k order by d range between"
    " interval 1 month preceding and interval 13 months following) s, avg(x) over (partition by"
    " k order by d desc range between interval '1-1' year to month preceding and current row) v,"
    " min(x) over (partition by k order by d range interval 1 year preceding) m from a",
    "ranges of months of moments": "select id, count(*) over (partition by k order by t range"
    " between interval 2 months preceding and interval 1 month preceding) n from b",
    "windows by expressions": "select id, lead(x * 2) over (partition by k % 2 order by x + 1) l,"
    " 2 * count(*) over (partition by k % 2) c from a",
    "named windows": "select id, max(x) over w m, sum(x) over w s, rank() over w r from a"
    " window w as (partition by k order by g)",
    "window over a fold": "select k, sum(x) s, rank() over (order by sum(x) desc) r from a"
    " group by k",
    "fold over a window": "select r, count(*) n from (select rank() over (partition by k"
    " order by g) r from a) u group by r",
    "window over a window": "select id, sum(n) over (partition by g order by id) t from"
    " (select id, g, row_number() over (partition by k order by id) n from a) u",
    "constant partition": "select id, row_number() over (partition by 1 order by id) n from a",
    "window of a filtered partition": "select * from (select id, k, sum(x) over (partition by k) s"
    " from a) u where k = 2",
    "limit": "select id, s from a order by g limit 5",
    "limit by what is not shown": "select s from a order by x desc nulls first, id limit 3",
    "limit of a union": "select k from a union all select k from b order by k"
    " desc limit 4 offset 2",
    "in a limit": "select id from a where k in (select k from b order by y desc, k limit 2)",
    "in a window": "select id from a where k in (select k from (select k, rank() over (order by y)"
    " r from b) u where r <= 2)",
    "percentiles": "select k, median(x) m, percentile(g, 0.4) p, sum(x) s, count(distinct g) c"
    " from a group by k",
    "percentile of all": "select percentile_cont(0.25) within group (order by x desc) p from a",
    "percentile over a window": "select id, median(x) over (partition by k) m from a",
    "modes": "select g, mode() within group (order by s desc) m from a group by g having m > 'a'",
    "lists": "select g, listagg(s, ', ') within group (order by id desc, s) l,"
    " concat_ws('-', sort_array(collect_set(s))) c from a group by g",
    "list of numbers": "select g, listagg(k, '/') within group (order by k) l from a group by g",
    "exists, spark on both": "select id from a where exists (select 1 from b where b.k = a.k"
    " and soundex(b.s) <= soundex(a.s))",
}


REFUSED: dict[str, tuple[str, str]] = {
    "not in two columns": (
        "select id from a where (k, g) not in (select k, g from b)",
        "NOT IN (SELECT ...) over columns that may be NULL",
    ),
    "not in, selected": (
        "select id, k not in (select k from b) f from a",
        "NOT IN (SELECT ...) over columns that may be NULL",
    ),
    "scalar in a full on": (
        "select a.id, b.y from a full join b on a.k = b.k and a.p > (select max(q) from b)",
        "a scalar subquery in the ON of such a join",
    ),
    "scalar of rows by order": (
        "select id, (select y from b where b.k < a.k) n from a",
        "a correlated scalar subquery that is no aggregate",
    ),
    "spark over both": (
        "select a.id, b.y from a left join b on a.k = b.k and levenshtein(a.s, b.s) < 2",
        "a condition over both sides of an outer join",
    ),
    "order": ("select id from a order by id", "1:28: ORDER BY"),
    "limit without order": ("select id from a limit 5", "LIMIT"),
    "offset": ("select id from a order by id offset 3", "OFFSET"),
    "mode": ("select k, mode(s) m from a group by k", "mode() of values that may be there"),
    "listagg": ("select k, listagg(s) l from a group by k", "without a complete order"),
    "window in a select's subquery": (
        "select id, exists (select 1 from (select k, rank() over (order by y) r from b) u"
        " where u.k = a.k and r = 1) e from a",
        "a window function in a subquery of this form",
    ),
    "collected over a window": (
        "select id, collect_list(s) over (partition by k) l from a",
        "the window function collect_list()",
    ),
    "range of too many months": (
        "select id, sum(x) over (order by d range between interval 20000 years preceding"
        " and current row) s from a",
        "a RANGE frame of more than 10,000 years",
    ),
    "an array": ("select id, split(s, ',') parts from a", "a column of type array<string>"),
    "a nested array": (
        "select id, explode(array(split(s, 'u'))) parts from a",
        "a column of type array<string>",
    ),
    "a lambda": ("select id, explode(transform(array(k), x -> x + 1)) e from a", "higher-order"),
    "left without equality": (
        "select a.id, b.y from a left join b on a.k < b.k",
        "an outer join without an equality",
    ),
    "left with or": (
        "select a.id, b.y from a left join b on a.k = b.k or a.g = b.g",
        "an outer join without an equality",
    ),
    "exists without equality": (
        "select id from a where not exists (select 1 from b where b.y > a.k)",
        "NOT EXISTS or NOT IN without an equality",
    ),
    "first": ("select g, first(s) f from a group by g", "1:11: the aggregate first()"),
    "collect": ("select g, collect_list(s) f from a group by g", "the aggregate collect_list()"),
    "approximate": (
        "select approx_count_distinct(k) n from a",
        "the aggregate approx_count_distinct()",
    ),
    "try_sum": ("select g, try_sum(k) m from a group by g", "the aggregate try_sum()"),
    "clock": ("select id from a where d >= current_date() - 7", "the current time"),
    "clock without brackets": (
        "select id from a where d >= current_date",
        "1:39: the current time",
    ),
    "now": ("select id, now() n from a", "the current time"),
    "today": ("select id from a where d > date 'today'", "1:38: DATE of the present moment"),
    "cast of today": (
        "select id from a where d > cast('today' as date)",
        "a cast of the present moment",
    ),
    "rand": ("select id, rand() r from a", "the non-deterministic function rand()"),
    "user": ("select id, current_user u from a", "CurrentUser"),
    "sample": ("select id from (select * from a) tablesample (10 percent)", "TABLESAMPLE"),
    "lambda": ("select id, transform(array(k), z -> z + 1) t from a", "transform()"),
    "array": ("select id, array(k, g) ar from a", "a column of type"),
    "interval": ("select id, interval '2' day iv from a", "a value of type"),
    "null": ("select id, null n from a", "a NULL without a type"),
    "unnamed": ("select id, k + 1 from a", "1:12: an expression needs a name"),
    "unnamed count": ("select count(*) from a", "1:8: an expression needs a name"),
    "twice": ("select * from a join b on a.k = b.k", 'two columns are called "id"'),
    "reserved": ("select id as _ts from a", 'the column name "_ts" is reserved'),
    "hidden": ("select id as __x from a", 'the column name "__x" is reserved'),
    "unknown column": ("select nothing from a", "1:8:"),
    "wrong": ("select id frm a where", "1:"),
    "file": ("select * from parquet.`/tmp/x`", "the table parquet"),
    "long range": ("select r.id from range(100000) r join a on a.id = r.id", "10,000 rows"),
    "recursive": (
        "with recursive t(n) as (select 1 union all select n + 1 from t where n < 5)"
        " select a.id from a join t on a.k = t.n",
        "a recursive CTE",
    ),
    "lateral order": (
        "select a.id, t.y from a left join lateral"
        " (select y from b where b.k = a.k order by y desc limit 1) t",
        "a window function in a subquery of this form",
    ),
}
"""Statements that are refused, each with a part of what the error says."""
