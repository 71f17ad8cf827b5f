"""Steps of a TensorFlow 1 graph, run one after the other under the daemon's loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainerd.checkpoints.contents.graph_digest import digest_of
from trainerd.checkpoints.contents.op_kinds import ancestors
from trainerd.checkpoints.contents.unsaved_state import require_saved_in
from trainerd.checkpoints.snapshot import Kept
from trainerd.errors import DataError, EntryError, JobError
from trainerd.job.definition import GraphJob
from trainerd.job.settable import Number, number, with_limits
from trainerd.job.user_code import FAILURES, called_at_boundary, job_traceback, user_code
from trainerd.loop.contract import Exportable, Session, Steps
from trainerd.loop.flag import Flag
from trainerd.sessions.tf1 import defaults
from trainerd.sessions.tf1.callables import prepared
from trainerd.sessions.tf1.events import GraphEvents
from trainerd.sessions.tf1.model import GraphModel
from trainerd.sessions.tf1.state import GraphSnapshot, GraphState
from trainerd.system.fork import ended_in_children

tf1 = tf.compat.v1

_SHOWN = 5  # names in a message
ROWS = 65536  # at most so many steps between two boundaries, whose metrics are held in memory


class GraphJobSession(GraphModel, Session):
    """A `trainerd.GraphJob`, ready to be trained.

    The session is made when it is first needed, since it is then known whether there is a checkpoint to restore.

    One class, since the loop's contract asks for most of its methods.

    Args:
      job: what to train.
      stop_on_nan: whether to stop after a step whose loss is not finite.
      repeats: whether its steps must repeat exactly: then a step that cannot is refused.
      source: the job's source, for its fingerprint.

    Raises:
      EntryError: the job cannot be trained.
    """

    def __init__(self, job: GraphJob, *, stop_on_nan: bool = True, repeats: bool = False, source: str = "") -> None:
        self._job = job
        self._source = source
        self._repeats = repeats
        self._is_raised = False
        self._names = list(job.metrics)
        self._loss = self._names.index("loss") if stop_on_nan and "loss" in self._names else None
        self._call: Callable[[], Any] | None = None
        self._coord = _coordinator()
        failed = "the job's graph cannot be trained"
        with user_code(lambda error: EntryError(f"{failed}:\n{job_traceback(error)}")), job.graph.as_default():
            saver = job.saver or defaults.saver()
            step = job.global_step if job.global_step is not None else defaults.global_step()
            self._summary_op = job.summary_op if job.summary_op is not None else defaults.summary_op()
            self._init_op, self._local_init_op = defaults.init_op(), defaults.local_init_op()
            self._ready_op = defaults.ready_op()
            super().__init__(GraphState(job.graph, saver), step)
        if saver is None or step is None:
            raise EntryError(
                "the job's graph needs variables, and among them a global step that its train_op counts: "
                "tf.train.get_or_create_global_step(), passed to the optimizer as `global_step`."
            )
        self._settable = with_limits(job.settable)
        _require_restorable(job.graph, self.state.saved_nodes, self._local_init_op)
        require_saved_in(job.graph, self._fetches, self.state.saved_nodes, refuse=repeats)
        self.state.require_exact_inputs(self._fetches, refuse=repeats)
        job.graph.finalize()

    # ------------------------------------------------------------------ the contract

    @property
    def has_evaluation(self) -> bool:
        """True if the job has an `evaluate`."""
        return self._job.evaluate is not None

    @property
    def step(self) -> int:
        """The global step."""
        self._make(None)
        return super().step

    @property
    def changes(self) -> int:
        """The step: nothing else changes the state."""
        return self.step

    def bind(self, flag: Flag) -> None:
        """Check this flag after every step."""
        flag.bind(self._set_raised)

    def run_until(self, limit: int) -> Steps:
        """Run steps until the flag is raised, or another of the contract's reasons."""
        before, ended = self.step, False
        rows: list[list[Any]] = []
        assert self._call is not None
        count = min(limit - before, ROWS)
        try:
            while len(rows) < count and not self._is_raised:
                row = self._call()[1]
                rows.append(row)
                if self._loss is not None and not math.isfinite(row[self._loss]):
                    break
        except tf.errors.OutOfRangeError:
            self._require_queues()
            ended = True
        except FAILURES as error:
            raise self._failure("the job failed in step {}", error, sound=False) from error
        if rows and self.step != before + len(rows):
            raise JobError(
                f"train_op was run {len(rows)} times, and the global step went from {before} to {self.step}. Pass the "
                "global step to the optimizer, as `global_step`: each step has to add 1.",
                step=self.step,
                sound=False,
            )
        self.runs = before + len(rows)
        table = np.array(rows, dtype=np.float64).reshape(len(rows), len(self._names))
        return Steps(before + 1, self._names, table, ended)

    def restore(self, prefix: Path) -> None:
        """Make the session, restored from a checkpoint, in place of the one that there is."""
        self._leave_session()
        try:
            self._make(prefix)
        except (ValueError, KeyError, tf.errors.OpError) as error:
            raise DataError(
                f"{prefix} does not fit the job: its files are sound, but its variables are not those of the graph. "
                f"Use another `logdir` for another model.\n{str(error).splitlines()[0]}"
            ) from error

    def snapshot(self, kept: Kept = "host") -> GraphSnapshot:
        """Return the state at this boundary."""
        self._make(None)
        return super().snapshot(kept)

    def fingerprint(self) -> dict[str, str]:
        """Return a digest of what is saved of the graph, and of the job's source."""
        built = digest_of([self._job.graph], self._fetches)
        return {"job.source": self._source, "job.graph": built, **super().fingerprint()}

    def evaluate(self) -> dict[str, float]:
        """Call the job's `evaluate`."""
        if self._job.evaluate is None:
            return {}
        with called_at_boundary("the job's evaluate", self.step):
            return {str(name): float(value) for name, value in self._job.evaluate(self._session).items()}

    def numbers(self) -> dict[str, Number]:
        """Return the variables that the job names."""
        return {
            name: number(name, float(self.run(own.variable)), minimum=own.minimum, maximum=own.maximum)
            for name, own in self._settable.items()
        }

    def assign(self, name: str, value: float) -> None:
        """Set a variable of the job."""
        self._settable[name].variable.load(value, self._session)

    def skip(self, count: int) -> list[int]:
        """Raise an error: a graph reads its batches in the step itself.

        Raises:
          JobError: always.
        """
        raise JobError(
            'a GraphJob cannot skip batches, since its step reads them: set on_nan = "rollback"',
            step=self.step,
            sound=False,
        )

    def exportable(self) -> Exportable:
        """Return the job's `export`."""
        export = self._job.export
        return Exportable(export=None if export is None else lambda folder: export(self._session, folder))

    def end(self, *, finished: bool) -> None:
        """Stop the graph's queue runners."""
        self._coord.request_stop()

    def events(self, logdir: Path) -> GraphEvents:
        """Return the writer of its summaries and metrics, which is TensorFlow 1's."""
        with self.graph().as_default():
            writer = tf1.summary.FileWriter(str(logdir))
        writer.add_graph(self.graph())
        return GraphEvents(writer, self._summary_op)

    def run(self, fetches: Any) -> Any:
        """Run a summary op, or read the global step."""
        try:
            return super().run(fetches)
        except tf.errors.OutOfRangeError:
            raise
        except tf.errors.OpError as error:
            raise JobError(
                "the job's summaries failed", step=self.runs, sound=True, details=job_traceback(error)
            ) from error

    # ------------------------------------------------------------------ building

    @property
    def _fetches(self) -> list[Any]:
        """The operations and tensors that each step runs."""
        return [self._job.train_op, *(tf.convert_to_tensor(value) for value in self._job.metrics.values())]

    def _set_raised(self, raised: bool) -> None:
        self._is_raised = raised

    def _require_queues(self) -> None:
        """Require that a queue that is empty and closed has a runner that has not failed.

        Raises:
          JobError: its runner has failed.
        """
        try:
            self._coord.raise_requested_exception()
        except tf.errors.OutOfRangeError:
            return
        except FAILURES as error:
            what = "what fills a queue of the job failed, and step {} found it empty"
            raise self._failure(what, error, sound=True) from error

    def _failure(self, what: str, error: BaseException, *, sound: bool) -> JobError:
        """Return the error for the next step, whose number goes into `what`."""
        done, details = self.step, job_traceback(error)
        return JobError(what.format(done + 1), step=done, sound=sound, details=details, failed_at=done + 1)

    def _leave_session(self) -> None:
        if self._session is not None:
            self._coord.request_stop()
            self._session.close()
            self._session, self._coord = None, _coordinator()

    def _make(self, prefix: Path | None) -> None:
        """Make the session, once; restored from a checkpoint, or initialized."""
        if self._session is not None:
            return
        job = self._job
        with job.graph.as_default():
            manager = tf1.train.SessionManager(
                local_init_op=self._local_init_op, ready_op=self._ready_op, graph=job.graph
            )
            with ended_in_children():  # as init_fn is the job's
                session = manager.prepare_session(
                    "",
                    init_op=self._init_op,
                    saver=self.state.saver,
                    checkpoint_filename_with_path=None if prefix is None else str(prefix),
                    config=job.config,
                    init_fn=job.init_fn,
                )
            if tf1.get_collection(tf1.GraphKeys.QUEUE_RUNNERS):  # without any it warns that it is deprecated
                tf1.train.start_queue_runners(sess=session, coord=self._coord)
        self.open(session, prefix)
        if prefix is None:
            self.state.require_positions(session, self._fetches, refuse=self._repeats)
        self._call = prepared(session, [job.train_op, [job.metrics[name] for name in self._names]])


def _require_restorable(graph: Any, saved: Collection[str], local_init_op: Any) -> None:
    """Require that a restore leaves no variable uninitialized: it runs the Saver and the local init op, and no other.

    Raises:
      EntryError: there is such a variable.
    """
    with graph.as_default():
        variables = tf1.global_variables()
    initialized = {*saved, *(op.name for op in ancestors([local_init_op]))}
    if left := sorted(each.op.name for each in variables if each.op.name not in initialized):
        names = ", ".join(left[:_SHOWN]) + (" and others" if len(left) > _SHOWN else "")
        raise EntryError(
            f"the job's Saver leaves out {names}, and nothing else initializes that when a checkpoint is restored, so "
            "the run could not resume. Give the Saver these variables too, or add an op that initializes them to the "
            "collection tf.GraphKeys.LOCAL_INIT_OP."
        )


def _coordinator() -> Any:
    """Return a coordinator of queue runners, which keeps what they raise."""
    return tf1.train.Coordinator(clean_stop_exception_types=[])
