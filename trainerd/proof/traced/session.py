"""A session that writes a trace of its steps, and is interrupted where the plan says. Imports TensorFlow."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from trainerd import open_job
from trainerd.config.schema import Config
from trainerd.job.definition import Job, Program
from trainerd.loop.contract import Session, Steps
from trainerd.loop.flag import Flag, Request
from trainerd.proof.plan import Interruption, InterruptionKind
from trainerd.proof.trace import BATCH, EPOCH, EVALUATION, INTERRUPTED, Trace
from trainerd.sessions.tf2.metrics import as_dict

_HEARD_SECS = 10.0  # in which a signal is heard of, on the busiest machine
T = TypeVar("T")
_PARTS = 4  # of 16 bits each, since a row has floating-point numbers


def open_untraced(config: Config, engine: Any = None, *, trial_steps: int | None = None) -> Session:
    """Build the job that a config names, and a session whose steps record which batch they were given.

    Args:
      config: what to build.
      engine: of the cluster, if there is one.
      trial_steps: see `open_job.open_session`.
    """
    if engine is None:
        return open_job.open_session(config, with_digest, trial_steps=trial_steps)
    found = open_job.open_entry(config, engine, with_digest)
    assert not isinstance(found, Program)
    return found


def with_digest(job: Job) -> Job:
    """Return a job whose steps record which batch they were given, in columns beside their metrics."""

    def train_step(*batch: Any) -> dict[str, tf.Tensor]:
        return {**as_dict(job.train_step(*batch)), **_digest(batch)}

    return replace(job, train_step=train_step)


def _digest(batch: Any) -> dict[str, tf.Tensor]:
    leaves = [tf.io.serialize_tensor(leaf) for leaf in tf.nest.flatten(batch, expand_composites=True)]
    found = tf.cast(tf.fingerprint(tf.reshape(tf.strings.join(leaves), [1])), tf.int32)[0] if leaves else [0] * 8
    return {f"{BATCH}{i}": tf.convert_to_tensor(found[2 * i] * 256 + found[2 * i + 1]) for i in range(_PARTS)}


class TracedSession:
    """A session around another one: it is that session, but for its steps and its evaluations.

    Args:
      session: what is trained.
      trace: where its steps are written.
      interruption: what is to happen to this life of the run; None: nothing.
    """

    def __init__(self, session: Session, trace: Trace, interruption: Interruption | None) -> None:
        self._session = session
        self._trace = trace
        self._interruption = interruption
        self._killed_by: int | None = None  # the step at which a kill comes that waits for its moment
        self._flag: Flag | None = None
        self._secs_per_step = 0.0
        self._has_begun = False

    def __getattr__(self, name: str) -> Any:
        """Return what the session has."""
        return getattr(self._session, name)

    def bind(self, flag: Flag) -> None:
        """Check this flag after every step."""
        self._flag = flag if isinstance(flag, Flag) else None  # the daemon's
        self._session.bind(flag)

    def run_until(self, limit: int) -> Steps:
        """Run steps, write them to the trace, and be interrupted where it is time."""
        due = self._interruption
        if due is not None and self._session.step < due.step:
            limit = min(limit, due.step)
        begun = time.monotonic()
        steps = self._session.run_until(limit)
        if len(steps.rows) and self._has_begun:  # the first one compiles
            self._secs_per_step = (time.monotonic() - begun) / len(steps.rows)
        self._has_begun = self._has_begun or bool(len(steps.rows))
        self._trace.append(steps)
        is_over = steps.ended or bool(steps.over)
        if (
            due is not None
            and self._session.step >= due.step
            and not (due.in_evaluation and self._session.step == due.step)
        ):
            self._interrupt(due)
        if self._killed_by is not None and (is_over or self._session.step >= self._killed_by):
            os.kill(os.getpid(), signal.SIGKILL)  # else the run is over before its kill comes
        if steps.then is not None:
            steps = replace(steps, then=functools.partial(self._between, steps.then))
        return _without_digest(steps)

    def _between(self, then: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """Return the end of an epoch, with the validation of a Keras model."""
        self._trace.mark(EPOCH, self._session.step)
        return self._evaluating(then) if self._session.can_score else then()

    def _evaluating(self, evaluate: Callable[[], T]) -> T:
        """Evaluate, and be interrupted in it where it is time."""
        self._trace.mark(EVALUATION, self._session.step)
        due = self._interruption
        if due is None or not due.in_evaluation or self._session.step != due.step:
            return evaluate()
        self._trace.mark(INTERRUPTED, self._session.step)
        if due.kind is InterruptionKind.PAUSE:
            self._interrupt(due)
            return evaluate()
        evaluate()
        os.kill(os.getpid(), signal.SIGKILL)  # before anybody has what it gave
        raise AssertionError("unreachable")

    def _interrupt(self, due: Interruption) -> None:
        self._interruption = None
        if due.kind is InterruptionKind.PAUSE:
            os.kill(os.getpid(), signal.SIGTERM)
            deadline = time.monotonic() + _HEARD_SECS
            while self._flag is not None and not self._flag.wants(Request.PAUSE) and time.monotonic() < deadline:
                time.sleep(0.001)  # another thread raises it: a short run would be at its end before that
            return
        delay = due.delay * self._secs_per_step
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True  # a run that is at its end is not killed
        timer.start()
        self._killed_by = due.latest or None

    def evaluate(self) -> dict[str, float]:
        """Return the job's own metrics."""
        return self._evaluating(self._session.evaluate) if self._session.has_evaluation else self._session.evaluate()


def _without_digest(steps: Steps) -> Steps:
    kept = [index for index, name in enumerate(steps.names) if not name.startswith(BATCH)]
    rows = steps.rows[:, kept] if len(kept) else np.zeros([len(steps.rows), 0])
    return replace(steps, names=[steps.names[index] for index in kept], rows=rows)
