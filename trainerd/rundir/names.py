"""Names of runs: short, and each of one run alone.

A run has the `name` of its config, or else that of its folder. If several runs have the same, `@` follows, and a word
that only one of them has: a folder above it, or its job. Without such a word, the whole path is the name. No other
name has a slash: commands take a value with a slash for a path.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainerd.errors import UsageError

LONGEST = 64  # characters
ALLOWED = f'1 to {LONGEST} printable characters, without a slash, and without "-", "." or a space in front'


@dataclass(frozen=True)
class RunIdentity:
    """The parts of a run that its name is made of.

    Attributes:
      path: its run directory.
      name: the `name` of its config; "" for none.
      job: its entry; "" if that is not known.
    """

    path: Path
    name: str = ""
    job: str = ""

    @property
    def own_name(self) -> str:
        """Its name before a word is appended that other runs of this name lack."""
        return self.name if is_name(self.name) else self.path.name

    def words(self) -> Iterator[str]:
        """Yield the words that other runs may lack: the folders above it, the nearest first, and its job."""
        yield from (part for part in reversed(self.path.parts[1:-1]))
        yield self.job.partition(":")[0].removesuffix(".py").rpartition(".")[2]


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a run, or a tag."""
    is_short = 0 < len(text) <= LONGEST and text == text.strip()
    return is_short and text.isprintable() and "/" not in text and text[0] not in "-."


def check_name(text: str) -> None:
    """Check the name of a run, or a tag.

    Raises:
      ValueError: it cannot be one.
    """
    if not is_name(text):
        raise ValueError(f"expected {ALLOWED}")


def names(runs: Collection[RunIdentity]) -> dict[Path, str]:
    """Return a name for each run, by its path."""
    groups: defaultdict[str, list[RunIdentity]] = defaultdict(list)
    for run in runs:
        groups[run.own_name].append(run)
    found = {run.path: _distinct(run, group) for group in groups.values() for run in group}
    count = Counter(found.values())
    return {path: name if name and count[name] == 1 else str(path) for path, name in found.items()}


def _distinct(run: RunIdentity, group: Collection[RunIdentity]) -> str:
    if len(group) == 1:
        return run.own_name
    others = {word for other in group if other is not run for word in other.words()}
    word = next((word for word in run.words() if is_name(word) and word not in others), "")
    return f"{run.own_name}@{word}" if word else ""


def find(name: str, runs: Collection[RunIdentity]) -> Path | None:
    """Return the run of this name: that of `names`, or else the run that has it in its config or at its path's end.

    Returns:
      Its path; None if no run has the name.

    Raises:
      UsageError: several runs have it.
    """
    all_names = names(runs)
    found = [path for path, own in all_names.items() if own == name] or [
        run.path for run in runs if is_called(run, name)
    ]
    if len(found) > 1:
        candidates = ", ".join(sorted(all_names[path] for path in found))
        raise UsageError(f"{name} is the name of {len(found)} runs. Say which: {candidates}.")
    return found[0] if found else None


def is_called(run: RunIdentity, name: str) -> bool:
    """Return whether this is a name of the run, alone or among others: its config has it, or its path ends with it."""
    parts = Path(name).parts
    return run.name == name != "" or (bool(parts) and run.path.parts[-len(parts) :] == parts)
