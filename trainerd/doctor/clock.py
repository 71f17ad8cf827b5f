"""The clock of the machine, beside the times that the run has noted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from trainerd import text
from trainerd.doctor.facts import Facts
from trainerd.doctor.finding import Finding, problem, warning, well
from trainerd.doctor.systemd import ask
from trainerd.rundir import run_events

_SINCE = 1704067200.0  # 2024-01-01, in seconds since 1970 (UTC)
_AHEAD_SECS = 60.0
_SET = "`timedatectl set-ntp true`, or set it by hand"


def check(facts: Facts) -> Iterator[Finding]:
    """Check the newest times of the run."""
    noted = {}
    if facts.state is not None:
        noted["state.json"] = facts.state.at
    if facts.newest is not None:
        noted[f"the checkpoint of step {facts.newest.step}"] = facts.newest.at
    if events := run_events.read(facts.rundir):
        noted[facts.rundir.events.name] = max(event.at for event in events)
    said = ask(["timedatectl", "show", "--property=NTPSynchronized"]).get("NTPSynchronized")
    yield from judge(time.time(), noted, None if said is None else said == "yes")


def judge(now: float, noted: Mapping[str, float], is_synchronized: bool | None) -> Iterator[Finding]:
    """Yield a finding on whether the clock is right, as far as that can be seen.

    Args:
      now: seconds since 1970 (UTC).
      noted: what has noted a time, to that time.
      is_synchronized: what systemd says; None if it cannot be asked.
    """
    ahead = {name: at - now for name, at in noted.items() if at - now > _AHEAD_SECS}
    if now < _SINCE:
        year = time.gmtime(now).tm_year
        yield problem(f"it says {year}: logs, curves and certificates go wrong", f"{_SET}.")
    elif ahead:
        name = max(ahead, key=lambda each: ahead[each])
        yield warning(
            f"{name} was written {text.seconds(ahead[name])} in the future: the clock was set back, or another "
            "machine's is ahead; curves and `trainerd status` show wrong times",
            f"{_SET}.",
        )
    elif is_synchronized is False:
        yield warning("it is not synchronized", f"{_SET}.")
    else:
        unknown = "; whether it is synchronized cannot be seen" if is_synchronized is None else ", synchronized"
        yield well(f"no time in the run is in the future{unknown}")
