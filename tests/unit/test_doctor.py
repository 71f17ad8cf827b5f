"""`trainerd doctor`: each fault that is planted is named, with its cure."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.fake import FakeSnapshot
from tests.unit.conftest import Cli
from tests.unit.test_planted import HOSTILE
from trainerd.checkpoints.manifest import About
from trainerd.checkpoints.store import CheckpointStore
from trainerd.cli.install import plan as install_plan
from trainerd.cli.install.installed import service_of
from trainerd.config.schema import CheckpointConfig, Config
from trainerd.config.software import installed
from trainerd.daemon.systemd import units as unit_files
from trainerd.doctor import (
    checkpoints,
    clock,
    disk,
    facts,
    filesystem,
    fsync,
    gpu,
    memory,
    permissions,
    systemd,
    units,
    versions,
)
from trainerd.doctor.facts import Facts, SystemdService
from trainerd.doctor.finding import Finding, FindingKind, in_order, problem, warning, well
from trainerd.doctor.fsync import Device
from trainerd.doctor.memory import Limit
from trainerd.doctor.permissions import User
from trainerd.rundir import lock, run_events
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.run_events import EventKind
from trainerd.rundir.state import LastCheckpoint, Phase, State
from trainerd.system import machine as machines
from trainerd.system.machine import Machine
from trainerd.system.resources import control_groups
from trainerd.system.resources.mounts import Mount, holding
from trainerd.text import printable

GIB = 1 << 30
KEPT = CheckpointConfig(keep_last=5, minima=False)
OURS, MINE = SystemdService("trainerd", user=False), SystemdService("trainerd", user=True)


def only(findings: Iterable[Finding], kind: FindingKind) -> Finding:
    """The one finding there is. A fault has a cure, and a fault alone."""
    [found] = findings
    assert found.kind is kind, found
    assert bool(found.cure) == (kind is not FindingKind.OK), found
    return found


# ---------------------------------------------------------------------- disk


@pytest.mark.parametrize(
    ("free", "to_come", "kind", "said"),
    [
        (GIB - 1, 4, FindingKind.PROBLEM, "not even the next checkpoint fits"),
        (3 * GIB, 4, FindingKind.PROBLEM, "the disk is full after 3 more: 4 checkpoints of 1.0 GiB are to come"),
        (4 * GIB, 4, FindingKind.OK, "4 checkpoints of 1.0 GiB are to come, and 4.0 GiB are free"),
        (GIB, 1, FindingKind.OK, "1 checkpoint of 1.0 GiB is to come"),
    ],
)
def test_disk_space(free: int, to_come: int, kind: FindingKind, said: str) -> None:
    found = only([disk.space(free, GIB, to_come)], kind)
    assert said in found.said and ("keep_last" in found.cure) == (kind is FindingKind.PROBLEM)


@pytest.mark.parametrize(
    ("config", "there", "pinned", "fit", "to_come"),
    [
        (KEPT, 0, 0, 100, 6),  # and the one that is written before an old one goes
        (KEPT, 5, 0, 100, 1),
        (KEPT, 9, 0, 100, 1),  # retention was tightened: the others go
        (KEPT, 6, 3, 100, 3),
        (replace(KEPT, best="min loss", keep_best=2, minima=True, keep_minima=3), 5, 0, 100, 6),
        (replace(KEPT, keep_hourly=24, keep_daily=30), 5, 0, 100, 55),
        (replace(KEPT, keep_hourly=24, keep_daily=30), 5, 0, 20, 16),  # `max_disk_share` is 20 of them
        (replace(KEPT, keep_hourly=24, keep_daily=30), 0, 0, 2, 6),  # which counts for these two rules alone
    ],
)
def test_how_many_checkpoints_are_to_come(
    config: CheckpointConfig, there: int, pinned: int, fit: int, to_come: int
) -> None:
    assert disk.checkpoints_to_come(config, there, pinned, fit) == to_come


def test_checkpoints_that_are_kept_permanently_fill_a_disk() -> None:
    hourly = replace(KEPT, keep_every_hours=12.0)
    found = only(disk.filling(hourly, 4 * GIB, GIB), FindingKind.WARNING)
    assert "full after 2 d 0 h of training" in found.said
    assert not list(disk.filling(hourly, 400 * GIB, GIB)) and not list(disk.filling(KEPT, 0, GIB))


def test_inodes() -> None:
    found = only([disk.inodes(29, 3, 5)], FindingKind.PROBLEM)
    assert "29 are free, and 5 checkpoints with 30 files are to come" in found.said and "df -i" in found.cure
    only([disk.inodes(30, 3, 5)], FindingKind.OK)
    assert "does not count" in only([disk.inodes(None, 3, 5)], FindingKind.OK).said


# ---------------------------------------------------------------------- file system

MOUNTS = [("/proc", "proc"), ("/", "ext4"), ("/mnt/with space", "tmpfs"), ("/data", "ext4"), ("/data", "xfs")]
MOUNTS += [("/database", "nfs4")]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/run", "ext4"),
        ("/mnt/with space/run", "tmpfs"),
        ("/data/run", "xfs"),  # mounted over the other
        ("/data", "xfs"),
        ("/database/run", "nfs4"),
        ("/dat/run", "ext4"),
    ],
)
def test_the_file_system_is_that_of_the_longest_mount_point(
    path: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [SimpleNamespace(mountpoint=at, fstype=of, device="/dev/sda1", opts="rw,nobarrier") for at, of in MOUNTS]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: found)
    mount = holding(Path(path))
    assert mount is not None and mount.kind == kind and mount.options == {"rw", "nobarrier"}
    found.clear()
    assert holding(Path(path)) is None


def mounted(kind: str, *options: str) -> Mount:
    return Mount(Path("/data"), kind, "/dev/sda1", frozenset(["rw", *options]))


@pytest.mark.parametrize(
    ("kind", "finding", "said", "cure"),
    [
        ("ext4", FindingKind.OK, "ext4 at /data", ""),
        ("btrfs", FindingKind.OK, "btrfs at /data", ""),
        ("tmpfs", FindingKind.PROBLEM, "gone at the next reboot", "`logdir`"),
        ("vfat", FindingKind.WARNING, "longer than 4.0 GiB; the largest of the newest checkpoint has 2.0 GiB", "ext4"),
        ("exfat", FindingKind.WARNING, "no journal, no permissions and no links", "ext4"),
        ("nfs4", FindingKind.WARNING, "that server's matter", "`sync` and not `async`"),
        ("cifs", FindingKind.WARNING, "another machine's share", "NFS"),
        ("fuse.sshfs", FindingKind.WARNING, "a program's", "local disk"),
        ("overlay", FindingKind.WARNING, "goes with the container", "volume"),
        ("9p", FindingKind.WARNING, "virtual machine's host", "local disk"),
        ("virtiofs", FindingKind.WARNING, "virtual machine's host", "local disk"),
    ],
)
def test_kinds_of_file_systems(kind: str, finding: FindingKind, said: str, cure: str) -> None:
    found = only(filesystem.judge(mounted(kind), 2 * GIB), finding)
    assert said in found.said and cure in found.cure


def test_a_file_system_that_is_read_only_is_a_problem() -> None:
    found = next(filesystem.judge(Mount(Path("/data"), "ext4", "/dev/sda1", frozenset(["ro"])), None))
    assert found.kind is FindingKind.PROBLEM and "remount,rw /data" in found.cure


# ---------------------------------------------------------------------- fsync


@pytest.mark.parametrize(
    ("options", "device", "seconds", "kind", "said"),
    [
        (["nobarrier"], Device(), 0.01, FindingKind.PROBLEM, "mounted with nobarrier"),
        (["barrier=0"], Device(), None, FindingKind.PROBLEM, "mounted with barrier=0"),
        (["data=writeback"], Device(), 0.01, FindingKind.WARNING, "data=writeback"),
        (
            [],
            Device("write back", is_spinning=True),
            0.00002,
            FindingKind.WARNING,
            "faster than a spinning disk can be",
        ),
        (
            [],
            Device("write back", is_spinning=True),
            0.008,
            FindingKind.OK,
            "8 ms for a block. The disk's cache is write",
        ),
        ([], Device("write through"), 0.00002, FindingKind.OK, "cannot see whether the disk keeps"),
        ([], Device(), None, FindingKind.OK, "not timed"),
    ],
)
def test_fsync(options: list[str], device: Device, seconds: float | None, kind: FindingKind, said: str) -> None:
    assert said in only(fsync.judge(mounted("ext4", *options), device, seconds), kind).said


@pytest.mark.parametrize(("place", "is_spinning"), [("pci0/ata1/block/sda", True), ("pci0/virtio0/block/vda", False)])
def test_the_disk_of_a_partition_is_found(tmp_path: Path, place: str, is_spinning: bool) -> None:
    queue = tmp_path / "devices" / place / "queue"
    queue.mkdir(parents=True)
    (queue / "write_cache").write_text("write back\n")
    (queue / "rotational").write_text("1\n")
    (queue.parent / "part1").mkdir()
    (tmp_path / "8:1").symlink_to(queue.parent / "part1")
    assert fsync.read_device("8:1", tmp_path) == Device("write back", is_spinning)
    assert fsync.read_device("0:27", tmp_path) == Device()


def test_an_fsync_is_timed_with_a_file_that_has_no_name(rundir: RunDirectory) -> None:
    before = rundir.path.stat()
    ticks = iter([0, 1, 1, 3, 3, 6, 6, 16, 16, 20])
    assert fsync.time_fsync(rundir.path, lambda: next(ticks)) == 3
    after = rundir.path.stat()
    assert not list(rundir.path.iterdir()) and before.st_mtime_ns == after.st_mtime_ns
    assert fsync.time_fsync(rundir.path / "missing") is None


# ---------------------------------------------------------------------- permissions

OTHER = User(12345, frozenset([12345]))


@pytest.fixture
def open_rundir() -> Iterator[RunDirectory]:
    """A run directory that others can reach: those of pytest are closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        rundir = RunDirectory(Path(folder, "run"))
        rundir.create()
        rundir.path.chmod(0o755)
        yield rundir


