"""What a job can reach from within its service."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.systemd.conftest import NewService
from tests.systemd.machine import TRAINERD, wait_for
from tests.systemd.service import Service


def found(one: Service) -> dict[str, Any]:
    """What the job `probing` has written down."""
    content: dict[str, Any] = json.loads((one.rundir.path / "found.json").read_text())
    return content


def test_a_job_reaches_no_other_run_and_nothing_of_the_machine(service: NewService) -> None:
    """The page lists where it may write; this is the list."""
    victim, prober = service(name="victim"), service("jobs:probing", name="prober")
    victim.systemctl("start")
    one, another = (each.show("User") for each in (victim, prober))
    assert (one, another) == ("trainerd-victim", "trainerd-prober")
    prober.systemctl("start", check=False)  # makes its folder, and fails: there is no file `victim`
    prober.systemctl("stop")
    prober.rundir.path.joinpath("victim").write_text(str(victim.pid))
    prober.rundir.path.joinpath("victim").chmod(0o644)
    prober.systemctl("reset-failed", check=False)
    prober.systemctl("start")
    seen = found(prober)
    folders = [f"/{kind}/private/trainerd-prober" for kind in ("var/lib", "var/cache", "run")]
    assert sorted(seen["writable"]) == sorted(["/dev/shm", "/tmp", "/var/tmp", *folders])
    assert seen["signal"] == "PermissionError" and seen["seen"] == []
    memory = int(prober.machine.output("sed", "-n", r"s/MemTotal: *\([0-9]*\) kB/\1/p", "/proc/meminfo")) * 1024
    assert seen["shm"] <= memory // 4 + 4096
    assert prober.machine.output("ls", "/dev/shm") == ""
    prober.systemctl("restart")
    assert found(prober)["seen"] == [], "it is emptied at each stop"


def test_what_was_made_by_another_user_is_the_new_ones(service: NewService) -> None:
    """A run that an earlier unit has trained, whose runs had one user for all."""
    one = service(User="trainerd", name="older")
    one.systemctl("start")
    one.systemctl("stop")
    [saved] = one.saved_steps
    one.adjust(User="trainerd-older")
    one.systemctl("start")
    assert one.first_steps() == [1, saved + 1]
    wait_for("progress", lambda: one.state.step > saved)


def test_root_runs_the_code_of_a_job_as_the_user_of_its_service(service: NewService) -> None:
    one = service("jobs:evaluated")
    one.systemctl("start")
    one.systemctl("stop")
    refused = one.machine.run(TRAINERD, "evaluate", "--config", one.config, check=False)
    assert refused.returncode == 64 and "which root does not do" in refused.stderr, refused.stderr
    [advice] = [line.strip() for line in refused.stderr.splitlines() if "systemd-run" in line]
    done = one.machine.run("bash", "-c", advice.removeprefix("sudo "))
    assert re.search(r"step \d+: .*p \d", done.stdout), done.stdout
    owner = one.rundir.path.stat().st_uid
    [results] = one.rundir.path.glob("*.evaluations.json")
    assert owner != 0 and results.stat().st_uid == owner
