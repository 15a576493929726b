"""Workload identity of GKE: the token of a Kubernetes service account becomes an access token of Google.

token of the account -> securetoken identitybindingtoken -> federated token
with the annotation iam.gke.io/gcp-service-account        -> iamcredentials generateAccessToken for that account
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from yarl import URL

from eso_api.stores.gcp import GcpWorkloadIdentity
from eso_provider_gcp.auth.tokenclient import TokenClient, metadata
from eso_provider_gcp.auth.vendor import SCOPES
from eso_provider_gcp.endpoints import IAM_CREDENTIALS, SECURE_TOKEN, base_of
from eso_provider_gcp.identities import Access
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, rejected
from eso_sdk.http import HttpRequest, status_error
from eso_wire.values import Token

POINTER: Final = "/auth/workloadIdentity"
ACCOUNT_ANNOTATION: Final = "iam.gke.io/gcp-service-account"
EMAIL: Final = re.compile(r"[A-Za-z0-9.-]+@[A-Za-z0-9.-]+")
_REFUSED: Final = frozenset({400, 401, 403, 404})


@dataclass(frozen=True, slots=True)
class WorkloadIdentity:
    """A Kubernetes service account, as Google knows it."""

    config: GcpWorkloadIdentity
    project: str
    """The project of the store, for a configuration that names no project of the cluster."""
    token: Callable[[], Token] = field(repr=False)
    """Gives the newest token of the account."""
    client: TokenClient

    async def fetch(self) -> Access:
        token = self.token()
        audience = await self._audience(token)
        federated = await self._exchange(audience, token)
        account = bound_account(token, f"{POINTER}/serviceAccountRef")
        return await self._impersonate(account, federated.token) if account else federated

    async def _audience(self, token: Token) -> str:
        config = self.config
        project = config.cluster_project_id or self.project or await metadata("project/project-id", self.client)
        pool = f"{project}.svc.id.goog"
        if pool not in token.audiences:
            raise invalid_config(
                f"{POINTER}/clusterProjectID", f'set it to "{project}": the token of the account has another audience'
            )
        attribute = "instance/attributes/"
        location = config.cluster_location or await metadata(f"{attribute}cluster-location", self.client)
        name = config.cluster_name or await metadata(f"{attribute}cluster-name", self.client)
        cluster = f"https://container.googleapis.com/v1/projects/{project}/locations/{location}/clusters/{name}"
        return f"identitynamespace:{pool}:{cluster}"

    async def _exchange(self, audience: str, token: Token) -> Access:
        body = {
            "audience": audience,
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "scope": SCOPES[0],
            "subject_token": token.token.reveal().decode(),
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        }
        response = await self._call(f"{base_of(SECURE_TOKEN)}/v1/identitybindingtoken", body, {}, token)
        match response:
            case {"access_token": str(access), "expires_in": int(seconds)} if access:
                return Access(access, self.client.clock.now() + timedelta(seconds=seconds))
        raise self._unfit(SECURE_TOKEN)

    async def _impersonate(self, account: str, access: str) -> Access:
        url = f"{base_of(IAM_CREDENTIALS)}/v1/projects/-/serviceAccounts/{account}:generateAccessToken"
        response = await self._call(url, {"scope": list(SCOPES)}, {"Authorization": f"Bearer {access}"}, self.token())
        match response:
            case {"accessToken": str(issued), "expireTime": str(end)} if issued:
                try:
                    return Access(issued, datetime.fromisoformat(end))
                except ValueError:
                    pass
        raise self._unfit(IAM_CREDENTIALS)

    async def _call(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], token: Token) -> Any:
        target = URL(url)
        subject = target.host or "Google"
        sent = {"Content-Type": "application/json", **headers}
        response = await self.client.send(HttpRequest("POST", target, sent, json.dumps(body).encode()))
        if response.status in _REFUSED:
            account = f'service account "{token.namespace}/{token.name}"'
            raise rejected(
                f"{subject} refuses {account}: HTTP {response.status}; check clusterProjectID, clusterLocation and"
                f" clusterName, and grant it roles/iam.workloadIdentityUser on the account of its annotation"
                f" {ACCOUNT_ANNOTATION}",
                backend_code=str(response.status),
            )
        if problem := status_error(response, subject, self.client.clock):
            raise problem
        try:
            return json.loads(response.body)
        except ValueError:
            return None

    def _unfit(self, service: str) -> Exception:
        return backend_error(f"{URL(base_of(service)).host} sent no access token")


def bound_account(token: Token, pointer: str) -> str:
    """Return the Google service account that a Kubernetes one is bound to; empty for none."""
    account = token.annotations.get(ACCOUNT_ANNOTATION, "")
    if account and not EMAIL.fullmatch(account):
        raise invalid_config(pointer, f"the annotation {ACCOUNT_ANNOTATION} of the account is not an e-mail address")
    return account


def account_key(token: Token, pointer: str) -> tuple[str, ...]:
    """Return what identifies an account with its bindings."""
    if not token.name:
        raise credentials_not_found(
            f"{pointer}: the operator did not send the name of the account; upgrade the operator"
        )
    bound = token.annotations.get(ACCOUNT_ANNOTATION, "")
    return (token.namespace, token.name, token.uid, bound, *sorted(token.audiences))