def test_permissions_of_config_and_folder(open_rundir: RunDirectory) -> None:
    rundir, config = open_rundir, open_rundir.path.parent / "trainerd.toml"
    config.touch()
    config.chmod(0o600)
    found = only(permissions.of_config(config, OTHER), FindingKind.PROBLEM)
    assert f"uid 12345 cannot read {config}" in found.said and "chmod a+r" in found.cure
    found = only(permissions.of_folder(rundir.path, OTHER), FindingKind.PROBLEM)
    assert f"cannot write {rundir.path}" in found.said and "chown -R 12345" in found.cure
    found = only(permissions.of_folder(rundir.path / "new" / "run", OTHER), FindingKind.PROBLEM)
    assert "cannot make" in found.said and f"{rundir.path} is closed" in found.said
    config.chmod(0o644)
    rundir.path.chmod(0o777)
    assert not [*permissions.of_config(config, OTHER), *permissions.of_folder(rundir.path, OTHER)]


def test_files_that_a_run_replaces_meanwhile_are_no_finding(rundir: RunDirectory) -> None:
    class Looks(User):
        def can(self, path: Path, wanted: int) -> bool:
            for each in rundir.path.iterdir():
                each.unlink()
            return False

    for name in ("a", "b"):
        (rundir.path / name).touch()
    assert list(permissions.of_files(rundir.path, Looks(0, frozenset()), [])) == []


