"""The contract of every session.

A session may derive from its protocol: then it has the defaults for what most sessions have alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainerd.checkpoints.snapshot import Kept, Snapshot
    from trainerd.job.settable import Number
    from trainerd.loop.flag import Flag


@dataclass(frozen=True)
class Steps:
    """The steps that `run_until` ran.

    Attributes:
      first: the global step of the first row; `first - 1` was the boundary before.
      names: the metrics, one a column.
      rows: one row a step, float64, shape [steps, metrics].
      ended: whether the input has no more batches.
      then: work to do at this boundary before the next step, which may take long; returns metrics. None for none.
      over: why training has ended, if the session itself ends it; else "".
    """

    first: int
    names: Sequence[str]
    rows: NDArray[np.float64]
    ended: bool = False
    then: Callable[[], Mapping[str, float]] | None = None
    over: str = ""

    @classmethod
    def unmeasured(cls, step: int, count: int) -> Steps:
        """Return so many steps without metrics, the last of which is `step`."""
        import numpy as np

        return cls(step - count + 1, (), np.empty((count, 0)))

    @property
    def last_step(self) -> int:
        """The global step of this boundary. `Session.step` may cost a `Session.run`; this costs nothing."""
        return self.first - 1 + len(self.rows)

    def last(self) -> dict[str, float]:
        """Return the metrics of the last step; empty if no step was run."""
        return dict(zip(self.names, map(float, self.rows[-1]), strict=True)) if len(self.rows) else {}


@dataclass(frozen=True)
class Exportable:
    """The parts of a job that can be packaged for use elsewhere.

    Attributes:
      model: its Keras model; None if it has none, or several.
      export: writes the model into a folder that does not exist yet; None if the job has no such function.
      examples: gives so many batches of what the model takes, of data that it is measured with.
      validation: (inputs, targets, sample weights or None) to evaluate the model with; None if there are none.
      validation_steps: batches of them that are evaluated; None for all.
      predict: gives predictions, column name to values; None if the job has none.
    """

    model: Any = None
    export: Callable[[Path], Any] | None = None
    examples: Callable[[int], list[Any]] = lambda count: []
    validation: Any = None
    validation_steps: int | None = None
    predict: Callable[[], Mapping[str, Any]] | None = None


class Savable(Protocol):
    """A state that a checkpoint can be made of."""

    @property
    def step(self) -> int:
        """The global step: how many steps have been done over the run's whole life."""

    @property
    def changes(self) -> int:
        """A number that grows whenever the state may have changed: the step, if every change counts a step."""
        return self.step

    @property
    def has_all_variables(self) -> bool:
        """True if all variables are made. A checkpoint that is made before would lose the missing ones."""
        return True

    def snapshot(self, kept: Kept = "host") -> Snapshot:
        """Return the state at this boundary, in memory. Steps that come after it do not change it.

        Args:
          kept: where. A snapshot that is not written soon is not kept on a GPU.
        """


class Model(Savable, Protocol):
    """The model that is trained. Only the loop's thread calls it, and only between two steps."""

    @property
    def has_evaluation(self) -> bool:
        """True if `evaluate` returns metrics."""
        return False

    @property
    def calls_python(self) -> bool:
        """True if a step or its input calls Python. Such a step may never end."""
        return False

    def restore(self, prefix: Path) -> None:
        """Read a checkpoint into the model.

        Raises:
          DataError: it does not fit the job.
        """

    def changes_since(self, prefix: Path) -> Sequence[str]:
        """Describe the variables that are at other places than in a checkpoint, or that are frozen and were not."""
        return ()

    def fingerprint(self) -> Mapping[str, str]:
        """Return the fingerprint of the job's state and input; see `trainerd.config.fingerprint`."""

    def evaluate(self) -> dict[str, float]:
        """Call the job's `evaluate` at this boundary. Returns its metrics.

        Raises:
          JobError: the job's `evaluate` failed.
        """
        return {}

    def weights(self) -> Mapping[str, Any]:
        """Return the trainable variables' values by name, as tensors that later steps do not change."""
        return {}

    def write_summaries(self) -> None:
        """Call the job's own summaries. The default summary writer is set.

        Raises:
          JobError: the job's `summaries` failed.
        """
        return  # a job may have none

    def graph(self) -> Any:
        """Return the graph of one step, for TensorBoard; None if there is none."""
        return None


