"""Access: tokens, RBAC, reviews."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kuberun.testing.rawapi import RawApi, Reply

pytestmark = pytest.mark.live

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1"
RULE = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}

Login = Callable[[str], Awaitable[RawApi]]


@pytest.fixture
def accounts(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/serviceaccounts"


@pytest.fixture
async def login(api: RawApi, accounts: str) -> Login:
    """Create a service account and speak as it."""

    async def become(name: str) -> RawApi:
        await api.post(accounts, {"metadata": {"name": name}})
        issued = await api.post(f"{accounts}/{name}/token", {"spec": {}})
        return api.with_token(issued.body["status"]["token"])

    return become


async def grant(api: RawApi, namespace: str, account: str, *rules: dict[str, Any]) -> None:
    """A Role with the rules, bound to the account, in its namespace."""
    inside = f"{RBAC}/namespaces/{namespace}"
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    role = await api.post(f"{inside}/roles", {"metadata": {"name": "reader"}, "rules": list(rules)})
    binding = await api.post(
        f"{inside}/rolebindings", {"metadata": {"name": "reader"}, "subjects": [subject], "roleRef": reference}
    )
    assert (role.status, binding.status) == (201, 201)


def header(token: str) -> dict[str, Any]:
    return _decoded(token.split(".", maxsplit=1)[0])


def claims(token: str) -> dict[str, Any]:
    return _decoded(token.split(".")[1])


def _decoded(part: str) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return decoded


class TestAuthentication:
    async def test_a_wrong_token_is_unauthorized(self, api: RawApi) -> None:
        reply = await api.with_token("wrong").get("/api/v1/namespaces")

        assert (reply.status, reply.reason) == (401, "Unauthorized")
        assert reply.message == "Unauthorized"
        assert reply.body["code"] == 401

    async def test_no_token_is_the_anonymous_user(self, api: RawApi) -> None:
        reply = await api.with_token("").get("/api/v1/namespaces")

        assert (reply.status, reply.reason) == (403, "Forbidden")
        assert reply.message == (
            'namespaces is forbidden: User "system:anonymous" cannot list resource "namespaces" '
            'in API group "" at the cluster scope'
        )

    async def test_a_broken_token_of_a_service_account_is_unauthorized(self, api: RawApi, accounts: str) -> None:
        await api.post(accounts, {"metadata": {"name": "robot"}})
        issued = await api.post(f"{accounts}/robot/token", {"spec": {}})
        head, body, signature = issued.body["status"]["token"].split(".")

        reply = await api.with_token(f"{head}.{body}.{signature[::-1]}").get("/api")

        assert reply.status == 401

    async def test_a_token_dies_with_its_account(
        self, api: RawApi, accounts: str, login: Login, eventually: Any
    ) -> None:
        robot = await login("robot")

        await api.delete(f"{accounts}/robot")

        await eventually(lambda: robot.get("/api"), lambda reply: reply.status == 401)


class TestTokenRequest:
    async def test_a_token_names_its_account(self, api: RawApi, accounts: str, namespace: str) -> None:
        created = await api.post(accounts, {"metadata": {"name": "robot"}})

        reply = await api.post(f"{accounts}/robot/token", {"spec": {"expirationSeconds": 3600}})

        body = claims(reply.body["status"]["token"])
        assert reply.status == 201
        assert (reply.body["kind"], reply.body["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
        assert body["sub"] == f"system:serviceaccount:{namespace}:robot"
        assert body["kubernetes.io"]["serviceaccount"] == {
            "name": "robot",
            "uid": created.body["metadata"]["uid"],
        }
        assert body["exp"] - body["iat"] == 3600
        assert reply.body["status"]["expirationTimestamp"]

    async def test_audiences_are_as_asked(self, api: RawApi, accounts: str) -> None:
        await api.post(accounts, {"metadata": {"name": "robot"}})

        reply = await api.post(f"{accounts}/robot/token", {"spec": {"audiences": ["vault"]}})

        assert reply.body["spec"]["audiences"] == ["vault"]
        assert claims(reply.body["status"]["token"])["aud"] == ["vault"]

    async def test_a_token_for_another_audience_does_not_log_in(self, api: RawApi, accounts: str) -> None:
        await api.post(accounts, {"metadata": {"name": "robot"}})
        issued = await api.post(f"{accounts}/robot/token", {"spec": {"audiences": ["vault"]}})

        reply = await api.with_token(issued.body["status"]["token"]).get("/api")

        assert reply.status == 401

    async def test_the_default_lifetime_is_an_hour(self, api: RawApi, accounts: str) -> None:
        await api.post(accounts, {"metadata": {"name": "robot"}})

        reply = await api.post(f"{accounts}/robot/token", {"spec": {}})

        assert reply.body["spec"]["expirationSeconds"] == 3600

    @pytest.mark.parametrize(
        "seconds", [pytest.param(599, id="under ten minutes"), pytest.param(2**32 + 1, id="over 2^32")]
    )
    async def test_a_lifetime_out_of_range_is_invalid(self, api: RawApi, accounts: str, seconds: int) -> None:
        await api.post(accounts, {"metadata": {"name": "robot"}})

        reply = await api.post(f"{accounts}/robot/token", {"spec": {"expirationSeconds": seconds}})

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert [cause["field"] for cause in reply.causes] == ["spec.expirationSeconds"]

    @pytest.mark.parametrize(
        "spec",
        [
            pytest.param("all", id="the spec"),
            pytest.param({"audiences": "vault"}, id="audiences"),
            pytest.param({"expirationSeconds": "3600"}, id="a lifetime"),
            pytest.param({"boundObjectRef": "pod"}, id="a bound object"),
        ],
    )
    async def test_a_field_of_another_type_is_refused(self, api: RawApi, accounts: str, spec: Any) -> None:
        await api.post(accounts, {"metadata": {"name": "robot"}})

        reply = await api.post(f"{accounts}/robot/token", {"spec": spec})

        assert (reply.status, reply.reason) == (400, "BadRequest")
        assert 'TokenRequest in version "v1" cannot be handled as a TokenRequest' in reply.message

    async def test_a_missing_account_is_not_found(self, api: RawApi, accounts: str) -> None:
        reply = await api.post(f"{accounts}/missing/token", {"spec": {}})

        assert (reply.status, reply.reason) == (404, "NotFound")
        assert reply.message == 'serviceaccounts "missing" not found'


KEYS, ABOUT = "/openid/v1/jwks", "/.well-known/openid-configuration"
KEY_SET = "application/jwk-set+json"


class TestPublishedKeys:
    """By which others check tokens: two documents, each in the one media type that its standard says."""

    @pytest.mark.parametrize(
        ("path", "accept", "content_type"),
        [
            pytest.param(KEYS, KEY_SET, KEY_SET, id="the keys by their own type"),
            pytest.param(KEYS, "*/*", KEY_SET, id="the keys by any type"),
            pytest.param(KEYS, f"application/json, {KEY_SET}", KEY_SET, id="the keys by their own type among others"),
            pytest.param(ABOUT, "application/json", "application/json", id="the configuration as JSON"),
            pytest.param(ABOUT, "*/*", "application/json", id="the configuration by any type"),
        ],
    )
    async def test_a_document_comes_in_its_media_type(
        self, api: RawApi, path: str, accept: str, content_type: str
    ) -> None:
        reply = await api.get(path, accept=accept)

        assert reply.status == 200
        assert reply.headers["Content-Type"] == content_type
        assert reply.headers["Cache-Control"] == "public, max-age=3600"
        assert {KEYS: "keys", ABOUT: "jwks_uri"}[path] in reply.body

    @pytest.mark.parametrize(
        ("path", "accept"),
        [
            pytest.param(KEYS, "application/json", id="the keys as plain JSON"),
            pytest.param(KEYS, "application/*", id="the keys as any application type"),
            pytest.param(ABOUT, KEY_SET, id="the configuration as a set of keys"),
        ],
    )
    async def test_other_media_types_are_rejected(self, api: RawApi, path: str, accept: str) -> None:
        reply = await api.get(path, accept=accept)

        assert reply.status == 406

    async def test_the_key_of_a_token_is_among_them(self, api: RawApi, accounts: str) -> None:
        await api.post(accounts, {"metadata": {"name": "robot"}})
        issued = await api.post(f"{accounts}/robot/token", {"spec": {}})

        published = await api.get(KEYS, accept=KEY_SET)

        assert header(issued.body["status"]["token"])["kid"] in {key["kid"] for key in published.body["keys"]}


class TestTokenReview:
    PATH = "/apis/authentication.k8s.io/v1/tokenreviews"

    async def test_a_good_token_is_described(self, api: RawApi, accounts: str, namespace: str) -> None:
        await api.post(accounts, {"metadata": {"name": "robot"}})
        issued = await api.post(f"{accounts}/robot/token", {"spec": {}})

        reply = await api.post(self.PATH, {"spec": {"token": issued.body["status"]["token"]}})

        user = reply.body["status"]["user"]
        assert reply.status == 201
        assert reply.body["status"]["authenticated"] is True
        assert user["username"] == f"system:serviceaccount:{namespace}:robot"
        assert sorted(user["groups"]) == [
            "system:authenticated",
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
        ]

    async def test_a_bad_token_is_not_authenticated(self, api: RawApi) -> None:
        reply = await api.post(self.PATH, {"spec": {"token": "rubbish"}})

        assert reply.status == 201
        assert not reply.body["status"].get("authenticated")

    async def test_audiences_are_checked(self, api: RawApi, accounts: str) -> None:
        await api.post(accounts, {"metadata": {"name": "robot"}})
        issued = await api.post(f"{accounts}/robot/token", {"spec": {"audiences": ["vault"]}})
        token = issued.body["status"]["token"]

        right = await api.post(self.PATH, {"spec": {"token": token, "audiences": ["vault"]}})
        wrong = await api.post(self.PATH, {"spec": {"token": token, "audiences": ["other"]}})

        assert right.body["status"]["authenticated"] is True
        assert right.body["status"]["audiences"] == ["vault"]
        assert not wrong.body["status"].get("authenticated")


class TestRbac:
    async def test_an_account_without_a_role_is_forbidden(self, configmaps: str, namespace: str, login: Login) -> None:
        robot = await login("robot")

        reply = await robot.get(f"{configmaps}/a")

        assert (reply.status, reply.reason) == (403, "Forbidden")
        assert reply.message == (
            f'configmaps "a" is forbidden: User "system:serviceaccount:{namespace}:robot" cannot get resource '
            f'"configmaps" in API group "" in the namespace "{namespace}"'
        )
        assert reply.body["details"] == {"name": "a", "kind": "configmaps"}

    async def test_a_role_allows_its_verbs_in_its_namespace(
        self, api: RawApi, configmaps: str, namespace: str, login: Login, eventually: Any
    ) -> None:
        robot = await login("robot")
        await grant(api, namespace, "robot", RULE)

        await eventually(lambda: robot.get(configmaps), lambda reply: reply.status == 200)
        created = await robot.post(configmaps, {"metadata": {"name": "a"}})
        elsewhere = await robot.get("/api/v1/namespaces/default/configmaps")
        everywhere = await robot.get("/api/v1/configmaps")

        assert [created.status, elsewhere.status, everywhere.status] == [403, 403, 403]

    async def test_resource_names_limit_a_rule(
        self, api: RawApi, configmaps: str, namespace: str, login: Login, eventually: Any
    ) -> None:
        robot = await login("robot")
        await api.post(configmaps, {"metadata": {"name": "mine"}})
        await grant(api, namespace, "robot", {**RULE, "verbs": ["get"], "resourceNames": ["mine"]})

        await eventually(lambda: robot.get(f"{configmaps}/mine"), lambda reply: reply.status == 200)

        assert (await robot.get(f"{configmaps}/other")).status == 403

    async def test_a_forbidden_custom_resource_names_its_group(
        self, widgets: str, namespace: str, login: Login
    ) -> None:
        robot = await login("robot")

        reply = await robot.get(widgets)

        assert reply.message == (
            f'widgets.shop.example.com is forbidden: User "system:serviceaccount:{namespace}:robot" cannot list '
            f'resource "widgets" in API group "shop.example.com" in the namespace "{namespace}"'
        )

    async def test_every_user_may_discover(self, login: Login) -> None:
        robot = await login("robot")

        replies: list[Reply] = [await robot.get(path) for path in ("/api", "/apis", "/openapi/v3", "/version")]

        assert [reply.status for reply in replies] == [200] * 4

    async def test_a_user_may_not_grant_more_rights_than_they_have(
        self, api: RawApi, namespace: str, login: Login, eventually: Any
    ) -> None:
        robot = await login("robot")
        roles = f"{RBAC}/namespaces/{namespace}/roles"
        manage = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create", "list"]}
        await grant(api, namespace, "robot", manage)
        await eventually(lambda: robot.get(roles), lambda reply: reply.status == 200)

        reply = await robot.post(roles, {"metadata": {"name": "more"}, "rules": [RULE]})

        assert (reply.status, reply.reason) == (403, "Forbidden")
        assert "is attempting to grant RBAC permissions not currently held" in reply.message

    async def test_only_those_who_may_do_everything_gather_the_rules_of_others(
        self, api: RawApi, namespace: str, login: Login, eventually: Any
    ) -> None:
        robot = await login("robot")
        managing, aggregating, plain = f"{namespace}-managing", f"{namespace}-aggregating", f"{namespace}-plain"
        manage = {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["clusterroles"],
            "verbs": ["create", "list", "patch"],
        }
        gather = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"gathered-by": namespace}}]}}
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": managing}
        await api.post(f"{RBAC}/clusterroles", {"metadata": {"name": managing}, "rules": [manage]})
        binding = {"metadata": {"name": managing}, "subjects": [subject], "roleRef": reference}
        await api.post(f"{RBAC}/clusterrolebindings", binding)
        await eventually(lambda: robot.get(f"{RBAC}/clusterroles"), lambda reply: reply.status == 200)

        own = await api.post(f"{RBAC}/clusterroles", {"metadata": {"name": aggregating}, **gather})
        allowed = await robot.post(f"{RBAC}/clusterroles", {"metadata": {"name": plain}})
        created = await robot.post(f"{RBAC}/clusterroles", {"metadata": {"name": f"{plain}-2"}, **gather})
        patched = await robot.patch(f"{RBAC}/clusterroles/{plain}", gather)
        freed = await robot.patch(f"{RBAC}/clusterroles/{aggregating}", {"aggregationRule": None})

        assert (own.status, allowed.status) == (201, 201)
        assert [(reply.status, reply.reason) for reply in (created, patched, freed)] == [(403, "Forbidden")] * 3
        assert created.message == (
            f'clusterroles.rbac.authorization.k8s.io "{plain}-2" is forbidden: '
            "must have cluster-admin privileges to use the aggregationRule"
        )

    async def test_a_bindings_role_cannot_change(self, api: RawApi, namespace: str) -> None:
        await grant(api, namespace, "robot", RULE)
        path = f"{RBAC}/namespaces/{namespace}/rolebindings/reader"

        reply = await api.patch(path, {"roleRef": {"name": "other"}})

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert [cause["field"] for cause in reply.causes] == ["roleRef"]
        assert "cannot change roleRef" in reply.message


class TestAccessReviews:
    async def test_an_administrator_may_do_everything(self, api: RawApi) -> None:
        asked = {"resourceAttributes": {"verb": "delete", "resource": "secrets", "namespace": "default"}}

        reply = await api.post(f"{REVIEWS}/selfsubjectaccessreviews", {"spec": asked})

        assert reply.status == 201
        assert reply.body["status"]["allowed"] is True

    async def test_an_account_without_a_role_may_not(self, namespace: str, login: Login) -> None:
        robot = await login("robot")
        asked = {"resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": namespace}}

        reply = await robot.post(f"{REVIEWS}/selfsubjectaccessreviews", {"spec": asked})

        assert reply.body["status"]["allowed"] is False

    async def test_a_review_about_another_user(
        self, api: RawApi, configmaps: str, namespace: str, login: Login, eventually: Any
    ) -> None:
        robot = await login("robot")
        await grant(api, namespace, "robot", RULE)
        await eventually(lambda: robot.get(configmaps), lambda reply: reply.status == 200)
        user = f"system:serviceaccount:{namespace}:robot"

        async def ask(verb: str) -> bool:
            asked = {"verb": verb, "resource": "configmaps", "namespace": namespace}
            spec = {"user": user, "resourceAttributes": asked}
            reply = await api.post(f"{REVIEWS}/subjectaccessreviews", {"spec": spec})
            return bool(reply.body["status"]["allowed"])

        assert await ask("get")
        assert not await ask("delete")

    @pytest.mark.parametrize(
        "spec",
        [
            pytest.param({}, id="nothing asked"),
            pytest.param(
                {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"verb": "get"}}, id="two questions"
            ),
        ],
    )
    async def test_a_review_needs_one_question(self, api: RawApi, spec: dict[str, Any]) -> None:
        reply = await api.post(f"{REVIEWS}/selfsubjectaccessreviews", {"spec": spec})

        assert (reply.status, reply.reason) == (422, "Invalid")

    async def test_the_rules_of_the_caller_are_listed(
        self, api: RawApi, configmaps: str, namespace: str, login: Login, eventually: Any
    ) -> None:
        robot = await login("robot")
        await grant(api, namespace, "robot", RULE)
        await eventually(lambda: robot.get(configmaps), lambda reply: reply.status == 200)

        reply = await robot.post(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": namespace}})

        assert RULE in reply.body["status"]["resourceRules"]

    async def test_a_self_review_returns_the_caller(self, namespace: str, login: Login) -> None:
        robot = await login("robot")

        reply = await robot.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})

        assert reply.body["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:robot"
