"""`trainerd install` and the units that ship: what is written, and what is refused with which words."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainerd
from tests.unit.conftest import Cli
from trainerd.cli import main
from trainerd.cli.install import agent_plan, watch_plan
from trainerd.cli.install import plan as install_plan
from trainerd.daemon.systemd import units
from trainerd.doctor.facts import SystemdService
from trainerd.errors import ConfigError, TrainerdError, UsageError
from trainerd.system import machine as machines
from trainerd.system import xdg
from trainerd.system.machine import Machine
from trainerd.watch import settings

UNITS = Path(__file__).resolve().parents[2] / "systemd"
BOTH = ("trainerd.service", "trainerd@.service")
ODD = "with a space, 100% and ünïcode"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can look into; pytest's own are for this user only."""
    folder = Path(tempfile.mkdtemp(prefix="trainerd-install-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def machine(place: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine in a folder, without systemd, on which the service's user can run this Python."""
    found = Machine(
        units=place / "units",
        configs=place / "etc",
        state=place / "state",
        users=place / "users",
        hidden=(place / "root",),
        running=place / "no-systemd",
    )
    found.configs.mkdir()
    monkeypatch.setattr(machines, "MACHINE", found)
    monkeypatch.setattr(install_plan, "python_paths", list)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "home config"))
    return found


def write_config(path: Path, logdir: Path | str) -> Path:
    """A config that is right in itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'entry = "job:job"\nlogdir = "{logdir}"\n', encoding="utf-8")
    path.chmod(0o644)
    return path


def run(*arguments: str) -> int:
    """Type a command. Its exit code."""
    with pytest.raises(SystemExit) as end:
        main(["install", *arguments])
    assert isinstance(end.value.code, int)
    return end.value.code


def value(unit: str, name: str) -> str:
    """The value of a directive that is there once."""
    [found] = [directive.value for directive in units.directives(unit) if directive.name == name]
    return found


# ---------------------------------------------------------------------- the units that ship


@pytest.mark.parametrize(
    ("name", "least"),
    [
        *((name, 40) for name in (*BOTH, "trainerd-watch.service", "trainerd-copy@.service")),
        ("trainerd-agent@.service", 10),  # without the sandbox: it runs a user's own programs
    ],
)
def test_every_directive_is_explained(name: str, least: int) -> None:
    found = list(units.directives((UNITS / name).read_text(encoding="utf-8")))
    assert len(found) > least
    assert [d.name for d in found if not any(len(line) > 10 for line in d.comment)] == []


@pytest.mark.parametrize("path", sorted(UNITS.glob("*.service")), ids=lambda path: path.name)
def test_a_call_that_the_sandbox_forbids_fails_and_does_not_kill(path: Path) -> None:
    found = {directive.name: directive.value for directive in units.directives(path.read_text(encoding="utf-8"))}
    assert found.get("SystemCallErrorNumber") == ("EPERM" if "SystemCallFilter" in found else None)


def test_the_template_is_the_unit_for_another_place() -> None:
    """What differs is the config, the directories and the description; a setting changed in one is changed in both."""
    plain, template = ([(d.name, d.value) for d in units.directives((UNITS / n).read_text())] for n in BOTH)
    specialised = [
        (name, text.replace("%i.toml", "trainerd.toml").replace("trainerd-%i", "trainerd").replace(" (%i)", ""))
        for name, text in template
    ]
    assert specialised == plain


def test_what_a_start_cannot_mend_is_not_tried_again() -> None:
    from trainerd import errors

    final = (errors.UsageError, errors.DataError, errors.RepeatedFailureError, errors.InUseError, errors.ConfigError)
    codes = {error.exit_code for error in final}
    assert {int(code) for code in value((UNITS / BOTH[0]).read_text(), "RestartPreventExitStatus").split()} == codes


# ---------------------------------------------------------------------- words of a command


@pytest.mark.parametrize(
    ("argument", "quoted"),
    [
        ("/opt/trainerd/bin/trainerd", "/opt/trainerd/bin/trainerd"),
        ("/a b/c", '"/a b/c"'),
        ("100%", "100%%"),
        ("$HOME", "$$HOME"),
        ("back\\slash", '"back\\\\slash"'),
        ('"', '"\\""'),
        ("it's", '"it\'s"'),
        ("a;b", '"a;b"'),
        ("é", '"é"'),
        ("", '""'),
    ],
)
def test_quote(argument: str, quoted: str) -> None:
    assert units.quote(argument) == quoted


@pytest.mark.parametrize("path", ["/a\nb", "/a\tb", "/a\x7fb"])
def test_a_unit_cannot_hold_control_characters(path: str) -> None:
    with pytest.raises(UsageError, match="a line break or a control character"):
        units.quote(path)


def test_a_program_cannot_have_a_dollar() -> None:
    """systemd does not read `$$` back in the program's own path."""
    assert units.quote_program("/50%/my trainerd") == '"/50%%/my trainerd"'
    with pytest.raises(UsageError, match=r"a \$ in its path"):
        units.quote_program("/a$b/trainerd")


