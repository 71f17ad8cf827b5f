"""Fixtures of the packaging tests: what `make dist` has built, and bare systems in which it is installed."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.packaging import bootstrap
from tests.packaging.root import Root, RootError, host
from tests.packaging.suites import SUITES
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
    folder = Path(tempfile.mkdtemp(prefix="trainerd-packaging-"))
    yield folder
    host("rm", "--recursive", "--force", "--one-file-system", folder)
    assert folder.name not in Path("/proc/mounts").read_text(), "what is mounted here stays mounted"
    assert stat.S_IMODE(Path("/tmp").stat().st_mode) == 0o1777


@pytest.fixture(scope="session")
def systems(scratch: Path, wheel: Path) -> Iterator[dict[str, Future[Root]]]:
    """Bare systems with the wheel installed, by release. They are made beside each other."""
    try:
        bootstrap.require()
    except RootError as error:
        pytest.fail(str(error), pytrace=False)
    with ThreadPoolExecutor() as pool:
        yield {suite: pool.submit(bootstrap.system, suite, scratch / suite, wheel) for suite in SUITES}


@pytest.fixture
def root(request: pytest.FixtureRequest, systems: dict[str, Future[Root]]) -> Root:
    """The system of the release that the test's parameter names."""
    return systems[request.param].result()
