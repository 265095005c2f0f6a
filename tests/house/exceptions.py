"""The offences that are allowed for now: `exceptions.txt`, a section of keys for each rule.

A key that is not needed any more is itself an offence, so that the lists only shrink. A reason may
stand behind a key, after `#`. `python -m tests.house.exceptions` removes what is not needed, and
`--begin RULE` fills the section of a new rule with what offends it today.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.house.rules import RULES, read_source

FILE = Path(__file__).with_name("exceptions.txt")


def read_exceptions(text: str) -> dict[str, dict[str, str]]:
    """The lines of each section by their keys."""
    sections: dict[str, dict[str, str]] = {}
    lines: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line.strip("[]"), {})
        elif line.strip() and not line.startswith("#"):
            lines[line.partition("  #")[0].strip()] = line
    return sections


def main(begun: list[str]) -> None:
    index, known = read_source(), read_exceptions(FILE.read_text(encoding="utf-8"))
    text = "# What offends the rules of tests/house/rules.py and may for now; see exceptions.py.\n"
    for rule in RULES:
        keys = {offence.key for offence in rule(index)}
        lines = {key: line for key, line in known.get(rule.__name__, {}).items() if key in keys}
        if rule.__name__ in begun:
            lines = {key: lines.get(key, key) for key in keys}
        if lines:
            text += f"\n[{rule.__name__}]\n" + "".join(f"{lines[k]}\n" for k in sorted(lines))
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if not word.startswith("-")])