def test_permissions_of_files(rundir: RunDirectory) -> None:
    rundir.path.chmod(0o777)
    for path, mode in ((rundir.state, 0o600), (rundir.log, 0o644), (rundir.events, 0o666)):
        path.touch()
        path.chmod(mode)
    found = only(permissions.of_files(rundir.path, OTHER, [rundir.log, rundir.events]), FindingKind.PROBLEM)
    assert "cannot read or write state.json, trainerd.log in" in found.said
    rundir.state.unlink()
    rundir.log.unlink()
    (rundir.path / "checkpoint").symlink_to("/etc/passwd")
    assert (
        "links, which are not followed" in only(permissions.of_files(rundir.path, OTHER, []), FindingKind.WARNING).said
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_file_of_another_user_in_a_closed_folder_is_reported(rundir: RunDirectory) -> None:
    rundir.state.touch()
    os.chown(rundir.state, 4321, 4321)
    found = only(permissions.of_files(rundir.path, User(0, frozenset([0])), []), FindingKind.PROBLEM)
    assert f"of another user than the folder: state.json in {rundir.path}" in found.said


def test_bits_are_those_of_owner_group_or_others(tmp_path: Path) -> None:
    found = os.stat_result((0o100640, 0, 0, 1, 7, 8, 0, 0, 0, 0))
    assert User(7, frozenset()).may(found, os.R_OK | os.W_OK) and User(0, frozenset()).may(found, os.X_OK)
    assert User(9, frozenset([8])).may(found, os.R_OK) and not User(9, frozenset([8])).may(found, os.W_OK)
    assert not User(9, frozenset([9])).may(found, os.R_OK)


def test_the_user_that_trains() -> None:
    assert permissions.trains_as(None, {}) == permissions.trains_as(os.getpid(), {"DynamicUser": "yes"})
    assert permissions.trains_as(None, {"DynamicUser": "yes", "User": "trainerd"}) is None
    root = permissions.trains_as(None, {"DynamicUser": "no", "User": "root"})
    assert root is not None and root.uid == 0
    known = Facts(Config(entry="a:b", logdir="r"), RunDirectory(Path("/r")), properties={"User": "no-such"})
    assert "no-such, does not exist" in only(permissions.check(known), FindingKind.PROBLEM).said


# ---------------------------------------------------------------------- clock

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("now", "noted", "is_synchronized", "kind", "said"),
    [
        (
            NOW,
            {"state.json": NOW + 7200, "run-events.jsonl": NOW},
            True,
            FindingKind.WARNING,
            "json was written 2 h 00 min",
        ),
        (NOW, {"state.json": math.inf}, True, FindingKind.WARNING, "in the future"),
        (NOW, {"state.json": math.nan}, True, FindingKind.OK, "synchronized"),
        (1e9, {}, True, FindingKind.PROBLEM, "it says 2001"),
        (NOW, {"state.json": NOW}, False, FindingKind.WARNING, "not synchronized"),
        (NOW, {"state.json": NOW + 1}, None, FindingKind.OK, "cannot be seen"),
    ],
)
def test_clock(
    now: float, noted: Mapping[str, float], is_synchronized: bool | None, kind: FindingKind, said: str
) -> None:
    found = only(clock.judge(now, noted, is_synchronized), kind)
    assert said in found.said and ("timedatectl" in found.cure) == (kind is not FindingKind.OK)


