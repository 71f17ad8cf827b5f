"""A `trainerd.Job`: steps of a TensorFlow 2 function, run in the graph."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from trainerd.checkpoints.contents import variable_names
from trainerd.checkpoints.contents.device_copies import is_distributed, restore_copies, strategy_of
from trainerd.checkpoints.contents.graph_digest import digest_of
from trainerd.checkpoints.contents.kept import restore_kept
from trainerd.checkpoints.contents.keras_variables import (
    drawn_seeds,
    hidden_variables,
    is_untracked,
    optimizer_kinds,
    parts_of,
    restore_hidden,
)
from trainerd.checkpoints.contents.misfit import why_unfit
from trainerd.checkpoints.contents.object_graph import own_objects, tracked_objects, variables_among
from trainerd.checkpoints.contents.op_kinds import calls_python
from trainerd.checkpoints.contents.unsaved_state import require_saved
from trainerd.checkpoints.contents.variable_names import Names, names_of, stored_names
from trainerd.checkpoints.format.snapshotter import Snapshotter, TensorSnapshot
from trainerd.checkpoints.snapshot import Kept
from trainerd.config.software import of_software
from trainerd.errors import DataError, EntryError, JobError, TrainerdError
from trainerd.events.writer import EventWriter
from trainerd.job.definition import Job
from trainerd.job.settable import Number
from trainerd.job.user_code import FAILURES, called_at_boundary, half_written_cache, job_traceback, user_code
from trainerd.loop.contract import Epochs, Exportable, Session, Steps
from trainerd.loop.flag import Flag
from trainerd.sessions.input import pipeline
from trainerd.sessions.input.iterators import begin_again, indices_in, limited, retire
from trainerd.sessions.input.saveable import has_position, require_saveable
from trainerd.sessions.input.shuffle_order import (
    begin_order,
    pass_over_orders,
    require_saved_order,
    require_seeds,
    restore_order,
)
from trainerd.sessions.tf2.devices import gpu_numbers, gpu_room
from trainerd.sessions.tf2.eager_step import rehearse
from trainerd.sessions.tf2.metrics import LOSS
from trainerd.sessions.tf2.numbers import Numbers
from trainerd.sessions.tf2.replicas import Replicas, require_no_scope
from trainerd.sessions.tf2.weights import weights_of
from trainerd.sessions.tf2.while_loop import GraphLoop
from trainerd.text import type_of

log = logging.getLogger(__name__)

RESERVED = ("global_step", "iterator", "hidden")


class FunctionSession(Session):
    """A `trainerd.Job`, ready to be trained.

    One class, since the loop's contract asks for most of its methods.

    Args:
      job: what to train.
      exact_input: whether the dataset's position is part of the state.
      stop_on_nan: whether to stop after a step whose loss is not finite.
      repeats: whether its steps must be the same each time: then a step that cannot be is refused.
      source: what the job was made from, for its fingerprint.
      wrap: maps the job to the one that is trained. Default: the same.
      restores_input: whether the dataset resumes from a restored position. If not, it begins at its beginning, and its
        position is saved from then on.

    Raises:
      EntryError: the job cannot be trained: its step does not trace, its dataset cannot be saved.
    """

    epochs: Epochs | None = None
    _reads_anew = True  # whether a restore while it trains reads with another iterator

    def __init__(
        self,
        job: Job,
        *,
        exact_input: bool = True,
        stop_on_nan: bool = True,
        repeats: bool = False,
        source: str = "",
        restores_input: bool = True,
        wrap: Callable[[Job], Job] = lambda job: job,
    ) -> None:
        require_no_scope()
        self._job = job
        self._source = source
        with tf.device("CPU:0"):
            self._global_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        tf.summary.experimental.set_step(self._global_step)
        self._iterator = _iterate(job.dataset, self._passes or 0)
        self._replicas = self._replicas_of(self._variables_of(job.state))
        self._job = job = wrap(replace(job, train_step=self._on_replicas(job.train_step)))
        self._step = self._trace(job.train_step)
        self._loop = self._make_loop([LOSS] if stop_on_nan else [])
        self._has_read = False  # since it was made or restored
        self._read_from: Path | None = None  # the checkpoint that was restored last
        self._room = gpu_room()
        self._exact_input = exact_input and self._iterator is not None
        if self._exact_input:
            require_saved_order(job.dataset, refuse=repeats, begins_again=self.epochs is not None)
            require_seeds(job.dataset, refuse=repeats)
            begin_order(job.dataset, self._passes)
        self._restores_input = self._exact_input and restores_input
        self._checkpoint = self._make_checkpoint(with_input=self._exact_input)
        self._begin_iterators(refuse=repeats)
        tracked = variables_among(own_objects(self._checkpoint))
        self._hidden = hidden_variables(self._job.state, tracked)
        self._hidden |= drawn_seeds(self._step.graph, [*tracked, *self._hidden.values()])
        self._made([*tracked, *self._hidden.values()])
        self._components = self._differing_copies()
        self._spread_seeds()
        held = [*tracked_objects(self._checkpoint), *self._hidden.values(), *self._passing]
        self._unsaved = require_saved(self._step.graph, held, refuse=repeats)
        self._numbers = Numbers(job.state, job.settable)
        self._refuse_nan = stop_on_nan

    # ------------------------------------------------------------------ the contract

    @property
    def step(self) -> int:
        """The global step."""
        return int(self._global_step.numpy())

    @property
    def has_evaluation(self) -> bool:
        """True if the job has an `evaluate`."""
        return self._job.evaluate is not None

    @cached_property
    def calls_python(self) -> bool:
        """True if the step or a stage of the dataset does."""
        graphs = [self._step.graph, *self._graphs_of_input()]
        return any(map(calls_python, graphs))

    @cached_property
    def _snapshotter(self) -> Snapshotter:
        """The snapshotter, made when it is needed: a session that only evaluates or exports saves nothing."""
        return Snapshotter(
            self._checkpoint,
            self._hidden | self._components,
            refuse_nan=self._refuse_nan,
            unsaved=self._unsaved,
            names=self._given_names,
            room=self._room,
        )

    @cached_property
    def _given_names(self) -> Names:
        """The names of the variables, as the job was built: callbacks may freeze layers later."""
        return names_of(self._checkpoint, self._hidden, parts_of(self._job.state))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of a step's metrics."""
        return self._loop.names

    @property
    def devices(self) -> Mapping[str, int | None]:
        """The devices that train: those of the replicas, or the GPU that TensorFlow takes first."""
        numbers = gpu_numbers()
        names = list(numbers)[:1]
        if self._replicas is not None and self._replicas.count > 1:
            names = self._replicas.devices
        return {name: numbers.get(name) for name in names}

    def bind(self, flag: Flag) -> None:
        """Have the graph's own flag follow this one."""
        flag.bind(self._loop.set_raised)
        self._snapshotter.prepare()
        if self._read_from is not None:
            self._snapshotter.resume(self._read_from)

    def run_until(self, limit: int) -> Steps:
        """Run steps in the graph until the flag is raised, or another of the contract's reasons."""
        return self._run(self.step, limit)

    def _run(self, before: int, limit: int) -> Steps:
        """Run steps from the present one, `before`. To read it costs as much as some small steps."""
        ended, self._has_read = False, True
        count = None
        try:
            count = self._loop.run(limit - before)
        except tf.errors.OutOfRangeError as error:
            if not self._loop.is_between_steps():
                raise self._failure(error) from error
            ended = True
        except FAILURES as error:
            raise self._failure(error) from error
        if count is None:
            count = self.step - before
        return Steps(before + 1, self._loop.names, self._loop.rows(count), ended)

    def snapshot(self, kept: Kept = "host") -> TensorSnapshot:
        """Return the state at this boundary."""
        return self._snapshotter.take(self.step, kept)

    def restore(self, prefix: Path) -> None:
        """Read a checkpoint into the model, the optimizer, the input and the global step."""
        self._read(prefix)
        self._restore_copies(prefix)
        self._read_from = prefix

    def _restore_copies(self, prefix: Path) -> None:
        """Restore what each device has for itself."""
        if not restore_copies(prefix, self._components):
            self._spread_seeds()

    def _read(self, prefix: Path) -> None:
        """Read a checkpoint. All devices get the values that one alone would get."""
        if self._restores_input and not has_position(prefix):
            raise DataError(
                f"{prefix} does not fit the job: it holds no position of the dataset. If it was saved with "
                'input_position = "restart", set that again; if the job has changed, choose another `logdir`.'
            )
        if is_live := self._has_read and self._iterator is not None and self._reads_anew:
            self._read_anew()
        try:
            restores_all = self._restores_input or self._iterator is None
            found = self._checkpoint if restores_all else self._make_checkpoint(with_input=False)
            status = found.read(str(prefix))
            if restores_all:
                status.assert_consumed()
            else:
                status.assert_existing_objects_matched()
                status.expect_partial()  # a position that is there is left alone, knowingly
            restore_hidden(prefix, self._hidden)
            restore_kept(prefix)
        except (AssertionError, ValueError, KeyError, tf.errors.OpError) as error:
            if "dataset iterator" in str(error):
                raise DataError(
                    f"{prefix} does not fit the job: it holds the position of a dataset with other stages. Put the "
                    'dataset back; or set input_position = "restart" to restart this one at every start; or use '
                    f"another `logdir`.\n{str(error).splitlines()[0]}"
                ) from error
            raise DataError(
                f"{prefix} does not fit the job: its files are sound, but its variables are not those of the job. "
                f"{self._how_to_fit(prefix)}\n{why_unfit(error)}"
            ) from error
        if self._restores_input:
            restore_order(self._job.dataset, self._iterator, self._passes)
        elif self._has_read and self._iterator is not None and not is_live:
            begin_again(self._iterator)
        for iterator in self._iterators_in_state():
            restore_order(pipeline.dataset_of(iterator), iterator)
        self._has_read = False
        self._loop.enter()

    def begin_at(self, step: int) -> None:
        """Begin at this step with the state as it is, which another session of this process has trained."""
        self._global_step.assign(step)
        self._loop.enter()

    def _how_to_fit(self, prefix: Path) -> str:
        """Return the advice for a checkpoint whose variables do not fit the job."""
        before: Names = {}
        with contextlib.suppress(tf.errors.OpError):  # the error reports a checkpoint that cannot be read
            before = stored_names(prefix)
        same = {place: each for place, each in before.items() if each.name == self._given_names.get(place, each).name}
        if found := variable_names.trainable_changes(same, self._given_names):
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            return (
                f"These variables were frozen or unfrozen since then: {', '.join(found[:3])}{more}. If nothing else "
                "has changed, set `trainable` as it was. Otherwise use another `logdir`."
            )
        return "Use another `logdir` for another model."

    def close(self) -> None:
        """End the iterator, so that Python need not wait for it when it collects garbage."""
        if self._iterator is not None:
            retire(self._iterator)

    def _read_anew(self) -> None:
        """Read with another iterator from now on."""
        retire(self._iterator)
        self._iterator = _iterate(self._job.dataset)
        self._loop.read_from(self._iterator)
        self._checkpoint = self._make_checkpoint(with_input=self._exact_input)
        del self._snapshotter
        self._snapshotter.prepare()

    def fingerprint(self) -> dict[str, str]:
        """Return the fingerprint of the job's state and of its dataset."""
        found = {"job.source": self._source, "job.state": self._snapshotter.describe()}
        found |= of_software()
        found |= optimizer_kinds(self._job.state)
        if self._replicas is not None:
            found |= self._replicas.described(self._components)
        if self._iterator is not None and (self._restores_input or not self._exact_input):
            found |= pipeline.fingerprint([self._job.dataset])
        return found | {"job.graph": digest_of([self._step.graph, *self._graphs_of_input()])}

    def evaluate(self) -> dict[str, float]:
        """Call the job's `evaluate`."""
        if self._job.evaluate is None:
            return {}
        metrics = self._call_at_boundary(self._job.evaluate, "evaluate")
        try:
            return {str(name): float(value) for name, value in metrics.items()}
        except (AttributeError, TypeError, ValueError, OverflowError):
            message = f"evaluate must return a dict of name to number, and returned {metrics!r}"
            raise JobError(message, step=self.step, sound=True) from None

    def numbers(self) -> Mapping[str, Number]:
        """Return the learning rates, and the variables that the job names."""
        return self._numbers.read()

    def assign(self, name: str, value: float) -> None:
        """Set a learning rate, or a variable of the job."""
        self._numbers.assign(name, value)

    def skip(self, count: int) -> list[int]:
        """Read so many batches from the dataset."""
        if self._iterator is None:
            return []
        found = [indices_in(batch) for batch in itertools.islice(self._iterator, count)]
        self._passed_over(len(found))
        self._loop.enter()
        return [index for indices in found for index in indices]

    def _passed_over(self, count: int) -> None:
        """Record that so many batches were read without a step."""

    def changes_since(self, prefix: Path) -> list[str]:
        """Describe the variables that would get the values of others, and those that were frozen or are now."""
        return variable_names.changes(stored_names(prefix), self._given_names)

    def load(self, prefix: Path) -> None:
        """Read a checkpoint, and do nothing else with it."""
        if found := variable_names.moved(stored_names(prefix), self._given_names):
            raise DataError(
                f"{prefix} does not fit the job: its variables are at other places: {found[0]}\nEach would get the "
                "values of the one that was there before. Put the layers back into the order that they had."
            )
        self._read(prefix)

    def exportable(self) -> Exportable:
        """Return the job's `export` and `predict`, and its Keras model."""
        models = [part for part in self._job.state.values() if isinstance(part, keras.Model)]
        return Exportable(
            model=models[0] if len(models) == 1 else None,
            export=self._job.export,
            examples=lambda count: examples_of(self._job.dataset, count),
            predict=self._job.predict,
        )

    def weights(self) -> Mapping[str, Any]:
        """Return the values of the trainable variables. On a CPU they share the variables' memory until a step
        writes."""
        return weights_of(self._job.state)

    def write_summaries(self) -> None:
        """Call the job's `summaries`."""
        if self._job.summaries is not None:
            self._call_at_boundary(self._job.summaries, "summaries")

    def graph(self) -> Any:
        """Return the graph of one step."""
        return self._step.graph

    def events(self, logdir: Path) -> EventWriter:
        """Return the writer of its curves, the pictures of its weights, and its own summaries."""
        return EventWriter(logdir)

    # ------------------------------------------------------------------ building

    def _replicas_of(self, variables: Iterable[Any]) -> Replicas | None:
        """Return the devices for which variables were made; None if they are on one."""
        return Replicas.of(map(strategy_of, filter(is_distributed, variables)))

    def _on_replicas(self, step: Any) -> Any:
        """Return the job's step over a whole batch, done by several devices if the job was made for them."""
        return step if self._replicas is None else self._replicas.replicated(step)

    def _variables_of(self, state: Mapping[str, Any]) -> list[Any]:
        """Return the variables that a state has before its first step."""
        parts = {name: part for name, part in state.items() if not is_untracked(part)}
        for name, part in parts.items():
            _require_trackable(name, part)
        tracked = variables_among(own_objects(tf.train.Checkpoint(**parts)))
        return [*tracked, *hidden_variables(state, tracked).values()]

    def _spread_seeds(self) -> None:
        """Give each device random numbers of its own."""
        if self._replicas is not None:
            self._replicas.spread_seeds(self._hidden)

    def _differing_copies(self) -> dict[str, Any]:
        """Return the copies of variables on several devices that may differ, by their keys in a checkpoint."""
        if self._replicas is None:
            return {}
        return self._replicas.differing(self._checkpoint, self._hidden, self._job.state)

    def _trace(self, step: Any) -> Any:
        """Return the job's step as one concrete function, from a batch to its metrics."""
        batch = [] if self._iterator is None else [self._iterator.element_spec]
        if self._replicas is not None and self._replicas.count > 1:  # they may make no variables in the loop
            variables = self._variables_of(self._job.state)
            rehearse(self._in_scope(step), batch, variables, size=self._replicas.count)
        if not hasattr(step, "get_concrete_function"):
            step = tf.function(step)

        def failed(error: BaseException) -> TrainerdError:
            if isinstance(error, TrainerdError):
                return error
            return EntryError(f"the job's train_step does not trace:\n{job_traceback(error)}")

        with user_code(failed):
            return step.get_concrete_function(*batch)

    def _in_scope(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step that makes its variables as those of the job were made."""
        return step

    def _make_loop(self, stops_at: Sequence[str]) -> GraphLoop:
        """Return the loop over the traced step."""
        return GraphLoop(self._step, self._iterator, self._global_step, stops_at=stops_at)

    def _made(self, variables: list[Any]) -> None:
        """Do nothing: all variables of the state are made now."""

    def _make_checkpoint(self, *, with_input: bool) -> tf.train.Checkpoint:
        if taken := [name for name in RESERVED if name in self._job.state]:
            raise EntryError(f"the job's state has a part named {taken[0]!r}, which is trainerd's own. Rename it.")
        parts = {name: part for name, part in self._job.state.items() if not is_untracked(part)}
        for name, part in parts.items():
            _require_trackable(name, part)
        parts["global_step"] = self._global_step
        if with_input:
            require_saveable(self._iterator, 'set `input_position = "restart"` to restart the dataset at every start')
            parts["iterator"] = self._iterator
        return tf.train.Checkpoint(**parts)

    def _iterators_in_state(self) -> list[Any]:
        """Return the iterators of the job's state, beside that of its dataset."""
        tracked = tracked_objects(self._checkpoint)
        return [each for each in tracked if isinstance(each, tf.data.Iterator) and each is not self._iterator]

    def _begin_iterators(self, *, refuse: bool) -> None:
        """Check and prepare the iterators of the state, as that of the dataset.

        Raises:
          EntryError: the position of one cannot be saved; or a shuffle has no seed, or its next orders can be lost, and
            `refuse` is true.
        """
        for iterator in self._iterators_in_state():
            require_saveable(iterator, "leave its iterator out of the state")
            dataset = pipeline.dataset_of(iterator)
            require_saved_order(dataset, refuse=refuse)
            require_seeds(dataset, refuse=refuse)
            begin_order(dataset)

    @property
    def _passing(self) -> list[Any]:
        """Variables that a step writes and none reads: they are not part of the state."""
        return []

    @property
    def _passes(self) -> int | None:
        """The number of times that the dataset was begun before; None if it is never begun again."""
        return None

    def _graphs_of_input(self) -> list[Any]:
        """Return the graphs of the functions of the dataset's stages."""
        if self._iterator is None:
            return []
        return [graph for stage in pipeline.stages(self._job.dataset) for graph in pipeline.graphs_of(stage)]

    # ------------------------------------------------------------------ failing

    def _failure(self, error: BaseException) -> JobError:
        """Return the error for a step that failed. If its batch did not come, the state is still that of a boundary."""
        done = self.step
        sound = self._loop.is_between_steps()
        is_of_dataset = sound and self._loop.can_run()
        what = "the dataset failed to give the batch of" if is_of_dataset else "the job failed in"
        details = job_traceback(error)
        if half_written_cache(str(error)):  # a position that is saved now holds this error, and gives it at each start
            sound = False
        return JobError(f"{what} step {done + 1}", step=done, sound=sound, details=details, failed_at=done + 1)

    def _call_at_boundary(self, function: Callable[[], Any], name: str) -> Any:
        with called_at_boundary(f"the job's {name}", self.step):
            return function()


def examples_of(dataset: Any, count: int) -> list[Any]:
    """Return the inputs of so many batches of a dataset whose elements are inputs, or tuples that begin with them."""
    if dataset is None:
        return []
    return [element[0] if isinstance(element, tuple) else element for element in dataset.take(count)]


def _iterate(dataset: Any, passes: int = 0) -> Any:
    """Return an iterator of a dataset that was begun so often before; None for no dataset."""
    if dataset is None:
        return None
    if not isinstance(dataset, tf.data.Dataset):
        raise EntryError(f"the job's dataset must be a tf.data.Dataset, and is {type_of(dataset)}.")
    pass_over_orders(dataset, passes)
    return iter(limited(dataset))


def _require_trackable(name: str, part: Any) -> None:
    """Require that a part of the state is one that TensorFlow can save.

    Raises:
      EntryError: it is not.
    """
    try:
        tf.train.Checkpoint(**{name: part})
    except (ValueError, TypeError) as error:
        raise EntryError(
            f"the job's state has a part {name!r}, which is {type_of(part)} and holds no variables that "
            "can be saved. Leave it out if it does not change; if it does, make it a tf.Variable."
        ) from error
