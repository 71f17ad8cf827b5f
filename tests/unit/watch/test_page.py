"""The watcher's page: what it answers, to whom, and what it never does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import stat
import threading
import time
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from tests.unit.watch.conftest import ESCAPES, HOSTILE, MakeRun
from tests.unit.watch.test_run_reader import append, point
from trainerd.errors import ConfigError, NotRunningError
from trainerd.rundir import run_events
from trainerd.rundir.claim import claimed
from trainerd.rundir.paths import RunDirectory
from trainerd.rundir.state import Phase, State
from trainerd.system.gpus import DeviceState
from trainerd.watch.ask import ask
from trainerd.watch.page.app import App
from trainerd.watch.page.as_json import MOST_RUNS
from trainerd.watch.page.guard import RequestGuard
from trainerd.watch.page.listen import ListenAddress
from trainerd.watch.page.queue import PageQueue
from trainerd.watch.page.server import MOST_CONNECTIONS, Page
from trainerd.watch.run_reader import MOST_CURVES, Runs

open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # whatever proxy the environment names
TOKEN = "0123456789abcdef"
ASKED = {"content_type": "application/json", "headers": {"X-Trainerd": "1"}, "data": "{}"}
PATHS = ["/", "/runs.json", "/run/trained.json", "/metrics", "/healthz", "/login", "/run/trained/save", "/nothing"]


def client(runs: Runs, listen: str = "127.0.0.1:9780", token: str | None = None) -> Client:
    return Client(App(runs, PageQueue(), RequestGuard(ListenAddress.parse(listen), token), clock=lambda: 1000.0))


def said(answer: TestResponse) -> Any:
    return json.loads(answer.data)


def get(page: Client, path: str, **more: Any) -> Any:
    answer = page.get(path, **more)
    assert answer.status_code == 200, answer.text
    return json.loads(answer.data)


# ---------------------------------------------------------------------- what it shows


def test_the_runs_that_train_come_first_and_one_can_be_found(
    trained: RunDirectory, make_run: MakeRun, runs: Runs
) -> None:
    for name, at in (("early", 10.0), ("late", 20.0)):
        rundir = make_run(name)
        rundir.state.write_text(json.dumps(json.loads(rundir.state.read_text()) | {"at": at}))
    run_events.add(trained, run_events.EventKind.START, "x:y")
    page = client(runs)
    found = get(page, "/runs.json")
    assert [run["name"] for run in found["runs"]] == ["trained", "late", "early"]
    assert (found["count"], found["running"], found["now"]) == (3, 1, 1000.0)
    first = found["runs"][0]
    assert (first["phase"], first["step"], first["left_secs"], first["metrics"]) == ("training", 7, 1.5, {"loss": 0.5})
    events = get(page, "/run/trained.json")["events"]
    assert [(event["kind"], event["said"]) for event in events] == [("start", "x:y")]
    assert [run["name"] for run in get(page, "/runs.json?match=LA")["runs"]] == ["late"]


def test_the_devices_of_a_run_are_given(make_run: MakeRun, runs: Runs) -> None:
    make_run(devices=[DeviceState("GPU:0", 3, 4, 0.5), DeviceState("CPU:1")])
    [run] = get(client(runs), "/runs.json")["runs"]
    unknown = {"memory_bytes": None, "memory_total_bytes": None, "utilization": None, "needed_bytes": None}
    assert run["devices"] == [
        {"name": "GPU:0", "memory_bytes": 3, "memory_total_bytes": 4, "utilization": 0.5, "needed_bytes": None},
        {"name": "CPU:1", **unknown},
    ]


def test_the_curves_of_some_metrics_are_given(make_run: MakeRun, runs: Runs) -> None:
    rundir = make_run(metrics={"loss": 1.0})
    append(rundir, point(10, 2.0, padding=1, at=5.0) + point(20, 1.0, at=6.0))
    page = client(runs)
    found = get(page, "/run/one.json?metric=loss&metric=nothing")
    assert found["curves"] == {"loss": [[10, 2.0, 5.0, 2.0], [20, 1.0, 6.0, 1.0]], "nothing": []}
    assert "points" not in found
    assert found["metrics"] == ["loss"] and get(page, "/run/one.json")["points"][0][:2] == [10, 2.0]
    many = "&".join(f"metric={number}" for number in range(100))
    assert len(get(page, f"/run/one.json?{many}")["curves"]) == MOST_CURVES


def test_a_run_is_found_by_its_words(make_run: MakeRun, runs: Runs) -> None:
    state = State(Phase.PAUSED, name="first", tags=["mnist", "new"], notes="Of last week", job="train.py")
    state.write(make_run("one").state)
    make_run("two", tags=["mnist"])
    page = client(runs)
    for words, found in (("mnist", 2), ("MNIST+new", 1), ("week+train", 1), ("paused", 2), ("one", 0), ("first", 1)):
        assert get(page, f"/runs.json?match={words}")["count"] == found, words
    [run] = get(page, "/runs.json?match=first")["runs"]
    assert (run["name"], run["tags"], run["notes"]) == ("first", ["mnist", "new"], "Of last week")


@pytest.mark.parametrize("name", ["with space", "quote'\"s", "ünïcödé-日本", "a#b%20&;$(c)", "x.json", "a%2Fb"])
def test_a_run_of_any_name_has_its_own_address(make_run: MakeRun, runs: Runs, name: str) -> None:
    make_run(name)
    make_run("deeper/x.json")
    page = client(runs)
    [path] = [run["path"] for run in get(page, "/runs.json")["runs"] if run["name"] == name]
    assert get(page, f"/{path}.json")["metric"] == "loss"
    assert page.post(f"/{path}/save", **ASKED).status_code == 409, "it does not run"


def test_two_runs_of_one_name_are_distinguished(make_run: MakeRun, tmp_path: Path) -> None:
    paths = [make_run("a/one").path, make_run("b/one").path]
    page = client(Runs(lambda: paths))
    for run in get(page, "/runs.json")["runs"]:
        assert run["name"] in ("one@a", "one@b") and get(page, f"/{run['path']}.json")["points"] == []


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_state_is_shown_harmless(make_run: MakeRun, runs: Runs, kind: str) -> None:
    make_run("sound", step=3)
    make_run("bad").state.write_bytes(HOSTILE[kind])
    page = client(runs)
    answer = page.get("/runs.json")
    found = json.loads(answer.data, parse_constant=lambda name: pytest.fail(name))["runs"]
    assert {run["name"] for run in found} == {"bad", "sound"} and len(answer.data) < 20_000
    assert all(letter.isprintable() for letter in json.dumps(found, ensure_ascii=False)), "no control characters"
    assert page.get("/run/bad.json").status_code == 200


def test_what_a_run_says_is_data_and_never_part_of_the_document(make_run: MakeRun, runs: Runs) -> None:
    make_run("<script>alert(1)<", error=ESCAPES)
    page = client(runs)
    assert b"alert" not in page.get("/").data
    answer = page.get("/runs.json")
    assert answer.mimetype == "application/json" and answer.headers["X-Content-Type-Options"] == "nosniff"
    for name in ("chart.js", "buttons.js", "queue.js", "page.js"):
        script = files("trainerd.watch.page").joinpath(name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|Function\(", script)


def test_of_thousands_of_runs_the_first_are_shown_and_all_are_counted(make_run: MakeRun, runs: Runs) -> None:
    for number in range(MOST_RUNS + 50):
        make_run(f"run-{number}")
    found = get(client(runs), "/runs.json")
    assert len(found["runs"]) == MOST_RUNS and found["count"] == MOST_RUNS + 50
    assert get(client(runs), "/runs.json?match=run-249")["count"] == 1


def test_metrics_are_served_in_the_format_that_is_asked_for(make_run: MakeRun, runs: Runs) -> None:
    make_run(step=3)
    plain = client(runs).get("/metrics")
    assert plain.mimetype == "text/plain" and 'trainerd_step{run="one"} 3.0' in plain.text
    new = client(runs).get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert new.mimetype == "application/openmetrics-text" and new.text.endswith("# EOF\n")
    odd = client(runs).get("/metrics", headers={"Accept": "application/openmetrics-text; version=x"})
    assert odd.status_code == 200 and odd.mimetype == "text/plain"


def test_an_error_of_one_run_is_said(make_run: MakeRun, runs: Runs) -> None:
    rundir = make_run()
    (rundir.path / "events.out.tfevents.1").symlink_to(rundir.state)
    answer = client(runs).get("/run/one.json")
    assert answer.status_code == 500 and "symbolic link" in said(answer)["error"]
    assert client(runs).get("/run/two.json").json == {"error": "there is no run 'two'."}


# ---------------------------------------------------------------------- who may look and ask


def test_every_answer_keeps_others_out(trained: RunDirectory, runs: Runs) -> None:
    for method in ("GET", "POST", "OPTIONS", "PUT", "HEAD"):
        for path in PATHS:
            headers = client(runs).open(path, method=method, headers={"Origin": "http://evil.example"}).headers
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert headers["Referrer-Policy"] == "no-referrer" and headers["X-Content-Type-Options"] == "nosniff"
            assert not [name for name, _ in headers if name.lower().startswith("access-control")]


def test_the_policy_allows_the_documents_own_style_and_script_alone(runs: Runs) -> None:
    answer = client(runs).get("/")
    policy = answer.headers["Content-Security-Policy"]
    for tag, kind in (("style", "style-src"), ("script", "script-src")):
        [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.S)
        assert f"{kind} 'sha256-{b64encode(sha256(inside.encode()).digest()).decode()}'" in policy
    assert "unsafe" not in policy and not re.search(r"(src|href)=\"?https?:|url\(|@import| on\w+=| style=", answer.text)


@pytest.mark.parametrize(
    ("listen", "host", "is_known"),
    [
        ("127.0.0.1:9780", "127.0.0.1:9780", True),
        ("127.0.0.1:9780", "localhost:1234", True),
        ("127.0.0.1:9780", "[::1]:9780", True),
        ("127.0.0.1:9780", "evil.example:9780", False),
        ("127.0.0.1:9780", "localhost.evil.example", False),
        ("127.0.0.1:9780", "192.0.2.1", False),
        ("127.0.0.1:9780", "", False),
        ("127.0.0.1:9780", "[", False),
        ("unix:/x", "localhost", True),
        ("unix:/x", "evil.example", False),
        ("192.0.2.1:80", "192.0.2.1", True),
        ("192.0.2.1:80", "192.0.2.2", False),
        ("0.0.0.0:80", "192.0.2.2", True),
        ("0.0.0.0:80", socket.gethostname(), True),
        ("0.0.0.0:80", f"{socket.gethostname()}.lan:80", True),
        ("0.0.0.0:80", "evil.example", False),
    ],
)
def test_a_name_of_another_site_is_refused(runs: Runs, tmp_path: Path, listen: str, host: str, is_known: bool) -> None:
    (tmp_path / "runs").mkdir()
    page = client(runs, listen, TOKEN if listen[0] in "10" and "127" not in listen else None)
    for path in ("/healthz", "/", "/metrics", "/login"):
        status = page.get(path, headers={"Host": host}).status_code
        assert (status in (400, 421)) != is_known, status


REFUSED: list[dict[str, Any]] = [
    {},
    {"headers": {"X-Trainerd": "1"}, "data": {"a": "b"}},
    {"headers": {"X-Trainerd": "1"}, "data": "{}", "content_type": "text/plain"},
    {"data": "{}", "content_type": "application/json"},
    {**ASKED, "headers": {"X-Trainerd": "1", "Origin": "http://evil.example"}},
    {**ASKED, "headers": {"X-Trainerd": "1", "Origin": "null"}},
    {**ASKED, "headers": {"X-Trainerd": "1", "Origin": "http://["}},
    {**ASKED, "headers": {"X-Trainerd": "1", "Origin": "http://localhost:8888"}},
    {**ASKED, "headers": {"X-Trainerd": "1", "Sec-Fetch-Site": "cross-site"}},
    {**ASKED, "headers": {"X-Trainerd": "1", "Sec-Fetch-Site": "same-site"}},
]


@pytest.mark.parametrize("sent", REFUSED)
@pytest.mark.parametrize("what", ["save", "pause"])
def test_what_another_site_can_send_asks_for_nothing(
    trained: RunDirectory, runs: Runs, what: str, sent: dict[str, Any]
) -> None:
    answer = client(runs).post(f"/run/trained/{what}", **sent)
    assert answer.status_code in (403, 415) and said(answer)["error"]
    assert client(runs).get(f"/run/trained/{what}").status_code == 405
    assert not trained.save.exists() and not trained.pause.exists()


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://localhost"}])
@pytest.mark.parametrize("what", ["save", "pause"])
def test_a_button_asks_through_a_file(trained: RunDirectory, runs: Runs, what: str, headers: dict[str, str]) -> None:
    answer = client(runs).post(f"/run/trained/{what}", **{**ASKED, "headers": {"X-Trainerd": "1", **headers}})
    assert answer.status_code == 200 and re.fullmatch(rf"asked process \d+ to {what}", said(answer)["said"])
    file = trained.save if what == "save" else trained.pause
    request = said(answer)["id"]
    assert bool(request) == (what == "save") and file.read_text() == (f"{request}\n" if request else "")
    assert {trained.save, trained.pause} - {file} and file.stat().st_mode & 0o777 == 0o644


def test_what_cannot_be_asked_for_is_said(trained: RunDirectory, make_run: MakeRun, runs: Runs) -> None:
    trained.save.symlink_to(trained.path / "elsewhere")
    answer = client(runs).post("/run/trained/save", **ASKED)
    assert answer.status_code == 500 and str(trained.save) in said(answer)["error"]
    with pytest.raises(NotRunningError, match="nothing to pause"):
        ask(make_run("other"), "pause")


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """As a user who is not root, to whom permissions matter."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(own)


