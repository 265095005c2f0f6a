"""Mutation fuzzing: good inputs, damaged a little, must be read or refused by an error of ours.

A fuzzer is a reader of foreign bytes and a handful of good inputs. `fuzz` damages them at random -
flips, cuts, repeats, numbers at the edges of their types, pieces of other inputs - and hands them
to the reader. What must hold for every input:

1. The reader returns, or raises a `ViewkeeperError`. Anything else is a defect of ours.
2. It ends: no input takes more than `SECONDS` of the processor, or waits for `WAITING`; both are
   far above what any should take.
3. Memory does not grow beyond `GROWTH` at any time, whatever lengths an input claims, and all but
   `KEPT` is given back.

`make test` tries some thousand inputs per reader, `make fuzz` as many as `VIEWKEEPER_FUZZ_INPUTS`
says, from another seed, and ends with a line on what each run cost. A failure prints the input; it
becomes a test of its own.
"""

from __future__ import annotations

import os
import random
import signal
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from tests.fuzz.figures import DONE, Meter
from viewkeeper.errors import ViewkeeperError

SECONDS = 30
WAITING = 600
GROWTH = 512 << 20
KEPT = 64 << 20
DEFECTS = 20
LOOKS = 100
INPUTS = int(os.environ.get("VIEWKEEPER_FUZZ_INPUTS", "0"))
SEED = int(os.environ.get("VIEWKEEPER_FUZZ_SEED", "1"))

Step = TypeVar("Step")

# At the edges of the types that lengths, counts and positions have.
EDGES = (0, 1, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
TEXTS = (
    *("'", '"', "`", "\\", "\0", "\n", "--", "/*", "*/", "${env:HOME}", "{{", "}}", ";", "$$"),
    *("NaN", "Infinity", "1e999", "1e-99999999", "-0", "9" * 60, "null", "true", "[" * 400),
    *("é", "\ud800", "😀", "\u202e", "../../etc/passwd", "/etc/passwd", "%2e%2e%2f", "&a *a"),
)


def fuzz(
    read: Callable[[bytes], object],
    good: Sequence[bytes],
    *,
    inputs: int = 2000,
    words: Sequence[bytes] = (),
    label: str = "",
) -> None:
    """Read `inputs` damaged copies of good inputs (more in `make fuzz`); fail if one is a defect.

    `words` are pieces that mean something to the reader, put in besides the usual ones; `label` is
    what the summary calls it where a test has several.
    """
    count, defects, meter = max(inputs, INPUTS), Defects(), Meter()
    for number, data in enumerate(mutants(good, random.Random(SEED), count, words)):
        if number == count // 10:
            meter.mark_warm()
        if number % LOOKS == 0:
            meter.check_peak(GROWTH)
        with defects.attempt(data), limited(SECONDS):
            read(data)
    defects.check()
    meter.check_peak(GROWTH)
    figures = meter.read_figures(label, count)
    assert figures.kept < KEPT, f"memory of {figures.kept >> 20} MB was not given back"
    DONE.append(figures)


class Defects:
    """Inputs that ended in an error that is not ours, the first for each place in the code.

    One defect does not hide the next, so a long run finds all of them; a hang ends it.
    """

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    @contextmanager
    def attempt(self, data: bytes) -> Iterator[None]:
        """One input."""
        try:
            yield
        except (ViewkeeperError, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt):
                raise
        except BaseException as error:  # a panic of a Rust library is not an Exception
            place = _place_of(error)
            message = f"{type(error).__name__} ({error}) is no error of ours; input: {data!r}"
            self._found.setdefault(place, f"{place}: {message}")
            if isinstance(error, HangError) or len(self._found) == DEFECTS:
                raise AssertionError("\n".join(self._found.values())) from error

    def check(self) -> None:
        """Fail if there was one."""
        if self._found:
            raise AssertionError("\n".join(self._found.values()))


def _place_of(error: BaseException) -> str:
    """The innermost line of our code that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/site-packages/" not in f.filename] or list(frames)
    return f"{type(error).__name__} at {ours[-1].filename}:{ours[-1].lineno}"


def fuzz_text(
    read: Callable[[str], object],
    good: Sequence[str],
    *,
    inputs: int = 2000,
    words: Sequence[str] = (),
) -> None:
    """The same for a reader of text; what is not UTF-8 any more is read with its odd bytes."""
    fuzz(
        lambda data: read(data.decode("utf-8", "surrogateescape")),
        [text.encode("utf-8", "surrogatepass") for text in good],
        inputs=inputs,
        words=[word.encode() for word in words],
    )


def choose_steps(data: bytes, steps: Sequence[Step], most: int) -> list[Step]:
    """What is asked of one input, in the usual order: some of what can be asked.

    A damaged file is refused by most questions at the same place, so more inputs, each asked for
    another part, find more than all questions to fewer. The input decides, so it can be repeated.
    """
    generator = random.Random(zlib.crc32(data))
    chosen = generator.sample(range(len(steps)), generator.randint(1, most))
    return [steps[number] for number in sorted(chosen)]


def mutants(
    good: Sequence[bytes], generator: random.Random, count: int, words: Sequence[bytes] = ()
) -> Iterator[bytes]:
    """That many damaged copies, most of them damaged once or twice."""
    pieces = [*words, *(text.encode("utf-8", "surrogatepass") for text in TEXTS)]
    for _ in range(count):
        data = bytearray(generator.choice(good))
        for _ in range(generator.choice((1, 1, 1, 2, 2, 3, 8))):
            _damage(data, generator, good, pieces)
        yield bytes(data)


def _damage(
    data: bytearray, generator: random.Random, good: Sequence[bytes], pieces: Sequence[bytes]
) -> None:
    at = generator.randrange(len(data) + 1)
    length = min(len(data) - at, generator.choice((1, 1, 2, 4, 8, 64, 1024)))
    match generator.randrange(9):
        case 0 if data:
            data[at % len(data)] ^= 1 << generator.randrange(8)
        case 1 if data:
            data[at % len(data)] = generator.randrange(256)
        case 2:
            del data[at : at + length]
        case 3:
            del data[at:]
        case 4:
            data[at:at] = data[at : at + length] * generator.choice((1, 2, 50))
        case 5:
            size = generator.choice((1, 2, 4, 8))
            edge = generator.choice(EDGES) & ((1 << 8 * size) - 1)
            data[at : at + size] = edge.to_bytes(size, generator.choice(("little", "big")))
        case 6:
            data[at:at] = generator.choice(pieces)
        case 7:
            data[at : at + length] = bytes(length)
        case _:
            other = generator.choice(good)
            start = generator.randrange(len(other) + 1)
            data[at : at + length] = other[start : start + length]


class HangError(BaseException):
    """An input takes too long. No Exception, so that no reader takes it for a damaged file."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Interrupt what takes more of the processor's time, or waits for much longer.

    The time of a clock would blame an input for a busy machine. What loops in native code notices
    nothing; after twice as much the system ends the process (SIGVTALRM).
    """

    def interrupt(number: int, _frame: FrameType | None) -> None:
        took = f"{seconds} s of the processor" if number == signal.SIGPROF else f"{WAITING} s"
        raise HangError(f"no end after {took}")

    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGPROF, signal.SIGALRM)
    }
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_VIRTUAL, 2 * seconds)
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    try:
        yield
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_VIRTUAL, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
