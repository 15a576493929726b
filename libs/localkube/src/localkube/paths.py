"""Paths beside resources: version, health, discovery, OpenAPI, and the list of all paths at /."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kubebase.meta import JsonObject
from localkube.discovery import Discovery
from localkube.errors import method_not_allowed, no_such_path, not_acceptable
from localkube.openapi import OpenApi
from localkube.wire.http import Reply, Request
from localkube.wire.negotiation import accepted, clauses, compressed, is_pretty, reply, wants_aggregated_discovery
from localkube.wire.routes import PathTarget, Query, first

MAJOR, MINOR = "1", "36"
GIT_VERSION: Final = f"v{MAJOR}.{MINOR}.0+localkube"
VERSION: Final = {
    "major": MAJOR,
    "minor": MINOR,
    "emulationMajor": MAJOR,
    "emulationMinor": MINOR,
    "minCompatibilityMajor": MAJOR,
    "minCompatibilityMinor": "35",
    "gitVersion": GIT_VERSION,
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "python",
    "platform": "linux/amd64",
}
Check = Callable[[], bool]
Action = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class StaticDocument:
    """A document in one media type, which clients may cache for an hour."""

    media: str
    content: Callable[[], JsonObject]


@dataclass(frozen=True, slots=True)
class Extras:
    """Documents, checks and actions of the server, by full path (checks: by name)."""

    checks: Mapping[str, Check]
    documents: Mapping[str, StaticDocument]
    actions: Mapping[str, Action]
    """Actions, run by a POST of a user with permission for the path."""


class Paths:
    def __init__(self, discovery: Discovery, openapi: OpenApi, extras: Extras) -> None:
        self._discovery = discovery
        self._openapi = openapi
        self._checks = extras.checks
        self._documents = extras.documents
        self._actions = extras.actions

    async def respond(self, target: PathTarget, request: Request, query: Query) -> Reply:
        """Return the document at a path; 404 in plain text if there is none, as the real server has it."""
        path = target.path.rstrip("/") or "/"
        head, *rest = path[1:].split("/")
        if target.method == "POST" and path in self._actions:
            await self._actions[path]()
            return _text(200, "ok")
        known = head in {"", "api", "apis", "openapi", "version", "healthz", "livez", "readyz"}
        if (known or path in self._documents) and target.method not in {"GET", "HEAD"}:
            raise method_not_allowed()
        if path in self._documents:
            return _published(self._documents[path], request)
        match head:
            case "" if path == "/":
                return self._formed({"paths": self._discovery.paths()}, request, query)
            case "version" if not rest:
                return self._formed(VERSION, request, query)
            case "healthz" | "livez" | "readyz":
                return self._health(head, rest, query)
            case "api" | "apis":
                found = self._discover(head, rest, request)
                return self._prettied(found, request, query) if found else not_found_page()
            case "openapi":
                document = self._openapi.respond(rest, first(query, "hash"), request) or not_found_page()
                return await compressed(document, request.header("Accept-Encoding"))
            case _:
                return not_found_page()

    def _discover(self, head: str, rest: list[str], request: Request) -> Reply | None:
        known = request.header("If-None-Match")
        aggregated = wants_aggregated_discovery(request.header("Accept"))
        match head, rest:
            case "api", []:
                return self._discovery.aggregated_core(known) if aggregated else self._discovery.versions()
            case "api", [version]:
                return self._resources("", version)
            case "apis", []:
                return self._discovery.aggregated_groups(known) if aggregated else self._discovery.groups()
            case "apis", [group]:
                return self._discovery.group(group)
            case "apis", [group, version]:
                return self._resources(group, version)
            case _:
                return None

    def _resources(self, group: str, version: str) -> Reply | None:
        found = self._discovery.resources(group, version)
        if found is None and self._discovery.has_group(group):
            raise no_such_path()
        return found

    def _health(self, name: str, rest: list[str], query: Query) -> Reply:
        excluded = set(query.get("exclude", []))
        selected = [check for check in self._checks if (not rest or check == rest[0]) and check not in excluded]
        if rest and (len(rest) > 1 or rest[0] not in self._checks):
            return not_found_page()
        results = [(check, self._checks[check]()) for check in selected]
        healthy = all(passed for _, passed in results)
        if healthy and "verbose" not in query:
            return _text(200, "ok")
        return _text(200 if healthy else 500, _report(name, results, excluded & self._checks.keys(), healthy=healthy))

    def _formed(self, document: JsonObject, request: Request, query: Query) -> Reply:
        pretty = is_pretty(first(query, "pretty"), request.header("User-Agent"))
        return reply(200, document, accepted(request.header("Accept")), pretty=pretty)

    def _prettied(self, response: Reply, request: Request, query: Query) -> Reply:
        if response.body and is_pretty(first(query, "pretty"), request.header("User-Agent")):
            response.body = msgspec.json.format(response.body, indent=2) + b"\n"
        return response


def _published(document: StaticDocument, request: Request) -> Reply:
    if not any(clause.media in {document.media, "*/*"} for clause in clauses(request.header("Accept"))):
        raise not_acceptable(document.media)
    headers = [("Cache-Control", "public, max-age=3600")]
    return Reply(200, msgspec.json.encode(document.content()), document.media, headers)


def not_found_page() -> Reply:
    return _text(404, "404 page not found\n")


def _report(name: str, results: Iterable[tuple[str, bool]], excluded: Iterable[str], *, healthy: bool) -> str:
    lines = [f"[+]{check} ok" if passed else f"[-]{check} failed: reason withheld" for check, passed in results]
    lines += [f"[+]{check} excluded: ok" for check in sorted(excluded)]
    return "\n".join([*lines, f"{name} check {'passed' if healthy else 'failed'}", ""])


def _text(status: int, text: str) -> Reply:
    headers = [("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-cache, private")]
    return Reply(status, text.encode(), "text/plain; charset=utf-8", headers)
