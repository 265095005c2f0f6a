"""The body of the function that writes a table's changes to its log, columns by their numbers.

It has the names that the columns had when it was made. Before it uses them it asks what they are
called now, in a way that no snapshot of the writer makes look older than it is, and composes its
statement anew if that is something else. So a renamed column is logged under its number at once,
and one that is gone as NULL: whatever happens to the table, no write to it fails because of us. The
next look makes the function anew.
"""

from __future__ import annotations

from collections.abc import Collection

from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.types import quote_literal, quote_name

# A cast would spell a boolean and the blanks of a char otherwise.
_TEXT = "CASE WHEN {0} IS NULL THEN NULL ELSE concat({0}) END"
_BODY = """
DECLARE
  called text[]; listed text; picked text;
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    INSERT INTO {log} (sign) VALUES (CASE TG_RELID WHEN {oid} THEN 0 ELSE -2 END);
    RETURN NULL;
  END IF;
  called := ARRAY(SELECT nullif(a.name, '........pg.dropped.' || n.number || '........')
    FROM unnest({numbers}) WITH ORDINALITY AS n(number, place), LATERAL (SELECT
      (pg_identify_object_as_address('pg_class'::regclass, {oid}, n.number)).object_names[3]
      AS name) a ORDER BY n.place);
  IF called IS NOT DISTINCT FROM {expected} THEN
    {block}
    IF TG_OP IN ('UPDATE', 'DELETE') THEN
      INSERT INTO {log} (sign{targets}) SELECT -1{old};
    END IF;
    IF TG_OP IN ('UPDATE', 'INSERT') THEN
      INSERT INTO {log} (sign{targets}) SELECT 1{new};
    END IF;
    RETURN NULL;
    {ended}
  END IF;
  SELECT coalesce(string_agg(format(', c%s', n.number), '' ORDER BY n.place), ''),
      coalesce(string_agg(format(', {text}', called[n.place]), '' ORDER BY n.place), '')
    INTO listed, picked FROM unnest({numbers}) WITH ORDINALITY AS n(number, place)
   WHERE called[n.place] IS NOT NULL;
  IF TG_OP IN ('UPDATE', 'DELETE') THEN
    EXECUTE 'INSERT INTO {log} (sign' || listed || ') SELECT -1' || picked || ' FROM {stale};
  END IF;
  IF TG_OP IN ('UPDATE', 'INSERT') THEN
    EXECUTE 'INSERT INTO {log} (sign' || listed || ') SELECT 1' || picked || ' FROM {fresh};
  END IF;
  RETURN NULL;
EXCEPTION
  WHEN undefined_table THEN
    -- The log was removed, which whoever looks finds out.
    RETURN NULL;
  WHEN OTHERS THEN
    INSERT INTO {log} (sign) VALUES (NULL);
    RETURN NULL;
END """


def function_body(table: PostgresTable, numbers: Collection[int], log: str) -> str:
    """What logs these columns of a table, as it is called now."""
    names = {column.number: column.name for column in table.columns if column.number in numbers}
    ordered = sorted(numbers)
    expected = ", ".join(quote_literal(names[n]) if n in names else "NULL" for n in ordered)

    def values(alias: str) -> str:
        texts = (_TEXT.format(f"{alias}.{quote_name(names[n])}") for n in ordered if n in names)
        return "".join(f", {text}" for text in texts)

    if table.partitioned:
        # Row by row, since a partition may have its columns in another order. A session that has
        # planned this does not take another type for a column: it goes on to the statement below.
        block, ended = "BEGIN", "EXCEPTION WHEN datatype_mismatch THEN NULL; END;"
        rows = {"old": values("OLD"), "new": values("NEW")}
        rows |= {"stale": "(SELECT ($1).*) t' USING OLD", "fresh": "(SELECT ($1).*) t' USING NEW"}
    else:
        block = ended = ""
        rows = {"old": f"{values('t')} FROM stale t", "new": f"{values('t')} FROM fresh t"}
        rows |= {"stale": "stale t'", "fresh": "fresh t'"}
    return _BODY.format(
        log=log,
        oid=table.oid,
        numbers=f"'{{{','.join(str(number) for number in ordered)}}}'::int[]",
        expected=f"ARRAY[{expected}]::text[]",
        targets="".join(f", c{number}" for number in ordered if number in names),
        text=_TEXT.format("t.%1$I"),
        block=block,
        ended=ended,
        **rows,
    )
