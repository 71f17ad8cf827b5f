"""The values that a sweep tries: axes, and the points that a grid, random numbers or a Sobol sequence choose of them.

Pure: the same space, number and seed give the same points.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainerd.errors import UsageError
from trainerd.system.extras import install_command

Point = dict[str, Any]  # each key of the config to its value
MOST_POINTS = 10_000
_DIGITS = 6  # of a number that is drawn, so that a config can be read
_MOST_DRAWS = 1 << 17
_RANGE = re.compile(r"(?P<kind>[a-z]+)\((?P<low>[^(),]+),(?P<high>[^(),]+)\)")


@dataclass(frozen=True)
class Choice:
    """Values from which one is taken."""

    values: tuple[Any, ...]

    @property
    def size(self) -> float:
        """The number of its values."""
        return len(self.values)

    def at(self, share: float) -> Any:
        """Return the value at a place from 0 to below 1."""
        return self.values[int(share * len(self.values))]


@dataclass(frozen=True)
class Range:
    """The numbers from a lowest to a highest.

    Attributes:
      low, high: both are in it.
      is_log: whether the logarithm of the number is uniform, and not the number.
    """

    low: float
    high: float
    is_log: bool = False

    size = math.inf

    def at(self, share: float) -> float:
        """Return the number at a place from 0 to below 1."""
        low, high = (math.log(self.low), math.log(self.high)) if self.is_log else (self.low, self.high)
        found = low + share * (high - low)
        return self.rounded(math.exp(found) if self.is_log else found)

    def rounded(self, number: float) -> float:
        """Return a number of the range with as many digits as a person reads."""
        return min(max(float(f"{number:.{_DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class WholeRange:
    """The whole numbers from a lowest to a highest; both are in it."""

    low: int
    high: int

    @property
    def size(self) -> float:
        """The number of its values."""
        return self.high - self.low + 1

    def at(self, share: float) -> int:
        """Return the number at a place from 0 to below 1."""
        return self.low + int(share * (self.high - self.low + 1))


Axis = Choice | Range | WholeRange
Space = dict[str, Axis]


def read_space(said: Sequence[str]) -> Space:
    """Read axes such as "params.units=32,64" and "params.learning_rate=log(1e-4,1e-1)".

    Raises:
      UsageError: one has no key, no value, or a range that is none; or a key is given twice.
    """
    found: Space = {}
    for each in said:
        key, equals, value = (part.strip() for part in each.partition("="))
        if not equals or not key or not value:
            raise UsageError(f"--set: expected KEY=VALUE,VALUE, such as params.units=32,64, got {each!r}.")
        if key in found:
            raise UsageError(f"--set {key}: it is given twice. Give all of its values at once: {key}=VALUE,VALUE.")
        drawn = _RANGE.fullmatch(value)
        found[key] = _range_of(each, drawn) if drawn is not None else Choice(_values_of(each, value))
    return found


def grid(space: Space) -> list[Point]:
    """Return every combination of the values.

    Raises:
      UsageError: an axis is a range, or there are too many points.
    """
    for key, axis in space.items():
        if not isinstance(axis, Choice):
            raise UsageError(f"--set {key}: a range is for --random N or --sobol N. A grid needs values: {key}=1,2.")
    require_few(_size(space))
    return list(_combinations(space))


def random_points(space: Space, count: int, seed: int) -> list[Point]:
    """Return points at random, each once.

    Raises:
      UsageError: there are fewer points, or too many are asked for.
    """
    numbers = random.Random(seed)

    def draws() -> Iterator[Sequence[float]]:
        while True:
            yield [numbers.random() for _ in space]

    return _distinct(space, count, "--random", draws)


def sobol_points(space: Space, count: int, seed: int) -> list[Point]:
    """Return the first points of a scrambled Sobol sequence, which fill the space more evenly, each once.

    Raises:
      UsageError: there are fewer points, too many are asked for, or SciPy is not installed.
    """
    try:
        from scipy.stats import qmc  # of an extra
    except ImportError:
        raise UsageError(
            f"--sobol: the package `scipy` is not installed. Install it with `{install_command('sweep')}`."
        ) from None

    def draws() -> Iterator[Sequence[float]]:
        sequence = qmc.Sobol(len(space), scramble=True, rng=seed)
        yield from sequence.random_base2(0)  # twice as many each time, which keeps the sequence balanced
        for power in itertools.count():
            yield from sequence.random_base2(power)

    return _distinct(space, count, "--sobol", draws)


def _distinct(space: Space, count: int, option: str, draws: Callable[[], Iterator[Sequence[float]]]) -> list[Point]:
    """Return the first distinct points of those that are drawn."""
    require_few(count)
    size = _size(space)
    few = UsageError(f"{option} {count}: the space has {size:,.0f} points. Ask for as many at most.")
    if size < count:
        raise few
    found: dict[str, Point] = {}
    for shares in itertools.islice(draws(), _MOST_DRAWS):
        point = {key: axis.at(share) for (key, axis), share in zip(space.items(), shares, strict=True)}
        found.setdefault(repr(point), point)
        if len(found) == count:
            return list(found.values())
    raise few


def require_few(count: float) -> None:
    """Require that a sweep has no more points than a person means.

    Raises:
      UsageError: it has.
    """
    if count > MOST_POINTS:
        raise UsageError(
            f"the sweep has {count:,.0f} points, and {MOST_POINTS:,} are the most. Give fewer values, or choose "
            "some of the points: --random 100."
        )


def _combinations(space: Mapping[str, Axis]) -> Iterator[Point]:
    values = [axis.values for axis in space.values() if isinstance(axis, Choice)]
    for each in itertools.product(*values):
        yield dict(zip(space, each, strict=True))


def _size(space: Space) -> float:
    """Return how many points there are; infinity with a range."""
    return math.prod(axis.size for axis in space.values())


def _values_of(said: str, text: str) -> tuple[Any, ...]:
    """Return the values of a list, each in TOML; what is not TOML is a string."""
    try:
        values = tomllib.loads(f"values = [{text}]")["values"]
    except tomllib.TOMLDecodeError:
        values = [_value_of(each.strip()) for each in text.split(",")]
    found = {repr(each): each for each in values}
    if not values or "" in values or len(found) < len(values):
        raise UsageError(f"--set {said}: expected values, each once, such as params.units=32,64.")
    return tuple(values)


def _value_of(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _range_of(said: str, drawn: re.Match[str]) -> Axis:
    kind, is_int = drawn["kind"], drawn["kind"] == "int"
    if kind not in ("log", "uniform", "int"):
        raise UsageError(f"--set {said}: expected log(LOW,HIGH), uniform(LOW,HIGH) or int(LOW,HIGH), got {kind}(...).")
    try:
        low, high = (int(drawn[each]) if is_int else float(drawn[each]) for each in ("low", "high"))
    except ValueError:
        numbers = "whole numbers" if is_int else "numbers"
        raise UsageError(f"--set {said}: expected two {numbers} in {kind}(LOW,HIGH).") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high) or (kind == "log" and low <= 0):
        above = "0 < LOW < HIGH" if kind == "log" else "LOW < HIGH"
        raise UsageError(f"--set {said}: expected finite numbers with {above}.")
    if is_int:
        return WholeRange(int(low), int(high))
    return Range(low, high, is_log=kind == "log")
