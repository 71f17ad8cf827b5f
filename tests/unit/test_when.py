"""`[when]`: which facts of the machine keep a run from training."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from trainerd.agent.when.conditions import Verdict, judge, judge_hours, moment, wanted
from trainerd.agent.when.facts import MachineFacts, Probe
from trainerd.config.schema import WhenConfig

BERLIN = ZoneInfo("Europe/Berlin")
FRIDAY = datetime(2026, 11, 27, 12, tzinfo=BERLIN)
Values = dict[str, Any]


def why(keys: Values, facts: Values, *, is_training: bool = False, gpus: list[int] | None = None) -> str:
    found = judge(WhenConfig(**keys), FRIDAY, MachineFacts(**facts), is_training=is_training, gpus=gpus)
    assert found.may_train == (found.why == "")
    return found.why


NIGHT = {"hours": "20:00-08:00"}
HOT = {"max_temp": 80.0}


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize(
    ("keys", "facts", "expected"),
    [
        ({}, {"on_battery": True, "idle_secs": 0.0, "others_load": 99.0, "temp": 120.0}, ""),
        (NIGHT, {}, "waits until 20:00"),
        ({"days": "mon"}, {}, "waits until Mon 30 Nov 00:00"),
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
        (NIGHT | {"on_battery": False}, {"on_battery": True}, "waits until 20:00"),
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


def test_the_verdict_says_when_the_hours_change() -> None:
    when = WhenConfig(hours="20:00-08:00", on_battery=False)
    evening, morning = datetime(2026, 11, 27, 20, tzinfo=BERLIN), datetime(2026, 11, 28, 8, tzinfo=BERLIN)
    assert judge_hours(when, FRIDAY) == Verdict(False, "waits until 20:00", evening)
    assert judge(when, evening, MachineFacts(), is_training=False) == Verdict(True, "", morning)
    assert judge(when, evening, MachineFacts(on_battery=True), is_training=True) == Verdict(False, "on battery")
    assert judge_hours(WhenConfig(), FRIDAY) == Verdict(True)


def test_only_what_a_run_needs_is_read() -> None:
    assert wanted(WhenConfig(hours="20:00-08:00")) == frozenset()
    assert wanted(WhenConfig(on_battery=False, idle_mins=1)) == {Probe.BATTERY, Probe.IDLE}
    assert wanted(WhenConfig(max_load=1, free_gpu=True, max_temp=80)) == {Probe.LOAD, Probe.GPUS, Probe.TEMP}


def test_a_moment_has_its_day_if_that_is_not_today() -> None:
    assert moment(datetime(2026, 11, 27, 20, 5), FRIDAY.replace(tzinfo=None)) == "20:05"
    assert moment(datetime(2026, 11, 28, 8, 0), FRIDAY.replace(tzinfo=None)) == "Sat 28 Nov 08:00"
