"""Credentials from an exec plugin: a program that prints an ExecCredential (client.authentication.k8s.io).

The program runs without a terminal, under a deadline, once at a time; what it prints is never shown. Its answer is kept
until the expiration it states, or until the server refuses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from kuberun.clock import Clock
from kuberun.connection import ClientCertificate, Credential
from kuberun.credentials import bearer
from kuberun.errors import ConfigError

API_VERSIONS = frozenset({"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"})
DEADLINE_SECONDS = 60.0

_LARGEST_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """Which program, and what it is told."""

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
        answer = await _output_of(self._plugin, self._deadline)
        self._credential, self._expires = _read_answer(answer, self._plugin)
        return self._credential


async def _output_of(plugin: ExecPlugin, deadline: float) -> bytes:
    environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": _exec_info(plugin)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # so that the deadline also ends what the program started
        )
    except (OSError, ValueError) as exc:
        hint = f" {plugin.install_hint.strip()}" if plugin.install_hint else " Install it or correct the command."
        raise ConfigError(f"{plugin.origin}: cannot start the credential plugin {plugin.command!r}.{hint}") from exc
    try:
        async with asyncio.timeout(deadline):
            output = await _bounded_output(process, plugin)
            code = await process.wait()
    except TimeoutError as exc:
        message = f"{plugin.origin}: the credential plugin {plugin.command!r} gave no answer within {deadline:g} s"
        raise ConfigError(f"{message}; does it wait for input? Run it once by hand to log in.") from exc
    finally:
        await _end(process)
    if code != 0:
        message = f"{plugin.origin}: the credential plugin {plugin.command!r} failed with exit code {code}"
        raise ConfigError(f"{message}; run it by hand to see why.")
    return output


async def _bounded_output(process: asyncio.subprocess.Process, plugin: ExecPlugin) -> bytes:
    stdout = process.stdout
    if stdout is None:  # asked for above; only for the type checker
        raise ConfigError(f"{plugin.origin}: the credential plugin has no output")
    output = bytearray()
    while chunk := await stdout.read(65536):
        output += chunk
        if len(output) > _LARGEST_ANSWER:
            raise ConfigError(f"{plugin.origin}: the credential plugin {plugin.command!r} printed more than 1 MiB")
    return bytes(output)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _exec_info(plugin: ExecPlugin) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(info).decode()


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


def _read_answer(answer: bytes, plugin: ExecPlugin) -> tuple[Credential, datetime | None]:
    name = f"{plugin.origin}: the credential plugin {plugin.command!r}"
    try:
        found = msgspec.json.decode(answer, type=_ExecCredential)
    except msgspec.DecodeError:  # its text may quote the answer
        raise ConfigError(f"{name} did not print an ExecCredential; run it by hand to see what it prints.") from None
    if found.kind != "ExecCredential" or found.api_version != plugin.api_version:
        raise ConfigError(
            f"{name} did not answer with an ExecCredential of {plugin.api_version}; update it or the user entry."
        )
    status = found.status or _Status()
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigError(f"{name} gave only one of certificate and key")
    if not status.token and not status.client_certificate_data:
        raise ConfigError(f"{name} gave neither a token nor a certificate")
    certificate = None
    if status.client_certificate_data:
        certificate = ClientCertificate(status.client_certificate_data.encode(), status.client_key_data.encode())
    authorization = bearer(status.token, name) if status.token else ""
    return Credential(authorization, certificate), status.expiration_timestamp
