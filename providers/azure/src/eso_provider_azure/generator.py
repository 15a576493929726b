"""ACRAccessToken: what `docker login` needs for Azure's container registry.

Entra token for the management API -> POST /oauth2/exchange -> refresh token
                                      POST /oauth2/token    -> access token, if the spec has a scope
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

import msgspec
from yarl import URL

from eso_api.generators.azure import ACR_ACCESS_TOKEN as V1_ACR_ACCESS_TOKEN
from eso_api.generators.azure import ACRAccessTokenSpec
from eso_api.references import ServiceAccountSelector
from eso_api.values import SecretBytes
from eso_provider_azure.identities import REGISTRY_HOSTS, registry_cloud
from eso_provider_azure.kinds import ACCESS_TOKEN
from eso_provider_azure.login import CLIENT_ANNOTATION, TENANT_ANNOTATION, Login, Receiver, runtime_of, where
from eso_sdk.errors import backend_error, credentials_not_found, error_for_status, invalid_config
from eso_sdk.http import HttpRequest, retry_after
from eso_sdk.provider import Generator, generator_kind
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Generated, GenerateRequest, Validation, ValidationState, ValueMetadata

USERNAME: Final = "00000000-0000-0000-0000-000000000000"
"""The user name that registries expect beside a token."""

_HOST: Final = re.compile(r"[a-z0-9][a-z0-9.-]*(:\d{1,5})?")
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


@generator_kind(objects=(ACCESS_TOKEN,), bridged=(V1_ACR_ACCESS_TOKEN,))
class ACRAccessTokenGenerator(Generator[ACRAccessTokenSpec]):
    """A login that expires after some hours."""

    API_NAME: ClassVar[str] = "Azure/ContainerRegistry"

    @classmethod
    def check_config(cls, config: ACRAccessTokenSpec) -> tuple[str, ...]:
        registry_cloud(config.environment_type)
        if not _HOST.fullmatch(config.registry):
            raise invalid_config("/registry", "write the host of the registry, such as NAME.azurecr.io")
        auth = config.auth
        given = [auth.service_principal, auth.managed_identity, auth.workload_identity]
        if sum(each is not None for each in given) != 1:
            raise invalid_config("/auth", "name one of servicePrincipal, managedIdentity and workloadIdentity")
        if auth.service_principal is not None and not config.tenant_id:
            raise invalid_config("/tenantId", "name the tenant of the service principal")
        return ()

    async def open(self) -> None:
        config, runtime = self.config, runtime_of(self.clock)
        cloud = registry_cloud(config.environment_type)
        self._login = self._logged_in()
        # The resource ends with a slash, and the scope needs one of its own.
        self._credential = self._login.identity.bind(runtime.logins, f"{cloud.management}/.default")
        self._http = self.close_later(runtime.http_client(f"registry {config.registry}", "/registry", self.addresses))

    async def close(self) -> None:
        self.__dict__.pop("_login", None)  # the token of a service account goes with it
        await super().close()

    async def validate(self) -> Validation:
        """Obtain a token of Entra ID. The registry is called only to generate values."""
        await self._credential.token()
        return Validation(ValidationState.READY)

    async def generate(self, request: GenerateRequest) -> Generated:
        del request
        config = self.config
        proof = await self._credential.token()
        exchange = {"grant_type": "access_token", "service": config.registry, "access_token": proof.token}
        if config.tenant_id:
            exchange["tenant"] = config.tenant_id
        password = await self._token_from_registry("exchange", exchange, "refresh_token")
        if config.scope:
            form = {"grant_type": "refresh_token", "service": config.registry, "scope": config.scope}
            password = await self._token_from_registry("token", {**form, "refresh_token": password}, "access_token")
        values = {"username": SecretBytes(USERNAME.encode()), "password": SecretBytes(password.encode())}
        return Generated(values, metadata=ValueMetadata(expires_at=_expiry(password)))

    def _logged_in(self) -> Login:
        config, runtime = self.config, runtime_of(self.clock)
        identities = where(self, runtime, registry_cloud(config.environment_type))
        if (principal := config.auth.service_principal) is not None:
            named = principal.secret_ref
            client = identities.text(named.client_id, "/auth/servicePrincipal/secretRef/clientId")
            secret = identities.text(named.client_secret, "/auth/servicePrincipal/secretRef/clientSecret")
            if not client or not secret:
                raise invalid_config("/auth/servicePrincipal/secretRef", "name clientId and clientSecret")
            return Login(identities.secret(config.tenant_id, client, secret))
        if (managed := config.auth.managed_identity) is not None:
            return Login(identities.managed(managed.identity_id, self._receiver()))
        workload = config.auth.workload_identity
        reference = workload.service_account_ref if workload is not None else None
        if reference is None:
            return Login(identities.process(config.tenant_id, self._receiver()))
        return identities.account(reference, *self._annotated(reference))

    def _receiver(self) -> Receiver:
        """Return the registry, which receives a token that the management API accepts too."""
        return Receiver(f"https://{self.config.registry}", "/registry", REGISTRY_HOSTS, "/auth")

    def _annotated(self, reference: ServiceAccountSelector) -> tuple[str, str]:
        """Return client and tenant of a service account; both annotations are required here."""
        token = self.token(reference)
        client, tenant = (token.annotations.get(name, "") for name in (CLIENT_ANNOTATION, TENANT_ANNOTATION))
        if not client or not tenant:
            raise credentials_not_found(
                f'service account "{token.namespace}/{token.name}" needs the annotations {CLIENT_ANNOTATION} and'
                f" {TENANT_ANNOTATION}"
            )
        return client, tenant

    async def _token_from_registry(self, what: str, form: dict[str, str], member: str) -> str:
        """Return one token of the registry."""
        registry = self.config.registry
        with self.observe(what.capitalize()):
            response = await self._http.send(
                HttpRequest("POST", URL(f"https://{registry}/oauth2/{what}"), _FORM, urlencode(form).encode())
            )
            wait = retry_after(response.headers, self.clock.now())
            if error := error_for_status(response.status, f"registry {registry}", retry_after=wait):
                raise self._hinted(error)
            found = _member(response.body, member)
        if not found:
            raise backend_error(f"registry {registry} sent no token for {what}; check registry")
        return found

    def _hinted(self, error: ProviderError) -> ProviderError:
        if error.reason not in (ErrorReason.CREDENTIALS_REJECTED, ErrorReason.PERMISSION_DENIED):
            return error
        message = (
            f"registry {self.config.registry} gives no token to {self._login.identity.subject}; grant the role AcrPull"
            " (AcrPush for pushes) on the registry, and check scope"
        )
        return ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code=error.backend_code)


def _member(body: bytes, name: str) -> str:
    try:
        document: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, str) else ""


def _expiry(token: str) -> datetime | None:
    """Return when a token expires; None if that is unknown."""
    parts = token.split(".")
    try:
        claims: Any = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=="))
        return datetime.fromtimestamp(int(claims["exp"]), UTC)
    except (IndexError, binascii.Error, msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        return None
