"""The curves of a run, read from its event files. Needs no TensorFlow: the messages are TensorBoard's own."""

from __future__ import annotations

import bisect
import math
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from trainerd.history.lines import Line, lines
from trainerd.rundir.paths import RunDirectory
from trainerd.system import safe_paths
from trainerd.system.durable_files import storage
from trainerd.system.records import records
from trainerd.system.regular_files import open_to_read

_EVALUATION = "val_"
_START = 1  # SessionLog.START
_KEPT = 2  # points of each part of a long curve: the lowest and the highest
_LARGEST = 1 << 16  # bytes of an event that is followed: metrics take less, pictures and graphs more


@dataclass(frozen=True)
class Begin:
    """A process began to write.

    Attributes:
      step: its steps come after this one.
      at: when, in seconds since 1970 (UTC).
      passed: the last step that was written before; what lies between is trained again.
      went_back: whether the run went back there on request.
    """

    step: int
    at: float
    passed: int
    went_back: bool = False


@dataclass(frozen=True)
class LeftPart:
    """A part of a curve that the run has gone back from.

    Attributes:
      step: where it leaves the line that the run is on: the part comes after it.
      curve: the whole line of that time.
    """

    step: int
    curve: Curve


@dataclass
class Curve:
    """One metric over the steps of a run's present line.

    Attributes:
      steps, values: its points, by step.
      times: when each point was written, in seconds since 1970 (UTC).
      means: the mean of the values that each point stands for: its own value, except in a long curve.
      begins: where processes began, or the run went back.
      evaluated: the steps at which the run was evaluated while it trained.
      tags: the curves that there are, this one or others.
      left: the parts that the run has gone back from, in the order in which it did.
    """

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    begins: list[Begin] = field(default_factory=list)
    evaluated: set[int] = field(default_factory=set)
    tags: set[str] = field(default_factory=set)
    left: list[LeftPart] = field(default_factory=list)

    def smoothed(self, points: float) -> list[float]:
        """Return the values, smoothed exponentially.

        Args:
          points: the time constant, in points.
        """
        share, average, weight = 1.0 / max(1.0, points), 0.0, 0.0
        found = []
        for value in self.means:
            if math.isfinite(value):
                average, weight = average + share * (value - average), weight + share * (1.0 - weight)
            found.append(average / weight if weight else math.nan)
        return found

    def at(self, step: int, values: Sequence[float]) -> float:
        """Return the value of a curve with these steps at the point nearest to a step."""
        after = bisect.bisect_left(self.steps, step)
        near = range(max(0, after - 1), min(after + 1, len(self.steps)))
        return values[min(near, key=lambda index: abs(self.steps[index] - step))]

    def add(self, step: int, value: float, at: float, mean: float) -> None:
        """Add a point."""
        self.steps.append(step)
        self.values.append(value)
        self.times.append(at)
        self.means.append(mean)

    def drop_last(self) -> None:
        """Remove the last point."""
        del self.steps[-1], self.values[-1], self.times[-1], self.means[-1]

    def thin(self, begin: int, size: int) -> None:
        """Keep the lowest and the highest of each `size` points, from the point with the index `begin` on."""
        kept = [begin + index for index in extremes(self.values[begin:], size)]
        self.means[begin:] = _means(self.means[begin:], size, [index - begin for index in kept])
        self.steps[begin:] = [self.steps[index] for index in kept]
        self.values[begin:] = [self.values[index] for index in kept]
        self.times[begin:] = [self.times[index] for index in kept]


def read_curve(rundir: RunDirectory, tag: str) -> Curve:
    """Read one metric's curve of a run's present line: points that were trained again, or are of earlier lines, are not
    in it.

    Raises:
      StorageError: an event file cannot be read.
    """
    reader = CurveReader(lines(rundir), tag)
    for path in event_files(rundir):
        for event in read_events(path):
            reader.read(event)
    return reader.curve


def event_files(rundir: RunDirectory) -> list[Path]:
    """Return the event files of a run, in the order in which they were made."""
    with storage(f"read {rundir.path}"):
        return safe_paths.starting_with(rundir.path, "events.out.tfevents.")


