"""What a program's own `tf.train.Checkpoint` tracks, as it is saved and restored. The program's own loop changes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.keras_variables import (
    VALUE,
    escaped,
    hidden_variables,
    is_of_metrics,
    is_of_seeds,
    optimizer_kinds,
    part_of,
    stored_hidden,
)
from trainerd.checkpoints.contents.object_graph import (
    GRAPH_KEY,
    has_unrestored,
    own_objects,
    tracked_objects,
    variables_among,
)
from trainerd.checkpoints.contents.unsaved_variables import require_held
from trainerd.checkpoints.format.snapshotter import Snapshotter, TensorSnapshot
from trainerd.errors import DataError, EntryError
from trainerd.job.user_code import called_at_boundary
from trainerd.sessions.input import pipeline
from trainerd.sessions.input.pipeline import dataset_of
from trainerd.sessions.input.saveable import require_saveable
from trainerd.sessions.input.shuffle_order import begin_order, restore_order, warn_of_lost_order
from trainerd.version import __version__

log = logging.getLogger(__name__)

_LONG = 1000  # characters: TensorFlow's own messages list the values of variables
PATIENCE = 1000  # runs in which a program makes all its variables
STEP_KEY = f"hidden/global_step/{VALUE}"
_WITHOUT = "leave its iterator out of the tf.train.Checkpoint (and `fit`'s data out of supervise.data)"
_UNMATCHED = (
    "the checkpoint does not fit the program: its files are sound, but its variables are others than those of the "
    "tf.train.Checkpoint, or are made in another order. Use another `logdir` for another model. A Keras model that is "
    "subclassed and not built cannot be matched: call model.build(...) and optimizer.build(model.trainable_variables) "
    "before the session, or before `fit`; supervise.data(...) does that for `fit`."
)


class CheckpointModel:
    """The objects that a `tf.train.Checkpoint` tracks, and the count of the steps.

    What variables there are may only be known after the first step: Keras makes them when a model is first called. So
    they are looked for when a snapshot is taken, and again whenever the objects are not those of before.

    After a restore there may be values whose variables are not made yet. Until they are, nothing is saved: the
    checkpoint would be without them.

    Args:
      checkpoint: the program's.
      global_step: int64, counts the steps; it is saved whether the checkpoint tracks it or not.
      summaries: called on the summary schedule, with the default summary writer set; None for none.

    Raises:
      EntryError: it is no `tf.train.Checkpoint`, or its root is another object.
    """

    has_evaluation = calls_python = False

    def __init__(
        self, checkpoint: Any, global_step: tf.Variable, summaries: Callable[[], object] | None = None
    ) -> None:
        if not isinstance(checkpoint, tf.train.Checkpoint):
            raise EntryError(f"checkpoint must be a tf.train.Checkpoint, and is a {type(checkpoint).__name__}.")
        if (root := vars(checkpoint).get("_root")) is not None:  # its first argument, which it tells nobody of
            raise EntryError(
                f"the tf.train.Checkpoint has a {type(root).__name__} without a name: write "
                "tf.train.Checkpoint(model=model, ...) in place of tf.train.Checkpoint(model, ...)."
            )
        self._checkpoint = checkpoint
        self._global_step = global_step
        self._summaries = summaries
        self._snapshotter: Snapshotter | None = None
        self._objects: list[Any] = []
        self._status: Any = None  # of what was restored, until all of it has variables
        self._stored: set[str] = set()
        self._is_asked = True  # whether what is hidden was looked for in it, at the first trace since
        self._is_settled = True  # whether all that it holds was once there, since
        self._restored_at = 0
        self._waiting: dict[str, Any] = {}  # values of a checkpoint whose variables are not made yet
        self.runs = 0

    @property
    def step(self) -> int:
        """The global step."""
        return int(self._global_step.numpy())

    @property
    def changes(self) -> int:
        """How often something may have changed: a function that is run need not be a step."""
        return self.runs

    @property
    def is_whole(self) -> bool:
        """Whether all that was restored has its variables; see `settle`."""
        return self.settle()

    def settle(self) -> bool:
        """Whether all that was restored has its variables. Once it has, the program may put others in their places.

        Raises:
          DataError: it does not after a thousand runs: then the program is another.
        """
        missing = self._tracked_missing() + self._hidden_missing()
        if missing and self.runs - self._restored_at > PATIENCE:
            raise DataError(
                f"after {PATIENCE} runs the program still has no variables for {missing[0]} and {len(missing) - 1} "
                "other values of the checkpoint that it went on from, so nothing was saved since. Is the model another "
                "one? Then use another `logdir`. Is a part used later? Then build it before: model.build(...)."
            )
        if self._waiting and self.runs - self._restored_at > PATIENCE:
            self._forget_waiting()
        self._is_settled = self._is_settled or not missing
        return not missing

    def _tracked_missing(self) -> list[str]:
        """Keys of what was restored, as the checkpoint tracks it, and has no variables yet."""
        if self._status is None:
            return []
        try:
            self._status.assert_consumed()
            missing = []
        except AssertionError:
            parts = tuple(f"{escaped(name)}/" for name in self._parts())  # what is no part any more is gone knowingly
            missing = sorted(key for key in self._stored - set(self._reader().keys) if key.startswith(parts))
        if not missing:
            self._status = None
        return missing

    def _hidden_missing(self) -> list[str]:
        """Keys of what was restored beside that, and has no variables yet. Metrics and seeds may be gone knowingly."""
        parts = tuple(f"hidden/{escaped(name)}/" for name in self._parts())
        return sorted(key for key in self._waiting if key.startswith(parts) and not _may_differ(key))

    def require_whole(self) -> None:
        """All variables are made now.

        Raises:
          DataError: what was restored does not fit them, or some are made that were to be restored before.
        """
        late = self._hidden_missing()
        self.variables_made()
        if late:
            raise DataError(f"{_UNMATCHED}\nIt had none for {late[0]} when it was restored.")
        self._forget_waiting()

    def snapshot(self) -> TensorSnapshot:
        """The state at this boundary."""
        return self._reader().take(self.step)

    def restore(self, prefix: Path) -> None:
        """Read a checkpoint. What has no variables yet gets its values when it makes them.

        Raises:
          DataError: it does not fit.
          EntryError: an input cannot be saved.
        """
        for iterator in self._iterators():  # before they are restored: then they may hold much
            require_saveable(iterator, _WITHOUT)
        try:
            self._status = self._checkpoint.read(str(prefix)).expect_partial()  # it is looked at later
            self._waiting, self._stored = stored_hidden(prefix), _keys_in(prefix)
            self._is_asked = self._is_settled = False
            self._restored_at = self.runs
            self._match()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise DataError(
                f"{prefix} does not fit the program: its files are sound, but its variables are others than those of "
                f"the tf.train.Checkpoint. Use another `logdir` for another model.\n{str(error).splitlines()[0]}"
            ) from error
        for iterator in self._iterators():
            restore_order(dataset_of(iterator), iterator)

    def _require_stored(self) -> None:
        """What is hidden, and was not made since, has its values in the checkpoint: it would begin anew.

        Asked when a step is traced: what a model is built of may have another place then than before. And asked until
        all that was restored is there: then the program may go on to make others.
        """
        if self._is_asked and self._is_settled:
            return
        self._is_asked = True
        for key in sorted(self._with_hidden(own_objects(self._checkpoint)).keys() - self._stored):
            if not _may_differ(key):
                raise DataError(f"{_UNMATCHED}\nIt has no value for {key}.")

    def _anew(self) -> list[str]:
        """Keys of what there is now and the checkpoint has no values for."""
        return [key for key in self._reader().keys if key not in self._stored and not _may_differ(key)]

    def begin_anew(self) -> None:
        """There is nothing to restore.

        Raises:
          EntryError: an input cannot be saved.
        """
        for iterator in self._iterators():
            require_saveable(iterator, _WITHOUT)
            begin_order(dataset_of(iterator))

    def began(self, step: int) -> None:
        """The program runs from this step on."""
        self.runs = self._restored_at = step

    def variables_made(self) -> None:
        """There may be variables that there were not: those that a checkpoint has values for have them now.

        Raises:
          DataError: it has none for one of them.
        """
        self._require_stored()
        self._match()

    def _match(self) -> None:
        """See `variables_made`."""
        if self._status is not None:
            try:
                self._status.assert_existing_objects_matched()
            except AssertionError as error:
                # What is hidden, and an optimizer tracks once it is built, is restored below.
                at_once = self.runs == self._restored_at
                if has_unrestored(self._status, self._checkpoint, at_once=at_once) or self._anew():
                    raise DataError(f"{_UNMATCHED}\n{error}".rstrip().partition("\n\n")[0][:_LONG]) from error
        if self._waiting:
            variables = self._with_hidden(own_objects(self._checkpoint))
            for part in {part_of(key) for key in self._waiting}:
                # A layer may make its own when it is first called, before those of others: until all are there, they
                # are not known by their numbers.
                here = {key: variable for key, variable in variables.items() if part_of(key) == part}
                if here.keys() == {key for key in self._waiting if part_of(key) == part}:
                    for key, variable in here.items():
                        variable.assign(self._waiting.pop(key))

    def forget_metrics(self) -> None:
        """An epoch begins anew: metrics that are not made yet do, too."""
        self._waiting = {key: value for key, value in self._waiting.items() if not is_of_metrics(key)}

    def _forget_waiting(self) -> None:
        """Keras's hidden variables that are not made yet begin anew, as metrics do in any case."""
        if lost := [key for key in self._waiting if not is_of_metrics(key)]:
            log.warning(
                "the model has no variables for %d values of the checkpoint that it went on from, %s among them: "
                "which begin anew",
                len(lost),
                min(lost),
                extra={"event": "hidden"},
            )
        self._waiting.clear()

    def warn_of_forgotten(self, graph: Any, where: str = "the checkpoint") -> None:
        """Say which variables a step changes that are not saved.

        Args:
          graph: that of the step.
          where: what they would have to be in.
        """
        held = [*tracked_objects(self._checkpoint), *self.variables()]
        require_held(graph, held, refuse=False, where=where)

    def variables(self) -> list[Any]:
        """All that are saved, as far as they are made."""
        tracked = variables_among(tracked_objects(self._checkpoint))
        return [*tracked, *self._with_hidden(own_objects(self._checkpoint)).values()]

    def fingerprint(self) -> dict[str, str]:
        """What software saves it, and what its inputs are that are made by now."""
        found = {"software.tensorflow": tf.__version__, "software.trainerd": __version__}
        found |= optimizer_kinds(self._parts())
        if inputs := self._iterators():
            found |= pipeline.fingerprint([dataset_of(each) for each in inputs])
        return found

    def evaluate(self) -> dict[str, float]:
        """Nothing: a program evaluates by itself."""
        return {}

    def weights(self) -> Mapping[str, Any]:
        """The values of the trainable variables, by their names."""
        found: dict[str, Any] = {}
        for part in self._parts().values():
            variables = [part] if isinstance(part, tf.Variable) else getattr(part, "trainable_variables", ())
            for variable in variables:
                if variable.trainable:
                    name = getattr(variable, "path", None) or variable.name.removesuffix(":0")
                    found[name] = tf.convert_to_tensor(variable)
        return found

    def write_summaries(self) -> None:
        """Call the program's summaries."""
        if self._summaries is None:
            return
        with called_at_boundary("summary_op", self.step):
            self._summaries()

    def graph(self) -> Any:
        """None: a program may run several functions."""
        return None

    def _parts(self) -> dict[str, Any]:
        """What the checkpoint was made with, by name."""
        return {name: part for name, part in vars(self._checkpoint).items() if not name.startswith("_")}

    def _with_hidden(self, own: list[Any]) -> dict[str, Any]:
        """What is saved beside that which the checkpoint tracks, given its own objects."""
        return {STEP_KEY: self._global_step, **hidden_variables(self._parts(), variables_among(own))}

    def _iterators(self) -> list[tf.data.Iterator]:
        """The iterators that the checkpoint tracks by now."""
        return [each for each in tracked_objects(self._checkpoint) if isinstance(each, tf.data.Iterator)]

    def _reader(self) -> Snapshotter:
        objects = own_objects(self._checkpoint)
        hidden = self._with_hidden(objects)
        objects += hidden.values()
        if self._snapshotter is None or not _same_objects(objects, self._objects):
            self._snapshotter = Snapshotter(self._checkpoint, hidden, refuse_nan=False)
            if not self._objects:  # a program may make its iterator anew each epoch: that is told once
                for iterator in self._iterators():
                    warn_of_lost_order(dataset_of(iterator))
            self._objects = objects
        return self._snapshotter


def _may_differ(key: str) -> bool:
    """Whether the program may have it without the checkpoint: metrics begin anew, seeds in the end, and TensorFlow's
    own checkpoints count no steps."""
    return is_of_metrics(key) or is_of_seeds(key) or key == STEP_KEY


def _keys_in(prefix: Path) -> set[str]:
    return {name for name, _ in tf.train.list_variables(str(prefix)) if name != GRAPH_KEY}


def _same_objects(ones: list[Any], others: list[Any]) -> bool:
    return len(ones) == len(others) and all(one is other for one, other in zip(ones, others, strict=True))
