"""Another worker, as one at the end of a wire: what it says, and whether it is still there."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainerd.errors import PeerLostError
from trainerd.workers.wire import Gone, Wire

log = logging.getLogger(__name__)

Message = Mapping[str, Any]
BEATS = 4  # at least so many before silence counts as the end
BEAT_SECS = 1.0  # and not further apart than this, so that silence is noticed as soon as it has lasted too long
LAST_WORDS_SECS = 0.5  # in which its last messages are read: they say more than a connection that has ended
_KIND = "kind"
_BEAT = "beat"


class Peer:
    """Talks with one other worker.

    A thread sends heartbeats to the other side, and finds out if nothing has come from there for too long: a
    process that is stopped, or a network that is cut. Another one reads what it says.

    Args:
      wire: the connection, proved.
      name: the other worker, for messages.
      heartbeat_secs: seconds of silence after which it counts as gone.
      timer: seconds on a clock that is never set.

    Attributes:
      name: see above.
      heard_at: when it last said anything, in seconds of the timer.
    """

    def __init__(
        self, wire: Wire, name: str, *, heartbeat_secs: float, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._wire = wire
        self._heartbeat_secs = heartbeat_secs
        self._timer = timer
        self._silence_secs = heartbeat_secs
        self.heard_at = timer()
        self._heard: Callable[[str, Message], None] = lambda kind, message: None
        self._lost: Callable[[str], None] = lambda why: None
        self._waiting: list[Message] = []  # what came before somebody listened
        self._is_listened_to = False
        self._why_gone = ""
        self._is_closed = False
        self._gone = threading.Event()
        self._lock = threading.Lock()
        for work, job in ((self._read, "read"), (self._beat, "beat")):
            threading.Thread(target=work, name=f"trainerd-{job}-{name}", daemon=True).start()

    def listen(self, heard: Callable[[str, Message], None], lost: Callable[[str], None]) -> None:
        """Receive messages from now on, and those that came before.

        Args:
          heard: called with the kind of each message and the message, on the reading thread.
          lost: called once, with the reason, if the other worker is gone before `close`.
        """
        with self._lock:
            self._heard, self._lost = heard, lost
            waiting, self._waiting, self._is_listened_to = self._waiting, [], True
            is_lost = self.is_gone and not self._is_closed
            for message in waiting:
                heard(str(message.get(_KIND)), message)
        if is_lost:
            lost(self._last_words())

    @property
    def is_gone(self) -> bool:
        """True if it is gone."""
        return self._gone.is_set()

    def wait_until_gone(self, seconds: float) -> None:
        """Wait until the other side has ended the connection, but not for longer than so many seconds."""
        self._gone.wait(seconds)

    def be_patient(self, seconds: float) -> None:
        """Count it as gone after so many seconds of silence."""
        self._silence_secs = seconds

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message.

        Raises:
          PeerLostError: it is gone.
        """
        try:
            self._wire.send({_KIND: kind, **fields})
        except Gone as error:
            self._gone.wait(LAST_WORDS_SECS)
            self._end(str(error))
            raise PeerLostError(self._last_words()) from None

    def try_send(self, kind: str, **fields: Any) -> None:
        """Send a message, if the other side is there."""
        with contextlib.suppress(PeerLostError):
            self.send(kind, **fields)

    def close(self) -> None:
        """End the connection, without calling `lost`."""
        self._is_closed = True
        self._wire.close()
        self._gone.set()

    def _last_words(self) -> str:
        return f"{self.name} is gone: {self._why_gone or 'the connection was closed'}"

    def _read(self) -> None:
        try:
            while True:
                message = self._wire.receive(self._note_heard)
                if message.get(_KIND) != _BEAT:
                    self._pass_on(message)
        except Gone as error:
            self._end(str(error))
        except Exception:
            log.exception("what %s said was not understood", self.name)
            self._end("what it said was not understood")

    def _note_heard(self) -> None:
        self.heard_at = self._timer()

    def _pass_on(self, message: Message) -> None:
        with self._lock:
            if not self._is_listened_to:
                self._waiting.append(message)
                return
        self._heard(str(message.get(_KIND)), message)

    def _beat(self) -> None:
        pause = min(self._heartbeat_secs / BEATS, BEAT_SECS)
        looked_at = self._timer()
        while not self._gone.wait(pause):
            before, looked_at = looked_at, self._timer()
            if looked_at - before > 2 * pause:  # this process stood still itself: it may not have read what came
                self.heard_at = looked_at
            silent = looked_at - self.heard_at
            if silent > self._silence_secs:
                self._end(f"nothing was heard of it for {silent:.0f} s")
                return
            with contextlib.suppress(Gone):
                self._wire.send({_KIND: _BEAT})

    def _end(self, why: str) -> None:
        with self._lock:
            is_news, self._why_gone = not self._gone.is_set(), self._why_gone or why
            self._gone.set()
        self._wire.close()
        if is_news and not self._is_closed:
            self._lost(self._last_words())
