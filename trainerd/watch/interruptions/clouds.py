"""The announcements of clouds that they take a machine away.

AWS: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
Google: https://cloud.google.com/compute/docs/instances/create-use-spot
Azure: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
"""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from trainerd.watch.interruptions.interruption import (
    InterruptionSource,
    MachineInterruption,
    NoticeSource,
    SourceError,
    bounded,
)
from trainerd.watch.interruptions.metadata import MetadataAnswer, MetadataService, require_status
from trainerd.watch.settings import Cloud

ADDRESS = "http://169.254.169.254"
POLL_SECS = 5.0  # as AWS recommends


class AwsSpot(NoticeSource):
    """The interruption notice of a spot instance of AWS. It comes two minutes before, except for a hibernation."""

    name = "the metadata service of AWS"
    poll_secs = POLL_SECS
    _NOTICE_SECS = 120.0
    _TOKEN_SECS = 21600
    _TOKEN, _ACTION = "/latest/api/token", "/latest/meta-data/spot/instance-action"

    def __init__(self, service: MetadataService, clock: Callable[[], float] = time.time) -> None:
        self._service, self._clock = service, clock
        self._token = ""
        self._announced = ""

    def poll(self) -> MachineInterruption | None:
        answer = self._ask()
        if answer.status == 401:  # the token has expired
            self._token = ""
            answer = self._ask()
        if answer.status == 404:  # nothing is announced
            return None
        require_status(answer, self._ACTION)
        found = _object(answer, self._ACTION)
        action, at = _text(found, "action"), _text(found, "time")
        if f"{action} {at}" == self._announced:
            return None
        self._announced = f"{action} {at}"
        secs = _secs_until(_iso_time(at), self._clock(), self._NOTICE_SECS)
        return MachineInterruption("spot", f"aws {action} {at}", f"AWS will {action} the machine at {at}", secs)

    def _ask(self) -> MetadataAnswer:
        if not self._token:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(self._TOKEN_SECS)}
            answer = self._service.ask(self._TOKEN, lifetime, method="PUT")
            require_status(answer, self._TOKEN)
            self._token = _header_value(answer, self._TOKEN)
        return self._service.ask(self._ACTION, {"X-aws-ec2-metadata-token": self._token})


class GoogleSpot(NoticeSource):
    """The preemption of a spot or preemptible machine of Google. It comes 30 seconds before.

    After the first answer a request waits on the server until that changes.
    """

    name = "the metadata service of Google"
    poll_secs = 1.0
    _NOTICE_SECS = 30.0
    _WAIT_SECS = 60
    _PATH = "/computeMetadata/v1/instance/preempted"
    _FLAVOR = "Metadata-Flavor"

    def __init__(self, service: MetadataService, clock: Callable[[], float] = time.time) -> None:
        self._service, self._clock = service, clock
        self._etag = ""
        self._is_announced = False

    def poll(self) -> MachineInterruption | None:
        path, timeout = self._PATH, 0.0
        if self._etag:
            timeout = float(self._WAIT_SECS)
            wait = {"wait_for_change": "true", "timeout_sec": self._WAIT_SECS, "last_etag": self._etag}
            path += f"?{urllib.parse.urlencode(wait)}"
        self._etag = ""
        answer = self._service.ask(path, {self._FLAVOR: "Google"}, timeout_secs=timeout + 10.0)
        require_status(answer, self._PATH)
        word = answer.body.strip().upper()
        if answer.headers.get(self._FLAVOR) != "Google" or word not in ("TRUE", "FALSE"):
            raise SourceError(f"what answers {self._PATH} is not a metadata service of Google")
        etag = answer.headers.get("ETag", "")
        if not etag:
            raise SourceError(f"the metadata service answers {self._PATH} without an ETag")
        self._etag = etag
        was_announced, self._is_announced = self._is_announced, word == "TRUE"
        if was_announced or not self._is_announced:
            return None
        at = datetime.fromtimestamp(self._clock(), UTC)
        return MachineInterruption(
            "spot", f"gcp {at:%Y-%m-%dT%H:%M:%SZ}", "Google preempts the machine", self._NOTICE_SECS
        )


