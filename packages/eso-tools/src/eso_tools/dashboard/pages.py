"""The pages: who requests one, what they may read, and which template shows it; and the server that guards them.

    Host header (on loopback) -> method -> handler -> security headers on every response

Only reading requests, besides signing in and out. A page is sent whole, or as a fragment to the script that keeps it
current; an unchanged fragment gets 304. `X-As-Of` says of which time the shown state is.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from eso_operator.telemetry.settings import Listener
from eso_operator.telemetry.webserver import Certificate, WebServer, bearer_token
from eso_tools.dashboard import views
from eso_tools.dashboard.calls import OperatorMetrics
from eso_tools.dashboard.settings import is_loopback
from eso_tools.dashboard.viewers import Authorizer, Viewer, visible
from eso_tools.objects import EVENTS, RecordedEvent
from eso_tools.status.causes import causes_of
from eso_tools.status.following import FollowedObjects
from eso_tools.status.operators import OperatorState
from eso_tools.status.overview import OVERVIEW_KINDS, PROVIDERS, ObjectId, Overview, Row
from eso_tools.why.explanation import explanation_of
from eso_tools.why.inputs import gather
from kubebase.clock import Clock, rfc3339
from kubebase.deadline import Deadline
from kubebase.meta import Malformed, ObjectKey, raw
from kuberun.client import Client
from kuberun.controller import place_of
from kuberun.errors import ApiError, Forbidden
from kuberun.requests import Selection

FOLDER: Final = Path(__file__).parent
COOKIE: Final = "__Host-eso-token"
LIST_SECONDS, OBJECT_SECONDS = 5, 15
"""The seconds between two requests of a browser."""
MAX_EVENTS: Final = 30
_EXPLANATIONS_AT_ONCE: Final = 4
_EXPLANATION_DEADLINE: Final = 20.0
_QUERY: Final = ("q", "state", "kind", "namespace", "page")
_MAX_QUERY: Final = 200
_MAX_COOKIE: Final = 3900
"""Browsers drop cookies of more than 4096 bytes, name and attributes included."""
_EVENTS: Final = raw(EVENTS)
_KINDS: Final = {custom.crd_name: custom for custom in OVERVIEW_KINDS}
_UNAVAILABLE: Final = "The API server does not answer. Try again in a moment."

_MAX_BODY: Final = 64 * 1024
_FORMS: Final = frozenset({"/login", "/logout"})
_TYPES: Final = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Server": "eso",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": browsers then hide the origin of the form that signs in.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


_FRESH_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Show = Callable[[web.Request, Viewer], Awaitable[web.Response]]


class Pages:
    """The request handlers. Without an authorizer, everyone who can connect sees what `anonymous` may read."""

    def __init__(
        self,
        objects: FollowedObjects,
        metrics: OperatorMetrics,
        clock: Clock,
        *,
        anonymous: Viewer | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._followed = objects
        self._metrics = metrics
        self._clock = clock
        self._anonymous = anonymous
        self._authorizer = authorizer
        self._last: Overview | None = None
        self._made_at = 0.0
        self._making = asyncio.Lock()
        self._explanations = asyncio.Semaphore(_EXPLANATIONS_AT_ONCE)
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._version = _digest_of_files(FOLDER / "static")

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/", self._authenticated(self._problems)),
            web.get("/objects", self._authenticated(self._objects)),
            web.get("/objects/{resource}/{namespace}/{name}", self._authenticated(self._object)),
            web.get("/stores", self._authenticated(self._stores)),
            web.post("/login", self._login),
            web.post("/logout", self._logout),
        ]

    # --- who ----------------------------------------------------------------------------------------------------------

    def _authenticated(self, show: Show) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Serve only viewers whose token the API server accepts."""

        async def handle(request: web.Request) -> web.Response:
            try:
                viewer = await self._viewer(request)
                if viewer is None:
                    return self._sign_in(request)
                return await show(request, viewer)
            except (ApiError, TimeoutError):
                return self._message(request, 503, "Not available now", _UNAVAILABLE)

        return handle

    async def _viewer(self, request: web.Request) -> Viewer | None:
        if self._authorizer is None:
            return self._anonymous
        header = request.headers.get("Authorization", "")
        return await self._authorizer.viewer(bearer_token(header) or request.cookies.get(COOKIE, ""))

    def _sign_in(self, request: web.Request, problem: str = "") -> web.Response:
        response = self._page(request, "login.html", None, title="Sign in", problem=problem)
        response.set_status(401)
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    async def _login(self, request: web.Request) -> web.Response:
        if self._authorizer is None:
            raise web.HTTPNotFound
        if not _own_origin(request):
            raise web.HTTPForbidden(text="sign in from the dashboard itself\n")
        given = (await request.post()).get("token")
        token = given.strip() if isinstance(given, str) else ""
        if len(token) > _MAX_COOKIE:
            return self._sign_in(request, "This token is too long for a cookie. Send it in an Authorization header.")
        try:
            viewer = await self._authorizer.viewer(token)
        except ApiError:
            return self._message(request, 503, "Not available now", _UNAVAILABLE)
        if viewer is None:
            return self._sign_in(request, "The API server does not accept this token.")
        response = web.Response(status=303, headers={"Location": "/"})
        response.set_cookie(COOKIE, token, path="/", httponly=True, secure=True, samesite="Strict")
        return response

    async def _logout(self, request: web.Request) -> web.Response:
        if not _own_origin(request):
            raise web.HTTPForbidden(text="sign out from the dashboard itself\n")
        response = web.Response(status=303, headers={"Location": "/"})
        response.del_cookie(COOKIE, path="/", httponly=True, secure=True, samesite="Strict")
        return response

    # --- pages --------------------------------------------------------------------------------------------------------

    async def _problems(self, request: web.Request, viewer: Viewer) -> web.Response:
        namespace = _query(request)["namespace"]
        overview = await self._overview(viewer, namespace)
        namespaces = views.namespaces_of(overview)
        if namespace:
            overview = overview.only(lambda row: row.namespace in (namespace, ""))
        causes = await asyncio.to_thread(causes_of, overview)  # of many objects, this would block other requests
        fields = views.problems_view(overview, causes, self._clock.now())
        title = fields["headline"]
        return self._page(
            request, "problems.html", viewer, title=title, namespace=namespace, namespaces=namespaces, **fields
        )

    async def _objects(self, request: web.Request, viewer: Viewer) -> web.Response:
        query = _query(request)
        overview = await self._overview(viewer, query["namespace"])
        fields = views.objects_view(overview, query, self._clock.now())
        fields |= {"q": query["q"], "namespace": query["namespace"], "namespaces": views.namespaces_of(overview)}
        return self._page(request, "objects.html", viewer, title="Objects", **fields)

    async def _stores(self, request: web.Request, viewer: Viewer) -> web.Response:
        overview = await self._overview(viewer)
        labels = {(custom.name, obj.metadata.key): _labels(obj) for custom, obj in self._followed.objects(*PROVIDERS)}
        fields = views.stores_view(overview, await self._metrics.calls(), labels, self._clock.now())
        return self._page(request, "stores.html", viewer, title="Stores and providers", **fields)

    async def _object(self, request: web.Request, viewer: Viewer) -> web.Response:
        custom = _KINDS.get(request.match_info["resource"])
        namespace = request.match_info["namespace"].removeprefix("-")
        key = ObjectKey(namespace, request.match_info["name"])
        if custom is None or bool(namespace) != custom.namespaced:
            return self._message(request, 404, "Not found", "There is no such kind of object.", viewer)
        if not await viewer.may("get", custom.resource(), namespace, key.name):
            return self._message(request, 403, "Not for you", "Your account may not read this object.", viewer)
        overview = await self._whole()
        row = overview.find(ObjectId(custom.group, custom.name, key))
        if row is None:
            return self._message(request, 404, "Not found", "This object does not exist.", viewer)
        fields = await self._explanation(row, viewer, await visible(overview, viewer, namespace))
        return self._page(request, "object.html", viewer, title=f"{row.custom.name} {row.name}", **fields)

    async def _explanation(self, row: Row, viewer: Viewer, overview: Overview) -> dict[str, Any]:
        """Read the objects around one object with the rights of the viewer."""
        async with Deadline(self._clock, _EXPLANATION_DEADLINE), self._explanations, viewer.client() as client:
            inputs = await gather(client, row.custom, row.id.key)
            events = await _history(client, row)
        now = self._clock.now()
        fields = views.object_view(row, explanation_of(inputs, now), overview, now)
        return {**fields, "events": None if events is None else views.event_views(events, now)}

    async def _whole(self) -> Overview:
        """Return the rows of all objects, made at most once a second for all viewers."""
        async with self._making:
            if self._last is None or self._clock.monotonic() - self._made_at > _FRESH_SECONDS:
                self._last = await self._followed.overview()
                self._made_at = self._clock.monotonic()
            return self._last

    async def _overview(self, viewer: Viewer, namespace: str = "") -> Overview:
        return await visible(await self._whole(), viewer, namespace)

    # --- responses ----------------------------------------------------------------------------------------------------

    def _page(self, request: web.Request, template: str, viewer: Viewer | None, **fields: Any) -> web.Response:
        fragment = request.headers.get("X-Fragment") == "main"
        every = {"object.html": OBJECT_SECONDS, "login.html": 0, "message.html": 0}.get(template, LIST_SECONDS)
        shown = {"q": "", "every": every, "version": self._version, "viewer": viewer, "place": request.path, **fields}
        operators, as_of = self._followed.operators, rfc3339(self._followed.as_of())
        absent = (f"No operator works: {operators.why}.",) if operators.state is OperatorState.ABSENT else ()
        shown["stale"] = self._followed.stale()
        shown["operator_problems"] = () if viewer is None else (*absent, *operators.unheld)
        shown["as_of"] = "" if fragment else as_of
        layout = "fragment.html" if fragment else "layout.html"
        text = self._templates.get_template(template).render(layout=layout, **shown)
        tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
        headers = {"ETag": tag, "X-As-Of": as_of}
        if fragment and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(text=text, content_type="text/html", headers=headers)

    def _message(
        self, request: web.Request, status: int, title: str, text: str, viewer: Viewer | None = None
    ) -> web.Response:
        response = self._page(request, "message.html", viewer, title=title, text=text)
        response.set_status(status)
        return response


