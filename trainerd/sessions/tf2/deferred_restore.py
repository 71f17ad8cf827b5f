"""A checkpoint is restored before all variables are made: Keras makes them when a model is first called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainerd.checkpoints.contents.device_copies import is_copy
from trainerd.checkpoints.contents.kept import is_kept
from trainerd.checkpoints.contents.keras_variables import (
    escaped,
    is_inner,
    is_of_metrics,
    is_of_seeds,
    part_of,
    stored_hidden,
    warn_of_missing,
)
from trainerd.checkpoints.contents.object_graph import GRAPH_KEY, has_unrestored
from trainerd.errors import DataError
from trainerd.sessions.tf2.tracked import STEP_KEY, Tracked

log = logging.getLogger(__name__)

PATIENCE = 1000  # runs in which a program makes all its variables
_LONG = 1000  # characters: TensorFlow's own messages list the values of variables
_UNMATCHED = (
    "the checkpoint does not fit the program: its files are sound, but its variables are not those of the "
    "tf.train.Checkpoint, or are made in another order. Use another `logdir` for another model. A Keras model that is "
    "subclassed and not built cannot be matched: call model.build(...) and optimizer.build(model.trainable_variables) "
    "before the session, or before `fit`; trainerd.keras.fit needs neither."
)


class DeferredRestore:
    """Gives variables their values as they are made, and knows what of a checkpoint has no variable yet.

    Until every value has a variable nothing is saved: the new checkpoint would be without that value.

    Args:
      tracked: the objects that there are.
      keys: returns the keys that a snapshot of them has.
    """

    def __init__(self, tracked: Tracked, keys: Callable[[], Collection[str]]) -> None:
        self._tracked = tracked
        self._keys = keys
        self._status: Any = None  # TensorFlow's, until all that the checkpoint tracks has variables
        self._stored: set[str] = set()
        self._waiting: dict[str, Any] = {}  # values of hidden variables that are not made yet
        self._warned: set[str] = set()  # keys of variables without a value, since it was read
        self._is_asked = True  # whether the hidden variables were compared with the checkpoint, since it was read
        self._is_settled = True  # whether every value had its variable once, since it was read
        self._restored_at = 0  # the count of runs

    def read(self, prefix: Path, runs: int) -> None:
        """Read a checkpoint into the variables that there are.

        Args:
          prefix: the checkpoint's.
          runs: how often the program has run a function.

        Raises:
          AssertionError, DataError, ValueError, tf.errors.OpError: it does not fit.
        """
        self._status = self._tracked.checkpoint.read(str(prefix)).expect_partial()  # it is checked later
        self._waiting = stored_hidden(prefix)
        self._stored = {name for name, _ in tf.train.list_variables(str(prefix))}
        self._stored = {name for name in self._stored if name != GRAPH_KEY and not is_kept(name)}
        self._warned.clear()
        self._is_asked = self._is_settled = False
        self._restored_at = runs
        self._match(runs)

    def count_from(self, runs: int) -> None:
        """Record that the program runs from this count of runs on."""
        self._restored_at = runs

    def all_matched(self, runs: int) -> bool:
        """Return whether every value has its variable. Once it had, the program may put others in their places.

        Raises:
          DataError: some have none after a thousand runs: the program has changed.
        """
        is_late = runs - self._restored_at > PATIENCE
        missing = self._tracked_missing() + self._hidden_missing()
        if missing and is_late:
            raise DataError(
                f"after {PATIENCE} runs the program has no variables for {missing[0]} and {len(missing) - 1} "
                "other values of its checkpoint, and nothing was saved since the start. For another model use another "
                "`logdir`. Build a part that is used later before the first run: model.build(...)."
            )
        if self._waiting and is_late:
            self._forget_waiting()
        self._is_settled = self._is_settled or not missing
        return not missing

    def variables_made(self, runs: int) -> None:
        """Give values to variables that were made since the last call.

        Raises:
          DataError: the checkpoint has none for one of them.
        """
        self._require_stored()
        self._match(runs)

    def require_whole(self, runs: int) -> None:
        """Require that every value has its variable: all variables are made now.

        Raises:
          DataError: the checkpoint does not fit them, or some are made too late to be restored.
        """
        late = self._hidden_missing()
        self.variables_made(runs)
        if late:
            raise DataError(f"{_UNMATCHED}\nIt had none for {late[0]} when it was restored.")
        self._forget_waiting()

    def forget_metrics(self) -> None:
        """Forget metrics that are not made yet: an epoch restarts, and they do, too."""
        self._waiting = {key: value for key, value in self._waiting.items() if not is_of_metrics(key)}

    def _tracked_missing(self) -> list[str]:
        """Return the keys that the checkpoint tracks and that have no variables yet."""
        if self._status is None:
            return []
        try:
            self._status.assert_consumed()
            missing = []
        except AssertionError:
            # What is not part of the program's checkpoint any more is gone knowingly.
            parts = tuple(f"{escaped(name)}/" for name in self._tracked.parts())
            missing = sorted(key for key in self._stored - set(self._keys()) if key.startswith(parts))
        if not missing:
            self._status = None
        return missing

    def _hidden_missing(self) -> list[str]:
        """Return the keys of hidden variables that are not made yet. Metrics and seeds may be gone knowingly."""
        parts = tuple(f"hidden/{escaped(name)}/" for name in self._tracked.parts())
        return sorted(key for key in self._waiting if key.startswith(parts) and not _may_differ(key))

    def _require_stored(self) -> None:
        """Require that every hidden variable that the program has made has its value in the checkpoint.

        This is asked when a step is traced, since what a model is built of may have another place then than before.
        It is asked until every value has its variable: then the program may make others.
        """
        if self._is_asked and self._is_settled:
            return
        self._is_asked = True
        missing = self._tracked.beside().keys() - self._stored
        for key in sorted(missing):
            if not (_may_differ(key) or is_inner(key)):
                raise DataError(f"{_UNMATCHED}\nIt has no value for {key}.")
        warn_of_missing({key for key in missing if is_inner(key)} - self._warned)
        self._warned |= missing

    def _match(self, runs: int) -> None:
        if self._status is not None:
            try:
                self._status.assert_existing_objects_matched()
            except AssertionError as error:
                # What is hidden, and an optimizer tracks once it is built, is restored below.
                at_once = runs == self._restored_at
                if has_unrestored(self._status, self._tracked.checkpoint, at_once=at_once) or self._anew():
                    raise DataError(f"{_UNMATCHED}\n{error}".rstrip().partition("\n\n")[0][:_LONG]) from error
        if self._waiting:
            self._restore_hidden()

    def _restore_hidden(self) -> None:
        """Give hidden variables their values, part by part.

        Hidden variables are known by their numbers, and a layer may make its own when it is first called, before those
        of others: so a part's are restored when all of them are there.
        """
        variables = self._tracked.beside()
        for part in {part_of(key) for key in self._waiting}:
            here = {key: variable for key, variable in variables.items() if part_of(key) == part}
            if here.keys() == {key for key in self._waiting if part_of(key) == part}:
                for key, variable in here.items():
                    variable.assign(self._waiting.pop(key))

    def _anew(self) -> list[str]:
        """Return the keys of the present variables for which the checkpoint has no values."""
        new = [key for key in self._keys() if key not in self._stored]
        return [key for key in new if not (_may_differ(key) or is_inner(key))]

    def _forget_waiting(self) -> None:
        """Drop the values of hidden variables that are not made yet, as of metrics in any case."""
        if lost := [key for key in self._waiting if not is_of_metrics(key)]:
            log.warning(
                "the model has no variables for %d values of the checkpoint that it resumed from, such as %s. "
                "They start over",
                len(lost),
                min(lost),
                extra={"event": "hidden"},
            )
        self._waiting.clear()


def _may_differ(key: str) -> bool:
    """Return whether the program may have a variable that the checkpoint does not have.

    Metrics restart at an epoch, seeds at the end, and TensorFlow's own checkpoints count no steps. There may be more or
    fewer devices than before.
    """
    return is_of_metrics(key) or is_of_seeds(key) or key == STEP_KEY or is_copy(key)
