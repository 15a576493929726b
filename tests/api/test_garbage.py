"""Garbage collection: dependents of deleted owners, the content of deleted namespaces."""

from __future__ import annotations

import secrets as random
import uuid
from typing import Any

import pytest

from kuberun.testing.rawapi import RawApi, Reply

pytestmark = pytest.mark.live


def is_gone(reply: Reply) -> bool:
    return reply.status == 404


def reference(owner: Reply, **more: Any) -> dict[str, Any]:
    metadata = owner.body["metadata"]
    return {
        "apiVersion": owner.body["apiVersion"],
        "kind": owner.body["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        **more,
    }


@pytest.fixture
async def owner(api: RawApi, configmaps: str) -> Reply:
    return await api.post(configmaps, {"metadata": {"name": "owner"}})


class TestOwners:
    async def test_a_dependent_follows_its_owner(
        self, api: RawApi, configmaps: str, secrets: str, owner: Reply, eventually: Any
    ) -> None:
        await api.post(secrets, {"metadata": {"name": "child", "ownerReferences": [reference(owner)]}})

        await api.delete(f"{configmaps}/owner")

        await eventually(lambda: api.get(f"{secrets}/child"), is_gone)

    async def test_deletion_goes_down_several_levels(
        self, api: RawApi, configmaps: str, owner: Reply, eventually: Any
    ) -> None:
        child = await api.post(configmaps, {"metadata": {"name": "child", "ownerReferences": [reference(owner)]}})
        await api.post(configmaps, {"metadata": {"name": "grandchild", "ownerReferences": [reference(child)]}})

        await api.delete(f"{configmaps}/owner", propagationPolicy="Background")

        await eventually(lambda: api.get(f"{configmaps}/grandchild"), is_gone)

    async def test_a_dependent_with_another_living_owner_stays(
        self, api: RawApi, configmaps: str, owner: Reply, eventually: Any
    ) -> None:
        other = await api.post(configmaps, {"metadata": {"name": "other"}})
        await api.post(
            configmaps, {"metadata": {"name": "child", "ownerReferences": [reference(owner), reference(other)]}}
        )

        await api.delete(f"{configmaps}/owner")

        kept = await eventually(
            lambda: api.get(f"{configmaps}/child"),
            lambda reply: reply.body["metadata"]["ownerReferences"] == [reference(other)],
        )
        assert kept.status == 200

    async def test_orphans_are_kept_and_lose_the_reference(
        self, api: RawApi, configmaps: str, owner: Reply, eventually: Any
    ) -> None:
        await api.post(configmaps, {"metadata": {"name": "child", "ownerReferences": [reference(owner)]}})

        await api.delete(f"{configmaps}/owner", {"propagationPolicy": "Orphan"})

        await eventually(lambda: api.get(f"{configmaps}/owner"), is_gone)
        child = await api.get(f"{configmaps}/child")
        assert child.status == 200
        assert "ownerReferences" not in child.body["metadata"]

    async def test_foreground_deletion_waits_for_blocking_dependents(
        self, api: RawApi, configmaps: str, owner: Reply, eventually: Any
    ) -> None:
        blocking = reference(owner, blockOwnerDeletion=True)
        held = {"name": "child", "ownerReferences": [blocking], "finalizers": ["example.com/hold"]}
        await api.post(configmaps, {"metadata": held})

        deleted = await api.delete(f"{configmaps}/owner", {"propagationPolicy": "Foreground"})
        await eventually(
            lambda: api.get(f"{configmaps}/child"), lambda reply: "deletionTimestamp" in reply.body["metadata"]
        )
        waiting = await api.get(f"{configmaps}/owner")
        await api.patch(f"{configmaps}/child", {"metadata": {"finalizers": None}})

        assert deleted.body["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert waiting.status == 200
        await eventually(lambda: api.get(f"{configmaps}/owner"), is_gone)

    async def test_an_owner_that_never_existed_counts_as_deleted(
        self, api: RawApi, configmaps: str, eventually: Any
    ) -> None:
        missing = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": str(uuid.uuid4())}

        await api.post(configmaps, {"metadata": {"name": "child", "ownerReferences": [missing]}})

        await eventually(lambda: api.get(f"{configmaps}/child"), is_gone)

    async def test_an_owner_with_the_same_name_and_another_uid_does_not_count(
        self, api: RawApi, configmaps: str, owner: Reply, eventually: Any
    ) -> None:
        impostor = reference(owner, uid=str(uuid.uuid4()))

        await api.post(configmaps, {"metadata": {"name": "child", "ownerReferences": [impostor]}})

        await eventually(lambda: api.get(f"{configmaps}/child"), is_gone)


class TestNamespaces:
    @pytest.fixture
    async def doomed(self, api: RawApi) -> str:
        name = f"doomed-{random.token_hex(4)}"
        await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return f"/api/v1/namespaces/{name}"

    async def test_a_new_namespace_is_active(self, api: RawApi, doomed: str) -> None:
        reply = await api.get(doomed)

        assert reply.body["status"] == {"phase": "Active"}
        assert reply.body["spec"] == {"finalizers": ["kubernetes"]}
        assert reply.body["metadata"]["labels"] == {"kubernetes.io/metadata.name": reply.body["metadata"]["name"]}

    async def test_deleting_a_namespace_deletes_its_content(self, api: RawApi, doomed: str, eventually: Any) -> None:
        await api.post(f"{doomed}/configmaps", {"metadata": {"name": "a"}})

        deleted = await api.delete(doomed)

        assert deleted.status == 200
        assert deleted.body["kind"] == "Namespace"
        assert deleted.body["status"]["phase"] == "Terminating"
        await eventually(lambda: api.get(doomed), is_gone)
        assert (await api.get(f"{doomed}/configmaps/a")).status == 404

    async def test_custom_objects_go_too(
        self, api: RawApi, doomed: str, widgets: str, widget: Any, eventually: Any
    ) -> None:
        inside = f"/apis/shop.example.com/v1{doomed.removeprefix('/api/v1')}/widgets"
        created = await api.post(inside, widget("a"))

        await api.delete(doomed)

        assert created.status == 201, widgets
        await eventually(lambda: api.get(doomed), is_gone)
        assert (await api.get(f"{inside}/a")).status == 404

    async def test_a_namespace_waits_for_finalizers_of_its_content(
        self, api: RawApi, doomed: str, eventually: Any
    ) -> None:
        await api.post(f"{doomed}/configmaps", {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})

        await api.delete(doomed)
        await eventually(
            lambda: api.get(f"{doomed}/configmaps/a"), lambda reply: "deletionTimestamp" in reply.body["metadata"]
        )
        waiting = await api.get(doomed)
        await api.patch(f"{doomed}/configmaps/a", {"metadata": {"finalizers": None}})

        assert waiting.body["status"]["phase"] == "Terminating"
        await eventually(lambda: api.get(doomed), is_gone)

    async def test_nothing_is_created_in_a_terminating_namespace(
        self, api: RawApi, doomed: str, eventually: Any
    ) -> None:
        name = doomed.rpartition("/")[2]
        await api.post(f"{doomed}/configmaps", {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})
        await api.delete(doomed)

        reply = await api.post(f"{doomed}/configmaps", {"metadata": {"name": "b"}})

        await api.patch(f"{doomed}/configmaps/a", {"metadata": {"finalizers": None}})
        await eventually(lambda: api.get(doomed), is_gone)
        assert (reply.status, reply.reason) == (403, "Forbidden")
        assert reply.message == (
            f'configmaps "b" is forbidden: unable to create new content in namespace {name} '
            "because it is being terminated"
        )
        assert reply.causes == [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {name} is being terminated",
                "field": "metadata.namespace",
            }
        ]

    @pytest.mark.parametrize("name", ["default", "kube-system"])
    async def test_a_namespace_of_the_system_cannot_be_deleted(self, api: RawApi, name: str) -> None:
        reply = await api.delete(f"/api/v1/namespaces/{name}")

        assert (reply.status, reply.reason) == (403, "Forbidden")
        assert reply.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'

    async def test_a_default_service_account_appears(self, api: RawApi, doomed: str, eventually: Any) -> None:
        await eventually(lambda: api.get(f"{doomed}/serviceaccounts/default"), lambda reply: reply.status == 200)
