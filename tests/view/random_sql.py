"""Random SQL texts in which everything is at hand that two readers can read differently.

Comments of all kinds between any two words, texts with all kinds of quotes and escapes, names in
backticks, numbers in all their forms, operators side by side; and now and then damage, because what
nobody writes on purpose is what readers disagree on.
"""

from __future__ import annotations

import random

GAPS = (
    *(" ", " ", " ", " ", "  ", "\n", "\t", "\r\n", "\f", "\v", "\u00a0", "\u2003", "\u3000"),
    *(" -- a comment\n", "--\n", " -- it's\n", ' -- "q\n', " -- `b\n", " --/* \n", " -- */\n"),
    *(" -- C:\\x\\\n", " -- C:\\x\\\r\n", "--a\r", " -- \\\\\n", "-- é \u2028\n", "--;\n"),
    *(
        "/**/",
        "/* a */",
        "/* ' */",
        "/* -- */",
        "/* a /* b */ c */",
        "/* \\*/",
        "/***/",
        "/*/**/*/",
    ),
    *(
        "/* /*+ x */",
        "/*+ BROADCAST(t) */",
        "/* never",
        "/*/ */",
        "/* * / */",
        "/* */ */",
        "/*\n*/",
    ),
)
TEXTS = (
    *("'a'", "''", "'it''s'", "'it\\'s'", "'\\\\'", "'\\\\\\''", "'''a'", "'a'''", "'--'", "'/*'"),
    *("'*/'", "'\"'", "'`'", "'\\n'", "'\\\n'", "'a\nb'", "'é😀'", "'${env:HOME}'", "'\\u0041'"),
    *(
        '"a"',
        '""',
        '"it""s"',
        '"a\\"b"',
        '"--"',
        '"\'"',
        "r'a\\'",
        "R'a\\'",
        'r"a\\"',
        "r''",
        "r'--'",
    ),
    *(
        "r'a''b'",
        "'a' 'b'",
        "'a''b' 'c'",
        "\"a\" 'b'",
        "'%\\_'",
        "'\\101'",
        "X'1F'",
        "'\\",
        "'a",
        "'\x01'",
    ),
)
NAMES = (
    *("a", "t.a", "`a`", "t.`a b`", "`t`.`a``b`", "`a--b`", "`a'b`", "`/*`", "`é`", "t . a", "T.A"),
    *("é", "1a", "t.1", "t.1a", "a$b", "``", "`a", "_x", "__1", "straße", "ſ", "t.`1`", "a.b.c"),
)
NUMBERS = (
    *(
        "1",
        "0",
        "12",
        "1.5",
        ".5",
        "1.",
        "1e3",
        "1E-3",
        "1.e3",
        ".5e2",
        "1L",
        "2S",
        "3Y",
        "1F",
        "1.5D",
    ),
    *(
        "1BD",
        "1.5BD",
        "1e3BD",
        "0x1F",
        "1_000",
        "1.5x",
        "1..2",
        "1e",
        "1.5L",
        "9" * 40,
        "1Lx",
        "00",
    ),
)
OPERATORS = (
    *(
        "=",
        "==",
        "<>",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "<=>",
        "+",
        "-",
        "*",
        "/",
        "%",
        "||",
        "|",
        "&",
        "^",
    ),
    *(
        "<<",
        ">>",
        ">>>",
        "!<",
        "!>",
        "|>",
        "->",
        "=>",
        "::",
        ":",
        "?",
        "@",
        "~",
        "~~",
        "--",
        "- -",
        "//",
    ),
    *(
        "AND",
        "OR",
        "DIV",
        "LIKE",
        "RLIKE",
        "IS DISTINCT FROM",
        "AND NOT",
        "and",
        "\\",
        "#",
        "{",
        ";",
    ),
)
JUNK = (
    *"'\"`\\-/*+\n\r;:?$@#{}()[]!|<>.~",
    "\0",
    "\x1b",
    "\u200b",
    "\ufeff",
    "\u202e",
    "İ",
    "K",
    "\\\n",
)


def random_query(generator: random.Random) -> str:
    """A SELECT over `s.t`, most of the time one that can be read."""
    gap = _Gaps(generator)
    items = ",".join(
        f"{gap()}{_value(generator, gap)}{gap()}AS{gap()}x{number}{gap()}"
        for number in range(generator.randint(1, 3))
    )
    parts = [f"SELECT{gap()}{items}FROM{gap()}s.t{gap()}AS{gap()}t"]
    if generator.random() < 0.8:
        tests = [_test(generator, gap) for _ in range(generator.randint(1, 3))]
        parts.append(f"{gap()}WHERE{gap()}" + f"{gap()}AND{gap()}".join(tests))
    text = "".join(parts) + generator.choice(("", "", gap(), " -- end", " /* end */", ";", "; ;"))
    return _damage(generator, text) if generator.random() < 0.25 else text


class _Gaps:
    """Gaps between words; most are blanks, so that a text has few odd ones."""

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator
        self._odd = generator.choice((0.0, 0.1, 0.3))

    def __call__(self) -> str:
        odd = self._generator.random() < self._odd
        return f" {self._generator.choice(GAPS)} " if odd else " "


def _value(generator: random.Random, gap: _Gaps) -> str:
    kinds = (TEXTS, NAMES, NUMBERS, NAMES[:6], TEXTS[:4], NUMBERS[:6])
    first = generator.choice(generator.choice(kinds))
    match generator.randrange(6):
        case 0:
            operator = generator.choice(OPERATORS)
            return f"{first}{gap()}{operator}{gap()}{generator.choice(generator.choice(kinds))}"
        case 1:
            return f"upper({gap()}{first}{gap()})"
        case 2:
            return f"CASE{gap()}WHEN{gap()}t.a{gap()}=1{gap()}THEN{gap()}{first}{gap()}END"
    return first


def _test(generator: random.Random, gap: _Gaps) -> str:
    if generator.random() < 0.2:
        return f"t.a{gap()}BETWEEN{gap()}1{gap()}AND{gap()}{_value(generator, gap)}"
    operator = generator.choice(OPERATORS[:9] if generator.random() < 0.8 else OPERATORS)
    return f"t.b{gap()}{operator}{gap()}{_value(generator, gap)}"


def _damage(generator: random.Random, text: str) -> str:
    at = generator.randrange(len(text))
    length = generator.choice((0, 0, 1, 1, 4))
    junk: str = generator.choice(JUNK)
    return text[:at] + junk + text[at + length :]
