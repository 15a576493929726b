"""Errors of logins. The texts of Entra ID are never quoted: they repeat parts of the request."""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from azure.core.exceptions import AzureError
from azure.identity import CredentialUnavailableError

from eso_sdk.errors import backend_error, credentials_not_found, rejected, unavailable
from eso_sdk.http import retry_after
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock

_CODE: Final = re.compile(r"AADSTS\d{4,8}")
_HINTS: Final = {
    "AADSTS7000215": "the client secret is wrong; write its value, not its id, into the Secret",
    "AADSTS7000222": "the client secret has expired; create a new one",
    "AADSTS7000229": "the application has no service principal in the tenant; create it",
    "AADSTS700016": "the tenant does not know the application; correct the client id or the tenant id",
    "AADSTS700027": "the certificate is not registered with the application; upload it",
    "AADSTS90002": "the tenant does not exist; correct the tenant id",
    "AADSTS900023": "the tenant id is wrong; write the id or a domain of the tenant",
    "AADSTS70021": "no federated credential fits the token; check its issuer, subject and audience",
    "AADSTS700211": "no federated credential has the issuer of the token; check the issuer of the cluster",
    "AADSTS700212": "no federated credential has the audience of the token; use api://AzureADTokenExchange",
    "AADSTS700213": "no federated credential has the subject of the token; it is system:serviceaccount:NAMESPACE:NAME",
    "AADSTS700024": "the token of the service account has expired, or the clock of the cluster is wrong",
    "AADSTS500011": "the tenant does not know the resource; check environmentType and customCloudConfig",
}

# azure-identity logs the answers of Entra ID, which repeat parts of the request. The error below says what failed.
logging.getLogger("azure").setLevel(logging.CRITICAL)


def login_error(failed: Exception, subject: str, clock: Clock) -> ProviderError:
    """Return the error of a login that Entra ID or the instance metadata refused."""
    if isinstance(failed, CredentialUnavailableError):
        return credentials_not_found(
            f"{subject} is not available to the provider process: instance metadata has no such identity or does not"
            " answer; assign the identity to the node, or use WorkloadIdentity"
        )
    if not isinstance(failed, AzureError):
        return credentials_not_found(f"{subject} cannot log in ({type(failed).__name__}); check its id, tenant and key")
    answer: Any = getattr(failed, "response", None)
    status = int(getattr(answer, "status_code", 0) or 0)
    found = _CODE.search(str(getattr(failed, "message", "")))
    code = found.group() if found else str(status or "")
    if status == 429:
        words = f"Entra ID limits the logins of {subject} (HTTP 429); asked again later"
        wait = retry_after(answer.headers, clock.now())
        return ProviderError(ErrorReason.RATE_LIMITED, words, retry_after=wait, backend_code=code)
    if status >= 500:
        return unavailable(f"Entra ID has no token for {subject}: HTTP {status}", backend_code=code)
    if found is None and status in (0, 404):
        words = f"the login of {subject} was answered with something that is not an answer of Entra ID"
        return backend_error(f"{words}; check the authority and proxies on the way", backend_code=code)
    hint = _HINTS.get(code, "check its id, its tenant and its credential")
    return rejected(f"Entra ID refuses {subject} ({code}): {hint}", backend_code=code)
