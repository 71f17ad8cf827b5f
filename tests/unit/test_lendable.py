"""A lock that is lent to another thread while its owner holds it."""

from __future__ import annotations

import threading

from trainerd.run.handoff_lock import HandoffLock


def test_who_has_it_lent_passes_and_is_waited_for() -> None:
    lock, seen = HandoffLock(), list[str]()
    lent, inside, leave = threading.Event(), threading.Event(), threading.Event()

    def visit() -> None:
        assert lent.wait(20)
        with lock, lock:
            inside.set()
            assert leave.wait(20)
            with lock:  # asked back meanwhile, but not from who is in it
                seen.append("visitor")

    visitor = threading.Thread(target=visit)
    visitor.start()
    with lock, lock:
        assert visitor.ident is not None
        lock.lend(visitor.ident)
        lent.set()
        assert inside.wait(20)
        threading.Timer(0.05, leave.set).start()
        lock.take_back()
        seen.append("owner")
    visitor.join()
    assert seen == ["visitor", "owner"]


def test_to_all_others_it_is_a_lock() -> None:
    lock, seen = HandoffLock(), list[bool]()

    def look() -> None:
        seen.append(lock.acquire(blocking=False))

    def try_it() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    with lock:
        try_it()
        lock.lend(threading.get_ident())
        try_it()
        lock.take_back()
    try_it()
    assert seen == [False, False, True]
