"""The form aws: a signed GetCallerIdentity request proves the AWS role of the provider's pod.

Infisical sends the request to AWS itself. AWS accepts it for 15 minutes.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Final

import msgspec
from yarl import URL

from eso_api.stores.infisical import InfisicalAwsAuth
from eso_provider_infisical.auth.form import Form, Opened, prove_own_identity
from eso_sdk.awsidentity import CALLER_IDENTITY, Sts, process_source, sts_url
from eso_sdk.errors import credentials_not_found, invalid_config
from eso_sdk.loginbodies import Body, text
from eso_sdk.sigv4 import Scope, SignableRequest, signed_headers

SESSION_NAME: Final = "external-secrets-provider-infisical"
_FORM: Final = "application/x-www-form-urlencoded; charset=utf-8"


def amazon(config: InfisicalAwsAuth, store: Opened, environment: Mapping[str, str] = os.environ) -> Form:
    place = "/auth/awsAuthCredentials"
    identity = text(store, config.identity_id, f"{place}/identityId")
    prove_own_identity(store, "AWS role", place)
    region = environment.get("AWS_REGION", "") or environment.get("AWS_DEFAULT_REGION", "")
    if not region.replace("-", "").isalnum():
        raise invalid_config(place, "needs the region in the environment variable AWS_REGION of the provider")
    source = process_source(environment, store.clock)
    if source is None:
        raise credentials_not_found(
            f"{place} uses the AWS role of the provider, and it has none; bind a role to its ServiceAccount (IRSA or"
            " Pod Identity), or use another form of auth"
        )
    sts = Sts(sts_url(region, environment), Scope(region, "sts"), store.clock, SESSION_NAME, place)
    # Infisical sends the request to this host, whatever address the provider itself uses.
    url = URL(f"https://sts.{region}.amazonaws.com/")

    async def body() -> Body:
        credentials = await source.obtain(sts)
        request = SignableRequest("POST", url, {"Content-Type": _FORM}, CALLER_IDENTITY)
        headers = signed_headers(request, credentials, sts.scope, store.clock.now())
        headers["Content-Length"] = str(len(CALLER_IDENTITY))
        return {
            "identityId": identity,
            "iamHttpRequestMethod": "POST",
            "iamRequestBody": base64.b64encode(CALLER_IDENTITY).decode(),
            "iamRequestHeaders": base64.b64encode(msgspec.json.encode(headers)).decode(),
        }

    return Form(
        name="awsAuthCredentials",
        method="aws-auth",
        call="MachineIdentityLoginViaAwsAuth",
        proof=(identity, region, *source.who),
        body=body,
        advice="check the identity id, and that its AWS auth allows the account and the role of the provider",
    )
