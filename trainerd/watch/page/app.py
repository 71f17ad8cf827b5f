"""The routes of the page, as a WSGI application."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client.exposition import choose_encoder
from werkzeug.exceptions import HTTPException, NotFound, Unauthorized
from werkzeug.routing import BaseConverter, Map, Rule
from werkzeug.utils import redirect
from werkzeug.wrappers import Request, Response

from trainerd.errors import NotRunningError, TrainerdError, UsageError
from trainerd.watch.ask import Action, ask
from trainerd.watch.metrics import registry
from trainerd.watch.page.as_json import RunsAsJson, as_text, detail_as_json, path_of, text_of
from trainerd.watch.page.document import document
from trainerd.watch.page.guard import COOKIE, RequestGuard
from trainerd.watch.page.queue import PageQueue
from trainerd.watch.run_reader import Runs, RunView

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

log = logging.getLogger(__name__)

_LARGEST = 4096  # bytes that a request may send
_STATUS = {UsageError: 400, NotRunningError: 409}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class _Name(BaseConverter):
    """The name of a run, which may have slashes."""

    regex = r"[\s\S]+"
    part_isolating = False


class App:
    """Answers requests.

    Args:
      runs: what is known of the runs.
      queue: the queue of this user.
      guard: who may look and ask.
      clock: seconds since 1970 (UTC).
    """

    def __init__(
        self, runs: Runs, queue: PageQueue, guard: RequestGuard, clock: Callable[[], float] = time.time
    ) -> None:
        self._runs, self._queue, self._guard, self._clock = runs, queue, guard, clock
        self._runs_as_json = RunsAsJson()
        self._registry = registry(runs.seen, queue.stages, clock)
        self._open = (self._healthz, self._login)  # what needs no token
        self._routes = Map(
            [
                Rule("/", endpoint=self._page, methods=["GET"]),
                Rule("/runs.json", endpoint=self._list, methods=["GET"]),
                Rule("/metrics", endpoint=self._metrics, methods=["GET"]),
                Rule("/healthz", endpoint=self._healthz, methods=["GET"]),
                Rule("/login", endpoint=self._login, methods=["POST"]),
                Rule("/run/<name:name>.json", endpoint=self._run, methods=["GET"]),
                Rule("/run/<name:name>/save", endpoint=self._ask, defaults={"what": "save"}, methods=["POST"]),
                Rule("/run/<name:name>/pause", endpoint=self._ask, defaults={"what": "pause"}, methods=["POST"]),
                Rule("/run/<name:name>/queue", endpoint=self._add_to_queue, methods=["POST"]),
                *(
                    Rule(f"/queue/<name:name>/{what}", endpoint=self._change, defaults={"what": what}, methods=["POST"])
                    for what in queue.changes
                ),
            ],
            converters={"name": _Name},
            merge_slashes=False,
            redirect_defaults=False,
        )

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        request = Request(environ)
        request.max_content_length = _LARGEST
        response = self._answer(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        handler: Callable[..., Response] | None = None
        try:
            self._guard.require_known_host(request)
            handler, arguments = self._routes.bind_to_environ(request.environ).match()
            if handler not in self._open:
                self._guard.require_token(request)
            return handler(request, **arguments)
        except Unauthorized as error:
            return _login(401) if handler == self._page else _refused(error)
        except HTTPException as error:
            return _refused(error)
        except TrainerdError as error:
            return _json({"error": str(error)}, _STATUS.get(type(error), 500))
        except Exception:
            log.exception("an error of trainerd's own, in an answer to %s", request.path)
            return _json({"error": "an error of trainerd's own: the watcher's log has it."}, 500)

    def _page(self, request: Request) -> Response:
        html, policy = document("page.html", "chart.js", "buttons.js", "queue.js", "page.js")
        return Response(html, mimetype="text/html", headers={"Content-Security-Policy": policy})

    def _list(self, request: Request) -> Response:
        wanted = request.args.get("match", "").lower().split()
        runs = self._runs.seen()
        found = [run for run in runs if all(word in text_of(run) for word in wanted)]
        text = self._runs_as_json.text(found, self._queue.as_json(runs), self._clock())
        return Response(text, mimetype="application/json")

    def _run(self, request: Request, name: str) -> Response:
        run = self._find(name)
        metrics = request.args.getlist("metric")
        detail = self._runs.detail(run.rundir.path, metrics)
        if detail is None:
            raise NotFound(f"there is no run {name!r} any more.")
        return _json(detail_as_json(detail, run.events, metrics))

    def _ask(self, request: Request, name: str, what: Action) -> Response:
        self._guard.require_asked(request)
        run = self._find(name)
        pending = ask(run.rundir, what)
        pid = pending.holder.pid
        log.info("asked process %d, which trains %s, to %s", pid, run.rundir.path, what)
        return _json({"said": f"asked process {pid} to {what}", "id": pending.id})

    def _add_to_queue(self, request: Request, name: str) -> Response:
        self._guard.require_asked(request)
        return _changed(self._queue.add(self._find(name)))

    def _change(self, request: Request, name: str, what: str) -> Response:
        self._guard.require_asked(request)
        return _changed(self._queue.change(name, what))

    def _find(self, name: str) -> RunView:
        for run in self._runs.seen():
            if path_of(run.name) == path_of(name):
                return run
        raise NotFound(f"there is no run {name!r}.")

    def _metrics(self, request: Request) -> Response:
        try:
            encode, kind = choose_encoder(request.headers.get("Accept", ""))
        except (TypeError, ValueError):  # the version is not a number
            encode, kind = choose_encoder("")
        return Response(encode(self._registry), content_type=kind)

    def _healthz(self, request: Request) -> Response:
        self._runs.seen()
        return Response("ok\n", mimetype="text/plain")

    def _login(self, request: Request) -> Response:
        if not self._guard.is_token(request.form.get("token", "")):
            return _login(403)
        response = redirect("/", 303, Response)
        response.set_cookie(COOKIE, self._guard.cookie(), httponly=True, samesite="Strict")
        return response


def _json(content: Any, status: int = 200) -> Response:
    return Response(as_text(content), status, mimetype="application/json")


def _changed(said: str) -> Response:
    log.info("the page: %s", said)
    return _json({"said": said})


def _refused(error: HTTPException) -> Response:
    response = _json({"error": error.description}, error.code or 500)
    response.headers.extend([(name, value) for name, value in error.get_headers() if name != "Content-Type"])
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _login(status: int) -> Response:
    """Return the form for the token."""
    html, policy = document("login.html")
    headers = {"Content-Security-Policy": policy, "WWW-Authenticate": "Bearer"}
    return Response(html, status, mimetype="text/html", headers=headers)
