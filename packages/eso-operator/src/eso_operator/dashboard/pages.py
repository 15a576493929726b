"""The pages: who requests one, what they may read, and which template shows it.

Only reading requests, besides signing in and out. A page is sent whole, or as a fragment to the script that keeps it
current; an unchanged fragment gets 304.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from eso_operator.dashboard import views
from eso_operator.dashboard.calls import Calls
from eso_operator.dashboard.snapshots import Snapshots
from eso_operator.dashboard.viewers import AnonymousViewer, Authorizer, Viewer, ViewerClient, visible
from eso_operator.insight.causes import causes_of
from eso_operator.insight.explanation import explanation_of
from eso_operator.insight.findings import RecordedEvent
from eso_operator.insight.inputs import gather
from eso_operator.insight.overview import OVERVIEW_KINDS, ObjectId, Overview, Row
from eso_operator.telemetry.webserver import bearer_token
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import Malformed, ObjectKey, Resource, raw
from kuberun.client import Client
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
_EVENTS: Final = raw(Resource("", "v1", "events", "Event"))
_KINDS: Final = {custom.crd_name: custom for custom in OVERVIEW_KINDS}
_UNAVAILABLE: Final = "The API server does not answer. Try again in a moment."

Show = Callable[[web.Request, Viewer], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources that the pages read from."""

    client: Client
    snapshots: Snapshots
    calls: Callable[[], Calls]
    clock: Clock
    checked: Callable[[ObjectId], datetime | None]
    """Returns when this process last refreshed an object; None if it did not."""
    stale: Callable[[], str]
    """Returns why the caches of the operator are not current; empty while they are."""


class Pages:
    """The request handlers. Without a authorizer, everyone who can connect sees everything."""

    def __init__(self, sources: Sources, authorizer: Authorizer | None) -> None:
        self._sources = sources
        self._authorizer = authorizer
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
            return AnonymousViewer()
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
        causes = await asyncio.to_thread(causes_of, overview)  # of many objects, this would block the operator
        fields = views.problems_view(overview, causes, self._sources.clock.now())
        title = fields["headline"]
        return self._page(
            request, "problems.html", viewer, title=title, namespace=namespace, namespaces=namespaces, **fields
        )

    async def _objects(self, request: web.Request, viewer: Viewer) -> web.Response:
        query = _query(request)
        overview = await self._overview(viewer, query["namespace"])
        fields = views.objects_view(overview, query, self._sources.clock.now())
        fields |= {"q": query["q"], "namespace": query["namespace"], "namespaces": views.namespaces_of(overview)}
        return self._page(request, "objects.html", viewer, title="Objects", **fields)

    async def _stores(self, request: web.Request, viewer: Viewer) -> web.Response:
        overview = await self._overview(viewer)
        sources = self._sources
        fields = views.stores_view(overview, sources.calls(), sources.snapshots.provider_labels(), sources.clock.now())
        return self._page(request, "stores.html", viewer, title="Stores and providers", **fields)

    async def _object(self, request: web.Request, viewer: Viewer) -> web.Response:
        custom = _KINDS.get(request.match_info["resource"])
        namespace = request.match_info["namespace"].removeprefix("-")
        key = ObjectKey(namespace, request.match_info["name"])
        if custom is None or bool(namespace) != custom.namespaced:
            return self._message(request, 404, "Not found", "There is no such kind of object.", viewer)
        if not await viewer.may("get", custom.resource(), namespace, key.name):
            return self._message(request, 403, "Not for you", "Your account may not read this object.", viewer)
        overview = await self._sources.snapshots.overview()
        row = overview.find(ObjectId(custom.group, custom.name, key))
        if row is None:
            return self._message(request, 404, "Not found", "This object does not exist.", viewer)
        fields = await self._explanation(row, viewer, await visible(overview, viewer, namespace))
        return self._page(request, "object.html", viewer, title=f"{row.custom.name} {row.name}", **fields)

    async def _explanation(self, row: Row, viewer: Viewer, overview: Overview) -> dict[str, Any]:
        """Read the objects around one object with the rights of the viewer."""
        client, clock = ViewerClient(self._sources.client, viewer), self._sources.clock
        async with Deadline(clock, _EXPLANATION_DEADLINE), self._explanations:
            inputs = await gather(client, row.custom, row.id.key)
            events = await _history(client, row)
        now = clock.now()
        fields = views.object_view(row, explanation_of(inputs, now, self._sources.checked(row.id)), overview, now)
        return {**fields, "events": None if events is None else views.event_views(events, now)}

    async def _overview(self, viewer: Viewer, namespace: str = "") -> Overview:
        return await visible(await self._sources.snapshots.overview(), viewer, namespace)

    # --- responses ----------------------------------------------------------------------------------------------------

    def _page(self, request: web.Request, template: str, viewer: Viewer | None, **fields: Any) -> web.Response:
        fragment = request.headers.get("X-Fragment") == "main"
        every = {"object.html": OBJECT_SECONDS, "login.html": 0, "message.html": 0}.get(template, LIST_SECONDS)
        shown = {"q": "", "every": every, "version": self._version, "viewer": viewer, "place": request.path, **fields}
        shown["stale"] = self._sources.stale()
        layout = "fragment.html" if fragment else "layout.html"
        text = self._templates.get_template(template).render(layout=layout, **shown)
        tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
        if fragment and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        return web.Response(text=text, content_type="text/html", headers={"ETag": tag})

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
