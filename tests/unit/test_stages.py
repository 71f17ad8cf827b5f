"""Stages and the table of their changes."""

from __future__ import annotations

import enum

import pytest

from trainerd.system.stages import Stages


class Light(enum.Enum):
    RED = "red"
    GREEN = "green"
    AMBER = "amber"


TABLE = {Light.RED: {Light.GREEN}, Light.GREEN: {Light.AMBER}, Light.AMBER: {Light.RED}}


@pytest.mark.parametrize("first", Light)
@pytest.mark.parametrize("then", Light)
def test_a_stage_changes_as_the_table_says_and_in_no_other_way(first: Light, then: Light) -> None:
    stages = Stages(first, TABLE)
    if then is first or then in TABLE[first]:
        stages.enter(then)
        assert stages.now is then
    else:
        with pytest.raises(RuntimeError, match=f"{then} cannot follow {first}"):
            stages.enter(then)
        assert stages.now is first