class CurveReader:
    """Makes a curve of the events of a run, which it is given in the order in which they were written.

    Args:
      left: the earlier lines, each of which was left at a time.
      tag: the metric.
      most: keep fewer than twice as many points: of each part of the curve the lowest and the highest; and as many
        evaluations, the newest. Default: all.

    Attributes:
      curve: what it has made so far.
    """

    def __init__(self, left: Sequence[Line], tag: str, most: int | None = None) -> None:
        self.curve = Curve()
        self._tag, self._most = tag, most
        self._size = _KEPT  # points of a part of the curve: its lowest and highest are kept
        self._newest, self._count = 0, 0  # of the newest part: where it begins in the curve, and how many points it had
        self._sum, self._finite = 0.0, 0  # of its values that are finite
        self._last = 0
        self._to_come = list(left)
        self._tails: dict[int, list[tuple[int, float, float, float]]] = {}  # of each line, beyond its begin

    def read(self, event: Any) -> None:
        """Take over what an event holds."""
        if event.session_log.status == _START:
            self._begin(max(0, event.step - 1), event.wall_time)  # TensorFlow's own sessions begin with 0
        for value in event.summary.value:
            if value.tag.startswith(_EVALUATION):
                self._note_evaluation(event.step)
            if value.HasField("simple_value"):
                self.curve.tags.add(value.tag)
            if value.tag == self._tag and (found := _number(value)) is not None:
                self._forget(event.step)  # where the loader of TensorBoard would, too
                self._add(event.step, found, event.wall_time)
        self._last = max(self._last, event.step)

    def _add(self, step: int, value: float, at: float) -> None:
        curve = self.curve
        self._newest = min(self._newest, len(curve.steps))  # some of its points may be forgotten
        if len(curve.steps) - self._newest > _KEPT:
            self._thin_newest()
        if self._count >= self._size:
            self._begin_part()
        if self._most is not None and len(curve.steps) + 1 >= 2 * self._most:
            curve.thin(0, 2 * _KEPT)
            self._size *= 2
            self._begin_part()
        curve.add(step, value, at, value)
        self._count += 1
        if math.isfinite(value):
            self._sum, self._finite = self._sum + value, self._finite + 1

    def _begin_part(self) -> None:
        self._newest, self._count = len(self.curve.steps), 0
        self._sum, self._finite = 0.0, 0

    def _thin_newest(self) -> None:
        """Keep the lowest and the highest point of the newest part."""
        curve, begin = self.curve, self._newest
        if min(curve.values[-3:-1]) <= curve.values[-1] <= max(curve.values[-3:-1]):
            curve.drop_last()  # This is the usual case, and faster than `thin`.
        else:
            curve.thin(begin, _KEPT + 1)
        mean = self._sum / self._finite if self._finite else math.nan
        curve.means[begin:] = [mean] * (len(curve.means) - begin)

    def _note_evaluation(self, step: int) -> None:
        self.curve.evaluated.add(step)
        if self._most is not None and len(self.curve.evaluated) >= 2 * self._most:
            self.curve.evaluated = set(sorted(self.curve.evaluated)[-self._most :])

    def _begin(self, step: int, at: float) -> None:
        went_back = False
        while self._to_come and self._to_come[0].at <= at:
            self._leave(self._to_come.pop(0))
            went_back = True
        self.curve.begins.append(Begin(step, at, self._last, went_back))
        self._forget(step + 1)
        self.curve.evaluated = {each for each in self.curve.evaluated if each <= step}
        self._last = step

    def _leave(self, line: Line) -> None:
        """Record that the run left its line, and continued on this one or on an earlier one."""
        curve = self.curve
        points = list(zip(curve.steps, curve.values, curve.times, curve.means, strict=True))
        self._tails[line.number] = [point for point in points if point[0] > line.began_at]
        kept = [point for point in points if point[0] <= line.began_at]
        curve.left.append(LeftPart(line.began_at, Curve(curve.steps, curve.values, curve.times, curve.means)))
        if line.target_line is not None and line.target is not None:
            kept += [point for point in self._tails.get(line.target_line, []) if point[0] <= line.target]
        curve.steps, curve.values, curve.times, curve.means = [], [], [], []
        for point in kept:
            curve.add(*point)

    def _forget(self, step: int) -> None:
        while self.curve.steps and self.curve.steps[-1] >= step:
            self.curve.drop_last()


