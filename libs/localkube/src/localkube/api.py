"""The path of one request through the server.

    target -> authenticate -> authorize -> limit concurrency -> respond (in time) -> reply, or the Status of a failure

Log lines name the verb and the resource, never a body, a header or a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from localkube.access.auth import Authenticator, impersonated, impersonation_targets, is_public
from localkube.access.rbac import ANONYMOUS, MASTERS, Policies, denial
from localkube.discovery import Discovery, Paths, not_found_page
from localkube.errors import (
    StatusError,
    bad_request,
    internal,
    no_such_path,
    server_timeout,
    too_large,
    too_many_requests,
)
from localkube.model import User
from localkube.resources import ResourceCall, Resources
from localkube.traces import report_defect
from localkube.wire.http import Reply, Request, Stream
from localkube.wire.negotiation import failure, is_pretty
from localkube.wire.routes import PathTarget, Query, ResourceTarget, Target, deadline_of, query_of, target_of

log = structlog.get_logger(__name__)

MAX_IN_FLIGHT: Final = 600
"""Concurrent requests, watches and health checks excepted; further ones get a 429."""


class Api:
    def __init__(
        self,
        authenticator: Authenticator,
        policies: Policies,
        discovery: Discovery,
        paths: Paths,
        resources: Resources,
    ) -> None:
        self._authenticator = authenticator
        self._policies = policies
        self._discovery = discovery
        self._paths = paths
        self._resources = resources
        self._in_flight = 0

    async def __call__(self, request: Request) -> Reply | Stream:
        """Respond to any request; failures become replies."""
        try:
            query = query_of(request.query)
            target = target_of(request.method, request.path, query)
            user = self._user(request, target)
            self._authorize(user, target)
            return await self._respond(request, target, query, user)
        except StatusError as error:
            return self._failure(request, error)
        except TimeoutError:
            message = "Timeout: request did not complete within the allotted timeout"
            return self._failure(request, server_timeout(message, 0))
        except Exception as problem:  # noqa: BLE001 - a defect in one request must not end the others
            name = type(problem).__name__
            report_defect(log, "request failed", problem, method=request.method, path=request.path)
            return self._failure(request, internal(f"Internal error occurred: {name}"))

    def refuse(self, status: int, message: str) -> Reply:
        """Respond to a request that cannot be parsed."""
        match status:
            case 413:
                return failure(too_large(f"Request entity too large: {message}"))
            case 400:
                return failure(bad_request(message))
            case _:
                return failure(internal("Internal error occurred"))

    def _user(self, request: Request, target: Target) -> User:
        user = self._authenticator.user_of(request)
        if user is ANONYMOUS and not is_public(target):
            raise denial(user, target)
        impersonated_user = impersonated(request)
        if impersonated_user is None:
            return user
        for needed in impersonation_targets(impersonated_user, request):
            self._authorize(user, needed)
        return impersonated_user

    def _authorize(self, user: User, target: Target) -> None:
        if MASTERS not in user.groups and not self._policies.current().decide(user, target).allowed:
            raise denial(user, target)

    async def _respond(self, request: Request, target: Target, query: Query, user: User) -> Reply | Stream:
        match target:
            case PathTarget():
                return await self._paths.respond(target, request, query)
            case ResourceTarget():
                kind = self._resources.kind_of(target)
                if kind is None:
                    return self._unknown(target)
                call = ResourceCall(target, kind, request, query, user)
                if target.verb == "watch":
                    return await self._resources.respond(call)
                with self._counted():
                    async with asyncio.timeout(deadline_of(query)):
                        return await self._resources.respond(call)

    def _unknown(self, target: ResourceTarget) -> Reply:
        if self._discovery.has_group(target.group):
            raise no_such_path()
        return not_found_page()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._in_flight >= MAX_IN_FLIGHT:
            raise too_many_requests("Too many requests, please try again later.", 1)
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def _failure(self, request: Request, error: StatusError) -> Reply:
        pretty = "true" if "pretty=true" in request.query else ""
        return failure(error, pretty=is_pretty(pretty, request.header("User-Agent")))
