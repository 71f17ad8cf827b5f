"""The workers find each other before TensorFlow is imported: forming its cluster can be neither watched nor stopped.

The chief listens, and each other worker connects. They prove to know the token (workers/wire.py), and compare
what must be the same on all. When all are there, the chief says so.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from trainerd.errors import ConfigError, PeerLostError
from trainerd.workers import token as tokens
from trainerd.workers.about import difference
from trainerd.workers.peer import Peer
from trainerd.workers.plan import ClusterPlan, WorkerAddress
from trainerd.workers.wire import PROOF_SECS, Arrival, Gone, Reception, Wire

log = logging.getLogger(__name__)

POLL_SECS = 0.2
CLOCK_SECS = 60.0  # by how much clocks may differ without a warning
_BACKLOG = 128


@dataclass(frozen=True)
class Terms:
    """A worker's terms for the gathering.

    Attributes:
      plan: the workers.
      about: what must be the same on all; see `about_this`.
      token: the file of the token.
      heartbeat_secs: see `Peer`.
      is_asked_to_pause: whether a pause is requested; called all the time.
      show: shows who is missing, in a few words.
      clock: seconds since 1970 (UTC).
    """

    plan: ClusterPlan
    about: Mapping[str, str]
    token: Path
    heartbeat_secs: float
    is_asked_to_pause: Callable[[], bool]
    show: Callable[[str], None]
    clock: Callable[[], float] = field(default=time.time)


class Hello(msgspec.Struct, frozen=True):
    """The first message of a worker, about itself.

    Attributes:
      rank, size: its rank, and how many workers its config names.
      about: see `Terms`.
      host, pid: the process.
      clock: its clock, in seconds since 1970 (UTC).
    """

    rank: int
    size: int
    about: dict[str, str]
    host: Annotated[str, msgspec.Meta(max_length=255)]
    pid: int
    clock: float


class PausedWhileGathering(Exception):
    """A pause was asked for before all workers were there."""


def gather_as_chief(terms: Terms) -> dict[int, Peer]:
    """Wait for all other workers.

    Returns:
      The peers by rank. The message `begin` starts them.

    Raises:
      PausedWhileGathering: a pause was asked for.
      ConfigError: the workers differ, or the address cannot be had.
    """
    token = tokens.make(terms.token)
    here: dict[int, Peer] = {}
    shown = ""
    try:
        with _listening(terms.plan) as listener, Reception(listener, token, terms.heartbeat_secs) as reception:
            while len(here) < terms.plan.size - 1:
                for rank in [rank for rank, peer in here.items() if peer.is_gone]:
                    log.warning("worker %d ended before all workers had started", rank, extra={"event": "gathering"})
                    del here[rank]
                missing = [rank for rank in range(1, terms.plan.size) if rank not in here]
                if (now := _missing(missing, terms.plan)) != shown:
                    terms.show(shown := now)
                if terms.is_asked_to_pause():
                    raise PausedWhileGathering
                if (arrival := reception.next(POLL_SECS)) is not None:
                    _let_in(arrival, terms, here)
    except BaseException as error:
        for peer in here.values():
            _send_off(peer, error)
        raise
    return here


def _missing(ranks: list[int], plan: ClusterPlan) -> str:
    names = ", ".join(f"{rank} ({plan.workers[rank]})" for rank in ranks)
    return f"waiting for worker{'s' if len(ranks) > 1 else ''} {names}"


def _send_off(peer: Peer, error: BaseException) -> None:
    if isinstance(error, PausedWhileGathering):
        peer.try_send("end", phase="paused", why="the chief was paused while it waited for the other workers")
    elif isinstance(error, ConfigError):
        peer.try_send("end", phase="failed", why=str(error), code=error.exit_code)
    peer.close()


@contextlib.contextmanager
def _listening(plan: ClusterPlan) -> Iterator[socket.socket]:
    with _bound(plan.meeting_place) as listener:
        _require_free(plan.workers[0])
        listener.listen(_BACKLOG)
        yield listener


def _require_free(address: WorkerAddress) -> None:
    """Require that TensorFlow will be able to listen at an address of this machine.

    Raises:
      ConfigError: it will not.
    """
    with _bound(address):
        pass


@contextlib.contextmanager
def _bound(address: WorkerAddress) -> Iterator[socket.socket]:
    """Bind a socket to an address of this machine while the block runs."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((address.host, address.port))
        except OSError as error:
            advice = {
                errno.EADDRINUSE: "another process listens there; end it, or choose another port",
                errno.EADDRNOTAVAIL: "this machine has no such address; check its rank and its network",
                errno.EACCES: "choose a port above 1023",
            }.get(error.errno or 0, "check the address")
            raise ConfigError(f"cluster.workers: cannot listen at {address}: {error.strerror}: {advice}.") from None
        yield bound


