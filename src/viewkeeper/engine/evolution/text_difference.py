"""What changed in the text of a definition, line by line, for people.

Histories and proposals show it, on the terminal and on the web page: the lines that went with a
minus, those that came with a plus, and one line around them.
"""

from __future__ import annotations

import difflib


def changed_lines(before: str, after: str) -> list[str]:
    """The lines of a unified difference, without its head."""
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return [line for line in found if not line.startswith(("---", "+++", "@@"))]
