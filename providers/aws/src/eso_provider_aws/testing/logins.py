"""Calls of stores that use every login method, and a service whose values show who signed the request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from eso_api.values import SecretBytes
from eso_provider_aws.provider import SecretsManager
from eso_provider_aws.testing.front import RecordedRequest, StubResponse
from eso_provider_aws.testing.sessions import AUTH, KEYS, REGION, credentials
from eso_provider_aws.testing.sts import ARN
from eso_sdk.testing import call_context
from eso_wire.values import Context, Token

TOKEN_POINTER: Final = "/auth/jwt/serviceAccountRef"  # noqa: S105 - a pointer
JWT: Final = {"jwt": {"serviceAccountRef": {"name": "app"}}}


def whoami(request: RecordedRequest) -> StubResponse:
    """Return a secret whose value is the id of the key that the request was signed with."""
    response = {"ARN": "arn", "Name": request.body["SecretId"], "SecretString": request.key_id, "VersionId": "1"}
    return StubResponse(200, json.dumps(response).encode())


def with_keys(keys: tuple[str, str] = KEYS, **spec: Any) -> Context:
    """Return a store that signs with keys of a Secret; `role` is completed to an ARN."""
    return call_context(SecretsManager, {"region": REGION, "auth": AUTH, **_roles(spec)}, credentials(keys))


def with_own(**spec: Any) -> Context:
    """Return a cluster-scoped store that uses the identity of the process."""
    return call_context(SecretsManager, {"region": REGION, **_roles(spec)}, cluster_scoped=True)


def with_token(token: Token, **spec: Any) -> Context:
    """Return a store that uses a service account."""
    return call_context(SecretsManager, {"region": REGION, "auth": JWT, **_roles(spec)}, {TOKEN_POINTER: token})


def token(
    text: str = "token-1",
    *,
    role: str = "app",
    expires_at: datetime | None = None,
    annotations: Mapping[str, str] | None = None,
    **more: Any,
) -> Token:
    """Return a token of service account team/app, which may assume `role`."""
    named = {"eks.amazonaws.com/role-arn": f"{ARN}{role}"} if annotations is None else annotations
    given = {"namespace": "team", "name": "app", "uid": "uid-of-app", "audiences": ("sts.amazonaws.com",)} | more
    return Token(SecretBytes(text.encode()), expires_at, annotations=named, **given)


def _roles(spec: dict[str, Any]) -> dict[str, Any]:
    whole = dict(spec)
    if "role" in spec:
        whole["role"] = f"{ARN}{spec['role']}"
    if "additionalRoles" in spec:
        whole["additionalRoles"] = [f"{ARN}{name}" for name in spec["additionalRoles"]]
    return whole
