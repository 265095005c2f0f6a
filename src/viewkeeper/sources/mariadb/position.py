"""Positions of a MariaDB source: places in the binlog, as integers.

The binlog is a row of numbered files. A transaction's position is the number of its file, shifted,
plus the offset at which the transaction ends in it. So positions are natural (every tool of
MariaDB shows them), grow with the commit order, and mean the same after a restart of the server.
"""

from __future__ import annotations

_OFFSET_BITS = 40
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
LARGEST_OFFSET = _OFFSET_MASK
# So that every position is a number of 63 bits.
LARGEST_FILE = (1 << 63 - _OFFSET_BITS) - 1
# The first event of a file comes after four bytes that say what the file is.
FIRST_OFFSET = 4


def position_of(file: int, offset: int) -> int:
    """
    >>> position_of(3, 328)
    3298534883656
    """
    return file << _OFFSET_BITS | offset


def file_of(position: int) -> int:
    """
    >>> file_of(3298534883656)
    3
    """
    return position >> _OFFSET_BITS


def offset_of(position: int) -> int:
    """
    >>> offset_of(3298534883656)
    328
    """
    return position & _OFFSET_MASK


def file_number_of(name: str) -> int:
    """The number of a binlog file.

    >>> file_number_of("binlog.000017")
    17
    """
    return int(name.rpartition(".")[2])


def file_name_of(base: str, number: int) -> str:
    """
    >>> file_name_of("binlog", 17)
    'binlog.000017'
    """
    return f"{base}.{number:06d}"


def spell_place(position: int) -> str:
    """A position as `status` and errors write it: the number of its file, and the offset.

    The name before the number is the server's, and is not known everywhere.

    >>> spell_place(position_of(17, 328))
    '000017:328'
    """
    return f"{file_of(position):06d}:{offset_of(position)}"


def spell_position(base: str, position: int) -> str:
    """A position as the server's own tools write it.

    >>> spell_position("binlog", position_of(17, 328))
    'binlog.000017:328'
    """
    return f"{base}.{spell_place(position)}"