# ---------------------------------------------------------------------- units

SHOWN = {"WatchdogUSec": "5min", "TimeoutStopUSec": "6min", "NotifyAccess": "main", "MemoryMax": "infinity"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5min", 300), ("1min 30s", 90), ("500ms", 0.5), ("1d 2h", 93600), ("infinity", None), ("0", None), ("", None)],
)
def test_time_spans_of_systemd(text: str, seconds: float | None) -> None:
    assert systemd.span(text) == seconds


def test_a_watchdog_shorter_than_a_step() -> None:
    found = only(units.watchdog(OURS, SHOWN, 400.0), FindingKind.PROBLEM)
    assert "a step takes 6 min, and WatchdogSec= of trainerd is 5 min" in found.said
    assert "`systemctl edit trainerd`" in found.cure and "WatchdogSec=27min" in found.cure
    only(units.watchdog(OURS, SHOWN, 200.0), FindingKind.WARNING)
    assert not [*units.watchdog(OURS, SHOWN, 100.0), *units.watchdog(OURS, SHOWN, None), *units.watchdog(OURS, {}, 9e9)]


def test_a_stop_timeout_shorter_than_the_save() -> None:
    found = only(units.stopping(MINE, SHOWN, 1.0, 400.0), FindingKind.WARNING)
    assert "a save of 6 min, and TimeoutStopSec= of trainerd is 6 min" in found.said
    assert "`systemctl --user edit trainerd`" in found.cure and "TimeoutStopSec=13min" in found.cure
    deaf = {**SHOWN, "NotifyAccess": "none"}
    assert "killed before" in only(units.stopping(OURS, deaf, 1.0, 400.0), FindingKind.PROBLEM).said
    assert "killed before" in only(units.stopping(OURS, SHOWN, 400.0, None), FindingKind.PROBLEM).said
    assert not [*units.stopping(OURS, SHOWN, 10.0, 20.0), *units.stopping(OURS, {}, 10.0, 9e9)]


def test_a_user_unit_without_lingering(tmp_path: Path) -> None:
    found = only(units.lingering(MINE, "me", tmp_path), FindingKind.PROBLEM)
    assert "stopped when me logs out" in found.said and found.cure == "`loginctl enable-linger me`."
    (tmp_path / "me").touch()
    assert not list(units.lingering(MINE, "me", tmp_path))


