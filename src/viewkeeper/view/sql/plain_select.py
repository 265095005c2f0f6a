"""Whether a view is a plain select-project-join, which we read ourselves, word by word.

A plain view has a list, tables, inner joins and conditions, and nothing else: a clause of SELECT,
of a join or of a table that this module does not name makes it a report
(`viewkeeper.view.sql.report_query`), and so does a call of anything but a deterministic function of
one row. Being plain is worth something: such a view is bound without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import Token, TokenType, exp

from viewkeeper.view.sql import functions
from viewkeeper.view.sql.sql_text import tokens_at_top

IN_SELECT = {"expressions", "from_", "joins", "where"}
IN_TABLE = {"this", "db", "catalog", "alias"}
IN_JOIN = {"this", "on", "using", "kind"}
FOREIGN = (exp.Window, exp.Query, exp.Lambda, exp.Placeholder, exp.Parameter, exp.Aliases)


def is_plain_select(tokens: list[Token], tree: exp.Expr) -> bool:
    """Whether a query is nothing but a list, tables, inner joins and conditions."""
    return has_plain_shape(tokens, tree) and all(
        refusal is None for _, _, refusal in judge_calls(tokens)
    )


def has_plain_shape(tokens: list[Token], tree: exp.Expr) -> bool:
    """Whether a query is a plain SELECT, whatever functions it calls."""
    if not isinstance(tree, exp.Select) or tokens[0].token_type is not TokenType.SELECT:
        return False
    select_all = len(tokens) > 1 and tokens[1].token_type is TokenType.ALL
    return (
        not select_all
        and _clauses_of(tree) <= IN_SELECT
        and not _has_set_operation(tokens)
        and all(_is_plain_relation(table) for table in _relations_of(tree))
        and all(_is_inner_join(join) for join in tree.args.get("joins") or [])
        and not any(isinstance(node, FOREIGN) for node in tree.walk() if node is not tree)
        and all(_is_whole_star(star) for star in tree.find_all(exp.Star))
        # Outside of a call sqlglot reads an arrow as something else than Spark does.
        and not any(token.token_type is TokenType.ARROW for token in tokens)
    )


def _clauses_of(node: exp.Expr) -> set[str]:
    return {key for key, value in node.args.items() if value}


def _has_set_operation(tokens: list[Token]) -> bool:
    words = {"UNION", "EXCEPT", "INTERSECT", "MINUS"}
    for index, token in tokens_at_top(tokens):
        # After a star, EXCEPT leaves columns out; that is found as part of the star.
        starred = index > 0 and tokens[index - 1].token_type is TokenType.STAR
        if is_word(token) and token.text.upper() in words and not starred:
            return True
    return False


def _relations_of(select: exp.Select) -> Iterator[exp.Expr]:
    source = select.args.get("from_")
    if source is not None:
        yield source.this
    for join in select.args.get("joins") or []:
        yield join.this


def _is_plain_relation(table: exp.Expr) -> bool:
    if not isinstance(table, exp.Table) or isinstance(table.this, exp.Func):
        return False
    alias = table.args.get("alias")
    renames = alias is not None and bool(alias.args.get("columns"))
    return _clauses_of(table) <= IN_TABLE and not renames


def _is_inner_join(join: exp.Join) -> bool:
    words = [str(join.args.get(key) or "") for key in ("method", "side", "kind")]
    inner = words[:2] == ["", ""] and words[2] in ("", "INNER", "CROSS")
    return inner and _clauses_of(join) <= IN_JOIN


def _is_whole_star(star: exp.Star) -> bool:
    """Whether a star is an item of the list and leaves nothing out."""
    owner = star.parent.parent if isinstance(star.parent, exp.Column) else star.parent
    return isinstance(owner, exp.Select) and not _clauses_of(star)


Refusal = tuple[str, str | None]
"""What cannot be maintained, and a hint."""


def judge_calls(tokens: list[Token]) -> Iterator[tuple[Token, str, Refusal | None]]:
    """Every function that is called, by the name that the user wrote: its token, that name, and why
    a plain view cannot call it."""
    padded = [None, *tokens, None, None]
    for before, token, bracket, first in zip(padded, tokens, padded[2:], padded[3:], strict=False):
        name = token.text.lower()
        dotted = before is not None and before.token_type is TokenType.DOT
        quoted = token.token_type is TokenType.IDENTIFIER
        if not is_word(token) and not quoted:
            continue
        if bracket is None or bracket.token_type is not TokenType.L_PAREN:
            follows = bracket is not None and bracket.token_type is TokenType.DOT
            if name in functions.WITHOUT_BRACKETS and not (dotted or follows or quoted):
                hint = f"if it is a column, write `{token.text}` with its table"
                yield token, name, (f"the non-deterministic function {name}", hint)
        elif first is not None and first.token_type is TokenType.SELECT:
            continue
        elif dotted:
            yield token, name, (f"the qualified function {name}()", None)
        elif name not in functions.KEYWORDS:
            empty = first is not None and first.token_type is TokenType.R_PAREN
            yield token, name, functions.refusal_of_call(name, empty)


def is_word(token: Token) -> bool:
    """Whether the token is a word without quotes."""
    plain = token.token_type not in (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER)
    return plain and (token.text[:1].isalpha() or token.text[:1] == "_")
