"""A number of 64 bits for each row, by its values: the same in every process and at every time.

Values that Spark calls the same have the same number: NULL is a value, NaN is one, zero has no
sign. Different rows have different numbers but for chance; whoever finds a row by its number still
compares the values. The sum of the numbers of all rows, modulo 2^64, is a digest of a bag of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.kernel import canonical_floats
from viewkeeper.stages.exact_numbers import plain_array, valid_mask

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0x100000001B3)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_CHUNK_ROWS = 65_536


def hash_rows(columns: Sequence[Any], size: int) -> Hashes:
    """A number for each row of some columns.

    >>> numbers = hash_rows([pa.array([1, None, 1]), pa.array(["a", "a", "a"])], 3)
    >>> bool(numbers[0] == numbers[2]), bool(numbers[0] == numbers[1])
    (True, False)
    """
    found = np.zeros(size, np.uint64)
    for column in columns:
        array = plain_array(canonical_floats(column))
        hashes = _hash_words(array)
        if array.null_count:
            hashes = np.where(valid_mask(array), hashes, _NULL)
        found = _mix_bits(found * _STEP + hashes)
    return found


def _mix_bits(words: Hashes) -> Hashes:
    """Every bit of the result depends on every bit of the word (the end of splitmix64)."""
    words = (words ^ (words >> _SHIFTS[0])) * _MIX[0]
    words = (words ^ (words >> _SHIFTS[1])) * _MIX[1]
    return words ^ (words >> _SHIFTS[2])


def _hash_words(array: Any) -> Hashes:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _mix_bits(_hash_bytes(array))
    if pa.types.is_decimal(kind):
        limbs = kind.bit_width // 64
        raw = np.frombuffer(array.buffers()[1] or b"", np.uint64)
        table = raw[limbs * array.offset : limbs * (array.offset + len(array))].reshape(-1, limbs)
        words = np.zeros(len(array), np.uint64)
        for place in range(limbs):
            words = _mix_bits(words * _STEP + table[:, place])
        return words
    if pa.types.is_floating(kind):
        array = array.view(pa.int64() if kind == pa.float64() else pa.int32())
    elif pa.types.is_temporal(kind):
        array = array.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    filled = pc.fill_null(array.cast(pa.int64()), 0)
    return _mix_bits(np.asarray(filled).view(np.uint64))


def _hash_bytes(array: Any) -> Hashes:
    """Each text as a number in base `_STEP`, modulo 2^64; a slice at a time, to bound memory."""
    offsets = np.frombuffer(array.buffers()[1], np.int32).astype(np.int64)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    longest = int(np.diff(offsets).max(initial=0))
    powers = np.cumprod(np.full(longest, _STEP, np.uint64), dtype=np.uint64)
    parts = [
        _hash_slice(data, offsets[begin : begin + _CHUNK_ROWS + 1], powers)
        for begin in range(0, len(array), _CHUNK_ROWS)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _hash_slice(data: npt.NDArray[np.uint8], offsets: Any, powers: Hashes) -> Hashes:
    first, lengths = offsets[0], np.diff(offsets)
    used = data[first : offsets[-1]].astype(np.uint64) + np.uint64(1)
    places = np.arange(len(used)) - np.repeat(offsets[:-1] - first, lengths)
    sums = np.zeros(len(used) + 1, np.uint64)
    np.cumsum(used * powers[places], out=sums[1:])
    found: Hashes = sums[offsets[1:] - first] - sums[offsets[:-1] - first]
    return found
