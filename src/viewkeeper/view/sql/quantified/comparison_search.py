"""Where quantified comparisons are in a text, and which form says what each of them means.

What belongs to a comparison is found along its tokens, from the first one of the left side to the
bracket behind the subquery. Where that begins, sqlglot must agree; if it does not, brackets around
the left side make the text clear. What has no form is refused here.

`any(x)` is a function too, an aggregate: ANY is a quantifier if a comparison is before it and a
query in the brackets behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp, parse_one

from viewkeeper.errors import DefinitionError
from viewkeeper.view.sql.plain_select import is_word
from viewkeeper.view.sql.quantified import comparison_forms
from viewkeeper.view.sql.quantified.comparison_place import ComparisonPlace, place_of
from viewkeeper.view.sql.sql_text import CLOSERS, OPENERS, Span, SqlText, span_of_tokens

SPELLINGS = {**{each: each for each in ("=", "<>", "<", "<=", ">", ">=")}, "==": "=", "!=": "<>"}
PATTERNS = {"LIKE", "ILIKE", "RLIKE", "REGEXP"}
QUANTIFIERS = {"ALL", "ANY", "SOME"}
QUERIES = {"SELECT", "WITH", "FROM", "VALUES", "TABLE"}
SETS = {"UNION", "EXCEPT", "INTERSECT", "MINUS", "ORDER BY", "LIMIT", "OFFSET"}
ENDS_OPERAND = {
    *("AND", "OR", "NOT", "!", "WHEN", "THEN", "ELSE", "SELECT", "DISTINCT", "ALL", "WHERE", "ON"),
    *("HAVING", "QUALIFY", "GROUP BY", "ORDER BY", "PARTITION BY", "BETWEEN", "IN", "BY", "FROM"),
    *("VALUES", ",", "=>", "->", "<=>", *PATTERNS, *SPELLINGS),
}
"""What can stand before the left side of a comparison, in the same brackets."""
CHANCE = {
    *("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"),
    *("monotonically_increasing_id", "spark_partition_id"),
}
BRACKETS_HINT = "put the left side of the comparison, and the whole comparison, into brackets"


@dataclass(frozen=True, slots=True)
class QuantifiedComparison:
    """One comparison: its stretch of the text, that of its left side and of its subquery."""

    whole: Span
    left: Span
    query: Span
    offset: int
    """Of its ALL, ANY or SOME."""
    form: str
    column: str | None
    """What the column of the subquery is called, if that is certain."""


class ComparisonSearch:
    """Finds the quantified comparisons of a text, or of what these of its tokens cover."""

    def __init__(self, sql: SqlText, tokens: Sequence[Token]) -> None:
        self._sql = sql
        self._span = span_of_tokens([*tokens])
        self._tokens = tokens
        self._partner = _pair_brackets(tokens)
        self._mark = unused_name(sql, "compared_mark")

    def find_comparisons(self) -> list[QuantifiedComparison]:
        """All of them, also those inside others; an error at the first that has no form."""
        return [self._read_comparison(at) for at in self._quantifiers()]

    def _quantifiers(self) -> Iterator[int]:
        """The indexes of the words ALL, ANY and SOME that compare with a query."""
        for at, token in enumerate(self._tokens):
            word = token.text.upper()
            if at == 0 or not is_word(token) or word not in QUANTIFIERS:
                continue
            operator = self._tokens[at - 1].text.upper()
            compares = operator in SPELLINGS or operator in PATTERNS or operator == "<=>"
            if compares and at + 1 in self._partner and self._is_query(at + 1, word == "ALL"):
                yield at

    def _is_query(self, opening: int, may_be_doubled: bool) -> bool:
        """Whether the brackets that open at an index contain a query.

        A query in brackets of its own is the argument of the function `any`.
        """
        if self._tokens[opening].token_type is not TokenType.L_PAREN:
            return False
        closing, first = self._partner[opening], opening + 1
        if first not in self._partner:
            return is_word(self._tokens[first]) and self._tokens[first].text.upper() in QUERIES
        after = self._partner[first] + 1
        if after == closing:
            return may_be_doubled and self._is_query(first, may_be_doubled)
        goes_on = self._tokens[after].text.upper() in SETS
        return goes_on and self._is_query(first, may_be_doubled=True)

    def _read_comparison(self, at: int) -> QuantifiedComparison:
        """The comparison whose quantifier is at an index, checked."""
        self._check_operator(at)
        opening, closing = at + 1, self._partner[at + 1]
        first = self._first_of_operand(at - 2)
        if first >= at - 1:
            raise self._unclear(at)
        left = span_of_tokens([*self._tokens[first : at - 1]])
        query = Span(self._tokens[opening].end + 1, self._tokens[closing].start)
        whole = Span(left.start, self._tokens[closing].end + 1)
        self._check_chance(first, closing)
        place = self._place_of(at, Span(self._tokens[at].start, whole.end), left)
        rows = self._tree_of(self._sql.text_of(query), at)
        form = self._choose_form(at, place, rows)
        offset, column = self._tokens[at].start, _column_of(rows)
        return QuantifiedComparison(whole, left, query, offset, form, column)

    def _first_of_operand(self, last: int) -> int:
        """The index of the first token of the left side whose last token is at an index."""
        at = last
        while at >= 0:
            token = self._tokens[at]
            dotted = at > 0 and self._tokens[at - 1].token_type is TokenType.DOT
            if token.token_type in CLOSERS and at in self._partner:
                at = self._partner[at]
            elif not dotted and (token.token_type in OPENERS or _is_end_of_operand(token)):
                break
            at -= 1
        return at + 1

    def _place_of(self, at: int, right: Span, left: Span) -> ComparisonPlace:
        """Where the comparison is in the syntax tree of the text."""
        marked = self._sql.replace_spans(self._span, [(right, self._mark)])
        place = place_of(self._tree_of(marked, at), self._mark)
        alone = self._tree_of(f"SELECT {self._sql.text_of(left)}", at)
        if place is None or alone.expressions != [place.left]:
            raise self._unclear(at)
        return place

    def _tree_of(self, text: str, at: int) -> exp.Expr:
        try:
            return parse_one(text, dialect="spark")
        except Exception as error:
            # It looks into texts and numbers while it parses, and does not expect every one.
            raise self._unclear(at) from error

    def _unclear(self, at: int) -> DefinitionError:
        word = self._tokens[at].text.upper()
        start = self._tokens[at].start
        return self._sql.error_at(f"{word} cannot be read here", start, hint=BRACKETS_HINT)

    def _check_operator(self, at: int) -> None:
        operator, token = self._tokens[at - 1].text.upper(), self._tokens[at]
        if operator in SPELLINGS:
            return
        hint = "write EXISTS or NOT EXISTS, with the comparison in the condition of the subquery"
        what = f"{operator} {token.text.upper()} (SELECT ...)"
        raise self._sql.unsupported_at(what, token.start, hint)

    def _check_chance(self, first: int, last: int) -> None:
        """Refuse what gives something else each time: parts of a comparison are written twice."""
        for token, after in zip(self._tokens[first:last], self._tokens[first + 1 :], strict=False):
            called = after.token_type is TokenType.L_PAREN and token.text.lower() in CHANCE
            if called or token.token_type is TokenType.TABLE_SAMPLE:
                what = f"{token.text.lower()} in a quantified comparison"
                hint = "compare with a derived table in which it is computed"
                raise self._sql.unsupported_at(what, token.start, hint)

    def _choose_form(self, at: int, place: ComparisonPlace, rows: exp.Expr) -> str:
        operator = SPELLINGS[self._tokens[at - 1].text]
        is_all = self._tokens[at].text.upper() == "ALL"
        is_membership = (operator, is_all) in (("=", False), ("<>", True))
        start = self._tokens[at].start
        width = len(place.left.expressions) if isinstance(place.left, exp.Tuple) else 1
        self._check_width(rows, width, start)
        # In ON, Spark forgets of NOT IN what is NULL.
        decides = place.is_condition and not (is_all and place.is_on)
        if width > 1 and not (is_membership and decides):
            hint = "compare the columns one by one in EXISTS, or use = ANY or <> ALL in a condition"
            raise self._sql.unsupported_at("such a quantified comparison of rows", start, hint)
        is_tied = is_correlated(rows)
        if place.is_grouped and (is_tied or (is_membership and not place.has_aggregate)):
            hint = "group in a derived table, and compare outside of it"
            raise self._sql.unsupported_at("such a comparison beside groups", start, hint)
        if width == 1 and place.is_of_one_row and is_tied:
            return comparison_forms.definition_form(operator, is_all, place.is_condition)
        if is_membership:
            return comparison_forms.membership_form(is_all, decides, width > 1)
        if place.left.find(exp.Collate) or "collat" in place.left.sql("spark").lower():
            hint = "collate the column of the subquery"
            raise self._sql.unsupported_at("a quantified comparison by a collation", start, hint)
        # A text that is written out is read as the type of what it is compared with.
        is_typed = not (isinstance(place.left, exp.Null) or place.left.is_string)
        return comparison_forms.extremes_form(operator, is_all, place.is_condition, is_typed)

    def _check_width(self, rows: exp.Expr, width: int, start: int) -> None:
        """Refuse a subquery of which it is certain that it has another number of columns."""
        shown = rows.selects if isinstance(rows, exp.Query) else []
        if not shown or isinstance(rows, exp.Values) or any(each.is_star for each in shown):
            return
        if len(shown) != width:
            message = f"{len(shown)} columns are compared with {width}"
            raise self._sql.error_at(message, start, hint="show as many columns on both sides")


def unused_name(sql: SqlText, name: str) -> str:
    """A name that a text does not have, nor one that it is a part of."""
    text = sql.text.lower()
    while name in text:
        name += "_"
    return name


def is_correlated(rows: exp.Expr) -> bool:
    """Whether it is certain that a query reads columns of what is around it: of a table that it
    does not name itself."""
    named = {
        name.lower()
        for node in rows.walk()
        if isinstance(node, exp.Table | exp.Subquery | exp.CTE | exp.TableAlias | exp.Lateral)
        for name in (node.alias_or_name, node.name)
    }
    tables = {column.table.lower() for column in rows.find_all(exp.Column)}
    return bool(tables - named - {""})


def _column_of(rows: exp.Expr) -> str | None:
    if not isinstance(rows, exp.Query) or isinstance(rows, exp.Values) or len(rows.selects) != 1:
        return None
    shown = rows.selects[0]
    is_named = isinstance(shown, exp.Alias | exp.Column) and not shown.is_star
    return shown.alias_or_name if is_named else None


def _is_end_of_operand(token: Token) -> bool:
    plain = token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER)
    return plain and " ".join(token.text.upper().split()) in ENDS_OPERAND


def _pair_brackets(tokens: Sequence[Token]) -> dict[int, int]:
    """Brackets, and CASE and END, by the indexes of each other."""
    found: dict[int, int] = {}
    waiting: list[int] = []
    for at, token in enumerate(tokens):
        if at > 0 and tokens[at - 1].token_type is TokenType.DOT:
            continue
        if token.token_type in OPENERS:
            waiting.append(at)
        elif token.token_type in CLOSERS and waiting:
            is_case = tokens[waiting[-1]].token_type is TokenType.CASE
            # A column may be called `end`, and one `case`; neither pairs with a bracket.
            while token.token_type is not TokenType.END and is_case:
                waiting.pop()
                is_case = bool(waiting) and tokens[waiting[-1]].token_type is TokenType.CASE
            if waiting and (token.token_type is TokenType.END) == is_case:
                opening = waiting.pop()
                found[opening], found[at] = at, opening
    return found
