"""The flag."""

from __future__ import annotations

import threading

from trainerd.loop.flag import Flag, Request
from trainerd.loop.outcome import LOOP_ENDED, PAUSED


def test_what_is_raised_is_taken_once() -> None:
    flag = Flag()
    flag.raise_for(Request.SAVE)
    flag.raise_for(Request.SAVE)
    flag.raise_for(Request.PAUSE)
    assert flag.is_raised and flag.wants(Request.SAVE) and not flag.wants(Request.RELOAD)
    assert flag.take() == {Request.SAVE, Request.PAUSE}
    assert not flag.is_raised
    assert flag.take() == set()


def test_the_mirror_shows_the_flag_from_the_moment_it_is_bound() -> None:
    flag, seen = Flag(), list[bool]()
    flag.raise_for(Request.TICK)
    flag.bind(seen.append)
    flag.take()
    flag.raise_for(Request.TICK)
    flag.raise_for(Request.SAVE)
    assert seen == [True, False, True]


def test_nothing_raised_by_many_threads_is_lost() -> None:
    flag, mirrored, taken = Flag(), [False], list[Request]()
    flag.bind(lambda raised: mirrored.__setitem__(0, raised))
    requests = [Request.SAVE, Request.RELOAD, Request.TICK]

    def raise_often(request: Request) -> None:
        for _ in range(2000):
            flag.raise_for(request)

    threads = [threading.Thread(target=raise_often, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += flag.take()
    for thread in threads:
        thread.join()
    assert mirrored[0] == flag.is_raised
    taken += flag.take()
    assert set(taken) == set(requests) and not mirrored[0]


def test_what_asked_for_a_pause_first_is_known() -> None:
    flag = Flag()
    flag.raise_for(Request.PAUSE, "SIGTERM")
    flag.raise_for(Request.PAUSE, "the file `pause`")
    flag.raise_for(Request.SAVE, "another worker")
    assert flag.paused_by == "SIGTERM"
    assert PAUSED.reason(flag.paused_by) == "paused on request (SIGTERM)" and PAUSED.reason("") == PAUSED.why
    assert LOOP_ENDED.reason("SIGTERM") == LOOP_ENDED.why
