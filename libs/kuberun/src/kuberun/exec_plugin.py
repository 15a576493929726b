"""Credentials from an exec plugin: a program that prints an ExecCredential (client.authentication.k8s.io).

The program runs without a terminal, under a deadline, and never twice at once. Its output is never shown; it is
cached until the expiration it states, or until the server rejects it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import msgspec

from kubebase.clock import Clock
from kuberun.connection import ClientCertificate, Credential, bearer
from kuberun.errors import ConfigError

API_VERSIONS = frozenset({"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"})
DEADLINE_SECONDS = 60.0

_MAX_OUTPUT = 1 << 20


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """The program to run, and its input."""

    command: str
    api_version: str
    args: tuple[str, ...] = field(default=(), repr=False)  # some tools take a password as an argument
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    install_hint: str = ""
    origin: str = ""


class ExecCredentials:
    def __init__(self, plugin: ExecPlugin, clock: Clock, *, deadline: float = DEADLINE_SECONDS) -> None:
        self._plugin = plugin
        self._clock = clock
        self._deadline = deadline
        self._one_at_a_time = asyncio.Lock()
        self._credential: Credential | None = None
        self._expires: datetime | None = None

    async def current(self) -> Credential:
        if fresh := self._fresh():
            return fresh
        async with self._one_at_a_time:
            return self._fresh() or await self._run()

    async def refreshed(self, rejected: Credential) -> Credential | None:
        async with self._one_at_a_time:
            kept = self._fresh()
            found = kept if kept is not None and kept != rejected else await self._run()
        return found if found != rejected else None

    def _fresh(self) -> Credential | None:
        if self._expires is not None and self._clock.now() >= self._expires:
            return None
        return self._credential

    async def _run(self) -> Credential:
        output = await _output_of(self._plugin, self._deadline)
        self._credential, self._expires = _parse_credential(output, self._plugin)
        return self._credential


class _PluginProcess(asyncio.SubprocessProtocol):
    """One run of the program: its output up to a limit, and its exit.

    asyncio's own Process is not used: it never ends if reading stops before the program stops printing.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.output = bytearray()
        self.printed: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, _fd: int, data: bytes) -> None:
        if len(self.output) <= _MAX_OUTPUT:
            self.output += data
        elif not self.printed.done():
            self.printed.set_result(None)

    def pipe_connection_lost(self, _fd: int, _exc: Exception | None) -> None:
        if not self.printed.done():
            self.printed.set_result(None)

    def process_exited(self) -> None:
        self.exited.set_result(None)


async def _output_of(plugin: ExecPlugin, deadline: float) -> bytes:
    name = f"{plugin.origin}: the credential plugin {plugin.command!r}"
    transport, process = await _started(plugin)
    try:
        async with asyncio.timeout(deadline):
            await process.printed
            if len(process.output) > _MAX_OUTPUT:
                raise ConfigError(f"{name} printed more than 1 MiB; is it the right program?")
            await process.exited
    except TimeoutError:
        message = f"{name} gave no output within {deadline:g} s"
        raise ConfigError(f"{message}; does it wait for input? Run it once by hand to log in.") from None
    finally:
        await _end(transport, process)
    if code := transport.get_returncode():
        raise ConfigError(f"{name} failed with exit code {code}; run it by hand to see why.")
    return bytes(process.output)


async def _started(plugin: ExecPlugin) -> tuple[asyncio.SubprocessTransport, _PluginProcess]:
    try:
        return await asyncio.get_running_loop().subprocess_exec(
            _PluginProcess,
            plugin.command,
            *plugin.args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": _exec_info(plugin)},
            start_new_session=True,  # so that the deadline also kills child processes of the program
        )
    except (OSError, ValueError) as exc:
        hint = f" {plugin.install_hint.strip()}" if plugin.install_hint else " Install it or correct the command."
        raise ConfigError(f"{plugin.origin}: cannot start the credential plugin {plugin.command!r}.{hint}") from exc


async def _end(transport: asyncio.SubprocessTransport, process: _PluginProcess) -> None:
    if not process.exited.done():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
        await process.exited
    transport.close()


def _exec_info(plugin: ExecPlugin) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(info).decode()


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None  # a time without a zone is ambiguous


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _ExecStatus | None = None


def _parse_credential(output: bytes, plugin: ExecPlugin) -> tuple[Credential, datetime | None]:
    name = f"{plugin.origin}: the credential plugin {plugin.command!r}"
    try:
        found = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.DecodeError:  # the error's text may quote the output
        raise ConfigError(f"{name} did not print an ExecCredential; run it by hand to see what it prints.") from None
    if found.kind != "ExecCredential" or found.api_version != plugin.api_version:
        raise ConfigError(
            f"{name} did not print an ExecCredential of {plugin.api_version}; update it or the user entry."
        )
    status = found.status or _ExecStatus()
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigError(f"{name} printed only one of certificate and key")
    if not status.token and not status.client_certificate_data:
        raise ConfigError(f"{name} printed neither a token nor a certificate")
    certificate = None
    if status.client_certificate_data:
        certificate = ClientCertificate(status.client_certificate_data.encode(), status.client_key_data.encode())
    authorization = bearer(status.token, name) if status.token else ""
    return Credential(authorization, certificate), status.expiration_timestamp