def extremes(values: Sequence[float], size: int) -> list[int]:
    """Return the indices of the lowest and of the highest of each `size` values, in their order.

    NaN and infinities count only if a part has no other values.
    """
    kept: list[int] = []
    for begin in range(0, len(values), size):
        part = range(begin, min(begin + size, len(values)))
        found = [index for index in part if math.isfinite(values[index])] or part
        kept += sorted({min(found, key=values.__getitem__), max(reversed(found), key=values.__getitem__)})
    return kept


def _means(means: Sequence[float], size: int, kept: Sequence[int]) -> list[float]:
    """Return, for each of these indices, the mean of the part of `size` values that it is in."""
    found = []
    for begin in range(0, len(means), size):
        part = [mean for mean in means[begin : begin + size] if math.isfinite(mean)]
        found.append(sum(part) / len(part) if part else math.nan)
    return [found[index // size] for index in kept]


def _number(value: Any) -> float | None:
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind == "tensor" and value.tensor.float_val:
        return float(value.tensor.float_val[0])
    if kind == "tensor" and len(value.tensor.tensor_content) == 4 and not value.tensor.tensor_shape.dim:
        return float(struct.unpack("<f", value.tensor.tensor_content)[0])
    return None


def read_events(path: Path) -> Iterator[Any]:
    """Yield the events of a file; see `events`.

    Raises:
      StorageError: it cannot be read.
    """
    with storage(f"read {path}"), open_to_read(path) as file:
        yield from events(file)


def events(file: IO[bytes], largest: int | None = None) -> Iterator[Any]:
    """Yield the events of a file, up to where a killed process or a full disk cut it off.

    Args:
      file: open where an event begins. After each event it is at the end of that.
      largest: pass over those of more bytes, such as pictures. Default: none.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tensorboard.compat.proto.event_pb2 import Event

    for data in records(file, largest):
        try:
            yield Event.FromString(data)
        except DecodeError:
            return


class CurveFollower:
    """Follows the curves of some metrics as they grow: each look reads what was written since the last.

    If the run has gone back, or a file was removed or replaced, it rereads all files.

    Args:
      rundir: the run directory.
      tags: the metrics.
      most: keep fewer than twice as many points of each; see `CurveReader`.
      at_once: events that one look reads.

    Attributes:
      is_complete: whether the last look has come to the end of what there was.
    """

    def __init__(self, rundir: RunDirectory, tags: Sequence[str], *, most: int = 500, at_once: int = 20_000) -> None:
        self.tags = tags
        self._rundir, self._most, self._at_once = rundir, most, at_once
        self.is_complete = False
        self._begin(())

    def _begin(self, left: Sequence[Line]) -> None:
        self._left = left
        self._readers = {tag: CurveReader(left, tag, self._most) for tag in self.tags}
        self._read: dict[Path, tuple[int, int]] = {}  # of each file: its inode, and up to where it was read

    def read(self) -> dict[str, Curve]:
        """Read on.

        Returns:
          Each metric's curve so far; the next look changes it.

        Raises:
          StorageError: an event file cannot be read.
        """
        left, files = lines(self._rundir), event_files(self._rundir)
        if left != self._left or not self._are_there(files):
            self._begin(left)
        to_read = self._at_once
        for path in files:
            with storage(f"read {path}", missing_ok=True):
                to_read -= self._read_on(path, to_read)
        self.is_complete = to_read > 0
        return {tag: reader.curve for tag, reader in self._readers.items()}

    def _are_there(self, files: Sequence[Path]) -> bool:
        """Return whether all that was read is still there, in what files there are now."""
        for path, (inode, offset) in self._read.items():
            try:
                found = path.lstat()
            except OSError:
                return False
            if path not in files or found.st_ino != inode or found.st_size < offset:
                return False
        return True

    def _read_on(self, path: Path, at_most: int) -> int:
        """Read what a file has grown by. Returns how many events that were."""
        _, offset = self._read.get(path, (0, 0))
        if at_most <= 0 or path.lstat().st_size == offset:
            return 0
        count = 0
        with open_to_read(path) as file:
            inode = os.fstat(file.fileno()).st_ino
            file.seek(offset)
            for event in events(file, _LARGEST):
                for reader in self._readers.values():
                    reader.read(event)
                self._read[path] = (inode, file.tell())
                if (count := count + 1) >= at_most:
                    break
        return count