def test_a_run_of_another_user_says_so_and_cannot_be_asked(trained: RunDirectory, tmp_path: Path) -> None:
    page = client(Runs(lambda: [trained.path]))
    tmp_path.chmod(0o711)
    trained.path.chmod(0o555)
    with as_nobody():
        [run] = get(page, "/runs.json")["runs"]
        answer = page.post("/run/trained/save", **ASKED)
    trained.path.chmod(0o755)
    assert answer.status_code == 500 and "Permission denied. `ls -ld` shows the owner" in said(answer)["error"]
    assert (
        run.get("step") == 7 or "Permission denied" in run["unread"]
    )  # root's temporary folders are closed to all else


# ---------------------------------------------------------------------- the token


@pytest.mark.parametrize(
    ("listen", "token", "said"),
    [
        ("0.0.0.0:0", None, "from other machines.*give a token"),
        ("[::]:0", None, "give a token"),
        ("192.0.2.1:9780", None, "give a token"),
        ("gpu1.example:9780", None, "give a token"),
        ("9780", None, "expected HOST:PORT"),
        (":9780", None, "expected HOST:PORT"),
        ("127.0.0.1:x", None, "expected HOST:PORT"),
        ("127.0.0.1:70000", None, "expected HOST:PORT"),
        ("::1:80", None, "expected HOST:PORT"),
        ("unix:", None, "expected HOST:PORT"),
    ],
)
def test_an_address_that_others_reach_needs_a_token(runs: Runs, listen: str, token: str | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Page(listen, runs, token)


def test_without_the_token_there_is_a_form_and_nothing_else(trained: RunDirectory, runs: Runs) -> None:
    page = client(runs, token=TOKEN)
    assert page.get("/healthz").status_code == 200
    for path in ("/runs.json", "/run/trained.json", "/metrics"):
        answer = page.get(path, headers={"Authorization": "Bearer wrong-wrong-wrong"})
        assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
        assert page.get(f"{path}?token={TOKEN}").status_code == 401, "it is never in an address"
        assert page.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert page.get(path, headers={"Authorization": "Basic Og=="}).status_code == 401
    assert page.post("/run/trained/save", **ASKED).status_code == 401 and not trained.save.exists()
    form = page.get("/")
    assert form.status_code == 401 and 'type="password"' in form.text and "<script>" not in form.text


def test_a_person_gives_the_token_once(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    page = client(runs, token=TOKEN)
    for wrong in ("", "wrong", "ü", TOKEN[:-1], TOKEN + "0"):
        answer = page.post("/login", data={"token": wrong})
        assert answer.status_code == 403 and "Set-Cookie" not in answer.headers
    answer = page.post("/login", data={"token": TOKEN})
    assert answer.status_code == 303 and answer.location == "/"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and TOKEN not in cookie
    assert page.get("/").status_code == 200 and page.get("/runs.json").status_code == 200
    other = client(runs, token=TOKEN + "0")
    other.set_cookie("trainerd", cookie.partition("=")[2].partition(";")[0])
    assert other.get("/runs.json").status_code == 401
    assert client(runs).post("/login", data={"token": ""}).status_code == 403, "there is no token"


def test_a_form_that_is_too_large_is_refused(runs: Runs) -> None:
    assert client(runs, token=TOKEN).post("/login", data={"token": "x" * 10_000}).status_code == 413


# ---------------------------------------------------------------------- where it listens


@contextlib.contextmanager
def served(page: Page) -> Iterator[Page]:
    thread = threading.Thread(target=page.serve)
    thread.start()
    yield page
    page.close()
    thread.join(20)
    assert not thread.is_alive()


def test_it_serves_on_a_port_until_it_is_closed(make_run: MakeRun, runs: Runs) -> None:
    make_run("a b")
    with served(Page("127.0.0.1:0", runs)) as page:
        assert page.address.port
        with open_url(f"http://{page.address}/run/a%20b.json", timeout=20) as answer:
            assert json.loads(answer.read())["metric"] == "loss" and "Server" not in answer.headers
        idle = socket.create_connection(("127.0.0.1", page.address.port))
    with idle, contextlib.suppress(ConnectionResetError):
        assert idle.recv(1) == b"", "a connection that is open does not keep it"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", page.address.port))


def test_a_port_in_use_is_said(runs: Runs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} of 127\.0\.0\.1: Address already in use"):
            Page(f"127.0.0.1:{port}", runs)


def over(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(4096), b""))


def test_it_serves_on_a_unix_socket_of_owner_and_group(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    path = tmp_path / "watch.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    with served(Page(f"unix:{path}", runs)) as page:
        assert str(page.address) == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert over(path).endswith(b"ok\n")
        with pytest.raises(ConfigError, match="another process listens"):
            Page(f"unix:{path}", runs)
        assert over(path).endswith(b"ok\n")
    assert not path.exists()


def test_a_unix_socket_takes_no_files_place(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="is not a socket"):
        Page(f"unix:{path}", runs)
    assert path.read_text() == "mine"
    with pytest.raises(ConfigError, match="too long"):
        Page(f"unix:{tmp_path}/{'x' * 200}", runs)
    with pytest.raises(ConfigError, match="No such file"):
        Page(f"unix:{tmp_path}/no/such.sock", runs)


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"x" * 100_000, b"\r\n" * 9]
)
def test_what_is_no_request_ends_that_connection_alone(make_run: MakeRun, runs: Runs, sent: bytes) -> None:
    make_run()
    with served(Page("127.0.0.1:0", runs)) as page:
        where = ("127.0.0.1", page.address.port)
        with contextlib.suppress(OSError), socket.create_connection(where, timeout=20) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
        with open_url(f"http://{page.address}/healthz") as answer:
            assert answer.read() == b"ok\n"


