"""The user's cache: what this user's programs keep between projects, and can make again.

It may be lost at any time, be written by another version, or not be there at all; so whoever keeps
something in it names it by a digest of what it was made from, and checks what is read.
"""

from __future__ import annotations

import os
from pathlib import Path


def user_cache_folder(name: str) -> Path:
    """A folder of ours in the user's cache; it need not be there."""
    named = os.environ.get("XDG_CACHE_HOME")
    home = Path(named) if named else Path.home() / ".cache"
    return home / "viewkeeper" / name
