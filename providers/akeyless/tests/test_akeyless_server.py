"""Akeyless's own client, unmodified, works with the server that stands in for Akeyless."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from eso_provider_akeyless.testing.server import ACCESS_ID, ACCESS_KEY, AkeylessServer, Identity

# The client has no types.
akeyless: Any = import_module("akeyless")


@pytest.fixture
def api(server: AkeylessServer) -> Any:
    return akeyless.V2Api(akeyless.ApiClient(akeyless.Configuration(host=f"{server.url}/v2")))


@pytest.fixture
def token(api: Any) -> str:
    granted: str = api.auth(akeyless.Auth(access_id=ACCESS_ID, access_key=ACCESS_KEY, access_type="api_key")).token
    return granted


def test_the_official_client_writes_reads_lists_and_deletes(api: Any, token: str, server: AkeylessServer) -> None:
    server.page_size = 1
    for name in ("/shop/a", "/shop/b"):
        api.create_secret(akeyless.CreateSecret(name=name, value="1", tags=["ours"], token=token))
    api.update_secret_val(akeyless.UpdateSecretVal(name="/shop/a", value="2", token=token))

    item = api.describe_item(akeyless.DescribeItem(name="/shop/a", token=token))
    latest = api.get_secret_value(akeyless.GetSecretValue(names=["/shop/a", "/shop/b"], token=token))
    first = api.get_secret_value(akeyless.GetSecretValue(names=["/shop/a"], version=1, token=token))
    page = api.list_items(akeyless.ListItems(filter="/shop/", type=["static-secret"], token=token))
    api.delete_item(akeyless.DeleteItem(name="/shop/b", token=token))

    assert (item.item_name, item.item_type, item.item_tags) == ("/shop/a", "STATIC_SECRET", ["ours"])
    assert (latest, first) == ({"/shop/a": "2", "/shop/b": "1"}, {"/shop/a": "1"})
    assert ([each.item_name for each in page.items], page.next_page) == (["/shop/a"], "1")
    assert set(server.items) == {"/shop/a"}


def test_the_official_client_reads_the_other_types(api: Any, token: str, server: AkeylessServer) -> None:
    server.put("/d", item_type="DYNAMIC_SECRET")
    server.put("/r", {"value": {"payload": "p"}}, item_type="ROTATED_SECRET")
    server.put("/c", {"certificate_pem": "PEM"}, item_type="CERTIFICATE")

    dynamic = api.get_dynamic_secret_value(akeyless.GetDynamicSecretValue(name="/d", token=token))
    rotated = api.get_rotated_secret_value(akeyless.GetRotatedSecretValue(names="/r", token=token))
    certificate = api.get_certificate_value(akeyless.GetCertificateValue(name="/c", token=token))

    assert dynamic == {"user": "tmp-1", "password": "pw-1"}
    assert rotated == {"value": {"payload": "p"}}
    assert certificate.certificate_pem == "PEM"


def test_the_official_client_sees_missing_items_and_rejected_keys(api: Any, token: str) -> None:
    with pytest.raises(akeyless.ApiException) as missing:
        api.describe_item(akeyless.DescribeItem(name="/none", token=token))
    with pytest.raises(akeyless.ApiException) as rejected:
        api.auth(akeyless.Auth(access_id=ACCESS_ID, access_key="wrong"))

    assert (missing.value.status, rejected.value.status) == (404, 401)


def test_the_official_client_sees_a_denied_item_as_a_401(api: Any, server: AkeylessServer) -> None:
    server.identities["p-a"] = Identity("key-a", folder="/a/")
    token = api.auth(akeyless.Auth(access_id="p-a", access_key="key-a", access_type="api_key")).token

    with pytest.raises(akeyless.ApiException) as denied:
        api.describe_item(akeyless.DescribeItem(name="/b/x", token=token))

    assert denied.value.status == 401
    assert "UnauthorizedAccess" in denied.value.body
