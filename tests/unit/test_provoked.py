"""The tests name words of each message of the reference, so a change of a message is seen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.site.messages import all_messages
from tools.site.source_texts import VARIES

RUN = 3  # words in a row that a test names
UNPROVOKED = [
    # A daemon would have to die before it reports its error.
    "detach.py: the daemon ended before training started. Its log says why: ….",
    # A watcher would have to run for it alone: a second of the tests' time.
    "watch.py: watch.runs: no run is called … yet; `trainerd list` shows all",
]


def runs(text: str) -> Iterator[tuple[str, ...]]:
    """The runs of words in a text. Those of a literal that continues in the next line are together."""
    joined = re.sub(r'"\s*\n\s*[rf]*"', "", text).replace("\\n", " ").replace("\\", "")
    for part in joined.split(VARIES):
        words = re.findall(r"[\w']+", part)
        yield from zip(*(words[first:] for first in range(RUN)), strict=False)


def test_each_message_is_provoked() -> None:
    """A test has a run of its words that no other file's messages have."""
    messages = [(path, text) for _, path, text in all_messages()]
    files = {(path, run) for path, text in messages for run in runs(text)}
    owners = Counter(run for _, run in files)
    sources = set(Path(__file__).parents[1].rglob("*.py")) - {Path(__file__)}
    tests = {run for path in sources for run in runs(path.read_text("utf-8"))}
    found = []
    for path, text in messages:
        own = [run for run in runs(text) if owners[run] == 1]
        if own and tests.isdisjoint(own):
            found.append(f"{path.name}: {' '.join(text.split())}")
    assert sorted(set(found)) == sorted(UNPROVOKED)
