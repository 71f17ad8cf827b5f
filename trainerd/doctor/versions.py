"""The versions of what the newest checkpoint was saved with, beside those that are installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainerd.config.fingerprint import SOFTWARE
from trainerd.config.software import NAMES, installed
from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, problem, warning, well


def check(facts: Facts) -> Iterator[Finding]:
    """Check what is installed here; nothing of it is imported."""
    yield from judge(facts.newest.fingerprint if facts.newest is not None else {}, installed())


def judge(fingerprint: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Finding]:
    """Compare them.

    Args:
      fingerprint: that of the newest checkpoint; empty if there is none.
      now: what is installed, by name.
    """
    if "tensorflow" not in now:
        yield problem("TensorFlow is not installed here", "`pip install` trainerd again, with what it needs.")
        return
    saved = {name: str(fingerprint[SOFTWARE + name]) for name in NAMES if SOFTWARE + name in fingerprint}
    changed = [name for name in saved if saved[name] != now.get(name)]
    if changed:
        others = ", ".join(f"{name} {saved[name]}, and {now.get(name, 'none')} here" for name in changed)
        cure = _pinned({name: saved[name] for name in changed})
        yield warning(f"the newest checkpoint was saved by {others}: the next steps may round differently", cure)
    else:
        same = ", the same as those of the newest checkpoint" if saved else ""
        yield well(", ".join(f"{name} {now[name]}" for name in NAMES if name in now) + same)


def _pinned(versions: Mapping[str, str]) -> str:
    pins = " ".join(f"{name}=={version}" for name, version in versions.items() if name not in ("python", "trainerd"))
    back = f", or go back: `pip install {pins}`" if pins else ""
    return f"rehearse it: `trainerd doctor --python PYTHON`{back}."
