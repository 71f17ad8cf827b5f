"""Boundaries of a loop that is the user's own."""

from __future__ import annotations

from trainerd.loop.flag import Flag, Request
from trainerd.run.boundary import Boundary


def test_a_loop_serves_what_it_is_asked_for_and_nothing_once_it_is_over() -> None:
    """Another session may have the flag by then, and what it is raised for is that one's."""
    flag, served = Flag(), list[set[Request]]()
    boundary = Boundary(flag, lambda: served.append(flag.take()))
    flag.raise_for(Request.SAVE)
    boundary.reached()
    assert served == [{Request.SAVE}] and not flag.is_raised
    boundary.retire()
    flag.raise_for(Request.PAUSE)
    boundary.reached()
    boundary.serve_if_idle()
    assert served == [{Request.SAVE}] and flag.take() == {Request.PAUSE}


def test_who_waits_for_a_boundary_that_is_retired_is_called_once_nobody_comes() -> None:
    called = list[int]()
    boundary = Boundary(Flag(), lambda: None, timer=iter(range(100)).__next__)
    boundary.retire()
    boundary.call(lambda: called.append(1), lambda: False)
    assert called == [1]
