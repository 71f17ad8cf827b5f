"""The two sides of each command that changes the state: the chief's session sends it, and a worker's obeys."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainerd.checkpoints.snapshot import Kept, Snapshot
from trainerd.config import fingerprint
from trainerd.errors import ConfigError, EntryError, JobError, PeerLostError, TrainerdError
from trainerd.loop.contract import Steps
from trainerd.loop.flag import Flag
from trainerd.workers.chief import Chief
from trainerd.workers.peer import Message
from trainerd.workers.worker import Commands, Worker

if TYPE_CHECKING:
    import numpy as np

    from trainerd.workers.engine.engine import Engine

T = TypeVar("T")
Running = Callable[[], contextlib.AbstractContextManager[None]]
PERIOD_SECS = 0.08  # how often the workers agree on whether to continue, by the clock
_MOST_STEPS = 65536
_SHOWN = 5  # variables in a message


class ChiefSession:
    """The chief's session. Whatever it does that changes the state, the other workers do too.

    Methods that are not here run on the chief alone: evaluations, summaries, event files.

    Args:
      session: the chief's own: a ReplicatedSession; a ReplicatedKerasSession if it has epochs.
      chief: the others.
      replicas: the engine of the workers.
      where: maps a checkpoint's prefix to what the others need to read it.
      running: a context for steps, which detects that they hang.
      leaves: whether to leave instead of waiting until the others have built the job.
      timer: seconds on a clock that is never set.
    """

    def __init__(
        self,
        session: Any,
        chief: Chief,
        replicas: Engine,
        where: Callable[[Path], Mapping[str, Any]],
        *,
        leaves: Callable[[], bool] = lambda: False,
        running: Running = contextlib.nullcontext,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._chief = chief
        self._replicas = replicas
        self._where = where
        self._running = running
        self._timer = timer
        self._flag: Flag | None = None
        self._is_compiled = False
        self._alike = session.fingerprint()
        chief.send("ready")
        self._require_alike(chief.answers(leaves))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def _require_alike(self, others: Mapping[int, Message]) -> None:
        names = ["job.state", "input.element_spec", "input.cardinality"]
        if self._session.shares_position:
            names += ["input.pipeline", "input.content", "input.seeds"]
        for rank, said in others.items():
            for name in names:
                ours, theirs = self._alike.get(name), said["fingerprint"].get(name)
                if ours != theirs:
                    raise ConfigError(
                        f"the workers have built different jobs. {name}: {ours} on the chief, {theirs} on worker "
                        f"{rank}. Each must build the same model, and an input with as many batches."
                    )

    def bind(self, flag: Flag) -> None:
        """Have all stop after the same step, soon after the flag is raised."""
        self._flag = flag
        self._session.bind(flag)

    def run_until(self, limit: int) -> Steps:
        """Run steps on all workers, up to the same one. The metrics are the means over the workers."""
        before = self._session.step
        if self._flag is not None and self._flag.is_raised:
            return Steps.unmeasured(before, 0)
        begun = self._timer()
        period = self._replicas.period
        steps, answers = self._all("run", lambda: self._run(limit), limit=limit, period=period)
        self._adapt(len(steps.rows), self._timer() - begun)
        import numpy as np  # which the daemon's parent does without

        rows = [steps.rows, *(rows_of(answer, steps) for answer in answers.values())]
        if not before and len(steps.rows):
            self._require_equal()
        then = None if steps.then is None else functools.partial(self._between, steps.then)
        return Steps(steps.first, steps.names, np.mean(rows, axis=0), steps.ended, then, steps.over)

    def _run(self, limit: int) -> Steps:
        with self._running():
            steps: Steps = self._session.run_until(limit)
            return steps

    def _require_equal(self) -> None:
        """Require that the workers train one model: a step must bring together what it learns.

        Raises:
          JobError: they have drifted apart.
        """
        ours = self._session.digests()
        for rank, said in self._chief.call("digests").items():
            apart = sorted(name for name, digest in ours.items() if said["digests"].get(name) != digest)
            if apart:
                raise JobError(
                    f"the workers differ at step {self._session.step}: {', '.join(apart[:_SHOWN])} on "
                    f"worker {rank} {'has' if len(apart) == 1 else 'have'} another value than on the chief. A step "
                    "must combine the gradients of all workers: use a Keras optimizer, which does so; or make the "
                    "variable with aggregation=tf.VariableAggregation.MEAN",
                    step=self._session.step,
                    sound=False,
                )

    def _adapt(self, count: int, seconds: float) -> None:
        """Have the workers agree twenty times a second, however long a step takes."""
        if self._is_compiled and count:
            self._replicas.agree_every(max(1, min(_MOST_STEPS, int(PERIOD_SECS * count / seconds))))
        self._is_compiled = self._is_compiled or count > 0

    def _between(self, then: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
        """Run the end of an epoch, with the same metrics on all workers: their means, and the chief's validation."""
        others = [said["logs"] for said in self._chief.call("logs").values()]
        logs = {**means([self._session.epoch_logs(), *others]), **self._session.validation_logs()}
        self._session.agree_on(logs)
        found: Mapping[str, float] = self._all("then", then, logs=logs)[0]
        return found

    def snapshot(self, kept: Kept = "host") -> Snapshot:
        """Return the state at this boundary, with each worker's own state."""
        found: Snapshot
        if not self._session.has_own_state:
            found = self._session.snapshot(kept)
            return found
        taken, answers = self._all("own_state", lambda: self._session.snapshot(kept))
        found = self._session.with_own_states(taken, {rank: said["state"] for rank, said in answers.items()})
        return found

    def restore(self, prefix: Path) -> None:
        """Read a checkpoint on all workers."""
        self._all("restore", lambda: self._session.restore(prefix), **self._where(prefix))
        if self._session.epochs is not None:
            self._chief.call("stop", why=self._session.stopped)  # which the callbacks decide that the chief alone has
        self._require_equal()

    def assign(self, name: str, value: float) -> None:
        """Set a number on all workers."""
        self._all("assign", lambda: self._session.assign(name, value), name=name, value=value)

    def skip(self, count: int) -> list[int]:
        """Read so many batches on all workers, without a step."""
        found: list[int]
        found, answers = self._all("skip", lambda: self._session.skip(count), count=count)
        others = [index for said in answers.values() for index in said["indices"]]
        return found if self._session.shares_position else [*found, *others]

    def end(self, *, finished: bool) -> None:
        """End the steps on all workers: none follows."""
        self._all("last", lambda: self._session.end(finished=finished), finished=finished)
        self._require_equal()

    def fingerprint(self) -> dict[str, str]:
        """Return the fingerprint of the chief's session, with that of the cluster."""
        positions = fingerprint.SHARED if self._session.shares_position else fingerprint.OWN
        return {**self._alike, fingerprint.WORKERS: str(self._chief.size), fingerprint.POSITIONS: positions}

    def _all(self, command: str, do: Callable[[], Any], **arguments: Any) -> tuple[Any, dict[int, Message]]:
        """Have all workers do something, this one too. Returns the result here, and the answers of the others.

        Raises:
          JobError: it failed here. The others may be in the midst of it, so the state is not that of a boundary.
        """
        self._chief.send(command, **arguments)
        try:
            found = explained(do, self._chief.trouble.explain, self._replicas)
        except JobError as error:
            error.sound = False
            raise
        return found, self._chief.answers()


