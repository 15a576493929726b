"""Validation of stores, on a real server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eso_provider_vault.store import OpenBaoStore
from eso_provider_vault.testing.openbao import OpenBao
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context, Operation, ValidationMode, ValidationState

StoreMaker = Callable[..., Context]


async def test_a_good_store_is_ready_and_stays_so_for_one_request(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    await provider.validate(store(mount))
    mark = bao.mark()

    validation = await provider.validate(store(mount))

    assert validation.state is ValidationState.READY
    assert len(bao.audited(mark).requests) == 1


async def test_changes_are_offered_only_where_the_token_may_scan(
    bao: OpenBao, mount: str, mount_v1: str, *, provider: InMemory, store: StoreMaker
) -> None:
    bao.policy(mount, f'path "{mount}/data/*" {{ capabilities = ["read"] }}')

    root = await provider.validate(store(mount))
    reader = await provider.validate(store(mount, token=bao.token(mount)))
    v1 = await provider.validate(store(mount_v1, version="v1"))

    offered = [Operation.SUBSCRIBE in (one.operations or ()) for one in (root, reader, v1)]
    assert offered == [True, False, False]


@pytest.mark.parametrize("no_default_policy", [True, False])
async def test_a_token_that_may_only_read_is_good_enough(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker, no_default_policy: bool
) -> None:
    bao.policy(mount, f'path "{mount}/data/app" {{ capabilities = ["read"] }}')
    token = bao.token(mount, no_default_policy=no_default_policy)

    with_path = await provider.validate(store(mount, token=token))
    without_path = await provider.validate(store(None, token=token))

    assert with_path.state is ValidationState.READY
    assert without_path.state is ValidationState.READY


async def test_version_1_offers_less(mount_v1: str, provider: InMemory, store: StoreMaker) -> None:
    validation = await provider.validate(store(mount_v1, version="v1"))

    assert validation.operations is not None
    assert Operation.FIND_BY_NAME in validation.operations
    assert not {Operation.FIND_BY_TAGS, Operation.METADATA_FETCH} & validation.operations


@pytest.mark.parametrize(
    ("changes", "reason", "text"),
    [
        pytest.param({"path": "nowhere"}, "PERMISSION_DENIED", '"nowhere"', id="nothing is mounted there"),
        pytest.param({"path": "sys"}, "CONFIG_INVALID", "type system", id="another engine"),
        pytest.param({"namespace": "absent"}, "CONFIG_INVALID", '"absent"', id="no such namespace"),
        pytest.param({"token": "s.CANARYwrong"}, "CREDENTIALS_REJECTED", "token", id="a wrong token"),
        pytest.param({"token": "", "path": None}, "CONFIG_INVALID", "token", id="an empty token"),
        pytest.param({"token": "s.CANARY", "path": None}, "CREDENTIALS_REJECTED", "token", id="wrong, without path"),
    ],
)
async def test_a_problem_of_a_store_is_named(
    mount: str, provider: InMemory, store: StoreMaker, *, changes: dict[str, Any], reason: str, text: str
) -> None:
    for kind in (None, OpenBaoStore):
        more = {} if kind is None or changes.get("path", "") is None else {"backend": kind}
        validation = await provider.validate(store(**({"path": mount} | changes | more)))

        assert validation.state is ValidationState.INVALID
        assert validation.error is not None
        assert validation.error.reason is ErrorReason(reason), validation.error.message
        assert text in validation.error.message
        assert "CANARY" not in validation.error.message


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_a_store_of_another_version_than_its_engine_is_ready_with_a_warning(
    mount: str, mount_v1: str, provider: InMemory, store: StoreMaker, version: str
) -> None:
    engine, actual = (mount, "v2") if version == "v1" else (mount_v1, "v1")

    validation = await provider.validate(store(engine, version=version))

    assert validation.state is ValidationState.READY
    assert validation.operations is not None
    assert Operation.SUBSCRIBE not in validation.operations
    (condition,) = validation.conditions
    assert (condition.type, condition.status) == ("VersionMismatch", "True")
    assert f'"{engine}"' in condition.message
    assert f"set version: {actual}" in condition.message
    assert validation.warnings == (condition.message,)


async def test_a_version_2_path_that_reaches_into_the_mount_is_refused(
    mount: str, provider: InMemory, store: StoreMaker
) -> None:
    validation = await provider.validate(store(f"{mount}/team"))

    assert validation.error is not None
    assert f'mounted at "{mount}"' in validation.error.message


@pytest.mark.parametrize("path", ["{mount}", None])
async def test_a_store_without_auth_says_that_there_is_no_token(
    mount: str, provider: InMemory, store: StoreMaker, path: str | None
) -> None:
    context = store(path and path.format(mount=mount), auth=None)

    validation = await provider.validate(context)
    read = (await provider.get_one(context, f"{mount}/app")).outcome

    for error in (validation.error, read):
        assert isinstance(error, ProviderError)
        assert "there is no token" in error.message
        assert "set auth" in error.message
        assert "revoked" not in error.message


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"server": "vault:8200"}, "/server", id="no scheme"),
        pytest.param({"server": "ftp://vault"}, "/server", id="another scheme"),
        pytest.param({"server": "https://"}, "/server", id="no host"),
        pytest.param({"server": "https://vault:port"}, "/server", id="a port that is no number"),
        pytest.param({"server": "https://vault:8200/?a=b"}, "/server", id="a query"),
        pytest.param({"version": "v1", "checkAndSet": {"required": True}}, "/checkAndSet", id="v1 cannot compare"),
    ],
)
async def test_a_configuration_that_can_never_work_is_rejected_without_a_request(
    provider: InMemory, store: StoreMaker, spec: dict[str, Any], field: str
) -> None:
    validation = await provider.validate(store("kv", **spec), ValidationMode.STATIC)

    assert validation.state is ValidationState.INVALID
    assert validation.error is not None
    assert validation.error.message.startswith(field)


async def test_headers_that_the_provider_sets_are_refused(provider: InMemory, store: StoreMaker) -> None:
    validation = await provider.validate(store("kv", headers={"X-Vault-Token": "x"}))

    assert validation.error is not None
    assert "/headers" in validation.error.message
