"""Credentials from a program: its input, when it runs, and what happens when it misbehaves."""

import asyncio
import base64
import json
import os
import stat
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kubebase.clock import SystemClock, rfc3339
from kubebase.testing.clock import START, VirtualClock
from kuberun.config import load
from kuberun.connection import Connection, Credential
from kuberun.errors import ConfigError
from kuberun.exec_plugin import ExecCredentials, ExecPlugin
from kuberun.testing.authority import Authority
from kuberun.testing.builders import kubeconfig

PLANTED = "PLANTED-token-0815"
PEM = "-----BEGIN CERTIFICATE-----\n"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def credential(connection: Connection) -> Credential:
    return await connection.credentials.current()


V1 = "client.authentication.k8s.io/v1"


class Plugin:
    """A credential plugin: a shell script that logs each run and its input."""

    def __init__(self, folder: Path) -> None:
        self.command = folder / "plugin"
        self.log = folder / "runs"
        self.response = folder / "answer"

    def prints(self, status: Mapping[str, Any], api_version: str = V1) -> None:
        self.says(json.dumps({"apiVersion": api_version, "kind": "ExecCredential", "status": status}))

    def says(self, text: str, then: str = "") -> None:
        self.response.write_text(text)
        self.command.write_text(
            f'#!/bin/sh\necho "$KUBERNETES_EXEC_INFO|$1|$EXTRA" >> {self.log}\ncat {self.response}\n{then}\n'
        )
        self.command.chmod(self.command.stat().st_mode | stat.S_IXUSR)

    @property
    def runs(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def user(self, **fields: Any) -> dict[str, Any]:
        return {"exec": {"command": "./plugin", "apiVersion": V1, "interactiveMode": "IfAvailable", **fields}}


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


@pytest.mark.parametrize("api_version", [V1, "client.authentication.k8s.io/v1beta1"])
async def test_a_plugin_gives_a_token(tmp_path: Path, plugin: Plugin, api_version: str) -> None:
    plugin.prints({"token": "from-plugin"}, api_version)
    connection = load(kubeconfig(tmp_path / "config", plugin.user(apiVersion=api_version)))

    assert await credential(connection) == Credential("Bearer from-plugin")


async def test_a_plugin_gives_a_certificate(tmp_path: Path, plugin: Plugin) -> None:
    identity = Authority(SystemClock().now()).issue("jane")
    plugin.prints({"clientCertificateData": identity.certificate.decode(), "clientKeyData": identity.key.decode()})

    assert await credential(load(kubeconfig(tmp_path / "config", plugin.user()))) == Credential(certificate=identity)


async def test_a_plugin_is_told_about_the_cluster(tmp_path: Path, plugin: Plugin) -> None:
    plugin.prints({"token": "t"})
    user = plugin.user(args=["argument"], env=[{"name": "EXTRA", "value": "more"}], provideClusterInfo=True)
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a", "ttl": 5, "on": True}}
    cluster = {"certificate-authority-data": b64(PEM), "tls-server-name": "x", "extensions": [extension]}

    await credential(load(kubeconfig(tmp_path / "config", user, cluster)))

    info, argument, extra = plugin.runs[0].split("|")
    assert (argument, extra) == ("argument", "more")
    assert json.loads(info) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://kube.test:6443",
                "tls-server-name": "x",
                "certificate-authority-data": b64(PEM),
                "config": {"audience": "a", "ttl": 5, "on": True},
            },
        },
    }


async def test_a_plugin_is_not_told_about_the_cluster_unless_asked(tmp_path: Path, plugin: Plugin) -> None:
    plugin.prints({"token": "t"})

    await credential(load(kubeconfig(tmp_path / "config", plugin.user())))

    assert "cluster" not in json.loads(plugin.runs[0].split("|")[0])["spec"]


async def test_a_plugin_runs_again_only_after_its_credential_expired(tmp_path: Path, plugin: Plugin) -> None:
    clock = VirtualClock()
    plugin.prints({"token": "one", "expirationTimestamp": rfc3339(START + timedelta(minutes=15))})
    connection = load(kubeconfig(tmp_path / "config", plugin.user()), clock=clock)

    first = await credential(connection)
    plugin.prints({"token": "two"})
    await clock.advance(15 * 60 - 1)
    still = await credential(connection)
    await clock.advance(1)
    second = await credential(connection)
    await clock.advance(365 * 24 * 3600)
    forever = await credential(connection)

    assert [first, still, second, forever] == [Credential(f"Bearer {token}") for token in ("one", "one", "two", "two")]
    assert len(plugin.runs) == 2


