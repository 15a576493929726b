"""Every manifest of the guide on webhooks, applied as it stands but for the hosts, the token and the authority."""

from __future__ import annotations

import base64
import re
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_sdk.testing.server import Authority
from kubebase.meta import JsonObject
from kuberun.testing.builders import NAMESPACES

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "providers" / "webhook.md"
VALUES = {
    "greeting": {"greeting": "hello"},
    "login": {"user": "anna", "password": "sesame"},
    "database": {"host": "db", "port": "5432"},
    "queried": {"value": "hello"},
    "of-my-namespace": {"value": "hello, team-web"},
    "internal": {"value": "hello"},
    "windows": {"value": "hello"},
}
"""The expected value of each ExternalSecret of the guide."""


class Manager:
    """Answers the requests of the guide."""

    def __init__(self) -> None:
        self.values = {"greeting": "hello"}

    async def handle(self, request: web.Request) -> web.Response:
        where, _, key = request.path.removeprefix("/").partition("/")
        match where, request.method:
            case "secrets", "POST":
                self.values[key] = await request.text()
            case "secrets", "DELETE":
                self.values.pop(key, None)
            case "secrets", _:
                return web.Response(text=self.values[key]) if key in self.values else web.Response(status=404)
            case "items", _:
                pairs = (("user", "anna"), ("password", "sesame"))
                return web.json_response({"fields": [{"name": name, "value": value} for name, value in pairs]})
            case "objects", _:
                return web.json_response({"data": {"host": "db", "port": 5432}})
            case "query", "POST":
                return web.json_response({"value": self.values[(await request.json())["name"]]})
            case "namespaces", _:
                return web.Response(text=f"hello, {key.partition('/')[0]}")
            case _:
                return web.Response(status=404)
        return web.Response(status=204)

    async def with_token(self, request: web.Request) -> web.Response:
        guarded = request.path.startswith(("/secrets", "/namespaces"))
        if guarded and request.headers.get("Authorization") != "Bearer replace-me":
            return web.Response(status=401)
        return await self.handle(request)

    async def with_ntlm(self, request: web.Request) -> web.Response:
        """Challenge once, then accept a client that claims to be anna of CORP. The proof itself is tested elsewhere."""
        text = request.headers.get("Authorization", "").partition(" ")[2]
        kind = base64.b64decode(text)[8:9]
        if kind == b"\x03" and "CORPanna".encode("utf-16-le") in base64.b64decode(text):
            return await self.handle(request)
        offered = "NTLM"
        if kind == b"\x01":
            challenge = struct.pack("<8sIHHII8s16x", b"NTLMSSP\0", 2, 0, 0, 48, 0x00088201, b"01234567")
            offered = f"NTLM {base64.b64encode(challenge).decode()}"
        return web.Response(status=401, headers={"WWW-Authenticate": offered})


@asynccontextmanager
async def serving(handler: Any, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def documents(hosts: dict[str, str], ca: bytes) -> list[JsonObject]:
    guide = GUIDE.read_text(encoding="utf-8")
    for name, url in hosts.items():
        assert f"https://{name}" in guide
        guide = guide.replace(f"https://{name}", url)
    blocks = re.findall(r"^```yaml\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    found = [document for block in blocks for document in yaml.safe_load_all(block)]
    for document in found:
        if document["kind"] == "ConfigMap":
            document["data"]["ca.crt"] = ca.decode()
    return found


async def test_every_manifest_of_the_guide_works(site: Any, tmp_path: Path) -> None:
    manager, authority = Manager(), Authority.make()
    material = authority.leaf("spiffe://test/endpoint")
    (tmp_path / "tls.crt").write_bytes(material.certificate)
    (tmp_path / "tls.key").write_bytes(material.key.reveal())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    for name in ("team-web", "platform"):
        if await site.find(NAMESPACES, name) is None:
            await site.namespace(name)
    async with AsyncExitStack() as stack:
        hosts = {
            "secrets.example.com": await stack.enter_async_context(serving(manager.with_token)),
            "internal.example.com": await stack.enter_async_context(serving(manager.handle, tls)),
            "windows.example.com": await stack.enter_async_context(serving(manager.with_ntlm)),
        }
        written = documents(hosts, authority.pem)

        await site.apply(*written)

        for document in written:
            name, namespace = document["metadata"]["name"], document["metadata"].get("namespace", "")
            match document["kind"]:
                case "ExternalSecret":
                    await site.secret(name, namespace, VALUES[name].__eq__)
                    await site.ready(EXTERNAL_SECRET.resource(), name, namespace)
                case "SecretStore":
                    await site.ready(SECRET_STORE.resource(), name, namespace)
                case "ClusterSecretStore":
                    await site.ready(CLUSTER_SECRET_STORE.resource(), name)
                case "PushSecret":
                    await site.ready(PUSH_SECRET.resource(), name, namespace)
                    assert manager.values["app/password"] == "an-example-not-a-secret"
                    await site.delete(PUSH_SECRET.resource(), name, namespace)
                    await site.gone(PUSH_SECRET.resource(), name, namespace)
                    assert "app/password" not in manager.values
                case kind:
                    assert kind in ("Secret", "ConfigMap")
    assert {document["metadata"]["name"] for document in written if document["kind"] == "ExternalSecret"} == set(VALUES)
