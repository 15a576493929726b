"""The test server is faithful: the vendor's client, unmodified, works against it as its documentation says."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud.secretmanager_v1 import SecretManagerServiceAsyncClient
from google.cloud.secretmanager_v1.services.secret_manager_service.transports import (
    SecretManagerServiceGrpcAsyncIOTransport,
)
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped] # the wheel has no types
from grpc import aio

from eso_provider_gcp.testing.secretmanager import NUMBER, Limit
from eso_provider_gcp.testing.sessions import PROJECT, Google

PARENT = f"projects/{PROJECT}"
GLOBAL: dict[str, Any] = {"replication": {"automatic": {}}}


class Vendor:
    """The vendor's asynchronous client, with a token in every call."""

    def __init__(self, client: SecretManagerServiceAsyncClient, google: Google) -> None:
        self._client = client
        self._google = google

    async def __call__(self, method: str, **request: Any) -> Any:
        return await getattr(self._client, method)(request=request, metadata=self._google.metadata, retry=None)

    async def created(self, *values: bytes, parent: str = PARENT, **secret: Any) -> str:
        """Create a secret with these versions; return its name."""
        described = secret if "locations" in parent else {**GLOBAL, **secret}
        made = await self("create_secret", parent=parent, secret_id=uuid.uuid4().hex, secret=described)
        for value in values:
            await self("add_secret_version", parent=made.name, payload={"data": value})
        return str(made.name)


@pytest.fixture
async def vendor(google: Google) -> AsyncIterator[Vendor]:
    async with aio.insecure_channel(google.secrets.address) as channel:
        transport = SecretManagerServiceGrpcAsyncIOTransport(channel=channel)
        yield Vendor(SecretManagerServiceAsyncClient(transport=transport), google)


@contextmanager
def refused(kind: type[exceptions.GoogleAPICallError]) -> Iterator[None]:
    with pytest.raises(kind):
        yield


async def test_versions_are_numbered_and_names_have_the_number_of_the_project(vendor: Vendor) -> None:
    name = await vendor.created(b"first", b"second")
    assert name.startswith(f"projects/{NUMBER}/secrets/")
    latest = await vendor("access_secret_version", name=f"{name}/versions/latest")
    assert (latest.name, latest.payload.data) == (f"{name}/versions/2", b"second")
    first = await vendor("access_secret_version", name=f"{name}/versions/1")
    assert first.payload.data == b"first"


async def test_versions_are_listed_newest_first_by_state_and_in_pages(vendor: Vendor) -> None:
    name = await vendor.created(b"1", b"2", b"3")
    await vendor("disable_secret_version", name=f"{name}/versions/3")
    pager = await vendor("list_secret_versions", parent=name, filter="state:ENABLED", page_size=1)
    assert [version.name.rpartition("/")[2] async for version in pager] == ["2", "1"]


async def test_disabled_and_destroyed_versions_are_not_read(vendor: Vendor) -> None:
    name = await vendor.created(b"1")
    version = f"{name}/versions/1"
    await vendor("disable_secret_version", name=version)
    with refused(exceptions.FailedPrecondition):
        await vendor("access_secret_version", name=version)
    await vendor("enable_secret_version", name=version)
    assert (await vendor("access_secret_version", name=version)).payload.data == b"1"
    await vendor("destroy_secret_version", name=version)
    with refused(exceptions.FailedPrecondition):
        await vendor("access_secret_version", name=version)


async def test_secrets_are_found_by_label_in_pages(vendor: Vendor) -> None:
    team = uuid.uuid4().hex
    names = {await vendor.created(labels={"team": team}) for _ in range(3)}
    await vendor.created(labels={"team": "another"})
    pager = await vendor("list_secrets", parent=PARENT, filter=f"labels.team={team}", page_size=2)
    assert {secret.name async for secret in pager} == names


