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
from trainerd.sweeps.space import Point, grid, random_points, read_space, require_few, sobol_points

NAME = "sweep.toml"
_HEAD = "What `trainerd sweep` was asked for. The other files are the configs of its points."
Rung = Annotated[int, Meta(ge=1, le=2**62)]


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """The content of one sweep.toml."""

    base: str = key(MISSING, "", "The config that the points were made of, relative to the sweep's folder.")
    set: Annotated[tuple[str, ...], Meta(min_length=1)] = key(MISSING, "", "The keys and their values, as typed.")
    sampler: Literal["grid", "random", "sobol", "optuna"] = key("grid", "", "How the points were chosen.")
    count: Annotated[int, Meta(ge=1)] | None = key(None, "points", "How many are drawn; none for a grid.")
    seed: Annotated[int, Meta(ge=0, le=2**62)] = key(0, "", "The seed of the points that are drawn.")
    metric: str | None = key(None, "", 'The metric by which points are compared, such as "min val_loss".')
    rungs: tuple[Rung, ...] = key((), "steps", "The steps at which they are halved.")
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
            found.require_sound()
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

    def require_sound(self) -> None:
        """Require that the keys go together.

        Raises:
          UsageError: they do not.
        """
        if self.rungs and self.metric is None:
            raise UsageError("--rungs STEP,STEP needs a metric: --halve METRIC.")
        if any(step >= after for step, after in zip(self.rungs, self.rungs[1:], strict=False)):
            raise UsageError(f"--rungs: expected steps that rise, got {','.join(map(str, self.rungs))}.")
        if self.sampler == "optuna" and (self.metric is None or self.rungs):
            raise UsageError("--optuna needs --metric METRIC, and no --rungs: it chooses points by their last result.")
        if (self.sampler == "grid") != (self.count is None):
            needs = "takes no `count`" if self.sampler == "grid" else "needs `count`, the number of points"
            raise UsageError(f"sampler: {self.sampler!r} {needs}.")
        self.goal()

    def goal(self) -> Best | None:
        """Return the metric by which points are compared; None if none is named.

        Raises:
          UsageError: it is neither "min NAME" nor "max NAME".
        """
        try:
            return None if self.metric is None else Best.parse(self.metric)
        except ValueError as error:
            raise UsageError(f"--metric: {error}, got {self.metric!r}.") from None

    def halving(self) -> Halving | None:
        """Return the rungs; None if all points train to their end."""
        goal = self.goal()
        return Halving(self.rungs, goal, self.factor) if self.rungs and goal is not None else None

    def choose(self) -> list[Point]:
        """Return the points that are known from the beginning, in their order.

        Raises:
          UsageError: they cannot be chosen; see `trainerd.sweeps.space`.
        """
        space, count = read_space(self.set), self.count or 0
        require_few(count)
        if self.sampler == "grid":
            return grid(space)
        if self.sampler == "optuna":
            return []
        return (random_points if self.sampler == "random" else sobol_points)(space, count, self.seed)