@dataclass(frozen=True)
class Epochs:
    """The epochs of a training.

    Attributes:
      count: how many there are; None if nothing but the user ends them.
      last_step: the step at which the last one ends; None if that is unknown.
    """

    count: int | None
    last_step: int | None


class Session(Model, Protocol):
    """A model, and how its steps are run."""

    @property
    def epochs(self) -> Epochs | None:
        """The epochs that it is trained for, whose ends return metrics; None if it has none."""
        return None

    @property
    def devices(self) -> Mapping[str, int | None]:
        """The devices that train, by TensorFlow's names; empty if that is one CPU.

        Each has the number that CUDA gives it in this process, or None if it is not a GPU.
        """
        return {}

    def bind(self, flag: Flag) -> None:
        """Check this flag after every step from now on."""

    def run_until(self, limit: int) -> Steps:
        """Run steps until the flag is raised, `limit` is reached, the input ends, or the loss is not finite.

        It may return earlier, at any boundary. If the flag is raised already, it runs no step.

        Args:
          limit: the global step to stop at.

        Raises:
          JobError: a step failed.
        """

    def numbers(self) -> Mapping[str, Number]:
        """Return the numbers that can be set while it trains, by name."""

    def assign(self, name: str, value: float) -> None:
        """Set one of its numbers at this boundary."""

    def skip(self, count: int) -> list[int]:
        """Read so many batches without a step.

        Returns:
          The indices of their elements, if the dataset has them: if a batch is a dict with integers named `index`.
        """

    @property
    def can_score(self) -> bool:
        """True if `score` returns metrics."""
        return self.has_evaluation

    def load(self, prefix: Path) -> None:
        """Read a checkpoint into the model, to evaluate or to export it: no step follows.

        Raises:
          DataError: it does not fit the job.
        """
        self.restore(prefix)

    def score(self) -> dict[str, float]:
        """Return the metrics of the job's evaluation, or of its validation, for the model as it is.

        Raises:
          JobError: the job's own code failed.
        """
        return self.evaluate()

    def exportable(self) -> Exportable:
        """Return the parts of the job that can be packaged."""
        return Exportable()

    def end(self, *, finished: bool) -> None:
        """Do what the job does at its end: no step follows, and the state is about to be saved for the last time.

        Args:
          finished: whether training is finished, and not paused.

        Raises:
          JobError: what the job does at its end failed.
        """
        return  # a job may do nothing

    def close(self) -> None:
        """Release what it reads from: the last save is done, and nothing follows."""
        return  # a job may read from nothing

    def events(self, logdir: Path) -> Any:
        """Make the writer of its event files in this folder; see `Events`."""


class Events:
    """The writer of data for TensorBoard: this one writes nothing. Each method of the others may raise StorageError."""

    @property
    def is_well(self) -> bool:
        """True if what failed before can be written again."""
        return True

    def begin(self, step: int, session: Model) -> None:
        """Begin after this step. Records of later steps in older files are void."""

    def scalars(self, values: Mapping[str, float], step: int, at: float) -> None:
        """Write the metrics of one step, measured at `at`, in seconds since 1970 (UTC)."""

    def summaries(self, session: Model) -> None:
        """Write histograms of the weights, images of the kernels, and the job's own summaries."""

    def flush(self) -> None:
        """Show what was written so far to readers."""

    def sync(self) -> None:
        """Put what was written so far on disk, and wait for that. Another thread than the loop's calls it."""

    def close(self) -> None:
        """Write the rest, and end."""
