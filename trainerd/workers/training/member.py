"""This process as a worker of a cluster: it gathers with the others, forms TensorFlow's cluster, and leads or obeys."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from trainerd.config.schema import Config
from trainerd.errors import ConfigError, EntryError, PeerLostError, TrainerdError
from trainerd.loop.contract import Session
from trainerd.loop.flag import Flag, Request
from trainerd.loop.outcome import PAUSED_EARLY, Outcome
from trainerd.rundir import request_files
from trainerd.rundir.paths import WORKERS, RunDirectory
from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Phase
from trainerd.system.durable_files import storage, write_atomic
from trainerd.system.regular_files import read_regular
from trainerd.workers import files, gathering, requests
from trainerd.workers.about import about_this
from trainerd.workers.chief import Chief
from trainerd.workers.gathering import PausedWhileGathering, Terms
from trainerd.workers.peer import Message, Peer
from trainerd.workers.place import Place, set_place
from trainerd.workers.plan import ClusterPlan, WorkerAddress
from trainerd.workers.step_watch import StepWatch
from trainerd.workers.training.lockstep import ChiefSession, WorkerCommands, explained
from trainerd.workers.trouble import Trouble
from trainerd.workers.worker import Worker

T = TypeVar("T")

log = logging.getLogger(__name__)

_RECEIVED = "received"
BUILD_SECS = 300.0  # of silence while the job is built, when a process may stand still
FORM_SECS = 120  # for TensorFlow to connect workers that are all there
SIGTERM_SECS = 3.0  # until TensorFlow passes on a SIGTERM that it took; it looks once a second
ABORT_SECS = 10.0  # until a process ends that is busy with something else when another worker is gone


class ClusterProcess:
    """One worker of a cluster.

    One class, since its methods are the stages of one life, which any thread may have to end.

    Args:
      config: whose `addresses` are those of all workers, and whose `rank` is this one's.
      rundir: this worker's.
      flag: raised by what this worker is asked for.
      reporter: shows the state.
      give_up: ends the process from any thread, with an error.

    Attributes:
      plan: the workers.
    """

    def __init__(
        self,
        config: Config,
        rundir: RunDirectory,
        *,
        flag: Flag,
        reporter: Reporter,
        give_up: Callable[[BaseException], NoReturn],
    ) -> None:
        self.plan = ClusterPlan(tuple(map(WorkerAddress.parse, config.addresses)), config.rank)
        self._config = config
        self._rundir = rundir
        self._flag = flag
        self._reporter = reporter
        self._give_up = give_up
        self._is_forming = False  # in TensorFlow, which hears of nothing meanwhile
        self._engine: Any = None
        self._building: threading.Timer | None = None
        self._peers: dict[int, Peer] = {}
        self._unshared: list[Peer] = []
        self._chief: Chief | None = None
        self._worker: Worker | None = None
        self._is_shared = True
        self._received = rundir.path / _RECEIVED
        self._trouble = Trouble(self._abort)

    # ------------------------------------------------------------------ gathering

    def gather(self, over: Outcome | None) -> Outcome | None:
        """Wait until all workers are there.

        Args:
          over: how the run has ended already, if the chief knows that it has.

        Returns:
          How the run has ended, if it does not train: it is over, or a pause was asked for meanwhile.

        Raises:
          ConfigError: the workers are not alike.
          PeerFailedError: the chief says so.
        """
        terms = Terms(
            self.plan,
            about_this(self._config),
            self._config.folder / Path(self._config.cluster.token).expanduser(),
            self._config.cluster.heartbeat_secs,
            self._wants_pause,
            self._show_missing,
        )
        self._reporter.update(phase=Phase.GATHERING)
        try:
            if self.plan.is_chief:
                self._peers = gathering.gather_as_chief(terms)
                ended = self._lead(over)
            else:
                ended = self._join(gathering.gather_as_worker(terms))
        except PausedWhileGathering:
            request_files.consume_pause(self._rundir)
            return PAUSED_EARLY
        finally:
            self._reporter.unwarn(_MISSING)
        if ended is None:
            set_place(Place(self.plan.rank, self.plan.size))
            self._reporter.update(phase=Phase.STARTING)
        return ended

    def _wants_pause(self) -> bool:
        return self._flag.wants(Request.PAUSE) or request_files.is_pause_asked(self._rundir)

    def _show_missing(self, who: str) -> None:
        log.info("%s", who, extra={"event": "gathering"})
        self._reporter.unwarn(_MISSING)
        self._reporter.warn(_MISSING + who)

    def _lead(self, over: Outcome | None) -> Outcome | None:
        """Begin as the chief when all are there: find out who shares the run directory."""
        self._chief = Chief(
            self._peers,
            asked=lambda rank, what, message: requests.take_over(rank, what, message, self._rundir, self._flag),
            seen=lambda workers: self._reporter.set(workers=workers),
            trouble=self._trouble,
        )
        if over is not None:
            return over
        self._be_patient(BUILD_SECS)
        nonce = secrets.token_hex(16)
        with storage(f"write {self._rundir.gathering}"):
            write_atomic(self._rundir.gathering, nonce.encode(), durable=False)
        answers = self._chief.call("begin", nonce=nonce)
        self._unshared = [self._peers[rank] for rank, said in answers.items() if not said["is_shared"]]
        log.info(
            "%d workers are there%s",
            self.plan.size,
            f"; {len(self._unshared)} of them do not share the run directory" if self._unshared else "",
            extra={"event": "gathered"},
        )
        return None

    def _join(self, peer: Peer) -> Outcome | None:
        self._peers = {0: peer}
        self._worker = worker = Worker(
            peer, reporter=self._reporter, trouble=self._trouble, received=partial(files.take, self._received)
        )
        ended = worker.serve({"begin": self._begin}, until="begin", leaves=self._wants_pause)
        if ended is None and self._wants_pause():
            raise PausedWhileGathering
        requests.pass_on(peer, self._rundir, self._flag)
        return ended

    def _begin(self, message: Message) -> Mapping[str, Any]:
        try:
            is_shared = read_regular(self._run.gathering).decode() == message["nonce"]
        except OSError:
            is_shared = False
        self._be_patient(BUILD_SECS)
        self._is_shared = is_shared
        return {"is_shared": is_shared}

    @property
    def _run(self) -> RunDirectory:
        """The run directory of the whole run, on this machine."""
        path = self._rundir.path
        return RunDirectory(path.parent.parent) if path.parent.name == WORKERS else self._rundir

    # ------------------------------------------------------------------ TensorFlow

    def form(self) -> Any:
        """Make TensorFlow's cluster, before anything but its configuration is used. Returns its engine.

        That can be neither watched nor stopped: it holds Python's lock. So all meet once more before, when TensorFlow
        is imported, and the kernel ends a process that is in it for too long, for whoever starts it again.
        """
        from trainerd.workers.engine.engine import Engine, devices_of

        with self._early():
            devices = devices_of(self._config.devices, self.plan)
        if self._chief is not None:
            _require_as_many(len(devices), self._chief.call("devices"))
            self._chief.call("form")
        if self._worker is not None:
            answers = {"devices": lambda message: {"count": len(devices)}, "form": lambda message: {}}
            self._worker.serve(answers, until="form")
        self._is_forming = True
        self._trouble.check()
        cluster = self._config.cluster
        before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(FORM_SECS)
        try:
            with self._early():
                self._engine = Engine(self.plan, devices, heartbeat_secs=cluster.heartbeat_secs)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        self._is_forming = False
        threading.Thread(target=self._pause_if_received, name="trainerd-sigterm", daemon=True).start()
        self._trouble.check()
        self._building = self._late(
            self._config.watchdog.first_step_secs,
            PeerLostError("the job was not built in time (watchdog.first_step_secs): do all workers build the same?"),
        )
        return self._engine

    @contextlib.contextmanager
    def _early(self) -> Iterator[None]:
        """Explain an error in the block that comes of a use of TensorFlow before it.

        Raises:
          EntryError: the job's module has used TensorFlow.
        """
        try:
            yield
        except RuntimeError as error:
            if "at program startup" not in str(error) and "after being initialized" not in str(error):
                raise
            module = self._config.entry.partition(":")[0]
            raise EntryError(
                f"entry = {self._config.entry!r}: the module {module} uses TensorFlow while it is imported, and a "
                "cluster must be formed before that. Only `tf.config` may be used there: make tensors, variables and "
                "datasets in the function."
            ) from error

    def built(self, build: Callable[[], T]) -> T:
        """Build the job, which all do together where it makes variables. Returns what `build` does.

        Raises:
          PeerLostError: another worker is gone, or does not answer.
        """
        return explained(build, self._trouble.explain, self._engine)

    def _pause_if_received(self) -> None:
        """Request a pause if TensorFlow received SIGTERM while it formed the cluster."""
        from trainerd.workers.engine.engine import received_sigterm

        if received_sigterm(SIGTERM_SECS):
            log.info("pausing at the next step: a worker received SIGTERM", extra={"event": "signal"})
            self._flag.raise_for(Request.PAUSE, "SIGTERM")

    def _abort(self, error: TrainerdError) -> None:
        """End what is done together, and after a while this process: another worker is gone, or has failed."""
        if self._is_forming:
            self._give_up(error)
        if self._engine is not None:
            from trainerd.workers.engine.engine import abort

            abort(str(error))
        self._late(ABORT_SECS, error)

    def _late(self, seconds: float, error: TrainerdError) -> threading.Timer:
        """Have this process end with an error after so many seconds; never for 0. Return the timer, to cancel it."""
        late = threading.Timer(seconds, self._give_up, [error])
        late.daemon = True
        if seconds:
            late.start()
        return late

    def _is_built(self) -> None:
        """Record that the job is built on all workers: from now on steps have their own deadline."""
        if self._building is not None:
            self._building.cancel()
        self._be_patient(0)

    def _be_patient(self, seconds: float) -> None:
        """Count a worker as gone after so many seconds of silence, or as many as the config says if that is more."""
        for peer in self._peers.values():
            peer.be_patient(max(seconds, self._config.cluster.heartbeat_secs))

    # ------------------------------------------------------------------ training

    def leading(self, session: Session) -> Session:
        """Return the chief's session: what it does, all do."""
        assert self._chief is not None
        led = ChiefSession(
            session,
            self._chief,
            self._engine,
            self._hand_over,
            leaves=lambda: self._flag.wants(Request.PAUSE),
            running=self._watched(session).running,
        )
        self._is_built()
        return cast(Session, led)

    def _watched(self, session: Session) -> StepWatch:
        return StepWatch(lambda: session.step, self._config.cluster.step_secs, self._trouble.found)

    def _hand_over(self, prefix: Path) -> Mapping[str, Any]:
        """Send a checkpoint's files to those that do not share the run directory. Returns how all find it."""
        paths = sorted(prefix.parent.glob(f"{prefix.name}.*")) if self._unshared else []
        for peer in self._unshared:
            files.send(peer, [path for path in paths if path.name.removeprefix(prefix.name).startswith(_FILES)])
        return {"below": str(prefix.relative_to(self._rundir.path))}

    def _find(self, message: Message) -> Path:
        """Return the path at which this worker reads the checkpoint that the chief names."""
        prefix: Path = self._run.path / message["below"]
        return prefix if self._is_shared else self._received / prefix.name

    def obey(self, session: Session) -> Outcome:
        """Do what the chief says until the run is over.

        Raises:
          PeerLostError: the chief is gone.
          PeerFailedError: it has failed, or another worker.
        """
        assert self._worker is not None
        commands = WorkerCommands(
            session,
            self._worker,
            self._engine,
            self._find,
            self._progressed,
            running=self._watched(session).running,
        )
        outcome = self._worker.serve({"ready": commands.ready}, until="ready")
        self._is_built()
        outcome = outcome or self._worker.serve(commands.table())
        assert outcome is not None
        return outcome

    def _progressed(self, step: int, rate: float | None) -> None:
        self._reporter.set(step=step)
        own = {
            "seen_at": time.time(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "step": step,
            "steps_per_sec": rate,
            "memory_bytes": self._reporter.state.memory_bytes,
        }
        self._peers[0].try_send("state", state=own)

    # ------------------------------------------------------------------ the end

    def observe(self, state: Any) -> None:
        """Have the others show the run as the chief does, and show how they are."""
        if self._chief is not None:
            self._chief.observe(state)

    @property
    def heard(self) -> float:
        """A number that grows when the chief says anything; constant on the chief."""
        return self._peers[0].heard_at if self._worker is not None else 0.0

    def cause_of(self, error: TrainerdError) -> TrainerdError:
        """Return the error that ended this process: another worker's, if that came first. Later ones are not kept."""
        return self._trouble.close() or error

    def end(self, how: Outcome | BaseException) -> None:
        """Send the others the reason why this process ends."""
        if self._chief is not None:
            self._chief.end(how)
        if self._worker is not None:
            if isinstance(how, BaseException):
                self._worker.failed(how)
            self._peers[0].close()


_MISSING = "the cluster is not complete: "
_FILES = (".index", ".data-")


def _require_as_many(own: int, others: Mapping[int, Message]) -> None:
    """Require that all workers have as many devices.

    Raises:
      ConfigError: one has more or fewer than the chief.
    """
    for rank, said in others.items():
        if said["count"] != own:
            raise ConfigError(
                f"the number of devices differs: the chief has {own}, and worker {rank} has {said['count']}. Set "
                "`devices` to a number that all workers have."
            )
