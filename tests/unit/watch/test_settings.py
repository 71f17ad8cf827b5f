"""watch.toml: what may be in it, what is wrong with it, and that no secret of it is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from trainerd.config.tables import keys_of
from trainerd.errors import ConfigError
from trainerd.watch.settings import BY_DEFAULT, NoticeKind, PageConfig, Settings, WatchConfig, find, load, parse

SECRET = "tk_SoVerySecret"


def test_without_a_file_there_is_a_page_and_nobody_is_notified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find(None) is None
    settings = load(None)
    assert settings == Settings(watch=WatchConfig(), page=PageConfig()) and not settings.has_secrets
    assert settings.watch.channels == () and settings.page.listen == "127.0.0.1:9780"


def test_the_users_own_file_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "trainerd").mkdir()
    (tmp_path / "trainerd" / "watch.toml").write_text("[watch]\nno_progress_mins = 5\n")
    assert load(find(None)).watch.no_progress_mins == 5


def test_a_file_with_secrets_must_be_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "watch.toml"
    path.write_text(f'[watch]\nchannels = ["ntfy://{SECRET}"]\n')
    for mode in (0o644, 0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(ConfigError, match=re.escape(f"chmod 600 {path}")):
            load(path)
    path.chmod(0o600)
    assert load(path).has_secrets
    path.chmod(0o440)  # as systemd hands over a credential
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert load(path).has_secrets


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[watch]\nchanels = []", "watch.chanels: this key does not exist. Did you mean `watch.channels`?"),
        ("[wacth]\nchannels = []", "wacth: this table does not exist. Did you mean"),
        ('channels = ["x"]', "channels: this key does not exist. Did you mean `watch.channels`?"),
        ('[watch]\nevents = ["finnished"]', 'there is no "finnished". Did you mean "finished"?'),
        ('[watch]\nevents = "all"', "watch.events: expected a list of"),
        ("[watch]\nno_progress_mins = -1", "watch.no_progress_mins: expected"),
        ('[watch]\nsummary_at = "8 o\'clock"', "watch.summary_at: expected"),
        ('[watch]\nsummary_at = "24:00"', 'watch.summary_at: expected a time of day, such as "08:00"'),
        ('[watch]\nheartbeat_url = "ftp://x"', "watch.heartbeat_url: expected a URL that begins with http"),
        ("[watch]\nheartbeat_secs = 1", "watch.heartbeat_secs: expected a number >= 5.0 (in s), got 1"),
        ('[page]\ntoken = "short"', "page.token: expected a string of at least 16 characters, got a string of 5"),
        ("[page]\nlisten = 9780", "page.listen: expected a string"),
        ('[interruptions]\nsleep = "hibernate"', 'interruptions.sleep: expected one of "save", "pause", "off"'),
        ('[interruptions]\ncloud = "oracle"', 'interruptions.cloud: expected one of "aws", "gcp", "azure"'),
        ('[interruptions]\nmetadata_url = "file:///etc"', "interruptions.metadata_url: expected http://HOST"),
        ('[interruptions]\nmetadata_url = "http://a/latest"', "interruptions.metadata_url: expected http://HOST"),
        ('[interruptions]\nups_name = "-l"', "interruptions.ups_name: expected the name of a UPS"),
        ("[interruptions]\nups_runtime_secs = -1", "interruptions.ups_runtime_secs: expected"),
        ('[interruptions]\nups = "save"', "interruptions.ups: nothing announces it without `ups_name`. Add ups_name ="),
        ('[interruptions]\nspot = "save"', "interruptions.spot: nothing announces it without `cloud`. Add cloud ="),
        ("watch = 3", "watch: expected a table, [watch], got a number"),
        ('[watch]\nchannels = "x"', "watch.channels: expected a list of strings, got a string of 1 character"),
    ],
)
def test_a_mistake_is_reported_with_its_key(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "watch.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(path)


@pytest.mark.parametrize(
    "data",
    [
        {"watch": {"channels": [SECRET]}},
        {"watch": {"channels": SECRET}},
        {"watch": {"heartbeat_url": SECRET}},
        {"watch": {"heartbeat_url": [SECRET]}},
        {"page": {"token": [SECRET]}},
        {"page": {"token": "SoVerySecret"}},
        {"channels": [SECRET]},
        {"watch": [{"channels": [SECRET]}]},
        {"token": SECRET},
    ],
)
def test_no_secret_is_in_an_error(data: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(data)
    assert "SoVerySecret" not in str(caught.value)


def test_every_kind_is_explained() -> None:
    page = (Path(__file__).parents[3] / "docs" / "watch.md").read_text()
    for kind in get_args(NoticeKind):
        assert f"`{kind}`" in page
    assert set(BY_DEFAULT) < set(get_args(NoticeKind))
    for name, _, _ in keys_of(Settings):
        assert f"`{name.rpartition('.')[2]}`" in page
