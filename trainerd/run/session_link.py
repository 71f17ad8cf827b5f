"""The link between a program's session and its attached run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from trainerd.run.boundary import Boundary


@dataclass
class SessionLink:
    """The link of a session that a program runs to its attached run: what the session reports, and what it asks for.

    Attributes:
      boundary: the boundary after each step.
      failure: the last error that a step raised. The state after it is not that of a boundary. None if no step reports
        its errors.
      is_within: whether a `with` statement of the program closes the session.
      failed_at: the number of runs that had changed something at that failure; negative if there was none.
      next_step: the global step at which a service is due; infinity if none is by steps.
    """

    boundary: Boundary
    failure: BaseException | None = field(default=None)
    failed_at: int = field(default=-1)
    is_within: bool = field(default=False)
    next_step: float = field(default=math.inf)
    _closing: Callable[[BaseException | None], None] | None = field(default=None)

    def call_at_close(self, closing: Callable[[BaseException | None], None] | None) -> None:
        """Call this before the program itself closes the session, with the error that made it do so; None: nothing."""
        self._closing = closing

    def be_back_at(self, step: float) -> None:
        """Have the loop come to a boundary at this global step."""
        self.next_step = step

    def be_within(self) -> None:
        """Record that a `with` statement of the program closes the session."""
        self.is_within = True

    def close(self, error: BaseException | None) -> None:
        """Call what `call_at_close` was given, once: the session is about to be closed.

        A session that is collected closes itself, perhaps again.
        """
        closing, self._closing = self._closing, None
        if closing is not None:
            closing(error)

    def fail(self, error: BaseException, changes: int) -> None:
        """Record that a step raised an error, and how many runs had changed something by then."""
        self.failure, self.failed_at = error, changes

    def begin(self, changes: int) -> None:
        """Record that a step begins that does not report its errors, and how many runs had changed something by then.

        Until others have, any error that ends the loop is taken for one of this step.
        """
        self.failure, self.failed_at = None, changes

    def failed(self, error: BaseException | None) -> bool:
        """Return whether an error is that of a step, or was raised because of one."""
        if self.failure is None:
            return True
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            if error is self.failure:
                return True
            seen.add(id(error))
            error = error.__cause__ or error.__context__
        return False