def _let_in(arrival: Arrival, terms: Terms, here: dict[int, Peer]) -> None:
    """Take a connection that has proved to know the token, if it is one of the workers that are missing."""
    wire, plan = arrival.wire, terms.plan
    try:
        hello = msgspec.convert(arrival.hello, Hello)
    except msgspec.ValidationError as error:
        log.warning("a worker on %s sent an invalid message: %s", arrival.host, error, extra={"event": "gathering"})
        wire.close()
        return
    rank, size = hello.rank, hello.size
    name = f"worker {rank} ({hello.host}, pid {hello.pid})"
    if size != plan.size or not 0 < rank < plan.size:
        _refuse(wire, name, f"it is number {rank} of {size} workers, where there are {plan.size}: see cluster.workers")
    elif rank in here and not here[rank].is_gone:
        why = f"there is a worker {rank} already, {here[rank].name}: give each a rank of its own"
        _refuse(wire, name, why, PeerLostError.exit_code)  # it may be the one before, whose cable was cut
    elif differs := difference(terms.about, hello.about, f"worker {rank}"):
        wire.close_after({"kind": "end", "phase": "failed", "why": _DIFFER + differs, "code": ConfigError.exit_code})
        raise ConfigError(_DIFFER + differs)
    else:
        if abs(apart := hello.clock - terms.clock()) > CLOCK_SECS:
            log.warning("the clock of %s differs from this machine's by %+.0f s", name, apart, extra={"event": "clock"})
        here[rank] = Peer(wire, name, heartbeat_secs=terms.heartbeat_secs)
        log.info("%s is there", name, extra={"event": "gathering"})


_DIFFER = "the workers are not alike. Make this the same on all, and start them again:\n"


def _refuse(wire: Wire, name: str, why: str, code: int = ConfigError.exit_code) -> None:
    log.warning("%s was rejected: %s", name, why, extra={"event": "gathering"})
    wire.close_after({"kind": "end", "phase": "failed", "why": f"the chief refused it: {why}", "code": code})


def gather_as_worker(terms: Terms) -> Peer:
    """Connect to the chief. It says by itself when all are there.

    Raises:
      PausedWhileGathering: a pause was asked for.
      ConfigError: the token cannot be used, or this worker's address is none of this machine.
    """
    place, shown = terms.plan.meeting_place, ""
    _require_free(terms.plan.workers[terms.plan.rank])
    while not terms.is_asked_to_pause():
        token = tokens.read(terms.token)
        now = (
            f"waiting for the chief at {place}" if token else f"waiting for the token {terms.token}: the chief makes it"
        )
        if now != shown:
            terms.show(shown := now)
        peer = _connect(token, terms) if token else None
        if peer is not None:
            return peer
        time.sleep(POLL_SECS)
    raise PausedWhileGathering


def _connect(token: bytes, terms: Terms) -> Peer | None:
    plan = terms.plan
    place = plan.meeting_place
    try:
        connected = socket.create_connection((place.host, place.port), timeout=PROOF_SECS)
    except OSError:
        return None  # it does not listen yet
    connected.settimeout(None)
    wire = Wire(connected, patience=terms.heartbeat_secs)
    try:
        with wire.within(PROOF_SECS):
            wire.prove(token, is_chief=False)
        about = dict(terms.about)
        wire.send(Hello(plan.rank, plan.size, about, socket.gethostname(), os.getpid(), terms.clock()))
    except Gone as error:
        log.warning("the connection to the chief at %s failed: %s", place, error, extra={"event": "gathering"})
        wire.close()
        return None
    return Peer(wire, f"the chief ({place})", heartbeat_secs=terms.heartbeat_secs)
