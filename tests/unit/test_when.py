"""`[when]`: which facts of the machine keep a run from training."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.unit.conftest import FakeTime
from trainerd.agent.when.conditions import WhenVerdict, judge_hours, judge_machine, moment, wanted
from trainerd.agent.when.facts import MachineFacts, Probe
from trainerd.agent.when.judge import WhenJudge
from trainerd.agent.when.machine import MachineProbes
from trainerd.agent.when.reading import Reading
from trainerd.config.schema import WhenConfig

BERLIN = ZoneInfo("Europe/Berlin")
FRIDAY = datetime(2026, 11, 27, 12, tzinfo=BERLIN)
Values = dict[str, Any]


def why(keys: Values, facts: Values, *, is_training: bool = False, gpus: list[int] | None = None) -> str:
    found = judge_machine(WhenConfig(**keys), MachineFacts(**facts), is_training=is_training, gpus=gpus)
    assert found.may_train == (found.why == "")
    return found.why


HOT = {"max_temp": 80.0}


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize(
    ("keys", "facts", "expected"),
    [
        ({}, {"on_battery": True, "idle_secs": 0.0, "others_load": 99.0, "temp": 120.0}, ""),
        ({"on_battery": False}, {"on_battery": True}, "on battery"),
        ({"on_battery": False}, {"on_battery": False}, ""),
        ({"on_battery": False}, {"on_battery": None}, ""),
        (
            {"idle_mins": 10},
            {"idle_secs": 120},
            "somebody used the machine 2 min ago; it trains after 10 min without use",
        ),
        ({"idle_mins": 10}, {"idle_secs": 0.2}, "somebody uses the machine; it trains after 10 min without use"),
        ({"idle_mins": 10}, {"idle_secs": 600}, ""),
        ({"idle_mins": 10}, {"idle_secs": None}, ""),
        ({"max_load": 4}, {"others_load": 7.21}, "other programs keep 7.2 cores busy, which is above 4"),
        ({"max_load": 4}, {"others_load": 3.2}, ""),
        ({"max_load": 4}, {"others_load": None}, ""),
        ({"free_gpu": True}, {"others_on_gpus": {0: (), 1: (99, 12)}}, "another process (pid 12) uses GPU 1"),
        ({"free_gpu": True}, {"others_on_gpus": {0: (), 1: ()}}, ""),
        ({"free_gpu": True}, {"others_on_gpus": None}, ""),
        (HOT, {"temp": 83.4}, "83 °C is above 80 °C"),
        (HOT, {"temp": 70.0}, ""),
        (HOT, {"temp": None}, ""),
    ],
)
def test_each_condition(keys: Values, facts: Values, expected: str, is_training: bool) -> None:
    assert why(keys, facts, is_training=is_training) == expected


@pytest.mark.parametrize(
    ("keys", "facts", "expected"),
    [
        (HOT, {"temp": 75.0}, "75 °C is above 70 °C, at which it resumes"),
        (HOT | {"resume_temp": 60.0}, {"temp": 65.0}, "65 °C is above 60 °C, at which it resumes"),
        ({"max_load": 4}, {"others_load": 3.6}, "other programs keep 3.6 cores busy; it starts at 3.2"),
    ],
)
def test_what_trains_has_wider_limits_than_what_waits(keys: Values, facts: Values, expected: str) -> None:
    assert why(keys, facts, is_training=True) == ""
    assert why(keys, facts) == expected


def test_only_the_gpus_of_the_run_matter() -> None:
    others = {"others_on_gpus": {0: (7,), 1: ()}}
    assert why({"free_gpu": True}, others, gpus=[1]) == ""
    assert "GPU 0" in why({"free_gpu": True}, others, gpus=[0, 1])


def test_a_run_that_waits_for_gpus_may_have_those_that_are_free() -> None:
    facts = MachineFacts(others_on_gpus={0: (9, 7), 1: ()})
    found = judge_machine(WhenConfig(free_gpu=True), facts, is_training=False, gpus=())
    assert found.may_train and found.busy_gpus == {0: 7}
    assert judge_machine(WhenConfig(), facts, is_training=False, gpus=()) == WhenVerdict(True)


def test_the_verdict_of_the_hours_says_when_they_change() -> None:
    when = WhenConfig(hours="20:00-08:00")
    evening, morning = datetime(2026, 11, 27, 20, tzinfo=BERLIN), datetime(2026, 11, 28, 8, tzinfo=BERLIN)
    assert judge_hours(when, FRIDAY) == WhenVerdict(False, "waits until 20:00", evening)
    assert judge_hours(when, evening) == WhenVerdict(True, "", morning)
    assert judge_hours(WhenConfig(days="mon"), FRIDAY).why == "waits until Mon 30 Nov 00:00"
    assert (
        judge_hours(WhenConfig(), FRIDAY) == judge_hours(WhenConfig(hours="00:00-24:00"), FRIDAY) == WhenVerdict(True)
    )


def test_the_machine_is_read_within_the_hours_alone(clock: FakeTime, in_berlin: None) -> None:
    owners = list[list[int]]()

    def battery(own: Collection[int]) -> Reading[bool]:
        owners.append(list(own))
        return Reading(True)

    judge = WhenJudge(MachineProbes({Probe.BATTERY: battery}, clock), clock)
    when = WhenConfig(hours="20:00-08:00", on_battery=False)
    clock.now = FRIDAY.timestamp()
    assert judge.judge(when, [7], is_training=True).why == "waits until 20:00" and owners == []
    clock.sleep(9 * 3600)
    assert judge.judge(when, [7], is_training=True) == WhenVerdict(False, "on battery") and owners == [[7]]
    found = judge.judge(WhenConfig(hours="20:00-08:00"), [7], is_training=False)
    assert found.may_train and found.until is not None and f"{found.until:%H:%M}" == "08:00"


def test_only_what_a_run_needs_is_read() -> None:
    assert wanted(WhenConfig(hours="20:00-08:00")) == frozenset()
    assert wanted(WhenConfig(on_battery=False, idle_mins=1)) == {Probe.BATTERY, Probe.IDLE}
    assert wanted(WhenConfig(max_load=1, free_gpu=True, max_temp=80)) == {Probe.LOAD, Probe.GPUS, Probe.TEMP}


def test_a_moment_has_its_day_if_that_is_not_today() -> None:
    assert moment(datetime(2026, 11, 27, 20, 5), FRIDAY.replace(tzinfo=None)) == "20:05"
    assert moment(datetime(2026, 11, 28, 8, 0), FRIDAY.replace(tzinfo=None)) == "Sat 28 Nov 08:00"
