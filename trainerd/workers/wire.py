"""Messages between two workers: frames on a TCP connection that both sides have proved to know the token for.

The proof is a challenge and response by HMAC-SHA256 (RFC 2104) in both directions. What is said after it is neither
encrypted nor signed: TensorFlow's own traffic beside it is not either, so the network must be a trusted one.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

log = logging.getLogger(__name__)

_HEADER = struct.Struct("!Q")
_MOST = 1 << 40  # bytes of one frame: a checkpoint's file goes in one
_MOST_BYTES_UNPROVED = 1024  # of one frame, before the other side has proved anything
_NONCE = 32
_PIECE = 1 << 20
_LEAST_SECS = 0.001

UNPROVED_SECS = 1.0  # for which a connection may prove nothing
PROOF_SECS = 5.0  # for which a side that knows the token is waited for
MOST_SILENT = 64  # connections that have proved nothing
_MOST_WARNINGS = 64  # warnings: whoever can connect must not fill the log
_RETRY_SECS = 0.2


class Gone(Exception):
    """The connection has ended, or the other side speaks another language."""


class Wire:
    """One connection. Any thread may send; one thread receives.

    Args:
      connected: the socket, in blocking mode.
      patience: seconds for which a send waits for the other side to take anything.
    """

    def __init__(self, connected: socket.socket, *, patience: float) -> None:
        self._socket = connected
        self._sends = threading.Lock()
        self._deadline: float | None = None
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            timeout = struct.pack("ll", int(patience), int(patience % 1 * 1e6))
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit the time for all that is received in the block, however slowly the other side sends."""
        self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = None
            with contextlib.suppress(OSError):
                self._socket.settimeout(None)

    def prove(self, token: bytes, *, is_chief: bool) -> None:
        """Prove to know the token, and have the other side prove it.

        Raises:
          Gone: it does not.
        """
        mine = secrets.token_bytes(_NONCE)
        self._send_frame(mine)
        theirs = self._receive_frame(_MOST_BYTES_UNPROVED)
        self._send_frame(_proof(token, theirs, by_chief=is_chief))
        if not hmac.compare_digest(
            self._receive_frame(_MOST_BYTES_UNPROVED), _proof(token, mine, by_chief=not is_chief)
        ):
            raise Gone("the other side has another token")

    def send(self, message: Any) -> None:
        """Send a message: what msgpack knows.

        Raises:
          Gone: the connection has ended.
        """
        self._send_frame(msgspec.msgpack.encode(message))

    def receive(self, heard: Callable[[], None] = lambda: None) -> Any:
        """Wait for the next message.

        Args:
          heard: called after each part of it: a large one takes long.

        Raises:
          Gone: the connection has ended.
        """
        try:
            return msgspec.msgpack.decode(self._receive_frame(_MOST, heard))
        except (msgspec.DecodeError, RecursionError) as error:
            raise Gone(f"the other side sent what is not a message: {error}") from None

    def close_after(self, message: Any) -> None:
        """Send a last message, if the other side takes it, and end the connection."""
        with contextlib.suppress(Gone):
            self.send(message)
        self.close()

    def close(self) -> None:
        """End the connection, also for a thread that receives."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _send_frame(self, data: bytes) -> None:
        with self._sends:
            try:
                self._socket.sendall(_HEADER.pack(len(data)))
                self._socket.sendall(data)
            except OSError as error:
                raise Gone(error.strerror or str(error)) from None

    def _receive_frame(self, most: int, heard: Callable[[], None] = lambda: None) -> bytes:
        (size,) = _HEADER.unpack(self._receive(_HEADER.size, heard))
        if size > most:
            raise Gone(f"the other side announced a message of {size} bytes")
        return self._receive(size, heard)

    def _receive(self, size: int, heard: Callable[[], None]) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                if self._deadline is not None:
                    self._socket.settimeout(max(_LEAST_SECS, self._deadline - time.monotonic()))
                part = self._socket.recv(min(_PIECE, size - len(found)))
            except OSError as error:
                raise Gone(error.strerror or str(error)) from None
            if not part:
                raise Gone("the connection was closed")
            found += part
            heard()
        return bytes(found)


def _proof(token: bytes, nonce: bytes, *, by_chief: bool) -> bytes:
    role = b"chief" if by_chief else b"worker"  # so that a proof cannot be sent back to who made it
    return hmac.digest(token, role + nonce, "sha256")


@dataclass(frozen=True)
class Arrival:
    """A connection that has proved to know the token.

    Attributes:
      wire: the connection.
      host: the address it comes from.
      hello: what it said of itself.
    """

    wire: Wire
    host: str
    hello: Any


class Reception:
    """Accepts connections while the block runs, and has each prove that it knows the token, on a thread of its own.

    So one that is silent keeps no other waiting. At most MOST_SILENT connections have proved nothing: for one more,
    the oldest is dropped.

    Args:
      listener: the socket that listens.
      token: the secret.
      patience: see `Wire`.
    """

    def __init__(self, listener: socket.socket, token: bytes, patience: float) -> None:
        self._listener = listener
        self._token = token
        self._patience = patience
        self._arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._unproved: list[Wire] = []  # oldest first
        self._lock = threading.Lock()
        self._is_over = False
        self._warned: set[str] = set()
        self._thread = threading.Thread(target=self._accept, name="trainerd-reception", daemon=True)

    def __enter__(self) -> Reception:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._is_over = True
            left, self._unproved = self._unproved, []
        self._listener.shutdown(socket.SHUT_RDWR)  # it ends the `accept` of the thread
        self._thread.join()
        for wire in left:
            wire.close()
        while (arrival := self.next(0)) is not None:
            arrival.wire.close()

    def next(self, seconds: float) -> Arrival | None:
        """Wait for the next connection that has proved to know the token; None if none came for so many seconds."""
        try:
            return self._arrivals.get(timeout=seconds)
        except queue.Empty:
            return None

    def _accept(self) -> None:
        while not self._is_over:
            try:
                connected, (host, *_) = self._listener.accept()
            except OSError as error:
                if not self._is_over:
                    self._warn_once(f"a connection failed: {error.strerror}")
                    time.sleep(_RETRY_SECS)
                continue
            wire = Wire(connected, patience=self._patience)
            self._note(wire)
            threading.Thread(target=self._meet, args=(wire, host), name="trainerd-meets", daemon=True).start()

    def _note(self, wire: Wire) -> None:
        with self._lock:
            self._unproved.append(wire)
            dropped = self._unproved.pop(0) if len(self._unproved) > MOST_SILENT else None
        if dropped is not None:
            dropped.close()

    def _meet(self, wire: Wire, host: str) -> None:
        try:
            with wire.within(UNPROVED_SECS):
                wire.prove(self._token, is_chief=True)
            self._forget(wire)
            with wire.within(PROOF_SECS):
                arrival = Arrival(wire, host, wire.receive())
        except Gone as error:
            self._forget(wire)
            wire.close()
            self._warn_once(f"a connection from {host} was refused: {error}")
            return
        with self._lock:
            if not self._is_over:
                self._arrivals.put(arrival)
                return
        wire.close()

    def _forget(self, wire: Wire) -> None:
        with self._lock:
            if wire in self._unproved:
                self._unproved.remove(wire)

    def _warn_once(self, warning: str) -> None:
        with self._lock:
            if self._is_over or warning in self._warned or len(self._warned) >= _MOST_WARNINGS:
                return
            self._warned.add(warning)
        log.warning("%s", warning, extra={"event": "gathering"})
