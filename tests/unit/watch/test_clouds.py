"""The announcements of clouds: a real server on this machine answers as theirs do, or as none of theirs does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler

import pytest

from tests.metadata_server import MetadataServer
from trainerd.watch.interruptions.clouds import AwsSpot, AzureSpot, GoogleSpot, source_of
from trainerd.watch.interruptions.interruption import InterruptionSource, SourceError
from trainerd.watch.interruptions.metadata import MetadataService
from trainerd.watch.settings import Cloud

NOW = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC).timestamp()
PREEMPT = {
    "EventId": "E-1",
    "EventType": "Preempt",
    "ResourceType": "VirtualMachine",
    "Resources": ["vm-0", "vm-1"],
    "EventStatus": "Scheduled",
    "NotBefore": "Sat, 28 Nov 2026 12:00:30 GMT",
}
CLOUDS: tuple[Cloud, ...] = ("aws", "gcp", "azure")


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    found = MetadataServer()
    yield found
    found.close()


def test_aws_announces_an_interruption_once(server: MetadataServer) -> None:
    source = AwsSpot(MetadataService(server.url), lambda: NOW)
    assert source.poll() is None and source.poll() is None
    assert [each.split("/")[-1] for each in server.asked] == ["token", "instance-action", "instance-action"]
    server.interrupt()
    found = source.poll()
    assert found is not None and (found.kind, found.secs) == ("spot", 120.0)
    assert found.title == "AWS will terminate the machine at 2026-11-28T12:02:00Z"
    assert source.poll() is None
    server.interrupt(at="2026-11-28T13:00:00Z")
    assert source.poll() is not None


def test_an_expired_token_of_aws_is_renewed(server: MetadataServer) -> None:
    source = AwsSpot(MetadataService(server.url), lambda: NOW)
    assert source.poll() is None
    server.token = "token-2"
    server.interrupt("stop")
    found = source.poll()
    assert found is not None and "stop" in found.title


@pytest.mark.parametrize(
    ("at", "secs"),
    [
        ("2026-11-28T12:01:00Z", 60.0),
        ("2026-11-28T11:00:00Z", 10.0),  # a clock that is wrong
        ("2036-11-28T11:00:00Z", 900.0),
        ("soon", 120.0),
    ],
)
def test_the_time_that_is_left_is_bounded(server: MetadataServer, at: str, secs: float) -> None:
    server.interrupt(at=at)
    found = AwsSpot(MetadataService(server.url), lambda: NOW).poll()
    assert found is not None and found.secs == secs


def test_google_announces_a_preemption_once_and_the_server_keeps_the_request_until_then(server: MetadataServer) -> None:
    source = GoogleSpot(MetadataService(server.url), lambda: NOW)
    assert source.poll() is None
    server.preempt()
    found = source.poll()
    assert found is not None and (found.kind, found.secs) == ("spot", 30.0)
    assert "wait_for_change=true" in server.asked[-1] and "last_etag=etag-0" in server.asked[-1]


def test_a_preemption_from_before_the_start_is_announced(server: MetadataServer) -> None:
    server.preempt()
    source = GoogleSpot(MetadataService(server.url), lambda: NOW)
    assert source.poll() is not None


def test_azure_announces_a_preemption_of_this_machine_once(server: MetadataServer) -> None:
    source = AzureSpot(MetadataService(server.url), lambda: NOW)
    others = [
        {**PREEMPT, "Resources": ["vm-2"]},
        {**PREEMPT, "EventType": "Freeze"},
        {**PREEMPT, "Resources": "vm-1"},
        3,
    ]
    server.schedule(*others)
    assert source.poll() is None
    server.schedule(*others, PREEMPT)
    found = source.poll()
    assert found is not None and (found.kind, found.key, found.secs) == ("spot", "azure E-1", 30.0)
    assert source.poll() is None
    server.schedule({**PREEMPT, "EventId": "E-2", "EventType": "Terminate", "NotBefore": ""})
    found = source.poll()
    assert found is not None and found.secs == 30.0
    assert not any(each.startswith("POST") for each in server.asked)


def test_events_of_azure_at_once_are_announced_once_each(server: MetadataServer) -> None:
    source, second = AzureSpot(MetadataService(server.url), lambda: NOW), {**PREEMPT, "EventId": "E-2"}

    def keys() -> list[str]:
        return sorted(found.key for found in [source.poll() for _ in range(5)] if found is not None)

    server.schedule(PREEMPT, second)
    assert keys() == ["azure E-1", "azure E-2"]
    server.schedule(second)
    assert keys() == []
    server.schedule(PREEMPT, second)  # it was withdrawn, and is scheduled again
    assert keys() == ["azure E-1"]


Answer = tuple[int, dict[str, str], bytes]
_LARGE = b"x" * (1 << 20)
HOSTILE: dict[str, Answer] = {
    "an error": (500, {}, b""),
    "a redirect": (302, {"Location": "/elsewhere"}, b""),
    "a large body": (200, {}, _LARGE),
    "a page": (200, {}, b"<html>Log in</html>\n<p>"),
    "a list": (200, {}, b"[1]\n[2]"),
    "deep": (200, {}, b"[" * 60_000),
    "not UTF-8": (200, {}, b"\xff\xfe\n\x00"),
    "nothing": (200, {}, b""),
    "wrong types": (200, {}, b'{"action": 1, "time": [],\n "Events": {"a": 1}}'),
    "a header of another": (200, {"Metadata-Flavor": "Other", "ETag": "1"}, b"TRUE\n\n1"),
    "escapes": (200, {}, b'{"action": "\\u001b[2J", "time": "\\u202e",\n"EventType": "\\u001b"}'),
}


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_answer_is_an_error_and_no_announcement(server: MetadataServer, cloud: Cloud, kind: str) -> None:
    server.answer = lambda request: HOSTILE[kind]
    source = source_of(cloud, server.url)
    with pytest.raises(SourceError) as caught:
        source.poll()
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300
    assert not any("elsewhere" in each for each in server.asked)
    server.answer = None
    assert source.poll() is None  # it works again


def _after_the_first_word(source: InterruptionSource, server: MetadataServer, body: bytes) -> None:
    """Poll while only the token, or the name of the machine, is answered as it should be."""

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        is_first = "token" in request.path or "compute/name" in request.path
        return server.serve(request) if is_first else (200, {}, body)

    server.answer = answer
    source.poll()


@pytest.mark.parametrize(
    ("cloud", "body"),
    [
        ("aws", b'{"action": "terminate"}'),
        ("aws", b'{"action": "\\u001b[2J", "time": "2026-11-28T12:02:00Z"}'),
        ("aws", b'{"action": "' + b"x" * 1000 + b'", "time": "2026-11-28T12:02:00Z"}'),
        ("aws", b"null"),
        ("azure", b'{"Events": [{"EventType": "Preempt", "Resources": ["vm-1"], "EventId": 7}]}'),
    ],
)
def test_an_announcement_that_is_damaged_is_an_error(server: MetadataServer, cloud: Cloud, body: bytes) -> None:
    with pytest.raises(SourceError, match="metadata service"):
        _after_the_first_word(source_of(cloud, server.url), server, body)


def test_a_server_that_is_not_there_is_an_error(server: MetadataServer) -> None:
    server.close()
    for cloud in CLOUDS:
        with pytest.raises(SourceError, match=re.escape(server.url)):
            source_of(cloud, server.url).poll()


def test_an_answer_that_trickles_in_is_an_error(server: MetadataServer) -> None:
    moments = iter([0.0, 1.0, 100.0])
    service = MetadataService(server.url, timer=lambda: next(moments))
    server.answer = lambda request: (200, {}, b"x" * 10_000)
    with pytest.raises(SourceError, match="too long"):
        service.ask("/", {})


def test_no_proxy_is_asked(server: MetadataServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert source_of("aws", server.url).poll() is None