# ---------------------------------------------------------------------- for the machine


def test_system_writes_the_unit_and_says_what_is_next(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(machine.configs / "trainerd.toml", machine.state / "trainerd")
    assert run("--system") == 0
    text = (machine.units / "trainerd.service").read_text()
    assert value(text, "ExecStart").endswith(f" run --config {config}")
    assert value(text, "DynamicUser") == "yes"
    said = capsys.readouterr().out
    for line in ("systemctl enable --now trainerd ", "journalctl -u trainerd -f", f"status --config {config}"):
        assert line in said


def test_the_written_unit_is_readable_whatever_the_umask(machine: Machine) -> None:
    write_config(machine.configs / "trainerd.toml", machine.state / "trainerd")
    before = os.umask(0o077)
    try:
        assert run("--system") == 0
    finally:
        os.umask(before)
    assert (machine.units / "trainerd.service").stat().st_mode & 0o777 == 0o644


def test_a_second_time_it_is_left_alone(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    write_config(machine.configs / "trainerd.toml", machine.state / "trainerd")
    assert run("--system") == 0
    before = (machine.units / "trainerd.service").stat()
    capsys.readouterr()
    assert run("--system") == 0
    assert "is as it should be already" in capsys.readouterr().out
    assert (machine.units / "trainerd.service").stat().st_mtime_ns == before.st_mtime_ns


def test_dry_run_shows_and_writes_nothing(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # it needs no root
    write_config(machine.configs / "trainerd.toml", machine.state / "trainerd")
    assert run("--system", "--dry-run") == 0
    said = capsys.readouterr().out
    assert said.startswith(f"# {machine.units}/trainerd.service\n")
    assert "[Install]" in said
    assert not machine.units.exists()


def test_a_name_writes_the_template(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    write_config(machine.configs / "my-run.toml", machine.state / "trainerd-my-run")
    assert run("--system", "--name", "my-run") == 0
    text = (machine.units / "trainerd@.service").read_text()
    assert value(text, "ExecStart").endswith(f" run --config {machine.configs}/%i.toml")
    assert value(text, "StateDirectory") == "trainerd-%i"
    assert "systemctl enable --now trainerd@my-run" in capsys.readouterr().out


def test_systemd_is_given_where_it_runs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(machine.configs / "trainerd.toml", machine.state / "trainerd")
    machine.running.mkdir()
    reported: list[list[str]] = []

    def record(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        reported.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", record)
    assert run("--system") == 0
    assert reported == [["systemctl", "daemon-reload"]]


def test_where_systemd_cannot_be_reached_it_says_what_to_type(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(machine.configs / "trainerd.toml", machine.state / "trainerd")
    machine.running.mkdir()
    failed = subprocess.CompletedProcess([], 1, "", "no bus")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    assert run("--system") == 0
    assert "(no bus): type `systemctl daemon-reload`" in capsys.readouterr().err


# ---------------------------------------------------------------------- for a user


def test_user_unit_has_nothing_that_a_user_manager_cannot_do(
    machine: Machine, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(place / ODD / "trainerd.toml", "run")
    assert run("--user", "--config", str(config)) == 0
    text = (place / "home config" / "systemd" / "user" / "trainerd.service").read_text(encoding="utf-8")
    found = list(units.directives(text))
    assert {d.name for d in found} <= units.FOR_USERS
    assert all(d.comment for d in found)
    assert value(text, "WantedBy") == "default.target"
    assert "HOME=" not in text
    assert "# ----\n" not in text
    escaped = str(config).replace("%", "%%")
    assert value(text, "ExecStart").endswith(f' run --config "{escaped}"')
    said = capsys.readouterr().out
    assert "systemctl --user enable --now trainerd" in said
    assert "journalctl --user-unit trainerd -f" in said


def test_user_takes_the_config_that_is_here(
    machine: Machine, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(place / "here" / "trainerd.toml", "run")
    monkeypatch.chdir(config.parent)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # then --user is the default
    assert run("--dry-run") == 0
    assert f"run --config {config}\n" in capsys.readouterr().out


def test_user_template(machine: Machine, place: Path) -> None:
    write_config(place / "home config" / "trainerd" / "a.toml", "run")
    assert run("--user", "--name", "a") == 0
    text = (place / "home config" / "systemd" / "user" / "trainerd@.service").read_text()
    assert value(text, "ExecStart").endswith(" run --config %E/trainerd/%i.toml")


def test_a_relative_xdg_config_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert xdg.config_home() == tmp_path / ".config"


# ---------------------------------------------------------------------- a run that is copied


def with_copy(path: Path, logdir: Path | str, to: str) -> Path:
    """A config with a destination."""
    config = write_config(path, logdir)
    config.write_text(config.read_text(encoding="utf-8") + f'[copy]\nto = "{to}"\n', encoding="utf-8")
    return config


def test_a_copied_run_gets_a_copier(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the user and the folders of the run, and may write to the destination."""
    with_copy(machine.configs / "a.toml", machine.state / "trainerd-a", "file:///mnt/my nas/a")
    assert run("--system", "--name", "a") == 0
    text = (machine.units / "trainerd-copy@.service").read_text(encoding="utf-8")
    assert value(text, "ExecStart").endswith(f" copy --config {machine.configs}/%i.toml")
    drop_in = (machine.units / "trainerd-copy@a.service.d" / "destination.conf").read_text(encoding="utf-8")
    assert value(drop_in, "ReadWritePaths") == value(drop_in, "RequiresMountsFor") == '"/mnt/my nas"'
    assert "systemctl enable --now trainerd@a trainerd-copy@a " in capsys.readouterr().out


@pytest.mark.parametrize("to", ["file:///backup", "file:////backup/"])
def test_a_copier_may_not_write_everywhere(machine: Machine, to: str) -> None:
    with_copy(machine.configs / "a.toml", machine.state / "trainerd-a", to)
    assert run("--system", "--name", "a") == 0
    drop_in = (machine.units / "trainerd-copy@a.service.d" / "destination.conf").read_text(encoding="utf-8")
    assert value(drop_in, "ReadWritePaths").lstrip("/") == "backup"


def test_the_copier_of_the_run_without_a_name(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    config = with_copy(machine.configs / "trainerd.toml", machine.state / "trainerd", "s3://bucket/run")
    assert run("--system") == 0
    text = (machine.units / "trainerd-copy.service").read_text(encoding="utf-8")
    assert value(text, "ExecStart").endswith(f" copy --config {config}")
    assert (value(text, "User"), value(text, "StateDirectory")) == ("trainerd", "trainerd")
    assert value(text, "LoadCredential") == "rclone.conf:/etc/trainerd/rclone.conf"
    assert "%i" not in text and not list(machine.units.glob("*.d"))
    assert "systemctl enable --now trainerd trainerd-copy " in capsys.readouterr().out


def test_the_copier_of_a_user(machine: Machine, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = with_copy(place / "here" / "trainerd.toml", "run", "file:///mnt/nas/a")
    assert run("--user", "--config", str(config)) == 0
    text = (place / "home config" / "systemd" / "user" / "trainerd-copy.service").read_text(encoding="utf-8")
    assert {each.name for each in units.directives(text)} <= units.FOR_USERS
    assert value(text, "Environment") == "PYTHONUNBUFFERED=1"
    assert "systemctl --user enable --now trainerd trainerd-copy " in capsys.readouterr().out


# ---------------------------------------------------------------------- what runs


def test_the_script_beside_the_interpreter_is_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place / ODD
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    quoted = str(folder).replace("%", "%%")
    assert install_plan.program() == f'"{quoted}/python" -m trainerd'
    (folder / "trainerd").touch(mode=0o755)
    assert install_plan.program() == f'"{quoted}/trainerd"'


# ---------------------------------------------------------------------- refused


def refused(error: type[TrainerdError], *words: str, user: bool = False, name: str | None = None) -> str:
    """The message of a plan that must fail."""
    with pytest.raises(error) as caught:
        install_plan.make_plan(user, name, None)
    message = str(caught.value)
    for word in words:
        assert word in message
    return message


def test_system_needs_root(machine: Machine, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, printed = cli("install", "--system")
    assert code == UsageError.exit_code and f"writing to {machine.units} needs root. Type `sudo " in printed


def test_a_missing_config(machine: Machine) -> None:
    refused(
        ConfigError,
        f"the config {machine.configs}",
        "then type this again",
        f'logdir = "{machine.state}/trainerd"',
    )
    refused(ConfigError, "rename its trainerd.toml to a.toml", f'logdir = "{machine.state}/trainerd-a"', name="a")
    (machine.configs / "trainerd.toml").write_text('entry = "a:b"')
    assert "init" not in refused(ConfigError, "/a.toml and change what it trains", name="a")


def test_a_wrong_config(machine: Machine) -> None:
    (machine.configs / "trainerd.toml").write_text('entry = "a:b"\nlogdri = "x"\n')
    refused(ConfigError, "Did you mean `logdir`?")


@pytest.mark.parametrize("logdir", ["runs/a", "/var/lib/trainerd-not", "../state/trainerd/../elsewhere"])
def test_a_logdir_that_the_service_cannot_write(machine: Machine, logdir: str) -> None:
    write_config(machine.configs / "trainerd.toml", logdir)
    refused(ConfigError, "the service's own user can write in", f'  logdir = "{machine.state}/trainerd"')


def test_a_logdir_below_the_state_directory(machine: Machine) -> None:
    write_config(machine.configs / "trainerd.toml", machine.state / "trainerd" / "first" / "try")
    assert install_plan.make_plan(False, None, None).service == SystemdService("trainerd", user=False)


def test_a_config_that_the_sandbox_hides(machine: Machine, place: Path) -> None:
    config = write_config(place / "root" / "trainerd.toml", machine.state / "trainerd")
    with pytest.raises(ConfigError, match="hides"):
        install_plan.make_plan(False, None, config)


def test_a_config_that_others_cannot_read(machine: Machine) -> None:
    config = write_config(machine.configs / "trainerd.toml", machine.state / "trainerd")
    config.chmod(0o600)
    refused(ConfigError, f"{config} is closed to other users. Type `chmod o+r {config}`")
    config.chmod(0o644)
    machine.configs.chmod(0o700)
    refused(ConfigError, f"chmod o+rx {machine.configs}")


def test_a_python_that_the_sandbox_hides(machine: Machine, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(machine.configs / "trainerd.toml", machine.state / "trainerd")
    monkeypatch.setattr(install_plan, "python_paths", lambda: [place / "root" / "venv"])
    refused(UsageError, str(place / "root" / "venv"), "-m venv /opt/trainerd")


def test_the_python_is_looked_at_where_it_really_is(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "python").symlink_to("elsewhere")
    monkeypatch.setattr(sys, "executable", str(place / "python"))
    assert {place / "python", place / "elsewhere"} <= set(install_plan.python_paths())


def test_names(machine: Machine) -> None:
    for name in ("a/b", "-a", "a b", "", "ä", "a@b", ".."):
        refused(UsageError, "--name", name=name)


def test_name_and_config_contradict(machine: Machine, place: Path) -> None:
    with pytest.raises(UsageError, match="put it there"):
        install_plan.make_plan(False, "a", place / "other.toml")


def test_a_path_that_no_unit_can_hold(machine: Machine, place: Path) -> None:
    config = write_config(place / "a\nb" / "trainerd.toml", "run")
    with pytest.raises(UsageError, match="a line break or a control character"):
        install_plan.make_plan(True, None, config)


def test_an_installation_without_units(machine: Machine, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setattr(trainerd, "__file__", str(place / "site-packages" / "trainerd" / "__init__.py"))
    monkeypatch.setattr(sys, "prefix", str(place))
    monkeypatch.setattr("sysconfig.get_path", lambda scheme: str(place))
    with pytest.raises(TrainerdError, match="Install it again"):
        install_plan.read_template("trainerd.service")


def test_the_real_machine_hides_what_the_unit_hides() -> None:
    """ProtectHome and PrivateTmp."""
    assert {Path("/root"), Path("/home"), Path("/run/user"), Path("/tmp"), Path("/var/tmp")} == {
        *machines.MACHINE.hidden
    }


# ---------------------------------------------------------------------- the watcher


def test_the_watcher_of_the_machine(machine: Machine, cli: Cli) -> None:
    code, said = cli("install", "--system", "--watch")
    assert code == 0 and f"systemctl enable --now {watch_plan.UNIT}" in said
    assert f"| install -D -m 644 /dev/stdin {machine.logind}/trainerd.conf\n" in said
    unit = (machine.units / watch_plan.UNIT).read_text()
    assert value(unit, "ExecStart").endswith("trainerd watch --config %d/watch.toml")
    assert stat.S_IMODE((machine.configs / "watch.toml").stat().st_mode) == 0o600
    lines = (machine.configs / "watch.toml").read_text().splitlines()[2:]
    assert settings.parse(tomllib.loads("\n".join(line.removeprefix("# ") for line in lines))).has_secrets
    for name in BOTH:
        drop_in = (machine.units / f"{name}.d" / "watch.conf").read_text()
        assert value(drop_in, "Group") == "trainerd-watch" == value(unit, "Group")
    assert (machine.users / "trainerd-watch.conf").read_text().startswith("u trainerd-watch ")
    (machine.configs / "watch.toml").write_text("[watch]\n")
    assert "is kept" in cli("install", "--system", "--watch")[1]
    assert (machine.configs / "watch.toml").read_text() == "[watch]\n"


def test_the_watcher_of_a_user(machine: Machine, place: Path, cli: Cli) -> None:
    code, said = cli("install", "--user", "--watch")
    assert code == 0 and "loginctl enable-linger" in said and "sudo systemctl kill -s HUP systemd-logind" in said
    unit = (place / "home config" / "systemd" / "user" / watch_plan.UNIT).read_text()
    assert value(unit, "ExecStart").endswith("trainerd watch")
    assert not {"User", "LoadCredential", "AmbientCapabilities"} & {each.name for each in units.directives(unit)}
    code, said = cli("install", "--user", "--watch", "--dry-run")
    assert code == 0 and f"# {place / 'home config' / 'trainerd' / 'watch.toml'}" in said
    assert cli("install", "--user", "--watch", "--name", "a")[0] == 64
    assert cli("install", "--user", "--name", "watch")[0] == 64


# ---------------------------------------------------------------------- the agent


def test_the_agent_of_the_machine_has_an_instance_for_each_user(
    machine: Machine, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    code, said = cli("install", "--system", "--agent")
    assert code == 0 and "systemctl enable --now trainerd-agent@alice" in said and "linger" not in said
    unit = (machine.units / agent_plan.TEMPLATE).read_text()
    assert value(unit, "User") == "%i" and value(unit, "ExecStart").endswith("trainerd agent")


def test_the_agent_of_a_user(machine: Machine, place: Path, cli: Cli) -> None:
    code, said = cli("install", "--user", "--agent")
    assert code == 0 and "loginctl enable-linger" in said
    unit = (place / "home config" / "systemd" / "user" / agent_plan.UNIT).read_text()
    assert value(unit, "WantedBy") == "default.target"
    assert not {"User"} & {each.name for each in units.directives(unit)}
    assert (place / "home config" / "trainerd" / "agent.toml").exists()
