"""Errors name project, secret and the missing role, and never a value or a token."""

from __future__ import annotations

import asyncio
import threading

import grpc
import pytest

from eso_provider_gcp.testing.secretmanager import Limit
from eso_provider_gcp.testing.sessions import Google, context
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import failure, item, push_items, read
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery


@pytest.mark.parametrize(
    ("permission", "role"),
    [
        pytest.param("secretmanager.versions.access", "roles/secretmanager.secretAccessor", id="read"),
        pytest.param("secretmanager.secrets.list", "roles/secretmanager.viewer", id="find"),
        pytest.param("secretmanager.secrets.get", "roles/secretmanager.viewer", id="look before a push"),
        pytest.param("secretmanager.secrets.create", "roles/secretmanager.admin", id="create"),
        pytest.param("secretmanager.versions.add", "roles/secretmanager.secretVersionAdder", id="write"),
    ],
)
async def test_a_denial_names_the_permission_and_the_role(
    google: Google, provider: InMemory, name: str, permission: str, role: str
) -> None:
    google.secrets.denied.add(permission)
    call = context(google)
    if permission == "secretmanager.versions.access":
        denied = await failure(provider, call, name)
    elif permission == "secretmanager.secrets.list":
        with pytest.raises(ProviderError) as caught:
            await provider.find(call, FindQuery(name_regexp=name))
        denied = caught.value
    else:
        (result,) = await push_items(provider, call, item(name, b"CANARY"))
        assert isinstance(result.outcome, ProviderError)
        denied = result.outcome
    assert denied.reason is ErrorReason.PERMISSION_DENIED
    assert 'project "my-project-1"' in denied.message
    assert f"{permission} (in {role})" in denied.message
    assert "CANARY" not in denied.message


async def test_an_api_that_is_not_enabled_is_said_to_be_so(google: Google, provider: InMemory, name: str) -> None:
    google.secrets.disabled = True
    denied = await failure(provider, context(google), name)
    assert denied.reason is ErrorReason.PERMISSION_DENIED
    assert "the Secret Manager API is not enabled" in denied.message


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param(grpc.StatusCode.UNAVAILABLE, ErrorReason.BACKEND_UNAVAILABLE, id="down"),
        pytest.param(grpc.StatusCode.INTERNAL, ErrorReason.BACKEND_UNAVAILABLE, id="internal"),
        pytest.param(grpc.StatusCode.DEADLINE_EXCEEDED, ErrorReason.BACKEND_TIMEOUT, id="late"),
        pytest.param(grpc.StatusCode.INVALID_ARGUMENT, ErrorReason.INVALID_REQUEST, id="invalid"),
        pytest.param(grpc.StatusCode.ABORTED, ErrorReason.PRECONDITION_FAILED, id="aborted"),
        pytest.param(grpc.StatusCode.DATA_LOSS, ErrorReason.BACKEND_ERROR, id="something else"),
    ],
)
async def test_a_status_becomes_a_reason_and_its_words_are_not_quoted(
    google: Google, provider: InMemory, name: str, code: grpc.StatusCode, reason: ErrorReason
) -> None:
    google.secrets.failing["AccessSecretVersion"] = code
    failed = await failure(provider, context(google), name)
    assert (failed.reason, failed.backend_code) == (reason, code.name)
    assert f'secret "{name}" of project "my-project-1"' in failed.message
    assert "ya29" not in failed.message


async def test_a_missing_project_is_not_a_missing_secret(google: Google, provider: InMemory, name: str) -> None:
    call = context(google, projectID="no-such-project")
    with pytest.raises(ProviderError) as caught:
        await provider.find(call, FindQuery(name_regexp="x"))
    (pushed,) = await push_items(provider, call, item(name, b"value"))
    assert isinstance(pushed.outcome, ProviderError)
    for failed in (caught.value, await failure(provider, call, name), pushed.outcome):
        assert failed.reason is ErrorReason.BACKEND_ERROR
        assert failed.message.startswith('project "no-such-project" was not found')


async def test_a_quota_makes_one_call_and_says_when_to_come_again(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b"value")
    google.secrets.limits["AccessSecretVersion"] = Limit(1000, 17.0)
    call = context(google)
    first = await failure(provider, call, name)
    later = await failure(provider, call, f"{name}-2")
    assert (first.reason, later.reason) == (ErrorReason.RATE_LIMITED, ErrorReason.RATE_LIMITED)
    assert 10.0 < later.retry_after <= 17.0
    assert google.secrets.calls == {"AccessSecretVersion": 1}
    assert "HTTP 429" in first.message
    assert 'project "my-project-1"' in first.message


async def test_a_service_that_is_not_there_is_unavailable(
    google: Google, provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_SECRETMANAGER_ENDPOINT", "http://127.0.0.1:1")
    failed = await failure(provider, context(google), "a")
    assert failed.reason is ErrorReason.BACKEND_UNAVAILABLE


async def test_reads_of_different_stores_do_not_wait_for_each_other(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b"value")
    together = threading.Barrier(8, timeout=20)

    def wait(_operation: str) -> None:
        together.wait()

    google.secrets.before = wait
    calls = [context(google, namespace=f"team-{number}") for number in range(8)]
    found = await asyncio.gather(*(read(provider, call, name) for call in calls))
    assert found == [[b"value"]] * 8


async def test_calls_are_counted_by_their_own_names(google: Google, provider: InMemory, name: str) -> None:
    google.store(name, b"value")
    await read(provider, context(google), name, f"{name}-none")
    text = provider.metrics.exposition().decode()
    for status in ("success", "error"):
        labels = f'call="AccessSecretVersion",provider="GCP/SecretManager",status="{status}"'
        assert f"externalsecret_provider_api_calls_count{{{labels}}} 1.0" in text
