"""Reviews: requests about access, identity and tokens. They get a response and are never stored.

Each handler takes the posted object and the user who sent it, and returns the object with its status.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubebase.clock import Clock, rfc3339
from kubebase.meta import JsonObject
from localkube.access.auth import Authenticator
from localkube.access.rbac import Policies, rule_json
from localkube.cluster.tokens import ISSUER, Tokens
from localkube.errors import Cause, StatusError, bad_request, invalid
from localkube.model import User
from localkube.wire.routes import PathTarget, ResourceTarget, Target

_AUTHORIZATION: Final = "authorization.k8s.io"
Handler = Callable[[JsonObject, User], JsonObject]


class Reviews:
    def __init__(self, policies: Policies, authenticator: Authenticator, tokens: Tokens, clock: Clock) -> None:
        self._policies = policies
        self._tokens = tokens
        self._authenticator = authenticator
        self._clock = clock

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by `plural.group`."""
        return {
            "selfsubjectaccessreviews.authorization.k8s.io": self.self_access,
            "subjectaccessreviews.authorization.k8s.io": self.access,
            "localsubjectaccessreviews.authorization.k8s.io": self.local_access,
            "selfsubjectrulesreviews.authorization.k8s.io": self.self_rules,
            "selfsubjectreviews.authentication.k8s.io": self.self_subject,
            "tokenreviews.authentication.k8s.io": self.token,
        }

    def self_access(self, review: JsonObject, user: User) -> JsonObject:
        return self._decided(review, user)

    def access(self, review: JsonObject, user: User) -> JsonObject:
        del user
        return self._decided(review, _subject(review))

    def local_access(self, review: JsonObject, user: User) -> JsonObject:
        namespace = _mapping(review, "metadata").get("namespace", "")
        requested = _mapping(_mapping(review, "spec"), "resourceAttributes").get("namespace", "")
        if requested != namespace:
            why = f'Invalid value: "{requested}": must match metadata.namespace'
            raise _invalid("spec.resourceAttributes.namespace", why)
        return self.access(review, user)

    def self_rules(self, review: JsonObject, user: User) -> JsonObject:
        namespace = _mapping(review, "spec").get("namespace", "")
        if not namespace:
            raise bad_request("no namespace on request")
        rules = self._policies.current().rules_for(user, namespace)
        status = {
            "resourceRules": [rule_json(rule) for rule in rules if rule.resources],
            "nonResourceRules": [rule_json(rule) for rule in rules if rule.paths],
            "incomplete": False,
        }
        return {**review, "spec": {}, "status": status}

    def self_subject(self, review: JsonObject, user: User) -> JsonObject:
        metadata = {"creationTimestamp": rfc3339(self._clock.now())}
        return {**review, "metadata": metadata, "status": {"userInfo": _user_info(user)}}

    def token(self, review: JsonObject, user: User) -> JsonObject:
        del user
        spec = _mapping(review, "spec")
        token = spec.get("token")
        if not isinstance(token, str) or not token:
            raise bad_request("token is required for TokenReview in authentication")
        audiences = spec.get("audiences") or [ISSUER]
        if verified := self._tokens.review(token, audiences):
            user_info = {**_user_info(verified.user), "extra": dict(verified.extra)}
            return _reviewed(review, user_info, list(verified.audiences))
        found = self._authenticator.user_of_token(token) if ISSUER in audiences else None
        if found is None:
            return {**review, "status": {"user": {}, "error": "invalid bearer token"}}
        return _reviewed(review, _user_info(found), [ISSUER])

    def _decided(self, review: JsonObject, user: User) -> JsonObject:
        decision = self._policies.current().decide(user, _target(_mapping(review, "spec")))
        status: dict[str, Any] = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return {**review, "status": status}


def _reviewed(review: JsonObject, user: JsonObject, audiences: list[str]) -> JsonObject:
    return {**review, "status": {"authenticated": True, "user": user, "audiences": audiences}}


def _target(spec: JsonObject) -> Target:
    """Return the request that a review describes."""
    resource, path = _mapping(spec, "resourceAttributes"), _mapping(spec, "nonResourceAttributes")
    if ("resourceAttributes" in spec) == ("nonResourceAttributes" in spec):
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _invalid("spec.resourceAttributes", f"Invalid value: null: {why}")
    if "nonResourceAttributes" in spec:
        return PathTarget(str(path.get("verb", "")), "", str(path.get("path", "")))
    return ResourceTarget(
        verb=str(resource.get("verb", "")),
        method="",
        path="",
        group=str(resource.get("group", "")),
        version=str(resource.get("version", "")),
        resource=str(resource.get("resource", "")),
        namespace=str(resource.get("namespace", "")),
        name=str(resource.get("name", "")),
        subresource=str(resource.get("subresource", "")),
    )


def _subject(review: JsonObject) -> User:
    spec = _mapping(review, "spec")
    user, groups = str(spec.get("user") or ""), spec.get("groups") or []
    if not user and not groups:
        raise _invalid("spec.user", 'Invalid value: "": at least one of user or group must be specified')
    if not isinstance(groups, list):
        raise bad_request("spec.groups must be a list")
    return User(user, tuple(map(str, groups)), str(spec.get("uid") or ""))


def _user_info(user: User) -> JsonObject:
    info: dict[str, Any] = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    return {name: value for name, value in info.items() if value}


def _mapping(value: JsonObject, name: str) -> JsonObject:
    inner = value.get(name) or {}
    if not isinstance(inner, dict):
        raise bad_request(f"{name} must be an object")
    return inner


def _invalid(field: str, why: str) -> StatusError:
    return invalid("", "", [Cause(field, why)], group=_AUTHORIZATION)