async def _history(client: Client, row: Row) -> list[RecordedEvent] | None:
    """Return the newest events about an object; None if the viewer may not list them."""
    about = f"involvedObject.kind={row.custom.name},involvedObject.name={row.name}"
    # Events about a cluster-scoped object are in the namespace `default`.
    try:
        page = await client.list(_EVENTS, Selection(row.namespace or "default", field_selector=about))
    except Forbidden:
        return None
    groups = {f"{row.custom.group}/{version}" for version in row.custom.versions}
    found = [
        msgspec.convert(item, RecordedEvent, strict=False)
        for item in page.items
        if not isinstance(item, Malformed) and item.get("involvedObject", {}).get("apiVersion") in groups
    ]
    return sorted(found, key=lambda event: event.at)[-MAX_EVENTS:]


def _query(request: web.Request) -> dict[str, str]:
    return {name: request.query.get(name, "")[:_MAX_QUERY] for name in _QUERY}


def _own_origin(request: web.Request) -> bool:
    """Return whether the dashboard itself sent the form, as far as the browser says."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("Origin")
    return origin is None or origin == f"https://{request.host}"


def _digest_of_files(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _labels(provider: Any) -> tuple[str, ...]:
    """Return how metrics name a provider: its class, and its Service, because it may be found without the class."""
    host = provider.spec.address.rpartition("//")[2].rpartition(":")[0]
    match host.split("."):
        case [name, namespace, "svc", *_]:
            return provider.metadata.name, f"{namespace}/{name}"
        case _:
            return (provider.metadata.name,)


# --- the server -------------------------------------------------------------------------------------------------------


class DashboardServer:
    """Serves the pages; with a certificate over TLS, else under names of this machine only."""

    def __init__(self, listen: Listener, certificate: Certificate | None, pages: Pages, clock: Clock) -> None:
        self._server = WebServer("dashboard", listen, certificate, clock)
        self._loopback_only = certificate is None
        self._pages = pages

    async def wait_listening(self) -> int:
        """Return the port, after the server has started."""
        return await self._server.wait_listening()

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application(client_max_size=_MAX_BODY, middlewares=[self._guarded])
        app.add_routes(self._pages.routes())
        app.router.add_get("/static/{name}", _static)
        app.router.add_get("/healthz", _alive)
        await self._server.run(app)

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject requests that no reader sends, and add the security headers to every response."""
        try:
            response = self._refusal(request) or await handler(request)
        except web.HTTPException as problem:
            response = web.Response(status=problem.status, text=f"{problem.reason}\n")
        except Exception as error:  # noqa: BLE001 - a defect costs one response; its text may hold anything
            _log.error("dashboard page failed", path=request.path, error=type(error).__name__, place=place_of(error))
            response = web.Response(status=500, text="this page failed; the log of the dashboard says where\n")
        response.headers.update(_HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        # A web site that rebinds its own name to 127.0.0.1 sends that name as Host.
        if self._loopback_only and not is_loopback(_host_of(request)):
            return web.Response(status=421, text="open the dashboard as localhost\n")
        if request.method not in ("GET", "HEAD") and not (request.method == "POST" and request.path in _FORMS):
            return web.Response(status=405, text="the dashboard is read only\n", headers={"Allow": "GET, HEAD"})
        return None


def _host_of(request: web.Request) -> str:
    """Return the Host header without its port and brackets."""
    host = request.host
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


async def _static(request: web.Request) -> web.Response:
    """Serve a file of the page. Its address changes with its content, so browsers may keep it."""
    name = request.match_info["name"]
    if name not in _TYPES:
        raise web.HTTPNotFound
    body = (FOLDER / "static" / name).read_bytes()
    headers = {"Cache-Control": "max-age=86400", "Content-Type": f"{_TYPES[name]}; charset=utf-8"}
    return web.Response(body=body, headers=headers)


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")
