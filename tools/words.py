"""The words that the texts avoid, each with a better one: `python -m tools.words` lists where they stand.

It reads the pages, the newest section of the changelog, and the docstrings, comments and messages of trainerd/.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Since Python 3.12 an f-string is several tokens.
_SAID = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_BE = r"\b(?:is|are|was|were|be|been|being)"


@dataclass(frozen=True)
class Rule:
    """Words to avoid.

    Attributes:
      words: a regular expression; a space in it is any white space, also a line's end in a comment.
      better: what to write.
      fine: what is around the words where they are right.
    """

    words: str
    better: str
    fine: str = r"(?!)"

    def findings(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the offset and the words of each finding."""
        for match in re.finditer(self.words.replace(" ", r"[\s#>]+"), text, re.IGNORECASE):
            around = " ".join(text[max(0, match.start() - 40) : match.end() + 40].split())
            if not re.search(self.fine, around, re.IGNORECASE):
                yield match.start(), " ".join(re.split(r"[\s#>]+", match[0].strip()))


RULES = (
    Rule(r"\b(?:goes|go|going|went|gone) on\b", "continue, resume", r"what (?:is )?go(?:es|ing) on"),
    Rule(r"\banew\b", "again, restart"),
    Rule(rf"{_BE} told\b", "is reported, is notified"),
    Rule(r"\bfor good\b", "permanently"),
    Rule(r"\bfigures\b", "metrics, numbers", r"\bfigures(?::|\(|\")|figures, config"),  # a key of release.json
    Rule(r"\bremarks?\b", "comments"),
    Rule(r"\bparted\b", "split"),
    Rule(
        r"\b(?:is|are|was|were) another\b",
        "has changed, differs",
        r"there (?:is|are|was|were) another|another(?: \w+)?'s",
    ),
    Rule(
        r"\b(?:is|are|was|were) no (?!longer\b|more\b|later\b|\w+er than\b)",
        "is not a",
        r"\bthere (?:is|are|was|were) no",
    ),
    Rule(r"\bof which\b", "two sentences, or if", r"(?:all|both|each|last|most|none|ten|some) of which|ten of which"),
    Rule(r"\b(?:looks?|looked|looking) at\b", "check, read, compare"),
    Rule(r"\bmend(?:s|ed|ing)?\b", "fix"),
)


def texts() -> Iterator[tuple[Path, str]]:
    """Yield each file that is read, with its text."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]
    for path in sorted([*pages, *(ROOT / "trainerd").rglob("*.py"), *(ROOT / "trainerd").rglob("*.toml")]):
        text = path.read_text(encoding="utf-8")
        yield path, (without_code(text) if path.suffix == ".py" else text)
    changelog = ROOT / "CHANGELOG.md"
    yield changelog, newest_section(changelog.read_text(encoding="utf-8"))


def without_code(source: str) -> str:
    """Return the comments and strings of a module, each at its place."""
    lines = source.splitlines(keepends=True)
    kept = [list(re.sub(r"[^\n]", " ", line)) for line in lines]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _SAID:
            (first, begin), (last, end) = token.start, token.end
            for number in range(first, last + 1):
                line = lines[number - 1]
                span = slice(begin if number == first else 0, end if number == last else len(line))
                kept[number - 1][span] = line[span]
    return "".join("".join(line) for line in kept)


def newest_section(changelog: str) -> str:
    """Return a changelog up to its second section."""
    starts = [match.start() for match in re.finditer(r"^## ", changelog, re.MULTILINE)]
    return changelog[: starts[1]] if len(starts) > 1 else changelog


def findings() -> Iterator[str]:
    """Yield where each of the words stands, and what is better."""
    for path, text in texts():
        found = sorted((*each, rule.better) for rule in RULES for each in rule.findings(text))
        for offset, words, better in found:
            line = text.count("\n", 0, offset) + 1
            yield f"{path.relative_to(ROOT)}:{line}: {words!r}: write {better}"


def main() -> int:
    """Print the findings. Return 1 if there are any."""
    found = list(findings())
    print("\n".join(found) or "No words to avoid.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
