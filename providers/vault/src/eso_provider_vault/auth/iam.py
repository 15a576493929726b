"""The method iam: a signed GetCallerIdentity request proves an AWS identity to Vault, which sends it to AWS itself.

credentials (`awskeys.py`) -> role assumed, if one is named -> signed request in the login body
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from typing import Final

from eso_api.stores.vault import VaultIam
from eso_provider_vault.auth.awskeys import SESSION_NAME, Sts, credential_source, sts_url
from eso_provider_vault.auth.method import Body, Method, Secrets, mount_of, named
from eso_provider_vault.auth.sigv4 import AwsCredentials, Scope, SignableRequest, signed_headers
from eso_sdk.awsidentity import CALLER_IDENTITY
from eso_sdk.errors import invalid_config
from kubebase.clock import Clock

_SERVER_ID: Final = "X-Vault-AWS-IAM-Server-ID"


def iam(config: VaultIam, secrets: Secrets, *, server: str, environment: Mapping[str, str] = os.environ) -> Method:
    place = "/auth/iam"
    role = named(config.vault_role, f"{place}/vaultRole", "the role of the auth method")
    region = config.region.strip() or "us-east-1"
    if not region.replace("-", "").isalnum():
        raise invalid_config(f"{place}/region", "is not the name of an AWS region, such as eu-central-1")
    source = credential_source(config, secrets, server, environment)
    sts = Sts(sts_url(region, environment), Scope(region, "sts"), secrets.clock, SESSION_NAME, place)

    async def body() -> Body:
        credentials = await source.obtain(sts)
        if config.role:
            credentials = await sts.assume_role(credentials, config.role, config.external_id)
        return {"role": role, **login_request(sts, credentials, config.vault_aws_iam_server_id, secrets.clock)}

    return Method(
        name="iam",
        mount=mount_of(config.path, "aws", f"{place}/path"),
        who=(role, region, config.role, config.external_id, config.vault_aws_iam_server_id, *source.who),
        label=f'role "{role}"',
        body=body,
        proof=source.proof,
        advice="check vaultRole, that it allows this AWS identity, vaultAwsIamServerID, and the STS endpoint of region",
    )


def login_request(sts: Sts, credentials: AwsCredentials, server_id: str, clock: Clock) -> Body:
    """Return the fields that carry the signed request."""
    headers = {
        "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
        "Content-Length": str(len(CALLER_IDENTITY)),
    }
    if server_id:
        headers[_SERVER_ID] = server_id
    signed = signed_headers(
        SignableRequest("POST", sts.url, headers, CALLER_IDENTITY), credentials, sts.scope, clock.now()
    )
    return {
        "iam_http_request_method": "POST",
        "iam_request_url": _encoded(str(sts.url).encode()),
        "iam_request_body": _encoded(CALLER_IDENTITY),
        "iam_request_headers": _encoded(json.dumps({name: [value] for name, value in signed.items()}).encode()),
    }


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