async def test_a_location_has_secrets_of_its_own(vendor: Vendor) -> None:
    parent = f"{PARENT}/locations/europe-west3"
    name = await vendor.created(b"regional", parent=parent)
    assert name.startswith(f"projects/{NUMBER}/locations/europe-west3/secrets/")
    listed = await vendor("list_secrets", parent=parent)
    assert name in [secret.name async for secret in listed]
    elsewhere = await vendor("list_secrets", parent=PARENT)
    assert name not in [secret.name async for secret in elsewhere]


async def test_an_etag_that_is_not_current_refuses_changes(vendor: Vendor) -> None:
    name = await vendor.created()
    before = (await vendor("get_secret", name=name)).etag
    changed = await vendor(
        "update_secret", secret={"name": name, "labels": {"a": "b"}}, update_mask={"paths": ["labels"]}
    )
    assert (changed.etag != before, dict(changed.labels)) == (True, {"a": "b"})
    with refused(exceptions.FailedPrecondition):
        await vendor("delete_secret", name=name, etag=before)
    await vendor("delete_secret", name=name, etag=changed.etag)
    with refused(exceptions.NotFound):
        await vendor("get_secret", name=name)


async def test_an_alias_names_a_version(vendor: Vendor) -> None:
    name = await vendor.created(b"1", b"2")
    aliases = {"name": name, "version_aliases": {"stable": 1}}
    await vendor("update_secret", secret=aliases, update_mask={"paths": ["version_aliases"]})
    assert (await vendor("access_secret_version", name=f"{name}/versions/stable")).payload.data == b"1"


@pytest.mark.parametrize(
    ("method", "request_", "error"),
    [
        pytest.param(
            "create_secret", {"parent": PARENT, "secret_id": "a", "secret": {}}, "InvalidArgument", id="no replication"
        ),
        pytest.param(
            "create_secret", {"parent": PARENT, "secret_id": "a/b", "secret": GLOBAL}, "InvalidArgument", id="a bad id"
        ),
        pytest.param(
            "create_secret",
            {"parent": PARENT, "secret_id": "a", "secret": {**GLOBAL, "labels": {"A": "b"}}},
            "InvalidArgument",
            id="a bad label",
        ),
        pytest.param("get_secret", {"name": f"{PARENT}/secrets/none"}, "NotFound", id="no secret"),
        pytest.param("list_secrets", {"parent": "projects/none"}, "NotFound", id="no project"),
        pytest.param("list_secrets", {"parent": PARENT, "filter": "x > 1"}, "InvalidArgument", id="a bad filter"),
    ],
)
async def test_what_the_service_refuses(vendor: Vendor, method: str, request_: dict[str, Any], error: str) -> None:
    with refused(getattr(exceptions, error)):
        await vendor(method, **request_)


@pytest.mark.parametrize("data", [pytest.param(b"", id="empty"), pytest.param(b"x" * 65_537, id="too large")])
async def test_payloads_have_limits(vendor: Vendor, data: bytes) -> None:
    name = await vendor.created()
    with refused(exceptions.InvalidArgument):
        await vendor("add_secret_version", parent=name, payload={"data": data})


async def test_a_secret_is_created_once(vendor: Vendor) -> None:
    name = await vendor.created()
    with refused(exceptions.AlreadyExists):
        await vendor("create_secret", parent=PARENT, secret_id=name.rpartition("/")[2], secret=GLOBAL)


async def test_a_missing_permission_a_quota_and_a_wrong_token_refuse_calls(vendor: Vendor, google: Google) -> None:
    name = await vendor.created()
    google.secrets.denied.add("secretmanager.secrets.get")
    with pytest.raises(exceptions.PermissionDenied) as denied:
        await vendor("get_secret", name=name)
    assert denied.value.reason == "IAM_PERMISSION_DENIED"
    google.secrets.denied.clear()
    google.secrets.limits["GetSecret"] = Limit(1, 2.5)
    with pytest.raises(exceptions.ResourceExhausted) as limited:
        await vendor("get_secret", name=name)
    (info,) = [detail for detail in limited.value.details if isinstance(detail, RetryInfo)]
    assert (info.retry_delay.seconds, info.retry_delay.nanos) == (2, 500_000_000)
    google.token = "revoked"
    with refused(exceptions.Unauthenticated):
        await vendor("get_secret", name=name)
