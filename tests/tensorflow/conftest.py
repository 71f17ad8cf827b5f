"""What every test here must leave behind: nothing that goes on looking after a run that is over."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator

import pytest
import tensorflow as tf

from trainerd.run.host import end_held_run

CLOCKS = {"trainerd-ticker", "trainerd-idle", "trainerd-hooks"}


@pytest.fixture(autouse=True)
def no_clock_of_ours_goes_on() -> Iterator[None]:
    """A session that is closed has none of these threads any more."""
    before = set(threading.enumerate())
    yield
    assert not [thread.name for thread in set(threading.enumerate()) - before if thread.name in CLOCKS]


@pytest.fixture(autouse=True)
def no_seed_is_left_of_another_test() -> None:
    """With a global seed each dataset that is made has another seed than the one before."""
    tf.random.set_seed(None)


@pytest.fixture(autouse=True)
def garbage_is_looked_for_among_what_is_new() -> Iterator[None]:
    """As for all tests, but after each: TensorFlow keeps many graphs, such as those of custom gradients.

    Within a module a single test spent half a minute on looking through them.
    """
    yield
    gc.collect()
    gc.freeze()


def wakeup_fd() -> int:
    """Where Python writes the numbers of signals."""
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor)
    return descriptor


@pytest.fixture(autouse=True)
def at_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was paused is gone on with in the same process, as in a notebook."""
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)


@pytest.fixture(autouse=True)
def signals_are_put_back() -> Iterator[None]:
    """A run that is over hears no signals, and neither does a file that has the number of its pipe by then."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}, wakeup_fd()
    yield
    end_held_run()  # as the end of the process does
    assert ({number: signal.getsignal(number) for number in signal.valid_signals()}, wakeup_fd()) == before
