"""Decides whether `[when]` lets a run train: by its hours, and by the state of the machine. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from trainerd.agent.when.facts import MachineFacts, Probe
from trainerd.config.schema import WhenConfig
from trainerd.text import seconds

_RESUME_DEGREES = 10.0  # below `max_temp`, without a `resume_temp`
_RESUME_LOAD = 0.8  # of `max_load`


@dataclass(frozen=True)
class WhenVerdict:
    """The answer to whether `[when]` lets a run train.

    Attributes:
      may_train: whether it may.
      why: why it may not, for a person; empty if it may.
      until: when the hours change that, with a time zone; None if another condition decides, or if they never do.
      busy_gpus: the GPUs that it must not get, each with a process of others that uses it.
    """

    may_train: bool
    why: str = ""
    until: datetime | None = None
    busy_gpus: Mapping[int, int] = field(default_factory=dict)


def wanted(when: WhenConfig) -> frozenset[Probe]:
    """Return what must be read of the machine to judge a run."""
    needs = {
        Probe.BATTERY: not when.on_battery,
        Probe.IDLE: when.idle_mins > 0,
        Probe.LOAD: when.max_load is not None,
        Probe.GPUS: when.free_gpu,
        Probe.TEMP: when.max_temp is not None,
    }
    return frozenset(probe for probe, is_needed in needs.items() if is_needed)


def judge_hours(when: WhenConfig, now: datetime) -> WhenVerdict:
    """Return whether the hours let a run train.

    Args:
      when: its `[when]`.
      now: the moment, with a time zone that knows the changes of its clocks.
    """
    hours = when.parsed_hours()
    if hours is None:
        return WhenVerdict(True)
    state = hours.state(now)
    why = f"waits until {moment(state.until, now)}" if not state.is_open and state.until is not None else ""
    return WhenVerdict(state.is_open, why, state.until)


def judge_machine(
    when: WhenConfig, facts: MachineFacts, *, is_training: bool, gpus: Collection[int] | None = None
) -> WhenVerdict:
    """Return whether the state of the machine lets a run train.

    A run that trains has wider limits than one that waits, so that it does not start and pause again and again: it
    pauses above `max_temp` and `max_load`, and resumes at `resume_temp` and four fifths of `max_load`.

    Args:
      when: its `[when]`.
      facts: the state of the machine; what `wanted` names is enough.
      is_training: whether it trains now.
      gpus: the GPUs that it has, none if it waits for some; None if it has all.
    """
    others = (facts.others_on_gpus or {}) if when.free_gpu else {}
    busy = {gpu: min(pids) for gpu, pids in sorted(others.items()) if pids}
    own = {gpu: pid for gpu, pid in busy.items() if gpus is None or gpu in gpus}
    why = next(_obstacles(when, facts, own, is_training=is_training), "")
    return WhenVerdict(not why, why, busy_gpus=busy)


def use_of(gpu: int, pid: int) -> str:
    """Return why a GPU is not free, for a person."""
    return f"another process (pid {pid}) uses GPU {gpu}"


def moment(at: datetime, now: datetime) -> str:
    """Return a moment for a person: with its day if that is not today."""
    return f"{at:%H:%M}" if at.date() == now.date() else f"{at:%a %d %b %H:%M}"


def _obstacles(
    when: WhenConfig, facts: MachineFacts, busy_gpus: Mapping[int, int], *, is_training: bool
) -> Iterator[str]:
    """Yield each reason of the machine for which a run may not train."""
    if not when.on_battery and facts.on_battery:
        yield "on battery"
    if facts.idle_secs is not None and facts.idle_secs < 60 * when.idle_mins:
        ago = "uses the machine" if facts.idle_secs < 1 else f"used the machine {seconds(facts.idle_secs)} ago"
        yield f"somebody {ago}; it trains after {when.idle_mins:g} min without use"
    for gpu, pid in busy_gpus.items():
        yield use_of(gpu, pid)
    if when.max_load is not None and facts.others_load is not None:
        yield from _too_much_load(when.max_load, facts.others_load, is_training=is_training)
    if when.max_temp is not None and facts.temp is not None:
        yield from _too_hot(when.max_temp, when.resume_temp, facts.temp, is_training=is_training)


def _too_much_load(most: float, load: float, *, is_training: bool) -> Iterator[str]:
    if load > most:
        yield f"other programs keep {load:.1f} cores busy, which is above {most:g}"
    elif not is_training and load > _RESUME_LOAD * most:
        yield f"other programs keep {load:.1f} cores busy; it starts at {_RESUME_LOAD * most:.2g}"


def _too_hot(most: float, resume: float | None, temp: float, *, is_training: bool) -> Iterator[str]:
    resume = most - _RESUME_DEGREES if resume is None else resume
    if temp > most:
        yield f"{temp:.0f} °C is above {most:g} °C"
    elif not is_training and temp > resume:
        yield f"{temp:.0f} °C is above {resume:g} °C, at which it resumes"
