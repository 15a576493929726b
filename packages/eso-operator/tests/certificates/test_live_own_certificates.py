"""Certificates that users bring, on an API server: used as they are, and named when they cannot work."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta

import pytest

from eso_operator.certificates.authority import issue_authority, issue_client
from eso_operator.certificates.problems import CertificateError, ProblemName
from eso_operator.certificates.state import window
from eso_operator.stores.resolved import SecretTls
from eso_testkit.operator.certificates import operator
from kubebase.clock import SystemClock
from kuberun.client import Client
from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live


def brought(now: datetime, validity: timedelta = timedelta(days=30)) -> dict[str, bytes]:
    """The keys of a Secret that cert-manager makes."""
    issuer = issue_authority("users", window(now, timedelta(days=300)))
    leaf = issue_client(issuer, "spiffe://cluster.local/ns/eso/sa/external-secrets", window(now, validity))
    return {"tls.crt": leaf.certificate, "tls.key": leaf.key.reveal(), "ca.crt": issuer.certificate}


async def put(api: RawApi, namespace: str, data: dict[str, bytes]) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    await api.delete(f"{path}/own")
    created = await api.post(path, {"metadata": {"name": "own"}, "data": encoded})
    assert created.status == 201, created.body


async def test_a_users_secret_is_used_unchanged_and_its_changes_are_noticed(
    client: Client, api: RawApi, namespace: str, team: str
) -> None:
    """R104: cert-manager fits, and is not needed."""
    tls, told = SecretTls(team, "own"), list[str]()
    now = SystemClock().now()
    await put(api, team, brought(now))

    async with operator(client, namespace) as running:
        running.certificates.listen(lambda _, fingerprint: told.append(fingerprint))
        first = await running.certificates.of(tls)
        again = await running.certificates.of(tls)
        await put(api, team, brought(now))
        second = await running.certificates.of(tls)

    assert again is first
    assert told == [second.fingerprint]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"ca.crt": b""}, (ProblemName.SECRET_KEY_MISSING, "lacks ca.crt"), id="an empty ca.crt"),
        pytest.param(
            {"tls.key": b"", "tls.crt": b""}, (ProblemName.SECRET_KEY_MISSING, "lacks tls.crt, tls.key"), id="no pair"
        ),
        pytest.param({"ca.crt": b"nonsense"}, (ProblemName.MALFORMED, "ca.crt holds no PEM"), id="a CA that is none"),
        pytest.param({"tls.key": b"CANARY-1"}, (ProblemName.KEY_MISMATCH, "not the key of"), id="a key that is none"),
    ],
)
async def test_a_users_secret_that_cannot_work_is_named_with_its_key(
    client: Client, api: RawApi, namespace: str, change: dict[str, bytes], expected: tuple[ProblemName, str]
) -> None:
    await put(api, namespace, {**brought(SystemClock().now()), **change})

    async with operator(client, namespace) as running:
        with pytest.raises(CertificateError, match=expected[1]) as caught:
            await running.certificates.of(SecretTls(namespace, "own"))

    assert caught.value.problem.name is expected[0]
    assert "CANARY" not in caught.value.message


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        pytest.param(timedelta(days=31), ProblemName.CLIENT_CERT_EXPIRED, id="R137 expired"),
        pytest.param(timedelta(days=-1), ProblemName.NOT_YET_VALID, id="R136 not yet valid"),
    ],
)
async def test_a_users_certificate_outside_its_validity_is_named(
    client: Client, api: RawApi, namespace: str, ahead: timedelta, expected: ProblemName
) -> None:
    await put(api, namespace, brought(SystemClock().now()))

    async with operator(client, namespace) as running:
        running.clock.ahead = ahead
        with pytest.raises(CertificateError) as caught:
            await running.certificates.of(SecretTls(namespace, "own"))

    assert caught.value.problem.name is expected


async def test_a_users_secret_that_is_not_there_is_named(client: Client, namespace: str) -> None:
    async with operator(client, namespace) as running:
        with pytest.raises(CertificateError, match=f"Secret {namespace}/own ") as caught:
            await running.certificates.of(SecretTls(namespace, "own"))

    assert caught.value.problem.name is ProblemName.SECRET_NOT_FOUND