def test_a_unit_that_is_not_enabled() -> None:
    found = only(units.booting(MINE, {"UnitFileState": "disabled"}), FindingKind.WARNING)
    assert found.cure == "`systemctl --user enable trainerd`."
    assert not list(units.booting(OURS, {"UnitFileState": "enabled"}))


@pytest.mark.parametrize(
    ("cgroup", "service"),
    [
        ("0::/system.slice/trainerd.service\n", OURS),
        ("0::/system.slice/system-trainerd.slice/trainerd@a.service/x\n", SystemdService("trainerd@a", user=False)),
        ("1:name=systemd:/user.slice/user-1.slice/user@1.service/app.slice/trainerd.service\n", MINE),
        ("0::/user.slice/user-1.slice/user@1.service/app.slice/vte-spawn.scope\n", None),
        ("0::/user.slice/user-1.slice/session-3.scope\n", None),
        ("0::/\n", None),
    ],
)
def test_the_unit_of_a_process_is_that_of_its_control_group(cgroup: str, service: SystemdService | None) -> None:
    assert systemd.service_in(cgroup) == service


def test_the_unit_of_a_config_is_found_in_what_install_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(units=tmp_path / "units", configs=tmp_path / "configs")
    monkeypatch.setattr(machines, "MACHINE", machine)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mine"))
    config = tmp_path / "my job" / "trainerd.toml"
    assert service_of(config) is None
    folder = tmp_path / "mine" / "systemd" / "user"
    folder.mkdir(parents=True)
    command = f"/opt/trainerd run --config {unit_files.quote(str(config))}"
    text = unit_files.render(install_plan.read_template("trainerd.service"), command, user=True)
    (folder / "trainerd.service").write_text(text)
    assert service_of(config) == MINE
    assert service_of(tmp_path / "other" / "trainerd.toml") is None
    machine.units.mkdir()
    command = f"/opt/trainerd run --config {machine.configs}/%i.toml"
    text = unit_files.render(install_plan.read_template("trainerd@.service"), command)
    (machine.units / "trainerd@.service").write_text(text)
    assert service_of(machine.configs / "a.toml") == SystemdService("trainerd@a", user=False)
    assert service_of(machine.configs / "deeper" / "a.toml") is None


# ---------------------------------------------------------------------- memory