class AzureSpot(NoticeSource):
    """The scheduled events of Azure that take this machine away: `Preempt` and `Terminate`.

    It only reads them: to acknowledge one would start it.
    """

    name = "the metadata service of Azure"
    poll_secs = POLL_SECS
    _NOTICE_SECS = 30.0
    _FIRST_SECS = 130.0  # the first request switches the service on, which takes up to two minutes
    _EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
    _NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
    _HEADERS = {"Metadata": "true"}  # noqa: RUF012  never changed
    _TAKEN = ("Preempt", "Terminate")

    def __init__(self, service: MetadataService, clock: Callable[[], float] = time.time) -> None:
        self._service, self._clock = service, clock
        self._machine = ""
        self._timeout = self._FIRST_SECS
        self._announced: set[str] = set()  # of the events that are scheduled still

    def poll(self) -> MachineInterruption | None:
        if not self._machine:
            answer = self._service.ask(self._NAME, self._HEADERS)
            require_status(answer, self._NAME)
            self._machine = _header_value(answer, self._NAME)
        answer = self._service.ask(self._EVENTS, self._HEADERS, timeout_secs=self._timeout)
        require_status(answer, self._EVENTS)
        self._timeout = 10.0
        events = _object(answer, self._EVENTS).get("Events")
        scheduled = [self._interruption(event) for event in events] if isinstance(events, list) else []
        found = {each.key: each for each in scheduled if each is not None}
        self._announced &= found.keys()
        new = next((each for each in found.values() if each.key not in self._announced), None)
        if new is not None:
            self._announced.add(new.key)
        return new

    def _interruption(self, event: object) -> MachineInterruption | None:
        """Return the interruption that an event is; None for other events, and for those of other machines."""
        if not isinstance(event, dict) or event.get("EventType") not in self._TAKEN:
            return None
        machines = event.get("Resources")
        if not isinstance(machines, list) or self._machine not in machines:
            return None
        kind, key = _text(event, "EventType"), _text(event, "EventId")
        secs = _secs_until(_mail_time(event.get("NotBefore")), self._clock(), self._NOTICE_SECS)
        return MachineInterruption("spot", f"azure {key}", f"Azure takes the machine away ({kind})", secs)


def source_of(cloud: Cloud, url: str | None) -> InterruptionSource:
    """Return the source of a cloud.

    Args:
      cloud: which.
      url: the address of its metadata service; None for the one that all clouds have.
    """
    service = MetadataService(url or ADDRESS)
    match cloud:
        case "aws":
            return AwsSpot(service)
        case "gcp":
            return GoogleSpot(service)
        case "azure":
            return AzureSpot(service)


def _object(answer: MetadataAnswer, path: str) -> dict[str, Any]:
    """Return the JSON object of an answer.

    Raises:
      SourceError: it has none.
    """
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SourceError(f"the metadata service answers {path} with something that is not a JSON object")
    return found


def _text(found: dict[str, Any], name: str) -> str:
    """Return a short text of an object.

    Raises:
      SourceError: it has none.
    """
    value = found.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= 100 or not value.isprintable():
        raise SourceError(f"the announcement of the metadata service has no valid {name!r}")
    return value


def _header_value(answer: MetadataAnswer, path: str) -> str:
    """Return an answer that is one word, such as a token.

    Raises:
      SourceError: it is none.
    """
    word = answer.body.strip()
    if not 0 < len(word) <= 1000 or not word.isascii() or not word.isprintable():
        raise SourceError(f"the metadata service answers {path} with something that is not a word")
    return word


def _secs_until(at: datetime | None, now: float, default: float) -> float:
    """Return the seconds until a time; `default` if it is unknown."""
    return bounded(at.timestamp() - now) if at is not None else default


def _iso_time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _mail_time(text: object) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if isinstance(text, str) else None
    except (ValueError, TypeError, OverflowError):
        return None
