"""The copier: sends what is new of a run to its copy, and says what is copied once that was verified there."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import DamagedError, FileRecord, Manifest
from trainerd.checkpoints.retention import Policy
from trainerd.copies.checked import FORMAT
from trainerd.copies.contents import JobFiles, files_of_run, opened_files
from trainerd.copies.layout import JOB, AboutCopy, CopyIndex, CopyWriter, RunCopy, record_of
from trainerd.copies.local import LocalCheckpoints
from trainerd.copies.parts import FileParts
from trainerd.copies.plan import CopySituation, garbage
from trainerd.copies.status import CopyStatus, read_copy_status
from trainerd.errors import ConfigError, CopyError, InUseError, NotRunningError
from trainerd.history.lines import lines
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.runs import stamp_of
from trainerd.rundir.state import State, read_state
from trainerd.system.durable_files import storage_error, xxh128_of
from trainerd.system.regular_files import read_regular
from trainerd.text import size

log = logging.getLogger(__name__)

FILES_SECS = 30.0  # between two copies of events and the other small files
_STATUS_SECS = 1.0
_INDEXES = 2  # that stay: the last is whole before the one before it goes


@dataclass(frozen=True)
class CopiedRun:
    """The run that is copied.

    Attributes:
      rundir: its run directory.
      job: its config and source; None for a program that has no config.
      policy: which checkpoints the copy keeps.
      writer: names this run directory at the destination.
      to: the URL of the destination, for a status that is written before the copy is open.
    """

    rundir: RunDirectory
    job: JobFiles | None
    policy: Policy
    writer: CopyWriter
    to: str = ""


class Copier:
    """Copies one run. Call `open` first, and again after an error of `check`.

    Args:
      run: the run.
      clock: seconds since 1970 (UTC).
      timer: seconds on a clock that is never set.
      stopped: whether it is to stop; an upload ends then.
    """

    def __init__(
        self,
        run: CopiedRun,
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._run, self._rundir = run, run.rundir
        self._clock, self._timer, self._stopped = clock, timer, stopped
        self._status = CopyStatus()
        self._written_at = self._files_at = -math.inf
        self._copy: RunCopy
        self._run_id = ""
        self._objects: dict[str, int] = {}
        self._trusted: set[str] = set()  # objects that were verified, now or before the checkpoint that names them
        self._is_known = False  # what the destination has
        self._copied: dict[int, Manifest] = {}  # by the manifests at the destination
        self._incomplete: set[int] = set()  # those of them that lack an object
        self._indexes: dict[int, CopyIndex] = {}
        self._numbers: set[int] = set()  # of all indexes, the damaged ones too
        self._parts = FileParts(self._part)
        self._local = LocalCheckpoints(run.rundir, run.policy)
        self._damaged: set[tuple[int, float]] = set()  # checkpoints of the run directory, by step and time

    @property
    def status(self) -> CopyStatus:
        """The state of the copy."""
        return self._status

    # ---- a connection

    def open(self, copy: RunCopy, state: State | None, *, takes_over: bool = False) -> None:
        """Claim the copy for this run, and read what it has.

        Args:
          copy: the copy.
          state: the state of the run.
          takes_over: whether another run directory that has written to the copy may no longer do so.

        Raises:
          ConfigError: the copy is of another run.
          InUseError: another machine or run directory writes to it.
          DataError: it is of a newer format, or damaged.
          NotRunningError: the run has no identifier yet.
          CopyError: it cannot be read or written.
        """
        self._copy, self._is_known = copy, False
        self._status = _status_before(self._rundir, copy.url)
        self._claim(state, takes_over=takes_over)
        self._objects = copy.objects()
        self._numbers = set(copy.index_numbers())
        self._indexes = {each: index for each in self._numbers if (index := copy.index(each)) is not None}
        found = copy.manifests(self._rundir, {step for index in self._indexes.values() for step in index.order})
        records = [record for each in found.values() for record in each.files.values()]
        records += [record for index in self._indexes.values() for record in index.records]
        self._trusted = {each.xxh128 for each in records if self._objects.get(each.xxh128) == each.bytes}
        self._parts.forget()
        self._copied, self._files_at = found, -math.inf
        self._incomplete = {step for step, each in found.items() if not _is_complete(each, self._trusted)}
        self._is_known = True
        self._say()

    def _claim(self, state: State | None, *, takes_over: bool) -> None:
        if state is None or not state.run_id:
            raise NotRunningError(
                f"{self._rundir.path} has no identifier of a run yet: its next start makes one. Start the run, and "
                "copy it then."
            )
        self._run_id = state.run_id
        about = self._copy.about()
        own = AboutCopy(FORMAT, state.run_id, state.name, self._rundir.basename, self._run.writer, self._clock())
        if about is not None and about.run_id != own.run_id:
            named = f" {about.name!r}" if about.name else ""
            raise ConfigError(
                f"{self._copy.url} holds the copy of another run{named}, and keeps it. Choose another URL for this "
                f"one. `trainerd fetch {self._copy.url} DIR` restores the other one."
            )
        if about is not None and about.writer is not None and about.writer != own.writer and not takes_over:
            raise InUseError(
                f"{self._copy.url} is written by {about.writer.logdir} on {about.writer.host}. If this run is trained "
                "there no longer, copy once with --take-over; else two machines would train one run."
            )
        if about is None or replace(about, at=own.at) != own:
            self._copy.write_about(own)

    def _require_own(self) -> None:
        """Require that nobody has taken the copy over since."""
        about = self._copy.about()
        if about is not None and about.writer is not None and about.writer != self._run.writer:
            raise InUseError(
                f"{about.writer.logdir} on {about.writer.host} has taken over {self._copy.url}. Nothing more is copied "
                "from here."
            )

    def release(self) -> None:
        """Let whoever comes next write to the copy."""
        about = self._copy.about()
        if about is not None:
            self._copy.write_about(replace(about, writer=None, at=self._clock()))

    # ---- a look

    def check(self) -> bool:
        """Copy one checkpoint that is new, or else the other files if they are due.

        Returns:
          Whether there may be more to do now.

        Raises:
          InUseError: another run directory has taken the copy over.
          ConfigError: the run directory holds another run now.
          NotRunningError: the run directory was removed.
          StorageError: it cannot be read.
          CopyError: the destination cannot be read or written; see `failed`.
        """
        found = self._local.situation(self._complete())
        _require_run(self._rundir, self._run_id, self._copy.url)
        for step in found.uploads(self._run.policy):
            self._require_own()
            if self._upload(found, step):
                return True
        if self._timer() >= self._files_at + FILES_SECS:
            self._require_own()
            self._write_index(found)
            self._drop(found)
        self._say(error=None)
        return False

    def failed(self, error: Exception) -> None:
        """Say in the status that a look has failed, or that the copy could not be opened."""
        if not self._status.to:
            self._status = _status_before(self._rundir, self._run.to)
        self._say(error=str(error), sending=None)

    def _complete(self) -> dict[int, Manifest]:
        """Return the checkpoints that are copied."""
        return {step: each for step, each in self._copied.items() if step not in self._incomplete}

    # ---- a checkpoint

    def _upload(self, found: CopySituation, step: int) -> bool:
        """Send a checkpoint.

        Returns:
          Whether it was sent. It was not if it is damaged, or if it was deleted and the copy has a newer one.
        """
        manifest, path = found.local[step], self._rundir.manifest(step)
        stamp = stamp_of(path)
        if (step, manifest.at) in self._damaged:
            return False
        try:
            content = read_regular(path, manifests.LIMIT)
            with opened_files(self._rundir, manifest) as files:
                self._say(sending=step, sent_bytes=0, total_bytes=manifest.size)
                self._send(manifest, files)
        except FileNotFoundError:  # retention has deleted it before it was open
            return False
        except DamagedError as error:
            self._damaged.add((step, manifest.at))
            self._say(sending=None)
            log.warning("step %d is not copied: %s", step, error, extra={"event": "copy-damaged", "step": step})
            return False
        except OSError as error:
            raise storage_error(error, f"read the checkpoint of step {step}") from error
        if stamp_of(path) != stamp and max(found.copied, default=-1) > step:
            self._say(sending=None)
            return False
        _require_run(self._rundir, self._run_id, self._copy.url)
        self._write_index(found)
        self._forget([step])  # another one of that step, which it replaces
        self._copy.put_manifest(path, content)
        self._copied[step] = manifest
        self._incomplete.discard(step)
        self._say(sending=None, copied_at=self._clock(), error=None)
        log.info("copied step %d (%s)", step, size(manifest.size), extra={"event": "copied", "step": step})
        self._drop(self._local.situation(self._complete()))
        return True

    def _send(self, manifest: Manifest, files: Mapping[str, int]) -> None:
        """Send the files of a checkpoint that are not there.

        Raises:
          DamagedError: one of them is not what the manifest says.
          CopyError: one could not be written.
        """
        before = 0
        for name, source in files.items():
            record = manifest.files[name]
            if record.xxh128 not in self._trusted:
                if (os.fstat(source).st_size, xxh128_of(source)) != (record.bytes, record.xxh128):
                    raise DamagedError(f"{self._rundir.path / name} is not what was written (XXH3).")
                self._retract(record, manifest.step)
                self._copy.put_object(record, source, partial(self._moved, before))
                self._trust(record)
            before += record.bytes

    def _retract(self, record: FileRecord, *also: int) -> None:
        """Remove the manifests that name an object before it is written: a failed write may damage what is there.

        Args:
          record: the object.
          also: steps whose manifests go too, in case that a late listing does not have them.
        """
        named = {each for each, found in self._copied.items() if record in found.files.values()}
        self._forget(sorted(named))
        for step in sorted({*named, *also}):
            self._copy.delete_manifest(self._rundir.manifest(step))

    def _moved(self, before: int, sent: int) -> None:
        if self._stopped():
            raise CopyError(f"the copy to {self._copy.url} was stopped.")
        if self._timer() >= self._written_at + _STATUS_SECS:
            self._say(sent_bytes=before + sent)

    def _trust(self, record: FileRecord) -> None:
        self._trusted.add(record.xxh128)
        self._objects[record.xxh128] = record.bytes

    # ---- the other files

    def _write_index(self, found: CopySituation) -> None:
        """Send what is new of the other files, and then the index that names them all."""
        newest = found.local[found.order[0]] if found.order else None
        paths = files_of_run(self._rundir)
        logdir = CopyIndex.logdir
        if (job := self._run.job) is not None:
            logdir = job.logdir
            paths |= {f"{JOB}{name}": path for name, path in job.paths(newest).items()}
        before = self._files_before()
        found_parts = {name: self._parts.of(name, path, before.get(name)) for name, path in paths.items()}
        files = {name: parts for name, parts in found_parts.items() if parts is not None}
        if job is not None:
            files[f"{JOB}trainerd.toml"] = [self._part(job.text.encode())]
        last = self._indexes.get(max(self._numbers, default=0))
        number = max(self._numbers, default=0) + 1
        named = (self._run_id, self._rundir.basename, self._clock())
        went_back_at = max((line.at for line in lines(self._rundir)), default=None)
        index = CopyIndex(FORMAT, number, *named, list(found.order), files, logdir, went_back_at)
        if last is None or replace(index, number=last.number, at=last.at) != last:
            self._numbers.add(number)  # also if this fails: what it leaves has that name
            self._copy.put_index(index)
            self._indexes[number] = index
        self._files_at = self._timer()
        self._say(files_at=self._clock())

    def _files_before(self) -> dict[str, list[FileRecord]]:
        """Return the files as they were copied last, by name, if all of their parts are there."""
        last = self._indexes[max(self._indexes)].files if self._indexes else {}
        return {name: parts for name, parts in last.items() if all(part.xxh128 in self._trusted for part in parts)}

    def _part(self, content: bytes) -> FileRecord:
        record = record_of(content)
        if record.xxh128 not in self._trusted:
            self._retract(record)
            self._copy.put_part(content)
            self._trust(record)
        return record

    # ---- what goes

    def _drop(self, found: CopySituation) -> None:
        """Drop the checkpoints that the policy gives up, the older indexes, and the objects that nothing names."""
        dropped = replace(found, copied=self._copied).deletions(self._run.policy)
        self._forget(dropped)
        for step in dropped:
            self._copy.delete_manifest(self._rundir.manifest(step))
        kept = set(sorted(self._indexes, reverse=True)[:_INDEXES])
        for number in sorted(self._numbers - kept):
            self._indexes.pop(number, None)
            self._copy.delete_index(number)
            self._numbers.discard(number)
        named = {record.xxh128 for index in self._indexes.values() for record in index.records}
        for digest in garbage(self._objects, self._copied.values(), named):
            self._trusted.discard(digest)
            self._copy.delete_object(digest)
            del self._objects[digest]

    def _forget(self, steps: Sequence[int]) -> None:
        """Say no longer that these are copied, before their manifests go: the process may be killed in between."""
        for step in steps:
            self._copied.pop(step, None)
        self._say()

    def _say(self, **changed: object) -> None:
        """Change the status, and write it if that matters or is due."""
        before = self._status
        copied = before.copied
        if self._is_known:
            copied = {step: each.at for step, each in self._complete().items()}
        self._status = replace(before, **changed, step=max(copied, default=None), copied=copied)  # type: ignore[arg-type]
        if self._status != before or self._timer() >= self._written_at + FILES_SECS:
            self._status = replace(self._status, at=self._clock(), pid=os.getpid())
            self._status.write(self._rundir)
            self._written_at = self._timer()


def _require_run(rundir: RunDirectory, run_id: str, url: str) -> None:
    """Require that a run directory still has the run that the copy is of: it may be removed, or made again."""
    state = read_state(rundir.state)
    if state is None:
        raise NotRunningError(
            f"{rundir.path} has no state.json any more. {url} stays as it is: `trainerd fetch {url} DIR` restores "
            "the run."
        )
    if state.run_id != run_id:
        raise ConfigError(
            f"{rundir.path} holds another run now, and {url} keeps the copy of the one before. Choose another URL for "
            f"this one. `trainerd fetch {url} DIR` restores the other one."
        )


def _is_complete(manifest: Manifest, objects: Collection[str]) -> bool:
    """Return whether all objects that a checkpoint needs are there."""
    return all(each.xxh128 in objects for name, each in manifest.files.items() if manifests.is_needed(name))


def _status_before(rundir: RunDirectory, to: str) -> CopyStatus:
    """Return the status that the process before has left of a copy at this URL."""
    before = read_copy_status(rundir)
    same = before if before is not None and before.to == to else CopyStatus(to=to)
    return replace(same, sending=None)
