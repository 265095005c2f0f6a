"""How MariaDB writes lengths, texts and compressed bytes, in its answers and in its binlog.

The bytes come from elsewhere, so no length in them is believed: what is said to be there must be
there, and what is said to be the size of something must be its size. Whoever reads on from a wrong
length would read rows that nobody wrote.
"""

from __future__ import annotations

import zlib

# MariaDB allows no statement, row or packet to be larger.
LARGEST_BYTES = 1 << 30
_WIDTHS = {252: 2, 253: 3, 254: 8}
_COMPRESSED, _COMPRESSED_MASK, _WIDTH_MASK = 0x80, 0xF0, 0x07


class MalformedBytesError(ValueError):
    """Bytes that MariaDB would not write."""


def read_piece(data: bytes, at: int, size: int) -> bytes:
    """So many bytes from an offset on.

    >>> read_piece(b"abcdef", 2, 3)
    b'cde'
    """
    found = data[at : at + size]
    if len(found) != size:
        raise MalformedBytesError(f"{size} bytes were announced, {len(found)} are there")
    return found


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """A number in the protocol's form of 1 to 9 bytes, and where it ends.

    >>> read_length(bytes([252, 1, 2]), 0)
    (513, 3)
    """
    first = read_piece(data, at, 1)[0]
    if first < 251:
        return first, at + 1
    width = _WIDTHS.get(first)
    if width is None:
        raise MalformedBytesError(f"no length begins with {first}")
    return int.from_bytes(read_piece(data, at + 1, width), "little"), at + 1 + width


def read_sized_piece(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes with their length before them, and where they end."""
    size, start = read_length(data, at)
    return read_piece(data, start, size), start + size


def decode_name(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedBytesError(f"a name is not text: {error.reason}") from None


def decompress_bytes(data: bytes) -> bytes:
    """Bytes that the server compressed (log_bin_compress): how, the length, then zlib's bytes.

    >>> decompress_bytes(bytes([0x81, 3]) + zlib.compress(b"abc"))
    b'abc'
    """
    head = read_piece(data, 0, 1)[0]
    width = head & _WIDTH_MASK
    size = int.from_bytes(read_piece(data, 1, width), "big")
    if head & _COMPRESSED_MASK != _COMPRESSED or size > LARGEST_BYTES:
        raise MalformedBytesError("what is compressed is not zlib's, or too large")
    reader = zlib.decompressobj()
    try:
        # One byte more than there may be: whatever the bytes say, no more is made of them.
        found = reader.decompress(data[1 + width :], size + 1)
    except zlib.error as error:
        raise MalformedBytesError(f"compressed bytes are damaged: {error}") from None
    if len(found) != size or not reader.eof:
        raise MalformedBytesError("compressed bytes have another length than they say")
    return found
