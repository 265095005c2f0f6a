"""What a view may not be, found in the syntax tree and in the tokens.

Everything is refused that is not known to be handled: a clause of SELECT, of a join or of a table
that this module does not name is refused by its own name. Each finding says where it stands; the
one that stands first in the text is raised, because that is where a reader looks first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp

from viewkeeper.view.sql import functions
from viewkeeper.view.sql.sql_text import SqlText, leaf_span_of, tokens_at_top

HANDLED_IN_SELECT = {"expressions", "from_", "joins", "where"}
HANDLED_IN_TABLE = {"this", "db", "catalog", "alias"}
HANDLED_IN_JOIN = {"this", "on", "using", "kind"}

# Keyed as sqlglot keys them: how the user wrote it, and the way out.
CLAUSES: dict[str, tuple[str, str | None]] = {
    "with_": ("WITH", "define what WITH names as a view of its own, or write it out"),
    "distinct": ("DISTINCT", "a view is a bag; ask for DISTINCT when reading it"),
    "group": ("GROUP BY", "views are select-project-join; group when reading the view"),
    "having": ("HAVING", "views are select-project-join; aggregate when reading the view"),
    "order": ("ORDER BY", "a view has no order; ask for one when reading it"),
    "sort": ("SORT BY", "a view has no order; ask for one when reading it"),
    "cluster": ("CLUSTER BY", "a view has no order; ask for one when reading it"),
    "distribute": ("DISTRIBUTE BY", None),
    "limit": ("LIMIT", "limit the rows when reading the view"),
    "offset": ("OFFSET", "limit the rows when reading the view"),
    "laterals": ("LATERAL VIEW", "a view row must come from one row of each relation"),
    "pivots": ("PIVOT", None),
    "sample": ("TABLESAMPLE", "a sample is another one each time that it is taken"),
    "hint": ("a query hint", "remove the /*+ ... */ comment"),
    "windows": ("WINDOW", None),
    "qualify": ("QUALIFY", None),
    "version": ("time travel", "a view follows the newest state of its relations"),
}
KEYWORDS_OF = {
    "hint": ("/*+",),
    "version": ("VERSION", "TIMESTAMP", "FOR"),
    "pivots": ("PIVOT", "UNPIVOT"),
}
JOIN_WORDS = {"NATURAL", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "INNER", "CROSS", "JOIN"}
SUBQUERY_HINT = "make the inner query a view of its own, or write it as a join"


@dataclass(frozen=True, slots=True)
class UnsupportedConstruct:
    """Something that cannot be maintained, and where."""

    offset: int
    construct: str
    hint: str | None = None


def refuse_unsupported(sql: SqlText, tokens: list[Token], tree: exp.Expr) -> exp.Select:
    """Raise the first thing in the text that cannot be maintained; else give back the SELECT."""
    found = sorted(_find_unsupported(tokens, tree), key=lambda finding: finding.offset)
    if found:
        raise sql.unsupported_at(found[0].construct, found[0].offset, found[0].hint)
    assert isinstance(tree, exp.Select)
    return tree


def _find_unsupported(tokens: list[Token], tree: exp.Expr) -> Iterator[UnsupportedConstruct]:
    yield from _find_set_operations(tokens)
    yield from _find_windows(tree)
    if isinstance(tree, exp.Select):
        yield from _find_clauses(tokens, tree)
        yield from _check_relations(tokens, tree)
        yield from _inside_expressions(tokens, tree)
    elif not isinstance(tree, exp.SetOperation):
        words = {"(": "a query in brackets"}
        first = tokens[0].text.upper()
        yield UnsupportedConstruct(tokens[0].start, words.get(first, f"{first} in place of SELECT"))
    # Last, because a clause that looks like a call is better named as what it is.
    yield from _find_calls(tokens)


def _find_set_operations(tokens: list[Token]) -> Iterator[UnsupportedConstruct]:
    for index, token in tokens_at_top(tokens):
        word = token.text.upper()
        # After a star, EXCEPT leaves columns out; that is found as part of the star.
        starred = index > 0 and tokens[index - 1].token_type is TokenType.STAR
        if is_word(token) and word in {"UNION", "EXCEPT", "INTERSECT", "MINUS"} and not starred:
            yield UnsupportedConstruct(token.start, word, "make each part a view of its own")


def _find_windows(tree: exp.Expr) -> Iterator[UnsupportedConstruct]:
    for window in tree.find_all(exp.Window):
        yield UnsupportedConstruct(
            _offset_of(window), "a window function", "apply it when reading the view"
        )


def _find_calls(tokens: list[Token]) -> Iterator[UnsupportedConstruct]:
    """Functions are judged by the name that the user wrote, not by what it was parsed into."""
    padded = [None, *tokens, None, None]
    for before, token, bracket, first in zip(padded, tokens, padded[2:], padded[3:], strict=False):
        name = token.text.lower()
        dotted = before is not None and before.token_type is TokenType.DOT
        if not is_word(token) and token.token_type is not TokenType.IDENTIFIER:
            continue
        if bracket is None or bracket.token_type is not TokenType.L_PAREN:
            follows = bracket is not None and bracket.token_type is TokenType.DOT
            quoted = token.token_type is TokenType.IDENTIFIER
            if name in functions.WITHOUT_BRACKETS and not (dotted or follows or quoted):
                hint = f"if it is a column, write `{token.text}` with its table"
                yield UnsupportedConstruct(
                    token.start, f"the non-deterministic function {name}", hint
                )
        elif first is not None and first.token_type is TokenType.SELECT:
            continue
        elif dotted:
            yield UnsupportedConstruct(token.start, f"the qualified function {name}()")
        elif name not in functions.KEYWORDS:
            empty = first is not None and first.token_type is TokenType.R_PAREN
            if (why := functions.refusal_of_call(name, empty)) is not None:
                yield UnsupportedConstruct(token.start, *why)


def _find_clauses(tokens: list[Token], select: exp.Select) -> Iterator[UnsupportedConstruct]:
    for key, value in select.args.items():
        if value and key not in HANDLED_IN_SELECT:
            construct, hint = CLAUSES.get(key, (key.strip("_").upper(), None))
            yield UnsupportedConstruct(
                _keyword_offset(tokens, _keywords_of(key, construct)), construct, hint
            )
    if len(tokens) > 1 and tokens[1].token_type is TokenType.ALL:
        yield UnsupportedConstruct(
            tokens[1].start, "SELECT ALL", "leave ALL out; it is the default"
        )
    if tokens[0].token_type is not TokenType.SELECT:
        yield UnsupportedConstruct(
            tokens[0].start, f"a query that begins with {tokens[0].text.upper()}"
        )


def _check_relations(tokens: list[Token], select: exp.Select) -> Iterator[UnsupportedConstruct]:
    source = select.args.get("from_")
    if source is not None:
        yield from _check_relation(tokens, source.this)
    for join in select.args.get("joins") or []:
        before = _words_before_join(tokens, join)
        yield from _check_join(join, before[0] if before else None)
        yield from _check_relation(tokens, join.this)


def _check_join(join: exp.Join, first: Token | None) -> Iterator[UnsupportedConstruct]:
    offset = first.start if first is not None else _offset_of(join)
    words = [str(join.args.get(key) or "") for key in ("method", "side", "kind")]
    if words[:2] != ["", ""] or words[2] not in ("", "INNER", "CROSS"):
        kind = " ".join(word for word in words if word)
        hint = "only inner and cross joins are maintained"
        yield UnsupportedConstruct(offset, f"{kind} JOIN", hint)
    others = {key for key, value in join.args.items() if value} - HANDLED_IN_JOIN
    for key in sorted(others - {"method", "side"}):
        yield UnsupportedConstruct(offset, f"{key.strip('_').upper()} on a join")


def _check_relation(tokens: list[Token], table: exp.Expr) -> Iterator[UnsupportedConstruct]:
    offset = _offset_of(table)
    if isinstance(table, exp.Lateral):
        yield UnsupportedConstruct(_keyword_offset(tokens, ("LATERAL",)), "LATERAL", SUBQUERY_HINT)
    elif isinstance(table, exp.Subquery):
        inner = isinstance(table.this, exp.Table)
        yield UnsupportedConstruct(
            offset, "a join in brackets" if inner else "a subquery", SUBQUERY_HINT
        )
    elif isinstance(table, exp.Values):
        yield UnsupportedConstruct(
            _keyword_offset(tokens, ("VALUES",)), "VALUES", "keep the rows in a source"
        )
    elif not isinstance(table, exp.Table):
        yield UnsupportedConstruct(offset, f"{table.key.upper()} in FROM")
    elif isinstance(table.this, exp.Func):
        yield UnsupportedConstruct(offset, "a table function", "name a table as source.table")
    else:
        yield from _table_clauses(tokens, table, offset)


def _table_clauses(
    tokens: list[Token], table: exp.Table, offset: int
) -> Iterator[UnsupportedConstruct]:
    for key in sorted(key for key, value in table.args.items() if value):
        if key == "joins":
            yield UnsupportedConstruct(
                offset, "a nested join", "write each ON right after its join"
            )
        elif key not in HANDLED_IN_TABLE:
            construct, hint = CLAUSES.get(key, (key.strip("_").upper(), None))
            yield UnsupportedConstruct(
                _keyword_offset(tokens, _keywords_of(key, construct), offset), construct, hint
            )
    alias = table.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        yield UnsupportedConstruct(
            _offset_of(alias), "a list of column aliases", "alias columns in SELECT"
        )


def _inside_expressions(tokens: list[Token], select: exp.Select) -> Iterator[UnsupportedConstruct]:
    for node in select.walk():
        if isinstance(node, exp.Query) and node is not select:
            yield UnsupportedConstruct(
                _inner_select(tokens, _offset_of(node)), "a subquery", SUBQUERY_HINT
            )
        elif isinstance(node, exp.Lambda):
            yield UnsupportedConstruct(_offset_of(node), "a lambda function")
        elif isinstance(node, exp.Placeholder | exp.Parameter):
            yield UnsupportedConstruct(_parameter_offset(tokens), "a parameter", "write the value")
        elif isinstance(node, exp.Aliases):
            yield UnsupportedConstruct(_offset_of(node), "several aliases for one expression")
        elif isinstance(node, exp.Star):
            yield from _check_star(node)
    for token in tokens:
        # Outside of a call sqlglot reads an arrow as something else than Spark does.
        if token.token_type is TokenType.ARROW:
            yield UnsupportedConstruct(token.start, "a lambda function")


def _check_star(star: exp.Star) -> Iterator[UnsupportedConstruct]:
    for key in sorted(key for key, value in star.args.items() if value):
        hint = "list the columns"
        yield UnsupportedConstruct(_offset_of(star), f"a star with {key.strip('_').upper()}", hint)
    owner = star.parent.parent if isinstance(star.parent, exp.Column) else star.parent
    if not isinstance(owner, exp.Select):
        yield UnsupportedConstruct(
            _offset_of(star), "a star inside an expression", "list the columns"
        )


def is_word(token: Token) -> bool:
    """Whether the token is a word without quotes."""
    plain = token.token_type not in (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER)
    return plain and (token.text[:1].isalpha() or token.text[:1] == "_")


def _offset_of(node: exp.Expr) -> int:
    """The offset of a node in the text, or else of the nearest node around it."""
    current: exp.Expr | None = node
    while current is not None:
        if (span := leaf_span_of(current)) is not None:
            return span.start
        current = current.parent
    return 0


def _keywords_of(key: str, construct: str) -> tuple[str, ...]:
    return KEYWORDS_OF.get(key, (construct.split()[0],))


def _keyword_offset(tokens: list[Token], words: tuple[str, ...], after: int = 0) -> int:
    """The offset of a clause's first word; the beginning of the query if it cannot be found."""
    for token in tokens:
        if token.start >= after and (token.text.upper().split() or [""])[0] in words:
            return token.start
    return after or tokens[0].start


def _inner_select(tokens: list[Token], offset: int) -> int:
    """The last SELECT before something inside it."""
    starts = [token.start for token in tokens if token.token_type is TokenType.SELECT]
    return max((start for start in starts[1:] if start <= offset), default=offset)


def _parameter_offset(tokens: list[Token]) -> int:
    marks = {TokenType.PLACEHOLDER, TokenType.PARAMETER, TokenType.COLON}
    return next((token.start for token in tokens if token.token_type in marks), tokens[0].start)


def _words_before_join(tokens: list[Token], join: exp.Join) -> list[Token]:
    """The words that introduce a join, `LEFT OUTER JOIN`, or nothing after a comma."""
    offset = _offset_of(join.this)
    index = next((i for i, token in enumerate(tokens) if token.start >= offset), 0)
    words: list[Token] = []
    while index > 0 and tokens[index - 1].text.upper() in JOIN_WORDS:
        index -= 1
        words.insert(0, tokens[index])
    return words
