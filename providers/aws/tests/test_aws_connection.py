"""Where services are called and how: addresses, TLS, proxies, one request for each call, invalid responses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from eso_provider_aws.clients import VARIABLES, Clients
from eso_provider_aws.provider import PROVIDER, SecretsManager
from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, hang, refused
from eso_provider_aws.testing.sessions import KEYS, context, read, whoami
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import Authority
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.testing.clock import VirtualClock
from kubebase.testing.listening import listening


async def _refusal(provider: InMemory, region: str = "eu-west-1") -> ProviderError:
    (result,) = await read(provider, context(SecretsManager, region=region), "db")
    assert isinstance(result, ProviderError)
    return result


# --- addresses ---


async def _address(service: str, region: str) -> str:
    clients = Clients()
    client = await clients.join(service, region)
    await clients.leave(service, region)
    return str(client.meta.endpoint_url)


@pytest.mark.parametrize(
    ("service", "region", "variables", "address"),
    [
        pytest.param("secretsmanager", "eu-west-1", {}, "secretsmanager.eu-west-1.amazonaws.com", id="the usual one"),
        pytest.param("sts", "eu-west-1", {}, "sts.eu-west-1.amazonaws.com", id="STS of the region, not the global one"),
        pytest.param("sts", "us-east-1", {}, "sts.us-east-1.amazonaws.com", id="STS of the oldest region too"),
        pytest.param("ssm", "cn-north-1", {}, "ssm.cn-north-1.amazonaws.com.cn", id="China"),
        pytest.param("sts", "cn-north-1", {}, "sts.cn-north-1.amazonaws.com.cn", id="STS in China"),
        pytest.param("acm", "us-gov-west-1", {}, "acm.us-gov-west-1.amazonaws.com", id="GovCloud"),
        pytest.param(
            "secretsmanager", "eusc-de-east-1", {}, "secretsmanager.eusc-de-east-1.amazonaws.eu", id="EU cloud"
        ),
        pytest.param(
            "secretsmanager",
            "us-east-1",
            {"AWS_USE_FIPS_ENDPOINT": "true"},
            "secretsmanager-fips.us-east-1.amazonaws.com",
            id="FIPS",
        ),
        pytest.param(
            "secretsmanager",
            "eu-west-1",
            {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
            "secretsmanager.eu-west-1.api.aws",
            id="dual stack",
        ),
        pytest.param(
            "ssm", "eu-west-1", {"AWS_ENDPOINT_URL_SSM": "https://ssm.example"}, "ssm.example", id="the SDK's variable"
        ),
        pytest.param(
            "ssm",
            "eu-west-1",
            {"AWS_ENDPOINT_URL": "https://all.example", "AWS_SSM_ENDPOINT": "https://ours.example"},
            "ours.example",
            id="our variable wins",
        ),
    ],
)
async def test_a_service_is_called_where_aws_or_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, service: str, region: str, *, variables: dict[str, str], address: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert await _address(service, region) == f"https://{address}"


@pytest.mark.parametrize(("service", "variable"), [pytest.param(*row, id=row[1]) for row in VARIABLES.items()])
async def test_every_service_has_a_variable_for_its_address(
    monkeypatch: pytest.MonkeyPatch, service: str, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")

    assert await _address(service, "us-east-1") == "http://127.0.0.1:1"


async def test_an_address_that_is_none_names_its_variable(provider: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRETSMANAGER_ENDPOINT", "no address")

    with pytest.raises(ProviderError) as caught:
        await read(provider, context(SecretsManager), "db")

    assert caught.value.reason is ErrorReason.CONFIG_INVALID
    assert "AWS_SECRETSMANAGER_ENDPOINT" in caught.value.message


# --- no connection ---


@pytest.mark.parametrize(
    ("address", "text"),
    [
        pytest.param(
            "http://127.0.0.1:1", "secretsmanager in eu-west-1 cannot be reached", id="a port without a listener"
        ),
        pytest.param("https://secretsmanager.invalid", "does not resolve", id="a name that does not exist"),
    ],
)
async def test_a_service_that_cannot_be_reached_is_unavailable(
    provider: InMemory, monkeypatch: pytest.MonkeyPatch, address: str, text: str
) -> None:
    monkeypatch.setenv("AWS_SECRETSMANAGER_ENDPOINT", address)

    error = await _refusal(provider)

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert text in error.message


async def test_a_service_that_does_not_response_times_out(front: Front) -> None:
    front.respond("GetSecretValue", hang)
    clock = VirtualClock()
    async with InMemory(PROVIDER, clock) as provider:
        waiting = asyncio.ensure_future(read(provider, context(SecretsManager), "db"))
        while not front.requests:  # noqa: ASYNC110 - the front has no event
            await asyncio.sleep(0.001)
        await clock.advance(30)
        (error,) = await waiting

    assert isinstance(error, ProviderError)
    assert error.reason is ErrorReason.BACKEND_TIMEOUT
    assert front.counts == {"GetSecretValue": 1}


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(refused("InternalServiceError", status=500), id="500"),
        pytest.param(StubResponse(503, b"<html>try again</html>"), id="503 of a load balancer"),
        pytest.param(refused("ThrottlingException"), id="a limit"),
        pytest.param(refused("RequestTimeout", status=400), id="a time-out of the service"),
    ],
)
async def test_a_call_is_one_request_whatever_its_response_is(
    front: Front, provider: InMemory, result: StubResponse
) -> None:
    front.respond("GetSecretValue", result)

    await _refusal(provider)

    assert front.counts == {"GetSecretValue": 1}


# --- invalid responses ---


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html><body>Please log in</body></html>", id="a page"),
        pytest.param(b"  <!DOCTYPE html><html></html>", id="another page"),
        pytest.param(b"OK", id="a word"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"SecretString": ', id="half an answer"),
    ],
)
@pytest.mark.parametrize("names", [pytest.param(("db",), id="one"), pytest.param(("db", "app"), id="a batch")])
async def test_the_response_of_a_proxy_is_never_taken_for_a_response_of_aws(
    front: Front, provider: InMemory, body: bytes, names: tuple[str, ...]
) -> None:
    front.respond("*", StubResponse(200, body))

    for error in await read(provider, context(SecretsManager), *names):
        assert isinstance(error, ProviderError)
        assert error.reason is ErrorReason.BACKEND_ERROR


# --- TLS and proxies ---


@pytest.fixture
async def tls(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    """A service behind TLS, and the authority that it has its certificate from."""
    authority = Authority.make()
    leaf = authority.leaf("spiffe://test/service")
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(authority.pem)
    for name, content in (("tls.crt", leaf.certificate), ("tls.key", leaf.key.reveal())):
        (tmp_path / name).write_bytes(content)
    settings = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    settings.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")

    async def serve(request: web.Request) -> web.Response:
        body = await request.json()
        return web.Response(body=whoami(RecordedRequest("GetSecretValue", body, KEYS[0])).body)

    app = web.Application()
    app.router.add_post("/", serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=settings).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}", bundle
    await runner.cleanup()


async def test_an_authority_of_ones_own_is_trusted_if_the_environment_names_it(
    tls: tuple[str, Path], provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRETSMANAGER_ENDPOINT", tls[0])
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tls[1]))

    assert await read(provider, context(SecretsManager), "db") == [KEYS[0].encode()]


async def test_an_unknown_authority_is_not_trusted(
    tls: tuple[str, Path], provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRETSMANAGER_ENDPOINT", tls[0])

    error = await _refusal(provider)

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "AWS_CA_BUNDLE" in error.message


async def test_a_missing_bundle_is_reported(
    tls: tuple[str, Path], provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRETSMANAGER_ENDPOINT", tls[0])
    monkeypatch.setenv("AWS_CA_BUNDLE", "/absent/ca.pem")

    assert (await _refusal(provider)).reason is ErrorReason.BACKEND_UNAVAILABLE


class Proxy:
    """Notes where a client wants to be connected to, and connects it to one place."""

    def __init__(self, to: str) -> None:
        self._to = to.rpartition("/")[2]
        self.expected: list[str] = []
        self.refuses = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        self.expected.append(request.split()[1].decode())
        if self.refuses:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = self._to.partition(":")
        upstream, downstream = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pump(reader, downstream), _pump(upstream, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@pytest.fixture
async def proxy(tls: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    """The only way to the service."""
    made = Proxy(tls[0])
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("AWS_SECRETSMANAGER_ENDPOINT", "https://provider.test")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tls[1]))
    async with listening(made.serve) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        yield made


async def test_a_service_is_reached_through_a_proxy_that_resolves_its_name(proxy: Proxy, provider: InMemory) -> None:
    assert await read(provider, context(SecretsManager), "db") == [KEYS[0].encode()]
    assert proxy.expected == ["provider.test:443"]


async def test_a_proxy_that_refuses_is_named(proxy: Proxy, provider: InMemory) -> None:
    proxy.refuses = True

    error = await _refusal(provider)

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "HTTPS_PROXY" in error.message