def test_memory() -> None:
    limits = [Limit(64 * GIB, "the machine has", "use another"), Limit(4 * GIB, "MemoryMax= of trainerd is", "edit it")]
    found = only([memory.judge(3 * GIB, 2 * GIB, limits)], FindingKind.PROBLEM)
    assert "3.0 GiB and a snapshot of 2.0 GiB are needed, and MemoryMax= of trainerd is 4.0 GiB" in found.said
    assert found.cure.startswith("edit it")
    only([memory.judge(3 * GIB, GIB - GIB // 4, limits)], FindingKind.WARNING)
    only([memory.judge(2 * GIB, GIB, limits)], FindingKind.OK)
    only([memory.judge(None, GIB, limits)], FindingKind.OK)


def test_the_smallest_limit_of_a_control_group_and_those_above_it_counts(tmp_path: Path) -> None:
    inner = tmp_path / "system.slice" / "trainerd.service"
    inner.mkdir(parents=True)
    assert control_groups.limit_in("0::/system.slice/trainerd.service\n", tmp_path) is None
    (inner / "memory.max").write_text("max\n")
    (inner.parent / "memory.max").write_text("4096\n")
    assert control_groups.limit_in("0::/system.slice/trainerd.service\n", tmp_path) == 4096
    (tmp_path / "memory" / "docker").mkdir(parents=True)
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    old = "5:cpu:/docker\n4:memory:/docker\n1:name=systemd:/docker\n"
    assert control_groups.limit_in(old, tmp_path) is None
    (tmp_path / "memory" / "docker" / "memory.limit_in_bytes").write_text("8192\n")
    assert control_groups.limit_in(old, tmp_path) == 8192


# ---------------------------------------------------------------------- versions, GPU

INSTALLED = {"tensorflow": "2.21.0", "keras": "3.15.1", "trainerd": "0.1.0", "python": "3.12.1"}


def test_versions() -> None:
    saved = {f"software.{name}": version for name, version in INSTALLED.items()}
    assert "those of the newest checkpoint" in only(versions.judge(saved, INSTALLED), FindingKind.OK).said
    assert "newest" not in only(versions.judge({}, INSTALLED), FindingKind.OK).said
    found = only(
        versions.judge(saved | {"software.tensorflow": "2.20.0", "software.python": "3.11.7"}, INSTALLED),
        FindingKind.WARNING,
    )
    assert "tensorflow 2.20.0, and 2.21.0 here, python 3.11.7, and 3.12.1 here" in found.said
    assert "--python" in found.cure and "`pip install tensorflow==2.20.0`" in found.cure
    only(versions.judge(saved, {"python": "3.12.1"}), FindingKind.PROBLEM)
    assert installed().keys() >= INSTALLED.keys()


@pytest.mark.parametrize(
    ("gpus", "has_driver", "packages", "unit", "kind", "said"),
    [
        ([], False, ["tensorflow"], None, FindingKind.OK, "training uses the CPU"),
        ([], True, ["tensorflow"], None, FindingKind.WARNING, "nvidia-smi lists no GPU"),
        (["GPU 0: H100"], True, ["tensorflow"], None, FindingKind.WARNING, "no package with CUDA's libraries"),
        (["GPU 0: H100"], True, ["tensorflow-cpu"], None, FindingKind.WARNING, "tensorflow-cpu is installed"),
        (["GPU 0: H100"], True, ["nvidia-cudnn-cu12"], "trainerd", FindingKind.WARNING, "PrivateDevices=yes"),
        (["GPU 0: H100"], True, ["nvidia-cudnn-cu12"], None, FindingKind.OK, "GPU 0: H100"),
    ],
)
def test_gpu(
    gpus: list[str], has_driver: bool, packages: list[str], unit: str | None, kind: FindingKind, said: str
) -> None:
    assert said in only([gpu.judge(gpus, has_driver, packages, unit)], kind).said


# ---------------------------------------------------------------------- checkpoints


def test_a_damaged_checkpoint_is_named_and_left_where_it_is(rundir: RunDirectory) -> None:
    assert "none yet" in only(checkpoints.verified(rundir), FindingKind.OK).said
    store = CheckpointStore(rundir)
    for step in (5, 6):
        store.publish(FakeSnapshot(step, 10.0), About("test"))
    assert "step 6" in only(checkpoints.verified(rundir), FindingKind.OK).said
    data = rundir.path / "model.ckpt-6.data-00000-of-00001"
    data.write_bytes(bytes(reversed(data.read_bytes())))
    found = only(checkpoints.verified(rundir), FindingKind.PROBLEM)
    assert (
        "resumes from step 5: step 6: model.ckpt-6.data-00000-of-00001: its content is not what was written"
        in found.said
    )
    rundir.manifest(5).write_text("{")
    assert "none verifies" in only(checkpoints.verified(rundir), FindingKind.PROBLEM).said
    assert sorted(rundir.steps()) == [5, 6] and not rundir.quarantine.exists()


def test_what_is_in_quarantine_is_reported(rundir: RunDirectory) -> None:
    assert not list(checkpoints.quarantined(rundir))
    rundir.quarantine.mkdir()
    (rundir.quarantine / "model.ckpt-5.json").touch()
    assert (
        "has 1 file of checkpoints that did not verify"
        in only(checkpoints.quarantined(rundir), FindingKind.WARNING).said
    )


# ---------------------------------------------------------------------- the command


@pytest.fixture
def run(rundir: RunDirectory) -> RunDirectory:
    """A run that was paused at step 5."""
    saved = CheckpointStore(rundir).publish(FakeSnapshot(5, 10.0), About("pause", {"loss": 0.5}))
    State(Phase.PAUSED, step=5, steps_per_sec=2.0, memory_bytes=1 << 20, last_checkpoint=saved, at=time.time()).write(
        rundir.state
    )
    run_events.add(rundir, EventKind.PAUSE, "by hand", step=5)
    return rundir


def look_of(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file and folder with its times and its content."""
    found = {".": (path.stat().st_mtime_ns, path.stat().st_ctime_ns, b"")}
    for each in sorted(path.rglob("*")):
        about = each.lstat()
        content = each.read_bytes() if each.is_file() else b""
        found[str(each.relative_to(path))] = (about.st_mtime_ns, about.st_ctime_ns, content)
    return found


def findings_of(cli: Cli, *arguments: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """The exit code, and the findings by subject."""
    code, text = cli("doctor", "--json", *arguments)
    found: dict[str, list[dict[str, str]]] = {}
    for each in json.loads(text.splitlines()[0]):
        found.setdefault(each["subject"], []).append(each)
    return code, found


def test_the_run_is_left_as_it_was(run: RunDirectory, cli: Cli) -> None:
    before = look_of(run.path)
    code, text = cli("doctor", "--logdir", str(run.path))
    assert "step 5" in text and code in (0, 70)
    assert look_of(run.path) == before


def test_every_subject_is_looked_at(run: RunDirectory, cli: Cli) -> None:
    code, found = findings_of(cli, str(run.path))
    assert set(found) == {
        *("disk space", "inodes", "file system", "fsync", "permissions"),
        *("checkpoints", "clock", "unit", "memory", "versions", "GPU"),
    }
    each = [finding for findings in found.values() for finding in findings]
    assert all(set(finding) == {"kind", "subject", "said", "cure"} for finding in each)
    assert (code == 70) == any(finding["kind"] == "problem" for finding in each)


def test_a_problem_comes_first_with_its_cure_below_it_and_ends_with_70(run: RunDirectory, cli: Cli) -> None:
    data = run.path / "model.ckpt-5.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    code, text = cli("doctor", "--logdir", str(run.path))
    lines = text.splitlines()
    assert code == 70 and lines[0].startswith("problem") and "none verifies: step 5" in text
    below = next(number for number, line in enumerate(lines) if "none verifies" in line) + 1
    assert lines[below].strip().startswith("→ bring one back from a backup")
    assert re.search(rf"\d problems? found in {run.path}", lines[-1])


def test_a_run_that_has_not_begun_has_what_can_be_said(cli: Cli, tmp_path: Path) -> None:
    _, found = findings_of(cli, "--logdir", str(tmp_path / "new" / "run"))
    assert "after the first one" in found["disk space"][0]["said"]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "content",
    [
        b" " * (10 << 20),
        b"[" * 200_000,
        b'{"phase": "' + HOSTILE.encode() + b'"}',
        b"\xff\xfe\x00",
    ],
    ids=["10 MB", "deep", "control characters", "no UTF-8"],
)
def test_a_state_that_says_anything_is_reported(run: RunDirectory, cli: Cli, content: bytes) -> None:
    run.state.write_bytes(content)
    (run.path / f"link{HOSTILE}").symlink_to("/etc/passwd")
    code, text = cli("doctor", "--logdir", str(run.path))
    assert code in (0, 70) and "state.json" in text and "link\\x1b" in text
    assert printable(text) == text


def test_metrics_that_nobody_can_have_measured_are_not_believed(run: RunDirectory, cli: Cli) -> None:
    said = json.loads(run.state.read_text())
    said |= {"steps_per_sec": -1e308, "memory_bytes": -(10**15), "at": 1e300}
    said["last_checkpoint"] |= {"seconds": 1e308, "bytes": -1, "path": HOSTILE}
    run.state.write_text(json.dumps(said))
    _, found = findings_of(cli, str(run.path))
    assert "state.json was written" in found["clock"][0]["said"]
    assert "known after its start" in found["memory"][0]["said"]


def test_what_was_measured_is_read_from_the_state(rundir: RunDirectory) -> None:
    saved = LastCheckpoint(5, "p", "pause", 2.5, 10, 0.0)
    State(Phase.TRAINING, steps_per_sec=0.01, memory_bytes=7, last_checkpoint=saved).write(rundir.state)
    with lock.acquire(rundir) as held:
        held.name_holder(os.getpid())
        found = facts.gather(Config(entry="a:b", logdir=str(rundir.path)), rundir)
    assert (found.step_secs, found.save_secs, found.memory_bytes, found.pid) == (100.0, 2.5, 7, os.getpid())
    found = replace(found, state=None)
    assert (found.step_secs, found.save_secs, found.memory_bytes) == (None, None, None)


def test_what_cannot_be_looked_at_is_a_finding_too(run: RunDirectory, cli: Cli) -> None:
    run.events.unlink()
    os.mkfifo(run.events)
    _, found = findings_of(cli, str(run.path))
    assert found["clock"][0]["kind"] == "warning" and "not a regular file" in found["clock"][0]["said"]


def test_problems_come_before_warnings_and_these_before_what_is_well() -> None:
    found = in_order([well("a"), warning("b", "x"), problem("c", "x"), warning("d", "x")])
    assert [each.said for each in found] == ["c", "b", "d", "a"]
