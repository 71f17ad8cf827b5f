"""Fixtures of the packaging tests: what `make dist` has built, and bare systems in which it is installed."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging import bootstrap
from tests.packaging.root import Root, RootError
from trainerd.version import __version__

CHECKOUT = Path(__file__).resolve().parents[2]


def built(ending: str) -> Path:
    """What `make dist` has built of this version."""
    found = list((CHECKOUT / "dist").glob(f"trainerd-{__version__}*{ending}"))
    if len(found) != 1:
        pytest.fail(
            f"dist/ has {len(found)} files of {__version__} with {ending}: `make dist` builds one", pytrace=False
        )
    return found[0]


@pytest.fixture(scope="session")
def wheel() -> Path:
    return built(".whl")


@pytest.fixture(scope="session")
def sdist() -> Path:
    return built(".tar.gz")


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A folder for systems of some gigabytes. After it the machine is as it was."""
    with tempfile.TemporaryDirectory(prefix="trainerd-packaging-") as name:
        yield Path(name)
        assert name not in Path("/proc/mounts").read_text(), "what is mounted here stays mounted"
    assert stat.S_IMODE(Path("/tmp").stat().st_mode) == 0o1777


@pytest.fixture(scope="session")
def root(request: pytest.FixtureRequest, scratch: Path, wheel: Path) -> Iterator[Root]:
    """A bare system with the wheel installed, of the release that the test's parameter names."""
    try:
        bootstrap.require()
    except RootError as error:
        pytest.fail(str(error), pytrace=False)
    folder = scratch / request.param
    made = bootstrap.bootstrap(request.param, folder)
    bootstrap.install(made, wheel)
    yield made
    shutil.rmtree(folder)
