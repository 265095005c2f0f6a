"""Whole numbers that are added and multiplied exactly, whatever their size.

Arrow's sums of 64 bits wrap around silently. Here a column of whole numbers is a numpy array of
int64 as long as no result can leave 64 bits, which is decided by the largest operand before
anything is computed; otherwise it is an array of Python's own integers. Both give the same numbers.

Decimals are whole numbers in units of their last digit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc

Numbers = npt.NDArray[Any]
"""int64, or objects that are Python's integers."""
Places = npt.NDArray[np.int64]
"""Indices."""

LIMIT = 1 << 63
_WIDE_BYTES = 32
"""Room for every sum of products of a decimal and a count."""


def reach_of(numbers: Numbers) -> int:
    """The largest absolute value.

    >>> reach_of(np.array([3, -7])), reach_of(np.array([], np.int64))
    (7, 0)
    """
    if len(numbers) <= 1:
        return abs(int(numbers[0])) if len(numbers) else 0
    return max(abs(int(numbers.min())), abs(int(numbers.max())))


def narrow_numbers(numbers: Numbers) -> Numbers:
    """The same numbers in 64 bits, if they fit."""
    if numbers.dtype != object or reach_of(numbers) >= LIMIT:
        return numbers
    return numbers.astype(np.int64)


def widen_numbers(numbers: Numbers) -> Numbers:
    """The same numbers as Python's integers."""
    return numbers.astype(object)


def multiply_numbers(left: Numbers, right: Numbers) -> Numbers:
    """The products, one by one.

    >>> multiply_numbers(np.array([2**62, 1]), np.array([4, -1])).tolist()
    [18446744073709551616, -1]
    """
    is_short = left.dtype != object and right.dtype != object
    if is_short and reach_of(left) * reach_of(right) < LIMIT:
        return left * right
    return widen_numbers(left) * widen_numbers(right)


def add_numbers(left: Numbers, right: Numbers) -> Numbers:
    """The sums, one by one."""
    is_short = left.dtype != object and right.dtype != object
    if is_short and reach_of(left) + reach_of(right) < LIMIT:
        return left + right
    return widen_numbers(left) + widen_numbers(right)


def sum_runs(numbers: Numbers, starts: Places) -> Numbers:
    """The sum of each run of numbers, by where each begins.

    >>> sum_runs(np.array([2**62, 2**62, 5]), np.array([0, 2])).tolist()
    [9223372036854775808, 5]
    """
    if not len(starts):
        return numbers[:0]
    if len(starts) == len(numbers):
        return numbers
    return np.add.reduceat(_with_room(numbers), starts)


def running_sums(numbers: Numbers) -> Numbers:
    """The sum of all numbers up to each one."""
    return np.add.accumulate(_with_room(numbers)) if len(numbers) else numbers


def _with_room(numbers: Numbers) -> Numbers:
    """The same numbers in a form in which they can all be added."""
    if numbers.dtype != object and reach_of(numbers) * len(numbers) >= LIMIT:
        return widen_numbers(numbers)
    return numbers


def plain_array(values: Any) -> Any:
    """A column as one Arrow array."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def valid_mask(values: Any) -> npt.NDArray[np.bool_]:
    """Where an array is not NULL."""
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    return np.asarray(pc.is_valid(values))


def numbers_of(values: Any) -> Numbers:
    """The whole numbers of an Arrow array of integers or decimals; 0 where it is NULL.

    >>> import decimal
    >>> numbers_of(pa.array([decimal.Decimal("1.25"), None])).tolist()
    [125, 0]
    """
    array = plain_array(values)
    if not pa.types.is_decimal(array.type):
        filled = pc.fill_null(array, 0) if array.null_count else array
        return np.asarray(filled).astype(np.int64, copy=False)
    limbs = array.type.bit_width // 64
    numbers = _join_limbs(array.buffers()[1], array.offset, len(array), limbs)
    if array.null_count:
        numbers = np.where(valid_mask(array), numbers, 0)
    return numbers


def _join_limbs(data: Any, offset: int, size: int, limbs: int) -> Numbers:
    """Numbers of so many words of 64 bits each, the lowest first."""
    raw = np.frombuffer(data or b"", np.int64)
    table = raw[limbs * offset : limbs * (offset + size)].reshape(-1, limbs)
    low, sign = table[:, 0], table[:, 0] >> 63
    if all((table[:, i] == sign).all() for i in range(1, limbs)):
        return low
    total = widen_numbers(table[:, limbs - 1])
    for i in range(limbs - 2, -1, -1):
        total = total * (1 << 64) + widen_numbers(table[:, i].view(np.uint64))
    return narrow_numbers(total)


def _split_limbs(numbers: Numbers, width: int) -> bytes:
    """Numbers in so many bytes each, the lowest first."""
    if numbers.dtype == object:
        return b"".join([number.to_bytes(width, "little", signed=True) for number in numbers])
    table = np.repeat((numbers >> 63)[:, None], width // 8, axis=1)
    table[:, 0] = numbers
    return table.tobytes()


def decimal_array(numbers: Numbers, kind: pa.DataType) -> pa.Array[Any]:
    """Whole numbers as decimals of a type; an OverflowError if one has too many digits.

    >>> decimal_array(np.array([-125]), pa.decimal128(5, 2)).to_pylist()
    [Decimal('-1.25')]
    """
    wanted: Any = kind
    if reach_of(numbers) >= 10**wanted.precision:
        raise OverflowError(f"a number has more than {wanted.precision} digits")
    data = _split_limbs(numbers, wanted.bit_width // 8)
    buffers: Any = [None, pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(numbers), buffers)


def wide_array(numbers: Numbers) -> pa.Array[Any]:
    """Whole numbers as binary values of one width, which every system can carry.

    >>> wide_numbers_of(wide_array(np.array([-1, 5]))).tolist()
    [-1, 5]
    """
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * _WIDE_BYTES
    data = _split_limbs(numbers, _WIDE_BYTES)
    buffers: Any = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(numbers), buffers)


def wide_numbers_of(values: Any) -> Numbers:
    """The numbers of `wide_array`."""
    array = plain_array(values)
    if not len(array):
        return np.zeros(0, np.int64)
    _, offsets, data = array.buffers()
    begin = int(np.frombuffer(offsets, np.int32)[array.offset])
    own = memoryview(data)[begin : begin + len(array) * _WIDE_BYTES]
    return _join_limbs(own, 0, len(array), _WIDE_BYTES // 8)
