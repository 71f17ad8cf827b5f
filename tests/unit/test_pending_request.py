"""A request that waits for its answer: a save is answered by its id, a pause by the last state of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from trainerd.errors import NotRunningError
from trainerd.rundir import lock
from trainerd.rundir.lock import Holder
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.requests.pending_request import PendingRequest
from trainerd.rundir.state import Answer, Phase, State


@pytest.fixture
def holder(rundir: RunDirectory) -> Iterator[Holder]:
    with lock.acquire(rundir) as held:
        yield held.name_holder(os.getpid())


def pause(rundir: RunDirectory, holder: Holder) -> PendingRequest:
    pending = PendingRequest(rundir, holder, "", rundir.pause.touch, rundir.pause, "paused")
    pending.send()
    return pending


def test_a_pause_is_answered_by_the_last_state_of_its_process(rundir: RunDirectory, holder: Holder) -> None:
    pending = pause(rundir, holder)
    for phase in (Phase.TRAINING, Phase.PAUSING):
        State(phase, pid=holder.pid, step=6).write(rundir.state)
        assert pending.look(0.1) is None
    State(Phase.PAUSED, pid=holder.pid + 1, step=6).write(rundir.state)  # of an earlier process
    assert pending.look(0.1) is None
    State(Phase.PAUSED, pid=holder.pid, step=7).write(rundir.state)
    assert pending.look(0.1) == Answer([], 7, None)


def test_a_run_that_fails_in_its_pause_says_why(rundir: RunDirectory, holder: Holder) -> None:
    State(Phase.FAILED, pid=holder.pid, step=7, error="the disk is full").write(rundir.state)
    assert pause(rundir, holder).look(0.1) == Answer([], None, "the disk is full")


def test_a_process_that_dies_in_its_pause_is_an_error(rundir: RunDirectory) -> None:
    with pytest.raises(NotRunningError, match="ended before it paused"):
        pause(rundir, Holder(99999999, 0.0, 0.0)).look(0.1)


def test_a_pause_that_is_lost_is_asked_for_again_unless_it_is_served(rundir: RunDirectory, holder: Holder) -> None:
    pending = pause(rundir, holder)
    rundir.pause.unlink()
    State(Phase.PAUSING, pid=holder.pid).write(rundir.state)
    assert pending.look(60.0) is None and not rundir.pause.exists()
    State(Phase.TRAINING, pid=holder.pid).write(rundir.state)
    assert pending.look(60.0) is None and rundir.pause.exists()
