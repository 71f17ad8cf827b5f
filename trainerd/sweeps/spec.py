"""The file sweep.toml: the request that a sweep was made of."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tomlkit
from msgspec import Meta

from trainerd.config import tables
from trainerd.config.metric_goals import Best
from trainerd.config.tables import key
from trainerd.errors import ConfigError, UsageError
from trainerd.sweeps.halving import Halving
from trainerd.sweeps.space import Point, grid, random_points, read_space, sobol_points

NAME = "sweep.toml"
_HEAD = "What `trainerd sweep` was asked for. The other files are the configs of its points."
Rung = Annotated[int, Meta(ge=1, le=2**62)]


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """The content of one sweep.toml."""

    base: str = key(MISSING, "", "The config that the points were made of, relative to the sweep's folder.")
    set: Annotated[tuple[str, ...], Meta(min_length=1)] = key(MISSING, "", "The keys and their values, as typed.")
    sampler: Literal["grid", "random", "sobol"] = key("grid", "", "How the points were chosen.")
    count: Annotated[int, Meta(ge=1)] | None = key(None, "points", "How many were drawn; none for a grid.")
    seed: Annotated[int, Meta(ge=0, le=2**62)] = key(0, "", "The seed of random and Sobol points.")
    halve: str | None = key(None, "", 'The metric by which points are compared at each rung, such as "min val_loss".')
    rungs: tuple[Rung, ...] = key((), "steps", "The steps at which they are compared.")
    factor: Annotated[int, Meta(ge=2, le=1000)] = key(3, "", "Of so many points, one trains on.")

    @classmethod
    def read(cls, folder: Path) -> SweepSpec:
        """Read the file of a sweep's folder.

        Raises:
          ConfigError: it cannot be read, or holds mistakes.
        """
        path = folder / NAME
        reader = tables.Tables(cls)
        found: SweepSpec | None = reader.read(tables.read(path, "`trainerd sweep CONFIG --set KEY=A,B` makes a sweep."))
        tables.require_none(reader.mistakes, path)
        assert found is not None
        try:
            found.halving()
            read_space(found.set)
        except UsageError as error:
            raise ConfigError(f"{path}: {error}") from None
        return found

    def to_toml(self) -> str:
        """Return the content of the file: the keys that are not the default."""
        document = tomlkit.document()
        document.add(tomlkit.comment(_HEAD))
        defaults: dict[str, Any] = {each.name: each.default for each in self.__dataclass_fields__.values()}
        for name, value in asdict(self).items():
            if value != defaults[name]:
                document.add(name, value)
        return tomlkit.dumps(document)

    def halving(self) -> Halving | None:
        """Return the rungs; None if all points train to their end.

        Raises:
          UsageError: there is a metric without rungs, or the other way round; or they do not rise.
        """
        if self.halve is None and not self.rungs:
            return None
        if self.halve is None or not self.rungs:
            raise UsageError("--halve METRIC and --rungs STEP,STEP go together. Give both, or neither.")
        if any(step >= after for step, after in zip(self.rungs, self.rungs[1:], strict=False)):
            raise UsageError(f"--rungs: expected steps that rise, got {','.join(map(str, self.rungs))}.")
        try:
            return Halving(self.rungs, Best.parse(self.halve), self.factor)
        except ValueError as error:
            raise UsageError(f"--halve: {error}, got {self.halve!r}.") from None

    def choose(self) -> list[Point]:
        """Return the points, in their order.

        Raises:
          UsageError: they cannot be chosen; see `trainerd.sweeps.space`.
        """
        space = read_space(self.set)
        if self.sampler == "grid" or self.count is None:
            return grid(space)
        return (random_points if self.sampler == "random" else sobol_points)(space, self.count, self.seed)
