"""The identity of a store: a service account key, workload identity, federation, or that of the provider process."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, Final

import google.auth
from google.oauth2 import service_account

from eso_api.stores.gcp import GcpAuth, GcpSecretRef
from eso_provider_gcp.auth import federation, gke
from eso_provider_gcp.auth.tokenclient import OWN, Bridge, TokenClient, metadata
from eso_provider_gcp.auth.vendor import SCOPES, refreshing
from eso_provider_gcp.identities import Source
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config

KEY: Final = "/auth/secretRef/secretAccessKeySecretRef"
_NEEDED: Final = ("client_email", "private_key", "token_uri")


def check_auth(auth: GcpAuth | None, project: str) -> None:
    """Check what the spec alone shows."""
    if auth is None:
        return
    if auth.secret_ref is not None:
        if auth.secret_ref.secret_access_key_secret_ref is None:
            raise invalid_config(KEY, "name the key of a Secret with the JSON key of a service account")
        if not project:
            raise invalid_config("/projectID", "set it: it is needed with a service account key")
    elif auth.workload_identity is None and auth.workload_identity_federation is not None:
        federation.check_federation(auth.workload_identity_federation)


def source_of(backend: Backend[Any], auth: GcpAuth | None, project: str) -> Source:
    """Return how this configuration obtains tokens, without a call to Google. The first form that is set counts."""
    client = TokenClient(backend.clock, backend.addresses, federation.POINTER)
    if auth is not None and auth.secret_ref is not None:
        return _by_key(backend, auth.secret_ref, replace(client, field=KEY))
    if auth is not None and (config := auth.workload_identity) is not None:
        reference = config.service_account_ref
        pointer = f"{gke.POINTER}/serviceAccountRef"
        account = gke.account_key(backend.token(reference), pointer)
        cluster = (config.cluster_project_id or project, config.cluster_location, config.cluster_name)
        identity = gke.WorkloadIdentity(
            config, project, lambda: backend.token(reference), replace(client, field=gke.POINTER)
        )
        return Source(("gke", *cluster, *account), identity.fetch)
    if auth is not None and auth.workload_identity_federation is not None:
        return federation.federated(backend, auth.workload_identity_federation, client)
    backend.process_identity.use(
        "Google identity", field="/auth", instead="set auth.secretRef, workloadIdentity or workloadIdentityFederation"
    )
    return _own(replace(client, policy=OWN, field="/auth"))


async def project_of(backend: Backend[Any], auth: GcpAuth | None, project: str) -> str:
    """Return the project: that of the spec, that of the cluster, or that of the machine."""
    identity = auth.workload_identity if auth is not None else None
    named = project or (identity.cluster_project_id if identity is not None else "")
    return named or await metadata("project/project-id", TokenClient(backend.clock, OWN, "/projectID"))


def _by_key(backend: Backend[Any], reference: GcpSecretRef, client: TokenClient) -> Source:
    selector = reference.secret_access_key_secret_ref
    if selector is None:
        raise invalid_config(KEY, "name the key of a Secret with the JSON key of a service account")
    raw = backend.secret(selector).reveal()
    try:
        info = json.loads(raw)
    except ValueError:
        info = None
    whole = isinstance(info, dict) and all(isinstance(info.get(name), str) for name in _NEEDED)
    if not whole or info.get("universe_domain", "googleapis.com") != "googleapis.com":
        where = f'key "{selector.key}" of Secret "{selector.name}"'
        raise invalid_config(KEY, f"{where} is not a JSON key of a Google service account with {', '.join(_NEEDED)}")

    def make(_: Bridge) -> Any:
        return service_account.Credentials.from_service_account_info(info, scopes=SCOPES)  # type: ignore[no-untyped-call] # the library has no types

    advice = "check that the service account exists, and that this key of it is enabled"
    fetch = refreshing(make, client, who=f'the service account key in Secret "{selector.name}"', advice=advice)
    return Source(("key", hashlib.sha256(raw).hexdigest()), fetch)


def _own(client: TokenClient) -> Source:
    def make(bridge: Bridge) -> Any:
        credentials, _project = google.auth.default(scopes=SCOPES, request=bridge)
        return credentials

    advice = "set auth, or give the provider's pod an identity (GKE workload identity, GOOGLE_APPLICATION_CREDENTIALS)"
    return Source(("own",), refreshing(make, client, who="credentials of the provider process", advice=advice))
