"""Choose the form of login of a store.

| form | fields |
|---|---|
| a service account of the cluster | `kubernetesAuth` |
| an access key | `secretRef` with the access type `api_key` or `access_key` |
| a cloud identity | `secretRef` with the access type `aws_iam`, `gcp` or `azure_ad` |
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from eso_api.stores.akeyless import AkeylessAuth, AkeylessKubernetesAuth
from eso_provider_akeyless.auth.azure import azure
from eso_provider_akeyless.auth.cloud import Cloud, Form, Opened, amazon, google
from eso_sdk.errors import invalid_config
from eso_sdk.loginbodies import Body, fixed, optional_text, text

_PLACE: Final = "/authSecretRef/secretRef"
_KUBERNETES: Final = "/authSecretRef/kubernetesAuth"
_CLOUDS: Final[dict[str, Callable[[Cloud], Form]]] = {"aws_iam": amazon, "gcp": google, "azure_ad": azure}


def check_auth(auth: AkeylessAuth) -> tuple[str, ...]:
    """Check the fields alone: return warnings, or raise `invalid_config`."""
    secret, cluster = auth.secret_ref, auth.kubernetes_auth
    if cluster is not None:
        for name, given in (("accessID", cluster.access_id), ("k8sConfName", cluster.k8s_conf_name)):
            if not given:
                raise invalid_config(f"{_KUBERNETES}/{name}", "is needed")
        if cluster.service_account_ref is None and cluster.secret_ref is None:
            raise invalid_config(_KUBERNETES, "needs serviceAccountRef or secretRef")
        named = secret is not None and secret.access_id is not None
        return ("authSecretRef configures kubernetesAuth and secretRef; only kubernetesAuth is used",) if named else ()
    if secret is None:
        raise invalid_config("/authSecretRef", "needs secretRef or kubernetesAuth")
    for name, reference in (("accessID", secret.access_id), ("accessType", secret.access_type)):
        if reference is None or not reference.name or not reference.key:
            raise invalid_config(f"{_PLACE}/{name}", "is needed: name the Secret and the key")
    return ()


def chosen_form(store: Opened) -> Form:
    """Return the login of a store."""
    auth = store.config.auth_secret_ref
    if auth.kubernetes_auth is not None:
        return _kubernetes(store, auth.kubernetes_auth)
    if auth.secret_ref is None:
        raise invalid_config("/authSecretRef", "needs secretRef or kubernetesAuth")
    access_id = text(store, auth.secret_ref.access_id, f"{_PLACE}/accessID")
    access_type = text(store, auth.secret_ref.access_type, f"{_PLACE}/accessType")
    if access_type in ("api_key", "access_key"):
        key = text(store, auth.secret_ref.access_type_param, f"{_PLACE}/accessTypeParam")
        return Form(
            name="the access key",
            proof=("key", access_id, key),
            body=fixed({"access-id": access_id, "access-key": key}),
            advice="check access id and access key",
        )
    if access_type in _CLOUDS:
        parameter = optional_text(store, auth.secret_ref.access_type_param, f"{_PLACE}/accessTypeParam")
        return _CLOUDS[access_type](Cloud(store, access_id, parameter))
    if access_type == "k8s":
        raise invalid_config(f"{_PLACE}/accessType", "k8s needs the field kubernetesAuth instead of secretRef")
    known = ", ".join(("api_key", "access_key", *_CLOUDS))
    raise invalid_config(f"{_PLACE}/accessType", f"names a value that is none of {known}")


def _kubernetes(store: Opened, config: AkeylessKubernetesAuth) -> Form:
    account = config.service_account_ref
    if account is not None:
        token = store.token(account)
        who = ("account", token.namespace, token.name, token.uid, *token.audiences)
    else:
        who = ("token", text(store, config.secret_ref, f"{_KUBERNETES}/secretRef"))

    async def body() -> Body:
        raw = who[1].encode() if account is None else store.token(account).token.reveal()
        return {
            "access-id": config.access_id,
            "access-type": "k8s",
            "k8s-auth-config-name": config.k8s_conf_name,
            "k8s-service-account-token": base64.b64encode(raw).decode(),
        }

    return Form(
        name="kubernetesAuth",
        proof=("k8s", config.access_id, config.k8s_conf_name, *who),
        body=body,
        advice="check accessID, k8sConfName, and that the auth method allows the service account",
    )
