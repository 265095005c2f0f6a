"""SQL text in, tokens and a syntax tree out, or an error that points into the text.

Whatever Viewkeeper parses of SQL that Spark is going to run comes through here, a view's statement
and a query alike: the text is made plain first (`viewkeeper.view.sql.plain_sql`), so that the text
that was checked is the text that Spark gets, and it is bounded. A parser goes down once for every
level of nesting, and so does everything that walks the tree later, here, in Spark's own parser and
when a plan is sent to tasks; so the depth of the tree has a limit, and what is too deep for the
parser itself is the same error. Chains of AND and of OR are one level, however long they are; they
have a limit of their own, and so has the number of tables.

The parser reads what follows a JOIN twice if that JOIN has no ON: as tables that are joined before
it, with an ON behind them, and as tables after it. So JOINs without ON have a limit too, before it
reads them: each doubles the time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from viewkeeper.errors import DefinitionError
from viewkeeper.view.sql.plain_sql import Lexeme, compare_tokens, read_plain, refuse_foreign
from viewkeeper.view.sql.sql_text import SqlText

DEPTH_MAX = 150
CHAIN_MAX = 2000
TABLES_MAX = 500
CLAUSES = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "QUALIFY"),
    *("JOIN", "LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS", "LATERAL", "USING"),
    *("UNION", "EXCEPT", "INTERSECT", "CASE", "WHEN", "THEN", "ELSE", "BETWEEN", "WITH"),
    *("OVER", "PARTITION", "FILTER", "EXISTS", "LIKE", "NULL", "INTERVAL"),
)
"""The keywords that people misspell."""
OPEN_JOINS_MAX = 14
"""How many JOINs may wait for their ON at one place of the text."""


@dataclass(frozen=True, slots=True)
class TokenizedSql:
    """A text made plain, and its tokens."""

    sql: SqlText
    lexemes: list[Lexeme]
    tokens: list[Token]


def tokenize_sql(sql: SqlText) -> TokenizedSql:
    """The tokens of a text; nothing is refused yet but what cannot be read at all."""
    plain, lexemes = read_plain(sql)
    try:
        return TokenizedSql(plain, lexemes, Dialect.get_or_raise("spark").tokenize(plain.text))
    except TokenError:
        refuse_foreign(plain, lexemes)
        raise sql.error_at("this cannot be read", lexemes[-1].start if lexemes else 0) from None


def read_trees(text: TokenizedSql, sql: SqlText, tokens: list[Token]) -> list[exp.Expr | None]:
    """The syntax trees of some of the tokens, one for each statement."""
    refuse_foreign(sql, text.lexemes)
    compare_tokens(sql, text.lexemes, text.tokens)
    _check_joins(sql, tokens)
    # What it does not know it reports as a command, which our callers refuse in their own words.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    parser = Dialect.get_or_raise("spark").parser(error_level=ErrorLevel.IMMEDIATE)
    try:
        trees = list(parser.parse(tokens, sql.text))
    except ParseError as error:
        raise _syntax_error(sql, tokens, error) from None
    except RecursionError:
        raise _too_deep(sql, tokens) from None
    except Exception as error:
        # It looks into texts and numbers while it parses, and does not expect every one of them.
        raise sql.error_at(
            "this cannot be read", tokens[0].start, detail=f"{type(error).__name__} in sqlglot"
        ) from error
    for tree in trees:
        if tree is not None:
            _check_depth(sql, tokens, tree)
    return trees


def _syntax_error(sql: SqlText, tokens: list[Token], error: ParseError) -> DefinitionError:
    """The parser's error with its own place: it counts columns to the end of the token."""
    facts = error.errors[0]
    found = [token for token in tokens if (token.line, token.col) == (facts["line"], facts["col"])]
    token = found[0] if found else tokens[-1]
    description = str(facts["description"]).split(" but got ")[0]
    if description.startswith("Required keyword"):
        message = f'something is missing at "{token.text}"'
    elif description.startswith("Invalid expression"):
        message = f'unexpected "{token.text}"'
    else:
        message = f'{description[:1].lower()}{description[1:]} at "{token.text}"'
    return sql.error_at(message, token.start, hint=_misspelling_hint(tokens, tokens.index(token)))


def _misspelling_hint(tokens: list[Token], index: int) -> str | None:
    """The keyword that a word at the place of an error, or shortly before it, may stand for.

    A misspelled keyword is read as a name or an alias, so that only what follows it is unexpected.
    """
    for token in (*reversed(tokens[max(index - 2, 0) : index + 1]), tokens[0]):
        word = token.text.upper()
        near = get_close_matches(word, CLAUSES, n=1, cutoff=0.7)
        if token.token_type is TokenType.VAR and near:
            return f'did you mean {near[0]} instead of "{token.text}"?'
    return None


