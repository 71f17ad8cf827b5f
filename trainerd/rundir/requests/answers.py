"""Answers requests by their ids. Each id is served once, and its answer is kept in state.json for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from trainerd.rundir.reporter import Reporter
from trainerd.rundir.state import Answer

Give = Callable[[Sequence[str], int | None, str | None], None]  # see `Answers.give`

SHOWN = 16  # answers that state.json has
MOST_IDS = 256  # of one answer: who may ask for saves must not make state.json too large to be read
_KNOWN = 1000  # ids that are remembered


def no_answer(ids: Sequence[str], step: int | None, error: str | None) -> None:
    """Answer nobody."""


class Answers:
    """The answers of one process.

    A command that sees no answer may write its request once more, with the same id. The ids that were taken are
    remembered, so a request that comes twice changes the run once.

    Args:
      reporter: shows the answers.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.RLock()
        self._known: dict[str, Answer | None] = {}  # None until it is answered

    def take(self, ids: Sequence[str]) -> list[str]:
        """Take requests. Return the ids that are new; those that were answered before are answered again."""
        with self._lock:
            new = [each for each in dict.fromkeys(ids) if each not in self._known]
            for each in ids:
                if (before := self._known.get(each)) is not None:
                    self._show(before)
            self._known |= dict.fromkeys(new)
            for oldest in list(self._known)[:-_KNOWN]:
                del self._known[oldest]
            return new

    def give(self, ids: Sequence[str], step: int | None, error: str | None) -> None:
        """Answer the commands that wait.

        Args:
          ids: of their requests; empty if no command waits.
          step: the step that was saved, or that the run went back to; None if the request failed.
          error: why it failed, or None.
        """
        if not ids:
            return
        with self._lock:
            answer = Answer(list(ids[:MOST_IDS]), step, error)
            self._known |= dict.fromkeys(ids, answer)
            self._show(answer)

    def _show(self, answer: Answer) -> None:
        others = [each for each in self._reporter.state.answers if each != answer]
        self._reporter.update(answers=[*others, answer][-SHOWN:])
