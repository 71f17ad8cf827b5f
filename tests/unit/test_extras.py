"""The command that installs an extra works without a package index that knows trainerd."""

from __future__ import annotations

import shlex
import sys
from importlib import metadata

import pytest

from trainerd.system.extras import install_command


def test_the_command_names_the_packages_of_the_extra_and_the_python_that_runs() -> None:
    python, *words = shlex.split(install_command("watch"))
    assert python == sys.executable and words[:3] == ["-m", "pip", "install"]
    names = {"prometheus-client", "waitress", "werkzeug", "apprise", "jeepney"}
    assert {word.partition(">")[0] for word in words[3:]} == names


def test_a_checkout_that_is_not_installed_installs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    assert shlex.split(install_command("gpu"))[-1] == ".[gpu]"
