"""The layout of a copy at its destination, and its verified reads and writes.

`run.json` names the run, and who writes the copy. `objects/` has every content under its 128-bit XXH3: what is
there is not sent again. `checkpoints/` has the manifests: a checkpoint is copied if its manifest is there, which is
written last, and a fetch compares every byte with it. `indexes/` lists all other files of the run, each as a list of
objects, and the order in which its checkpoints are resumed from. An index is never changed, and the newest that is
whole counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

import xxhash

from trainerd.checkpoints import manifest as manifests
from trainerd.checkpoints.manifest import DamagedError, FileRecord, Manifest
from trainerd.copies.checked import CheckedStore, in_memory, with_checksum
from trainerd.copies.store import MissingError
from trainerd.errors import CopyError, DataError
from trainerd.rundir.paths import RunDirectory

JOB = "job/"  # the part of an index that is of the config's folder; the rest is of the run directory
_ABOUT = "run.json"
_OBJECTS, _CHECKPOINTS, _INDEXES = "objects", "checkpoints", "indexes"
_DIGITS = 12  # of an index's name


@dataclass(frozen=True)
class CopyWriter:
    """The run directory that is copied.

    Attributes:
      host: the name of its machine.
      machine: a digest of the machine's id, since two machines may have one name.
      logdir: the run directory.
    """

    host: str
    machine: str
    logdir: str


@dataclass(frozen=True)
class AboutCopy:
    """The content of run.json.

    Attributes:
      format: the version of the layout.
      run_id: tells the run from every other one.
      name: what it is called, for a person.
      basename: the first part of each checkpoint's name.
      writer: who may write to the copy; None after `trainerd move`: whoever comes next.
      at: when it was written, in seconds since 1970 (UTC), by the writer's clock.
    """

    format: int
    run_id: str
    name: str
    basename: str
    writer: CopyWriter | None
    at: float

    def to_bytes(self) -> bytes:
        """Return the content of its file; see `CopyIndex.to_bytes`."""
        return with_checksum(asdict(self))


@dataclass(frozen=True)
class CopyIndex:
    """The files of a run beside its checkpoints.

    Attributes:
      format: the version of the layout.
      number: its place among the indexes. The newest has the highest.
      run_id, basename: as in run.json, which may get damaged.
      at: when it was written, in seconds since 1970 (UTC), by the writer's clock.
      order: the steps at which the run resumes, in the order in which they are tried. Others were left behind.
      files: the path of each file to its parts.
      logdir: the run directory, relative to the config's folder.
      went_back_at: when the run went back last, in seconds since 1970 (UTC); None if it never did.
    """

    format: int
    number: int
    run_id: str
    basename: str
    at: float
    order: list[int] = field(default_factory=list)
    files: dict[str, list[FileRecord]] = field(default_factory=dict)
    logdir: str = "run"
    went_back_at: float | None = None

    def to_bytes(self) -> bytes:
        """Return the content of its file: JSON, with its own checksum as the last field."""
        return with_checksum(asdict(self))

    @property
    def records(self) -> list[FileRecord]:
        """The objects that it names."""
        return [part for parts in self.files.values() for part in parts]


class RunCopy(CheckedStore):
    """The copy of one run at a destination; see the module."""

    # ---- the run

    def about(self) -> AboutCopy | None:
        """Return the run that the copy names; None if nothing is there.

        Raises:
          DataError: the copy is of a newer format, or is damaged.
          CopyError: it cannot be read.
        """
        try:
            found = self.sound(_ABOUT, lambda content: self.decoded(content, AboutCopy))
        except MissingError:
            return None
        return found if found is not None else self._rebuilt_about()

    def _rebuilt_about(self) -> AboutCopy | None:
        """Return what the newest index says of the run, for a damaged run.json; None if nothing was copied yet."""
        for number in self.index_numbers():
            if (index := self.index(number)) is not None:
                return AboutCopy(index.format, index.run_id, "", index.basename, None, index.at)
        if self._store.sizes(_CHECKPOINTS):
            raise DataError(f"{self.url}/{_ABOUT} is damaged: it names no run.")
        return None

    def write_about(self, about: AboutCopy) -> None:
        """Write the name of the run, and of who writes the copy.

        Raises:
          CopyError: it could not be written.
        """
        self.put_content(_ABOUT, about.to_bytes())

    # ---- objects

    def objects(self) -> dict[str, int]:
        """Return the size of each object that is listed."""
        return self._store.sizes(_OBJECTS)

    def put_object(self, record: FileRecord, source: int, moved: Callable[[int], None]) -> None:
        """Send an open file as an object, and verify it there.

        Raises:
          CopyError: it could not be written, or what is there is something else.
        """
        name = _name_of(record)
        if self._store.put(name, source, record.bytes, moved):
            return
        found = xxhash.xxh3_128()
        for part in self._store.read(name):
            found.update(part)
        if found.hexdigest() != record.xxh128:
            raise CopyError(f"{name} at {self.url} is not what was written: it was read back and compared.")

    def put_part(self, content: bytes) -> FileRecord:
        """Send a part of a file as an object; see `put_object`."""
        record = record_of(content)
        with in_memory(content) as source:
            self.put_object(record, source, lambda sent: None)
        return record

    def read_object(self, record: FileRecord) -> Iterator[bytes]:
        """Return an object in parts.

        Raises:
          DataError: at its end, if it is not what was written.
          CopyError: it cannot be read.
        """
        found, size = xxhash.xxh3_128(), 0
        for part in self._store.read(_name_of(record)):
            found.update(part)
            size += len(part)
            yield part
        if (size, found.hexdigest()) != (record.bytes, record.xxh128):
            raise DataError(f"{_name_of(record)} at {self.url} is not what was written (XXH3).")

    def delete_object(self, digest: str) -> None:
        """Remove an object."""
        self._store.delete(f"{_OBJECTS}/{digest}")

    # ---- checkpoints

    def manifests(self, rundir: RunDirectory, known: Collection[int] = ()) -> dict[int, Manifest]:
        """Return the manifests of the checkpoints that are there; those that are damaged are none.

        Args:
          rundir: gives the names of the manifests.
          known: steps that may be there although they are not listed: a listing may be late.

        Raises:
          DataError: one is of another version of trainerd.
          CopyError: one cannot be read.
        """
        names = [name.removesuffix(".json") for name in self._store.sizes(_CHECKPOINTS) if name.endswith(".json")]
        steps = {step for name in names if (step := rundir.step_of(name)) is not None} | set(known)
        read = {step: self._manifest(rundir.manifest(step)) for step in sorted(steps)}
        return {step: manifest for step, manifest in read.items() if manifest is not None}

    def _manifest(self, path: Path) -> Manifest | None:
        try:
            return manifests.parse(self.manifest_bytes(path), path)
        except (DamagedError, MissingError):  # it may have been deleted meanwhile
            return None

    def manifest_bytes(self, path: Path) -> bytes:
        """Return the content of a manifest's file, which is sound.

        Raises:
          DamagedError: it is not.
          CopyError: it cannot be read.
        """

        def parse(content: bytes) -> bytes | None:
            with contextlib.suppress(DamagedError):
                manifests.parse(content, path)
                return content
            return None

        content = self.sound(f"{_CHECKPOINTS}/{path.name}", parse)
        if content is None:
            raise DamagedError(f"{path.name} at {self.url}: not a manifest")
        return content

    def put_manifest(self, path: Path, content: bytes) -> None:
        """Write a manifest, after all that it names: from then on its checkpoint is copied.

        Raises:
          CopyError: it could not be written.
        """
        self.put_content(f"{_CHECKPOINTS}/{path.name}", content)

    def delete_manifest(self, path: Path) -> None:
        """Remove a manifest: its checkpoint is no longer copied."""
        self._store.delete(f"{_CHECKPOINTS}/{path.name}")

    # ---- indexes

    def index_numbers(self) -> list[int]:
        """Return the numbers of the indexes, the newest first."""
        names = [PurePosixPath(name).stem for name in self._store.sizes(_INDEXES)]
        return sorted((int(name) for name in names if name.isascii() and name.isdecimal()), reverse=True)

    def index(self, number: int) -> CopyIndex | None:
        """Return an index; None if it is damaged or gone.

        Raises:
          DataError: it is of a newer format.
          CopyError: it cannot be read.
        """
        try:
            return self.sound(_index_name(number), lambda content: self.decoded(content, CopyIndex))
        except MissingError:
            return None

    def put_index(self, index: CopyIndex) -> None:
        """Write an index.

        Raises:
          CopyError: it could not be written.
        """
        self.put_content(_index_name(index.number), index.to_bytes())

    def delete_index(self, number: int) -> None:
        """Remove an index."""
        self._store.delete(_index_name(number))


def record_of(content: bytes) -> FileRecord:
    """Return the record of a content."""
    return FileRecord(len(content), xxhash.xxh3_128_hexdigest(content))


def _name_of(record: FileRecord) -> str:
    return f"{_OBJECTS}/{record.xxh128}"


def _index_name(number: int) -> str:
    return f"{_INDEXES}/{number:0{_DIGITS}d}.json"
