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

from eso_api.stores.gcpsm import GcpWorkloadIdentity
from eso_provider_gcp.auth.metadata import metadata
from eso_provider_gcp.auth.outside import Outside
from eso_provider_gcp.auth.vendor import SCOPES
from eso_provider_gcp.endpoints import IAM_CREDENTIALS, SECURE_TOKEN, base_of
from eso_provider_gcp.identities import Access
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, rejected
from eso_sdk.http import HttpRequest, status_error
from eso_wire.values import Token

PLACE: Final = "/auth/workloadIdentity"
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
    outside: Outside

    async def fetch(self) -> Access:
        token = self.token()
        audience = await self._audience(token)
        federated = await self._exchange(audience, token)
        account = bound_account(token, f"{PLACE}/serviceAccountRef")
        return await self._impersonate(account, federated.token) if account else federated

    async def _audience(self, token: Token) -> str:
        config = self.config
        project = config.cluster_project_id or self.project or await metadata("project/project-id", self.outside)
        pool = f"{project}.svc.id.goog"
        if pool not in token.audiences:
            raise invalid_config(
                f"{PLACE}/clusterProjectID", f'set it to "{project}": the token of the account has another audience'
            )
        attribute = "instance/attributes/"
        location = config.cluster_location or await metadata(f"{attribute}cluster-location", self.outside)
        name = config.cluster_name or await metadata(f"{attribute}cluster-name", self.outside)
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
        answer = await self._ask(f"{base_of(SECURE_TOKEN)}/v1/identitybindingtoken", body, {}, token)
        match answer:
            case {"access_token": str(access), "expires_in": int(seconds)} if access:
                return Access(access, self.outside.clock.now() + timedelta(seconds=seconds))
        raise self._unfit(SECURE_TOKEN)

    async def _impersonate(self, account: str, access: str) -> Access:
        url = f"{base_of(IAM_CREDENTIALS)}/v1/projects/-/serviceAccounts/{account}:generateAccessToken"
        answer = await self._ask(url, {"scope": list(SCOPES)}, {"Authorization": f"Bearer {access}"}, self.token())
        match answer:
            case {"accessToken": str(issued), "expireTime": str(end)} if issued:
                try:
                    return Access(issued, datetime.fromisoformat(end))
                except ValueError:
                    pass
        raise self._unfit(IAM_CREDENTIALS)

    async def _ask(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str], token: Token) -> Any:
        target = URL(url)
        subject = target.host or "Google"
        sent = {"Content-Type": "application/json", **headers}
        answer = await self.outside.send(HttpRequest("POST", target, sent, json.dumps(body).encode()))
        if answer.status in _REFUSED:
            account = f'service account "{token.namespace}/{token.name}"'
            raise rejected(
                f"{subject} refuses {account}: HTTP {answer.status}; check clusterProjectID, clusterLocation and"
                f" clusterName, and grant it roles/iam.workloadIdentityUser on the account of its annotation"
                f" {ACCOUNT_ANNOTATION}",
                backend_code=str(answer.status),
            )
        if problem := status_error(answer, subject, self.outside.clock):
            raise problem
        try:
            return json.loads(answer.body)
        except ValueError:
            return None

    def _unfit(self, service: str) -> Exception:
        return backend_error(f"{URL(base_of(service)).host} answered without an access token")


def bound_account(token: Token, place: str) -> str:
    """Return the Google service account that a Kubernetes one is bound to; empty for none."""
    account = token.annotations.get(ACCOUNT_ANNOTATION, "")
    if account and not EMAIL.fullmatch(account):
        raise invalid_config(place, f"the annotation {ACCOUNT_ANNOTATION} of the account is not an e-mail address")
    return account


def account_key(token: Token, place: str) -> tuple[str, ...]:
    """Return what tells one account, with its bindings, from another."""
    if not token.name:
        raise credentials_not_found(f"{place}: the operator did not say whose token it sent; upgrade the operator")
    bound = token.annotations.get(ACCOUNT_ANNOTATION, "")
    return (token.namespace, token.name, token.uid, bound, *sorted(token.audiences))