def explained(do: Callable[[], T], explain: Callable[[], None], replicas: Engine) -> T:
    """Do something that all workers do together. If another worker made it fail, raise that worker's error.

    Raises:
      PeerLostError: another worker is gone, or does not answer.
      PeerFailedError: it has failed.
    """
    try:
        return do()
    except Exception as error:
        cause = error.__cause__ if isinstance(error, JobError | EntryError) else error
        if cause is None or not replicas.caused(cause):
            raise
        explain()
        said = str(cause).partition("\n")[0]
        raise PeerLostError(f"the workers did not come together: {said}") from cause


def means(logs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric that all workers have."""
    names = [name for name in logs[0] if all(name in each for each in logs)]
    return {name: sum(each[name] for each in logs) / len(logs) for name in names}


def rows_of(answer: Message, chiefs: Steps) -> np.ndarray[Any, Any]:
    """Return the metrics of another worker for the same steps, float64, shape [steps, metrics].

    Raises:
      TrainerdError: it has done others.
    """
    import numpy as np

    shape = chiefs.rows.shape
    if (answer["first"], answer["count"]) != (chiefs.first, len(chiefs.rows)):
        raise TrainerdError(
            f"the workers are at different steps: the chief did {len(chiefs.rows)} steps from {chiefs.first} on, "
            f"another worker did {answer['count']} from {answer['first']} on"
        )
    return np.frombuffer(answer["rows"]).reshape(shape)


class WorkerCommands:
    """The commands of the chief, as a worker executes them.

    Args:
      session: this worker's.
      worker: its connection to the chief.
      replicas: the engine of the workers.
      found: maps what the chief says of a checkpoint to its prefix here.
      running: a context for steps, which detects that they hang.
      progressed: called with the step and the steps per second after each run.
    """

    def __init__(
        self,
        session: Any,
        worker: Worker,
        replicas: Engine,
        found: Callable[[Message], Path],
        progressed: Callable[[int, float], None],
        running: Running = contextlib.nullcontext,
    ) -> None:
        self._session = session
        self._worker = worker
        self._replicas = replicas
        self._found = found
        self._progressed = progressed
        self._running = running
        self._then: Callable[[], Mapping[str, float]] | None = None

    def table(self) -> Commands:
        """Return the commands by name."""
        return {
            "ready": self.ready,
            "run": self._run,
            "then": self._between,
            "own_state": lambda message: {"state": self._session.own_state()},
            "stop": lambda message: self._session.stop(message["why"]),
            "digests": lambda message: {"digests": dict(self._session.digests())},
            "logs": lambda message: {"logs": dict(self._session.epoch_logs())},
            "restore": self._restore,
            "assign": lambda message: self._session.assign(message["name"], message["value"]),
            "skip": lambda message: {"indices": self._session.skip(message["count"])},
            "last": lambda message: self._together(lambda: self._session.end(finished=message["finished"])),
        }

    def ready(self, message: Message) -> Mapping[str, Any]:
        """Answer that the job is built, with its fingerprint."""
        return {"fingerprint": self._session.fingerprint()}

    def _run(self, message: Message) -> Mapping[str, Any]:
        self._replicas.agree_every(message["period"])
        begun = time.monotonic()
        with self._running():
            steps = self._together(lambda: self._session.run_until(message["limit"]))
        self._then = steps.then
        count = len(steps.rows)
        self._progressed(steps.last_step, count / max(time.monotonic() - begun, 1e-9))
        return {"first": steps.first, "count": count, "rows": steps.rows.tobytes()}

    def _between(self, message: Message) -> None:
        then, self._then = self._then, None
        if then is None:
            raise TrainerdError("the workers are at different steps: the chief is between two epochs, this one is not")
        self._session.agree_on(message["logs"])
        self._together(then)

    def _restore(self, message: Message) -> None:
        self._session.restore(self._found(message))

    def _together(self, do: Callable[[], Any]) -> Any:
        return explained(do, self._worker.trouble.explain, self._replicas)
