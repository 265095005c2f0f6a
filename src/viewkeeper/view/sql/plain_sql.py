"""SQL text as every reader reads it: Spark, sqlglot and a person.

Two readers of one text can disagree on where a comment ends, what is a string and what is a name,
and then what was checked is not what runs. So the text is read here first, by the rules of Spark's
own lexer, and made plain, character for character so that every place in it stays where it is:

- a comment becomes blanks, and so does every white space but the line break;
- a quote that is doubled inside quotes is written with a backslash.

Whatever is left that the two could read differently is refused: characters outside of quotes that
Spark does not know or that are not ASCII, markers of parameters, dollar quotes, hints, pipes, names
that begin with a digit, a comment that a backslash continues on the next line (`refuse_foreign`).
At last `compare_tokens` holds sqlglot's tokens against our lexemes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import Token, TokenType

from viewkeeper.errors import DefinitionError
from viewkeeper.view.sql.sql_text import SqlText

LENGTH_MAX = 300_000

# The white space of Spark's lexer.
_BLANK = r" \t\n\f\r\v\u00a0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000"
_LEXEME = re.compile(
    rf"""(?P<blank>[{_BLANK}]+)
    |(?P<comment>--(?:\\\n|[^\r\n])*+)
    |(?P<bracketed>/\*)
    |(?P<raw>[rR](?:'[^']*+'|"[^"]*+"))
    |(?P<string>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    |(?P<name>`(?:[^`]|``)*+`)
    |(?P<number>
        (?:[0-9]++[lLsSyY]
        |(?:[0-9]+(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?(?:[fFdD]|[bB][dD])?
        )(?![A-Za-z0-9_]))
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*+)
    |(?P<operator><=>|>>>|<<|>>|==|<>|!=|<=|>=|\|\||::|->|=>|[-=<>+*/%~&|^(),.\[\]!;])""",
    re.VERBOSE | re.DOTALL,
)
_FOREIGN = re.compile(
    r"""(?P<hint>/\*\+)|(?P<pipe>\|>)|(?P<dollar>\$)|(?P<parameter>[?@]|:(?!:))
    |(?P<comparison>![<>])|(?P<digit>[0-9]\w*)|(?P<letter>[^\W\d_]\w*)|(?P<unknown>.)""",
    re.VERBOSE | re.DOTALL,
)
"""What Spark knows but sqlglot reads otherwise, and what Spark does not know either."""
_REASONS: dict[str, tuple[str, str]] = {
    "hint": ("a query hint", "remove the /*+ ... */ comment"),
    "pipe": ("the pipe operator |>", "write it as SELECT ... FROM ... WHERE ..."),
    "dollar": ("a dollar sign", "put a text in single quotes, a name in backticks"),
    "parameter": ("a parameter", "write the value"),
    "comparison": ("the comparison {}", "write <= or >="),
    "digit": ("the name {}, which begins with a digit,", "put it in backticks"),
    "letter": ("the name {} without backticks", "put it in backticks"),
    "unknown": ("the character {}", "put a text in single quotes, a name in backticks"),
}


@dataclass(frozen=True, slots=True)
class Lexeme:
    """The smallest piece of the text that means something; its kind is a group of the pattern."""

    kind: str
    start: int
    end: int


def read_plain(sql: SqlText) -> tuple[SqlText, list[Lexeme]]:
    """The text made plain, of the same length, and its lexemes, foreign ones among them."""
    if len(sql.text) > LENGTH_MAX:
        raise sql.error_at(f"longer than {LENGTH_MAX} characters", 0, hint="cut it into several")
    lexemes = list(_read_lexemes(sql))
    parts, position = [], 0
    for lexeme in lexemes:
        parts.append(_blank_out(sql.text[position : lexeme.start]))
        parts.append(_make_plain(lexeme, sql.text[lexeme.start : lexeme.end]))
        position = lexeme.end
    parts.append(_blank_out(sql.text[position:]))
    plain = "".join(parts)
    assert len(plain) == len(sql.text), "every character keeps its place"
    return replace(sql, text=plain), lexemes


def _read_lexemes(sql: SqlText) -> Iterator[Lexeme]:
    """What the text is made of, without comments and blanks."""
    # Editors put this mark at the beginning of a file; it means nothing.
    position = 1 if sql.text.startswith("\ufeff") else 0
    while position < len(sql.text):
        found = _LEXEME.match(sql.text, position)
        foreign = _FOREIGN.match(sql.text, position)
        assert foreign is not None, "it matches every character"
        kind = found.lastgroup if found else None
        if found is None or kind is None or foreign.lastgroup in ("hint", "pipe", "comparison"):
            if foreign[0] in "'\"`":
                raise _unclosed_error(sql, position)
            found, kind = foreign, str(foreign.lastgroup)
        end = _comment_end(sql, position) if kind == "bracketed" else found.end()
        _check_lexeme(sql, kind, found)
        if kind not in ("blank", "comment", "bracketed"):
            yield Lexeme(kind, position, end)
        position = end


def _check_lexeme(sql: SqlText, kind: str, found: re.Match[str]) -> None:
    if kind == "comment" and "\n" in found[0]:
        hint = "end the line with another character: Spark reads the next one as comment too"
        offset = found.start() + found[0].index("\n") - 1
        raise sql.error_at(
            "a comment that a backslash continues on the next line", offset, hint=hint
        )
    surrogate = re.search("[\ud800-\udfff]", found[0])
    if surrogate is not None:
        offset = found.start() + surrogate.start()
        raise sql.error_at(
            "half of a character (a lone surrogate)", offset, hint="save it as UTF-8"
        )


def _comment_end(sql: SqlText, start: int) -> int:
    """Where a bracketed comment ends; those inside it count, hints do not."""
    depth = 0
    for mark in re.compile(r"/\*(?!\+)|\*/").finditer(sql.text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise _unclosed_error(sql, start)


def _unclosed_error(sql: SqlText, offset: int) -> DefinitionError:
    return sql.error_at("a quote or a comment is never closed", offset)


def _blank_out(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _make_plain(lexeme: Lexeme, text: str) -> str:
    if lexeme.kind != "string":
        return text
    mark = text[0]
    inner = re.sub(rf"\\.|{mark}{mark}", _escape_quote, text[1:-1], flags=re.DOTALL)
    return f"{mark}{inner}{mark}"


def _escape_quote(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("\\") else "\\" + found[0][0]


def refuse_foreign(sql: SqlText, lexemes: list[Lexeme]) -> None:
    """UnsupportedError at the first lexeme that the two readers would not read alike."""
    for before, lexeme in zip([None, *lexemes], lexemes, strict=False):
        if lexeme.kind in _REASONS:
            construct, hint = _REASONS[lexeme.kind]
            raise sql.unsupported_at(
                construct.format(_show_lexeme(sql, lexeme)), lexeme.start, hint
            )
        touches = before is not None and before.kind != "operator" and before.end == lexeme.start
        if touches and lexeme.kind == "number":
            hint = "put names that begin with a digit in backticks"
            raise sql.unsupported_at("a number right after a name", lexeme.start, hint)


def _show_lexeme(sql: SqlText, lexeme: Lexeme) -> str:
    text = sql.text[lexeme.start : lexeme.end][:40]
    return text if text.isprintable() else f"U+{ord(text[0]):04X}"


def compare_tokens(sql: SqlText, lexemes: list[Lexeme], tokens: list[Token]) -> None:
    """DefinitionError unless sqlglot's tokens are our lexemes.

    sqlglot makes one token of words that belong together (`GROUP BY`), and takes an operator or a
    number like `.5` apart; nothing else may differ.
    """
    starting = {lexeme.start: index for index, lexeme in enumerate(lexemes)}
    ending = {lexeme.end: index for index, lexeme in enumerate(lexemes)}
    holding = {
        p: i for i, x in enumerate(lexemes) if _is_divisible(sql, x) for p in _inner_offsets(x)
    }
    seen: set[int] = set()
    for token in tokens:
        first = starting.get(token.start, holding.get(token.start))
        last = ending.get(token.end + 1, holding.get(token.end + 1))
        if first is None or last is None or not _is_same(sql, lexemes[first : last + 1], token):
            raise _difference_error(sql, token.start)
        seen.update(range(first, last + 1))
    if missing := [x for i, x in enumerate(lexemes) if i not in seen]:
        raise _difference_error(sql, missing[0].start)


def _is_divisible(sql: SqlText, lexeme: Lexeme) -> bool:
    return lexeme.kind == "operator" or (
        lexeme.kind == "number" and sql.text.startswith(".", lexeme.start)
    )


def _inner_offsets(lexeme: Lexeme) -> range:
    return range(lexeme.start + 1, lexeme.end)


def _is_same(sql: SqlText, lexemes: list[Lexeme], token: Token) -> bool:
    kinds = [lexeme.kind for lexeme in lexemes]
    if kinds == ["word", "string"]:
        return token.token_type is TokenType.HEX_STRING
    if len(kinds) != 1:
        return bool(kinds) and set(kinds) == {"word"}
    match kinds[0]:
        case "string":
            return token.token_type is TokenType.STRING
        case "raw":
            return token.token_type is TokenType.RAW_STRING
        case "name":
            text = sql.text[lexemes[0].start + 1 : lexemes[0].end - 1].replace("``", "`")
            return token.token_type is TokenType.IDENTIFIER and token.text == text
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)


def _difference_error(sql: SqlText, offset: int) -> DefinitionError:
    return sql.error_at("this cannot be read", offset, hint="put names in backticks")