def _too_deep(sql: SqlText, tokens: list[Token]) -> DefinitionError:
    hint = "define the inner parts as views of their own, or write alternatives as IN (...)"
    return sql.error_at("nested too deeply to be read", tokens[0].start, hint=hint)


def refuse_open_joins(sql: SqlText, tokens: list[Token]) -> None:
    """DefinitionError if a JOIN has no ON and no USING, and is not written as CROSS JOIN.

    Spark takes it for a CROSS JOIN; mostly the condition was forgotten, and the view has the
    product of two tables.
    """
    for _, _, _, ended in _waiting_joins(tokens):
        if ended:
            hint = "write ON behind the joined table, or CROSS JOIN where every pair is meant"
            raise sql.error_at("a JOIN without ON", ended[0].start, hint=hint)


def _check_joins(sql: SqlText, tokens: list[Token]) -> None:
    """DefinitionError if too many JOINs wait for their ON, inside and around brackets."""
    queries = (TokenType.SELECT, TokenType.WITH, TokenType.FROM)
    for index, here, waiting, _ in _waiting_joins(tokens):
        if here and tokens[index].token_type in queries:
            _refuse_bare_query(sql, tokens, index)
        if waiting > OPEN_JOINS_MAX:
            hint = "write ON behind each JOIN, or CROSS JOIN where there is no condition"
            message = f"more than {OPEN_JOINS_MAX} JOINs without ON"
            raise sql.error_at(message, tokens[index].start, hint=hint)


def _waiting_joins(tokens: list[Token]) -> Iterator[tuple[int, bool, int, list[Token]]]:
    """At each token, and once behind them: whether there was a JOIN without its ON before it, in
    the same brackets; how many wait for their ON; those whose place ended before they had one."""
    # One that needs no ON is None.
    levels: list[list[Token | None]] = [[]]
    waiting = 0
    for index, token in enumerate(tokens):
        ended: list[Token | None] = []
        match token.token_type:
            case TokenType.L_PAREN:
                levels.append([])
            case TokenType.R_PAREN if len(levels) > 1:
                ended = levels.pop()
            case TokenType.JOIN | TokenType.STRAIGHT_JOIN:
                needs = _needs_condition(tokens, index)
                levels[-1].append(token if needs else None)
                waiting += needs
            case TokenType.ON | TokenType.USING if levels[-1]:
                waiting -= levels[-1].pop() is not None
            case TokenType.UNION | TokenType.EXCEPT | TokenType.INTERSECT:
                ended, levels[-1] = levels[-1], []
        left = [join for join in ended if join is not None]
        waiting -= len(left)
        yield index, bool(levels[-1]), waiting, left
    yield len(tokens), False, 0, [join for level in levels for join in level if join is not None]


def _needs_condition(tokens: list[Token], index: int) -> bool:
    """Whether the JOIN at an index is neither a CROSS or NATURAL one nor one with LATERAL."""
    if tokens[index + 1 : index + 2] and tokens[index + 1].token_type is TokenType.LATERAL:
        return False
    words = {"LEFT", "RIGHT", "FULL", "OUTER", "INNER", "SEMI", "ANTI"}
    before = index - 1
    while before >= 0 and tokens[before].text.upper() in words:
        before -= 1
    kind = tokens[before].token_type if before >= 0 else None
    return kind not in (TokenType.CROSS, TokenType.NATURAL, TokenType.DOT)


def _refuse_bare_query(sql: SqlText, tokens: list[Token], index: int) -> None:
    """A query in place of a table without brackets, which only sqlglot reads."""
    before = tokens[index - 1].token_type if index else None
    if before in (TokenType.JOIN, TokenType.COMMA, TokenType.LATERAL):
        raise sql.error_at(f'unexpected "{tokens[index].text}"', tokens[index].start)


def _check_depth(sql: SqlText, tokens: list[Token], tree: exp.Expr) -> None:
    """DefinitionError if the tree is deeper than what walks it can go."""
    waiting = [(tree, 1)]
    links = tables = 0
    while waiting:
        node, depth = waiting.pop()
        tables += isinstance(node, exp.Table)
        if depth > DEPTH_MAX:
            raise _too_deep(sql, tokens)
        for inner in node.iter_expressions():
            chained = isinstance(node, exp.And | exp.Or) and type(inner) is type(node)
            links += chained
            waiting.append((inner, depth if chained else depth + 1))
    for count, limit, what in (
        (links, CHAIN_MAX, "conditions tied by AND and OR"),
        (tables, TABLES_MAX, "tables"),
    ):
        if count > limit:
            hint = "write equalities of one column as IN (...), or cut it into several"
            raise sql.error_at(f"more than {limit} {what}", tokens[0].start, hint=hint)