def partial(address: ListenAddress, source: str = "127.0.0.1") -> socket.socket:
    """A connection that has sent a part of a request."""
    found = socket.create_connection((address.host, address.port), timeout=20, source_address=(source, 0))
    found.sendall(b"GET /healthz HTTP/1.0\r\n")
    return found


def test_connections_that_ask_for_nothing_keep_nobody_out(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with served(Page("127.0.0.1:0", runs)) as page, contextlib.ExitStack() as stack:
        other = stack.enter_context(partial(page.address, source="127.0.0.2"))
        slow = [stack.enter_context(partial(page.address)) for _ in range(MOST_CONNECTIONS + 20)]
        with open_url(f"http://{page.address}/healthz", timeout=20) as answer:
            assert answer.read() == b"ok\n"
        other.sendall(b"Host: localhost\r\n\r\n")
        assert other.recv(4096).startswith(b"HTTP/1.0 200"), "those of one address cost another address none"
        with contextlib.suppress(ConnectionResetError):
            assert slow[0].recv(1) == b"", "the oldest is closed"


def test_a_connection_that_drips_is_closed_like_one_that_is_silent(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr("trainerd.watch.page.server.SILENT_SECS", 0.2)
    with served(Page("127.0.0.1:0", runs)) as page, partial(page.address) as dripping:
        dripping.settimeout(0.05)
        deadline = time.monotonic() + 20
        with contextlib.suppress(OSError):  # a send after it was closed
            while time.monotonic() < deadline:
                with contextlib.suppress(TimeoutError):
                    if not dripping.recv(1):
                        break
                dripping.sendall(b"X")
        assert time.monotonic() < deadline


def test_a_group_that_may_ask_asks_in_its_own_folder(rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    with claimed(rundir, "jobs:job"):
        monkeypatch.setattr(os, "access", lambda *arguments, **options: False)
        ask(rundir, "save")
        assert rundir.save.exists()  # there is no such folder: who may not write is told so
        rundir.requests.mkdir()
        ask(rundir, "pause")
        assert (rundir.requests / "pause").exists() and not rundir.pause.exists()
