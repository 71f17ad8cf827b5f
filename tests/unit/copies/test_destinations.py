"""Where a copy goes: its URL, its credentials, its limits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.conftest import FakeTime
from tests.unit.copies.stores import (
    identified,
    run_of,
)
from tests.unit.test_rollback import write
from trainerd.config.destination import Destination
from trainerd.config.parse import parse
from trainerd.copies.layout import RunCopy
from trainerd.copies.process import copy_once
from trainerd.copies.rclone import require_private_credentials
from trainerd.copies.status import read_copy_status
from trainerd.copies.store import FolderStore
from trainerd.errors import ConfigError, CopyError
from trainerd.rundir.paths import RunDirectory

# ---------------------------------------------------------------------- what is configured


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        ("s3://bucket/runs/digits", "bucket", "runs/digits"),
        ("gs://bucket/runs/a%20b/", "bucket", "runs/a b"),
        ("file:///mnt/nas/run", "", "/mnt/nas/run"),
        ("sftp://me@host:2222/srv/run", "host", "srv/run"),
        ("webdavs://[::1]:8443/run", "::1", "run"),
        ("rclone://crypt/run", "crypt", "run"),
    ],
)
def test_a_url_is_read(url: str, host: str, path: str) -> None:
    found = Destination.parse(url)
    assert (found.host, found.path) == (host, path) and Destination.parse(str(found)) == found


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("bucket/runs", "expected a URL that begins with s3://, gs://"),
        ("ftp://host/run", "expected a URL that begins with"),
        ("s3://key:hunter2@bucket/run", "may not hold credentials"),
        ("az://box/run?sig=hunter2", "may not hold credentials"),
        ("webdav://me:hunter2@host/run", "Credentials go into the environment or into a file"),
        ("s3://bucket", "needs a path"),
        ("s3://bucket/../x", "needs a path"),
        ("s3:///run", "needs a bucket"),
        ("file://nas/run", "takes an absolute path, such as file:///nas/run"),
        ("sftp://host:port/run", "it is not a URL"),
        ("s3://bucket:9/run", "neither a user nor a port"),
    ],
)
def test_a_wrong_url_is_named_without_its_secret(url: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"entry": "job:job", "logdir": "run", "copy": {"to": url}})
    assert "copy.to: " in str(caught.value) and message in str(caught.value) and "hunter2" not in str(caught.value)


def test_credentials_that_others_may_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "credentials"
    file.touch(0o644)
    require_private_credentials("s3", {"AWS_SHARED_CREDENTIALS_FILE": str(file), "RCLONE_CONFIG": "/none"})
    file.write_text("[default]")
    with pytest.raises(ConfigError, match=f"{file} holds credentials, and others may read it. Type `chmod 600"):
        require_private_credentials("s3", {"AWS_SHARED_CREDENTIALS_FILE": str(file)})
    require_private_credentials("sftp", {"AWS_SHARED_CREDENTIALS_FILE": str(file), "RCLONE_CONFIG": "/none"})
    file.chmod(0o600)
    require_private_credentials("s3", {"AWS_SHARED_CREDENTIALS_FILE": str(file), "RCLONE_CONFIG": str(file)})


@pytest.mark.parametrize(
    ("scheme", "name", "environ"),
    [
        ("s3", "{home}/.aws/credentials", {}),
        ("s3", "{home}/.aws/config", {}),
        ("s3", "{home}/aws", {"AWS_CONFIG_FILE": "{home}/aws"}),
        ("gs", "{home}/.config/gcloud/application_default_credentials.json", {}),
        ("sftp", "{home}/xdg/rclone/rclone.conf", {"XDG_CONFIG_HOME": "{home}/xdg"}),
        ("sftp", "{home}/.config/rclone/rclone.conf", {"XDG_CONFIG_HOME": "{home}/xdg"}),
        ("sftp", "{home}/.rclone.conf", {}),
    ],
)
def test_credentials_are_searched_where_the_tools_of_a_service_have_them(
    scheme: str, name: str, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file, given = Path(name.format(home=tmp_path)), {key: each.format(home=tmp_path) for key, each in environ.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[default]\naws_secret_access_key = x\n")
    file.chmod(0o640)
    with pytest.raises(ConfigError, match=f"{file} holds credentials, and others may read it"):
        require_private_credentials(scheme, given)
    file.chmod(0o600)
    require_private_credentials(scheme, given)


def test_an_aws_config_without_secrets_may_be_read_by_all(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\nregion = eu-west-1\n")
    environ = {"RCLONE_CONFIG": "/none", "AWS_SHARED_CREDENTIALS_FILE": "/none"}
    require_private_credentials("s3", environ | {"AWS_CONFIG_FILE": str(tmp_path / "config")})


def test_a_limit_slows_the_upload(tmp_path: Path, clock: FakeTime) -> None:
    source = os.open(tmp_path / "big", os.O_RDWR | os.O_CREAT)
    os.truncate(source, 4 << 20)
    FolderStore(tmp_path / "nas", float(1 << 20), timer=clock, sleep=clock.sleep).put(
        "objects/a", source, 4 << 20, lambda sent: None
    )
    os.close(source)
    assert clock.now == 1004.0


def test_a_folder_that_is_not_mounted_is_not_filled(tmp_path: Path, rundir: RunDirectory) -> None:
    write(rundir, 10)
    identified(rundir)
    with pytest.raises(CopyError, match=r"the directory .*/nas does not exist\. Mount it, or create it"):
        copy_once(run_of(rundir), RunCopy(FolderStore(tmp_path / "nas" / "run"), "nas"))
    assert not (tmp_path / "nas").exists()
    status = read_copy_status(rundir)
    assert status is not None and "does not exist" in str(status.error)
