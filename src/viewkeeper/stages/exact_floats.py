"""Doubles that are added exactly, so that what is taken away leaves nothing behind.

A finite double is a whole number times a power of two. A column of such numbers is an `Amounts`:
whole numbers in units of one common power, exact however far apart the doubles are. Sums do not
depend on the order of their terms, and a retraction cancels its insertion to the last bit. A double
is made of a sum once, at the end, rounded to the nearest one; zero has no sign.

A stored sum is a binary value: two bytes for the power of two, then the odd number that it
multiplies, both in two's complement with the highest byte first. Zero is the empty value. So each
number has exactly one form, and takes about as many bytes as its digits need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from viewkeeper.stages.exact_numbers import (
    Numbers,
    Places,
    multiply_numbers,
    narrow_numbers,
    reach_of,
    running_sums,
    sum_runs,
    widen_numbers,
)

_POWER_BYTES = 2
_ROOM_BITS = 62


@dataclass(frozen=True, slots=True)
class Amounts:
    """A column of exact numbers: `numbers` times two to the `exponent`."""

    numbers: Numbers
    exponent: int = 0

    def take_places(self, places: Any) -> Amounts:
        return Amounts(self.numbers[places], self.exponent)

    def multiply_by(self, factors: Numbers) -> Amounts:
        """Each number multiplied by a whole one."""
        return Amounts(multiply_numbers(self.numbers, factors), self.exponent)

    def multiply_with(self, other: Amounts) -> Amounts:
        """The products, one by one."""
        product = multiply_numbers(self.numbers, other.numbers)
        return Amounts(product, self.exponent + other.exponent)

    def sum_parts(self, starts: Places) -> Amounts:
        """The sum of each run, by where each begins."""
        return Amounts(sum_runs(self.numbers, starts), self.exponent)

    def sum_prefixes(self) -> Amounts:
        """The sum of all up to each one."""
        return Amounts(running_sums(self.numbers), self.exponent)


def align_amounts(columns: Sequence[Amounts]) -> list[Amounts]:
    """The same numbers, all in units of the smallest power of two."""
    lowest = min(column.exponent for column in columns)
    return [scale_amounts(column, lowest) for column in columns]


def scale_amounts(column: Amounts, exponent: int) -> Amounts:
    """The same numbers in units of a smaller power of two."""
    shift = column.exponent - exponent
    if not shift:
        return column
    if not reach_of(column.numbers):
        return Amounts(column.numbers, exponent)
    factor = np.array([1 << shift], np.int64 if shift < _ROOM_BITS else object)
    return Amounts(multiply_numbers(column.numbers, factor), exponent)


def split_doubles(values: npt.NDArray[np.float64]) -> Amounts:
    """Finite doubles as exact numbers.

    >>> split_doubles(np.array([0.5, -3.0, 0.0]))
    Amounts(numbers=array([ 1, -6,  0]), exponent=-1)
    """
    fractions, powers = np.frexp(values)
    digits = (fractions * 2.0**53).astype(np.int64)
    # What the lowest bit of a number counts is a power of two, which a double holds exactly.
    zeros = np.frexp((digits & -digits).astype(np.float64))[1].astype(np.int64) - 1
    used = digits != 0
    if not used.any():
        return Amounts(np.zeros(len(values), np.int64))
    digits >>= np.where(used, zeros, 0)
    exponents = powers.astype(np.int64) - 53 + zeros
    lowest = int(exponents[used].min())
    shifts = np.where(used, exponents - lowest, 0)
    lengths = np.frexp(np.abs(digits).astype(np.float64))[1]
    if int((lengths + shifts).max()) <= _ROOM_BITS:
        return Amounts(digits << shifts, lowest)
    shifted = [
        digit << shift for digit, shift in zip(digits.tolist(), shifts.tolist(), strict=True)
    ]
    return Amounts(_object_array(shifted), lowest)


def _object_array(numbers: list[int]) -> Numbers:
    array = np.empty(len(numbers), object)
    array[:] = numbers
    return array


def encode_amounts(column: Amounts) -> pa.Array[Any]:
    """The binary form of each number.

    >>> encode_amounts(split_doubles(np.array([0.5, -3.0, 0.0]))).to_pylist()
    [b'\\xff\\xff\\x01', b'\\x00\\x00\\xfd', b'']
    """
    encoded = [_encode_number(number, column.exponent) for number in column.numbers.tolist()]
    return pa.array(encoded, pa.binary())


def _encode_number(number: int, exponent: int) -> bytes:
    if not number:
        return b""
    zeros = (number & -number).bit_length() - 1
    odd = number >> zeros
    digits = odd.to_bytes(odd.bit_length() // 8 + 1, "big", signed=True)
    return (exponent + zeros).to_bytes(_POWER_BYTES, "big", signed=True) + digits


def decode_amounts(values: Any) -> Amounts:
    """The numbers of a binary column; NULL is zero."""
    found = [_decode_number(value) for value in values.to_pylist()]
    used = [exponent for number, exponent in found if number]
    lowest = min(used, default=0)
    numbers = [number << (exponent - lowest) if number else 0 for number, exponent in found]
    return Amounts(narrow_numbers(_object_array(numbers)), lowest)


def _decode_number(data: bytes | None) -> tuple[int, int]:
    if not data:
        return 0, 0
    exponent = int.from_bytes(data[:_POWER_BYTES], "big", signed=True)
    return int.from_bytes(data[_POWER_BYTES:], "big", signed=True), exponent


def nearest_double(numerator: int, denominator: int, exponent: int = 0) -> float:
    """A quotient times a power of two as the nearest double; an infinity where none is so large.

    >>> nearest_double(1, 3), nearest_double(-1, 1, 5000), nearest_double(0, 7)
    (0.3333333333333333, -inf, 0.0)
    """
    if exponent < 0:
        denominator <<= -exponent
    else:
        numerator <<= exponent
    try:
        return numerator / denominator
    except OverflowError:
        return -math.inf if numerator < 0 else math.inf


def nearest_root(numerator: int, denominator: int, exponent: int = 0) -> float:
    """The square root of a quotient times a power of two, as the nearest double.

    >>> nearest_root(9, 4), nearest_root(2, 1) == 2**0.5, nearest_root(0, 1)
    (1.5, True, 0.0)
    """
    if not numerator:
        return 0.0
    if exponent < 0:
        denominator <<= -exponent
    else:
        numerator <<= exponent
    # So many bits that the root has 64 of them: then what is cut off only says "a little more".
    half = max(0, (130 - numerator.bit_length() + denominator.bit_length()) // 2 + 1)
    quotient, rest = divmod(numerator << (2 * half), denominator)
    root = math.isqrt(quotient)
    if rest or root * root != quotient:
        root = root << 1 | 1
        half += 1
    return nearest_double(root, 1, -half)


def doubles_of(column: Amounts) -> npt.NDArray[np.float64]:
    """Each number as the nearest double."""
    if column.numbers.dtype != object and -1000 < column.exponent < 900:
        return np.ldexp(column.numbers.astype(np.float64), column.exponent)
    found = [nearest_double(number, 1, column.exponent) for number in column.numbers.tolist()]
    return np.array(found, np.float64)


def divide_amounts(column: Amounts, divisors: Numbers) -> npt.NDArray[np.float64]:
    """Each number divided by a positive whole one, rounded once."""
    numbers, exact = column.numbers, 1 << 53
    if (
        numbers.dtype != object
        and max(reach_of(numbers), reach_of(divisors)) <= exact
        and -900 < column.exponent < 800
    ):
        return np.ldexp(numbers / divisors, column.exponent)
    pairs = zip(widen_numbers(numbers).tolist(), divisors.tolist(), strict=True)
    return np.array([nearest_double(n, d, column.exponent) for n, d in pairs], np.float64)
