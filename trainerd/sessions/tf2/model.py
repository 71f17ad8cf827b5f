"""The objects of a program's own `tf.train.Checkpoint`, as saved and restored. The program's loop changes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents import variable_names
from trainerd.checkpoints.contents.device_copies import is_distributed, key_of_copy, restore_copies, strategy_of
from trainerd.checkpoints.contents.kept import restore_kept
from trainerd.checkpoints.contents.keras_variables import optimizer_kinds, parts_of
from trainerd.checkpoints.contents.misfit import why_unfit
from trainerd.checkpoints.contents.object_graph import own_objects, tracked_objects, variables_among
from trainerd.checkpoints.contents.op_kinds import calls_python
from trainerd.checkpoints.contents.unsaved_state import require_saved
from trainerd.checkpoints.contents.variable_names import Names, names_of, stored_names
from trainerd.checkpoints.format.snapshotter import Snapshotter, TensorSnapshot
from trainerd.checkpoints.snapshot import Kept
from trainerd.config.software import of_software
from trainerd.errors import DataError, EntryError
from trainerd.job.user_code import called_at_boundary
from trainerd.loop.contract import Model
from trainerd.sessions.input import pipeline
from trainerd.sessions.input.pipeline import dataset_of
from trainerd.sessions.input.saveable import require_saveable
from trainerd.sessions.input.shuffle_order import begin_order, require_saved_order, restore_order
from trainerd.sessions.tf2.deferred_restore import DeferredRestore
from trainerd.sessions.tf2.devices import gpu_room
from trainerd.sessions.tf2.replicas import Replicas, require_no_scope
from trainerd.sessions.tf2.tracked import Tracked
from trainerd.sessions.tf2.weights import weights_of
from trainerd.text import type_of

log = logging.getLogger(__name__)

_WITHOUT = "leave its iterator out of the tf.train.Checkpoint"


class CheckpointModel(Model):
    """The objects that a `tf.train.Checkpoint` tracks, and the count of the steps.

    One class, since the loop's contract asks for most of its methods.

    What variables there are may only be known after the first step: Keras makes them when a model is first called. So
    they are looked for when a snapshot is taken, and again whenever the objects are not those of before.

    After a restore there may be values whose variables are not made yet. Until they are, nothing is saved: the
    checkpoint would be without them.

    Args:
      checkpoint: the program's.
      global_step: int64, counts the steps; it is saved whether the checkpoint tracks it or not.
      summaries: called on the summary schedule, with the default summary writer set; None for none.

    Raises:
      EntryError: `checkpoint` is not a `tf.train.Checkpoint`, or has a root object of its own; or this is called in
        the scope of a strategy.
    """

    calls_python = False

    def __init__(
        self, checkpoint: Any, global_step: tf.Variable, summaries: Callable[[], object] | None = None
    ) -> None:
        require_no_scope()
        if not isinstance(checkpoint, tf.train.Checkpoint):
            raise EntryError(f"checkpoint: expected a tf.train.Checkpoint, got {type_of(checkpoint)}.")
        if (root := vars(checkpoint).get("_root")) is not None:  # its first argument, which it does not expose
            raise EntryError(
                f"the tf.train.Checkpoint has a part of type {type(root).__name__} without a name: write "
                "tf.train.Checkpoint(model=model, ...) in place of tf.train.Checkpoint(model, ...)."
            )
        self._checkpoint = checkpoint
        self._global_step = global_step
        self._summaries = summaries
        self._tracked = Tracked(checkpoint, global_step)
        self._restored = DeferredRestore(self._tracked, lambda: self._reader().keys)
        self._snapshotter: Snapshotter | None = None
        self._objects: list[Any] = []
        self._read_from: Path | None = None  # the newest checkpoint that was restored
        self._given = set[str]()  # the keys of copies that have their own values since then
        self._is_traced = False
        self._room = gpu_room()
        self.runs = 0

    @property
    def step(self) -> int:
        """The global step."""
        return int(self._global_step.numpy())

    @property
    def changes(self) -> int:
        """The number of runs that may have changed something: a function that is run need not be a step."""
        return self.runs

    @property
    def has_all_variables(self) -> bool:
        """True if all that was restored has its variables; see `DeferredRestore.all_matched`."""
        return self._restored.all_matched(self.runs)

    def require_whole(self) -> None:
        """Require that every restored value has its variable; see `DeferredRestore.require_whole`."""
        self._restored.require_whole(self.runs)

    def count(self, runs: int) -> None:
        """Count so many runs of functions that may have changed something."""
        self.runs += runs

    def traced(self, graph: Any) -> None:
        """Give the variables that a function has made while it was traced their values; warn of what is not saved.

        Args:
          graph: the function's.

        Raises:
          DataError: the checkpoint does not fit them; see `DeferredRestore`.
          EntryError: the variables are under another strategy than a MirroredStrategy.
        """
        self.calls_python = self.calls_python or calls_python(graph)
        self._restored.variables_made(self.runs)
        self._restored.all_matched(self.runs)  # raises if they come too late
        hidden = self._tracked.beside()
        self._is_traced = True
        self._give_copies()
        objects = tracked_objects(self._checkpoint)
        held = [*objects, *variables_among(objects), *hidden.values()]
        require_saved(graph, held, refuse=False, where="the checkpoint")

    def forget_metrics(self) -> None:
        """Forget metrics that are not made yet: an epoch restarts, and they do, too."""
        self._restored.forget_metrics()

    def snapshot(self, kept: Kept = "host") -> TensorSnapshot:
        """Return the state at this boundary."""
        return self._reader().take(self.step, kept)

    def restore(self, prefix: Path) -> None:
        """Read a checkpoint. What has no variables yet gets its values when it makes them.

        Raises:
          DataError: it does not fit.
          EntryError: an input cannot be saved.
        """
        for iterator in self._tracked.iterators():  # before they are restored: then they may hold much
            require_saveable(iterator, _WITHOUT)
        try:
            self._restored.read(prefix, self.runs)
            self._read_from = prefix
            self._given.clear()
            self._give_copies()
            restore_kept(prefix)
        except DataError:  # it says already what does not fit
            raise
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise DataError(
                f"{prefix} does not fit the program: its files are sound, but its variables are not those of "
                f"the tf.train.Checkpoint. Use another `logdir` for another model.\n{why_unfit(error)}"
            ) from error
        for iterator in self._tracked.iterators():
            restore_order(dataset_of(iterator), iterator)

    def _replicas(self, hidden: Mapping[str, Any]) -> Replicas | None:
        """Return the devices for which the variables were made; None if they are on one."""
        found = filter(is_distributed, [*own_objects(self._checkpoint), *hidden.values()])
        return Replicas.of(map(strategy_of, found))

    def _copies(self, hidden: Mapping[str, Any]) -> dict[str, Any]:
        """Return the copies of variables on several devices that may differ, by their keys in a checkpoint."""
        if (replicas := self._replicas(hidden)) is None:
            return {}
        return replicas.differing(self._checkpoint, hidden, self._tracked.parts())

    def _give_copies(self) -> None:
        """Give each device its own values of the variables that are new: those of the checkpoint, or other seeds.

        A program whose functions trainerd does not trace draws the same random numbers on all devices, as in Keras.
        """
        hidden = self._tracked.beside()
        new = {key: copy for key, copy in self._copies(hidden).items() if key not in self._given}
        is_restored = self._read_from is not None and restore_copies(self._read_from, new)
        if not is_restored and self._is_traced and (replicas := self._replicas(hidden)) is not None:
            replicas.spread_seeds({key: each for key, each in hidden.items() if key_of_copy(0, key) in new})
        if is_restored or self._is_traced:
            self._given |= new.keys()

    def begin_inputs(self) -> None:
        """Begin with inputs that are not restored, since there is no checkpoint.

        Raises:
          EntryError: an input cannot be saved.
        """
        for iterator in self._tracked.iterators():
            require_saveable(iterator, _WITHOUT)
            begin_order(dataset_of(iterator))

    def count_from(self, step: int) -> None:
        """Record that the program runs from this step on."""
        self.runs = step
        self._restored.count_from(step)

    def changes_since(self, prefix: Path) -> list[str]:
        """Describe the variables that are at other places, of those that are made by now."""
        return variable_names.moved(stored_names(prefix), self._names(self._tracked.beside()))

    def _names(self, hidden: Mapping[str, Any]) -> Names:
        return names_of(self._checkpoint, hidden, parts_of(self._tracked.parts()))

    def fingerprint(self) -> dict[str, str]:
        """Return the fingerprint of the software that saves it, and of the inputs that are made by now."""
        found, hidden = of_software(), self._tracked.beside()
        if (replicas := self._replicas(hidden)) is not None:
            found |= replicas.described(self._copies(hidden))
        found |= optimizer_kinds(self._tracked.parts())
        if inputs := self._tracked.iterators():
            found |= pipeline.fingerprint([dataset_of(each) for each in inputs])
        return found

    def weights(self) -> Mapping[str, Any]:
        """Return the values of the trainable variables, by their names."""
        return weights_of(self._tracked.parts())

    def write_summaries(self) -> None:
        """Call the program's summaries."""
        if self._summaries is None:
            return
        with called_at_boundary("summary_op", self.step):
            self._summaries()

    def _reader(self) -> Snapshotter:
        objects = own_objects(self._checkpoint)
        hidden = self._tracked.beside(objects)
        objects += hidden.values()
        if self._snapshotter is None or not _same_objects(objects, self._objects):
            names = self._names(hidden)
            beside = hidden | self._copies(hidden)
            self._snapshotter = Snapshotter(self._checkpoint, beside, refuse_nan=False, names=names, room=self._room)
            if self._read_from is not None:
                self._snapshotter.resume(self._read_from)
            if not self._objects:  # a program may make a new iterator each epoch: one warning is enough
                for iterator in self._tracked.iterators():
                    require_saved_order(dataset_of(iterator), refuse=False)
            self._objects = objects
        return self._snapshotter


def _same_objects(ones: list[Any], others: list[Any]) -> bool:
    return len(ones) == len(others) and all(one is other for one, other in zip(ones, others, strict=True))