async def test_many_callers_share_one_run(tmp_path: Path, plugin: Plugin) -> None:
    plugin.prints({"token": "t"})
    connection = load(kubeconfig(tmp_path / "config", plugin.user()))

    found = await asyncio.gather(*(credential(connection) for _ in range(20)))

    assert set(found) == {Credential("Bearer t")}
    assert len(plugin.runs) == 1


async def test_a_refused_credential_makes_the_plugin_run_once_for_all(tmp_path: Path, plugin: Plugin) -> None:
    plugin.prints({"token": "old"})
    credentials = load(kubeconfig(tmp_path / "config", plugin.user())).credentials
    refused = await credentials.current()
    plugin.prints({"token": "new"})

    found = await asyncio.gather(*(credentials.refreshed(refused) for _ in range(5)))

    assert set(found) == {Credential("Bearer new")}
    assert len(plugin.runs) == 2


async def test_a_plugin_that_has_no_other_credential_says_none(tmp_path: Path, plugin: Plugin) -> None:
    plugin.prints({"token": "same"})
    credentials = load(kubeconfig(tmp_path / "config", plugin.user())).credentials

    assert await credentials.refreshed(await credentials.current()) is None


@pytest.mark.parametrize(
    ("response", "then", "message"),
    [
        pytest.param(PLANTED, "", "did not print an ExecCredential", id="not JSON"),
        pytest.param(PLANTED, "exit 3", "exit code 3; run it by hand", id="failure"),
        pytest.param('{"kind":"ExecCredential","apiVersion":"v9"}', "", f"of {V1}", id="another version"),
        pytest.param(json.dumps({"kind": "ExecCredential", "apiVersion": V1}), "", "neither a token", id="empty"),
        pytest.param(
            json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": {"clientKeyData": PLANTED}}),
            "",
            "only one of certificate and key",
            id="a key without certificate",
        ),
        pytest.param(
            json.dumps(
                {
                    "kind": "ExecCredential",
                    "apiVersion": V1,
                    "status": {"token": PLANTED, "expirationTimestamp": "2030-01-01T00:00:00"},
                }
            ),
            "",
            "did not print an ExecCredential",
            id="an end without a time zone",
        ),
        pytest.param("x", "head -c 2000000 /dev/zero", "more than 1 MiB", id="endless output"),
    ],
)
async def test_a_broken_plugin_says_what_to_do_and_never_what_it_printed(
    tmp_path: Path, plugin: Plugin, response: str, then: str, message: str
) -> None:
    plugin.says(response, then + f"\necho {PLANTED} >&2" if not then.startswith("exit") else then)

    with pytest.raises(ConfigError, match=message) as caught:
        await credential(load(kubeconfig(tmp_path / "config", plugin.user())))

    assert "user 'u'" in str(caught.value)
    assert PLANTED not in str(caught.value)


async def test_a_missing_plugin_shows_the_install_hint(tmp_path: Path) -> None:
    user = {"exec": {"command": "no-such-plugin", "apiVersion": V1, "installHint": "Get it from your vendor."}}

    with pytest.raises(ConfigError, match=r"cannot start .* 'no-such-plugin'\. Get it from your vendor\."):
        await credential(load(kubeconfig(tmp_path / "config", user)))


async def test_a_plugin_that_hangs_is_ended_with_all_it_started(tmp_path: Path, plugin: Plugin) -> None:
    held_open = tmp_path / "held"
    os.mkfifo(held_open)
    reader = os.open(held_open, os.O_RDONLY | os.O_NONBLOCK)
    plugin.says("", f"sleep 1000 > {held_open} & wait")
    spec = ExecPlugin(str(plugin.command), V1, origin="user 'u'")

    with pytest.raises(ConfigError, match=r"no output within 0\.5 s; does it wait for input"):
        await ExecCredentials(spec, SystemClock(), deadline=0.5).current()

    os.set_blocking(reader, True)
    assert await asyncio.to_thread(os.read, reader, 1) == b""  # the end of the pipe: no process holds it open
    os.close(reader)
