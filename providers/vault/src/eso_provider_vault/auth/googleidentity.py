"""Workload identity of GKE: a Kubernetes token becomes a JWT that Google signs for the bound service account.

token of the ServiceAccount -> securetoken.googleapis.com -> federated access token -> iamcredentials signJwt
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from yarl import URL

from eso_api.stores.gcpsm import GcpWorkloadIdentity
from eso_provider_vault.auth.method import line
from eso_provider_vault.auth.outside import ask_cloud
from eso_sdk.errors import backend_error, invalid_config, rejected
from eso_sdk.http import HttpRequest, status_error
from eso_wire.values import Token
from kubebase.clock import Clock

ACCOUNT_ANNOTATION: Final = "iam.gke.io/gcp-service-account"
_PLACE: Final = "/auth/gcp/workloadIdentity"
_JSON: Final = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Google:
    """Google's token services."""

    sts: str
    credentials: str
    clock: Clock

    @classmethod
    def of(cls, environment: Mapping[str, str], clock: Clock) -> Google:
        """Return the endpoints of Google. The provider's environment may name private ones."""
        return cls(
            environment.get("GOOGLE_SECURETOKEN_ENDPOINT", "") or "https://securetoken.googleapis.com",
            environment.get("GOOGLE_IAM_CREDENTIALS_ENDPOINT", "") or "https://iamcredentials.googleapis.com",
            clock,
        )

    async def exchange(self, audience: str, token: str) -> str:
        """Exchange a Kubernetes token for an access token of the workload."""
        body = {
            "audience": audience,
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "scope": "https://www.googleapis.com/auth/cloud-platform",
            "subject_token": token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        }
        return await self._ask(f"{self.sts}/v1/identitybindingtoken", body, {}, "access_token")

    async def sign(self, account: str, claims: Mapping[str, Any], access: str) -> str:
        """Let Google sign claims for a service account."""
        url = f"{self.credentials}/v1/projects/-/serviceAccounts/{account}:signJwt"
        return await self._ask(url, {"payload": json.dumps(claims)}, {"Authorization": f"Bearer {access}"}, "signedJwt")

    async def _ask(self, url: str, body: Mapping[str, str], headers: Mapping[str, str], member: str) -> str:
        subject = URL(url).host or "Google"
        request = HttpRequest("POST", URL(url), {**_JSON, **headers}, json.dumps(body).encode())
        answer = await ask_cloud(request, subject, self.clock)
        if answer.status in (400, 401, 403, 404):
            raise rejected(
                f"{subject} refuses the workload identity of {_PLACE}: HTTP {answer.status}; check the names of the"
                " cluster, and that the service account allows roles/iam.workloadIdentityUser and signJwt",
                backend_code=str(answer.status),
            )
        if problem := status_error(answer, subject, self.clock):
            raise problem
        try:
            found = json.loads(answer.body).get(member)
        except (ValueError, AttributeError):
            found = None
        if not isinstance(found, str) or not found:
            raise backend_error(f"the answer of {subject} holds no {member}")
        return found


async def federated_jwt(
    identity: GcpWorkloadIdentity, project: str, token: Token, claims: Mapping[str, Any], google: Google
) -> str:
    """Return a JWT with these claims, signed by Google for the service account that the ServiceAccount is bound to."""
    account = token.annotations.get(ACCOUNT_ANNOTATION, "")
    if not account:
        raise invalid_config(
            f"{_PLACE}/serviceAccountRef", f"names a ServiceAccount without the annotation {ACCOUNT_ANNOTATION}"
        )
    access = await google.exchange(_audience(identity, project), line(token.token, f"{_PLACE}/serviceAccountRef"))
    return await google.sign(account, {"sub": account, **claims}, access)


def _audience(identity: GcpWorkloadIdentity, project: str) -> str:
    location, name = identity.cluster_location, identity.cluster_name
    if not (project and location and name):
        raise invalid_config(_PLACE, "needs clusterProjectID, clusterLocation and clusterName")
    cluster = f"https://container.googleapis.com/v1/projects/{project}/locations/{location}/clusters/{name}"
    return f"identitynamespace:{project}.svc.id.goog:{cluster}"
