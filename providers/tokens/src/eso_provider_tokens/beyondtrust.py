"""BeyondtrustWorkloadCredentialsDynamicSecret: credentials that BeyondTrust issues for a lease.

| value | meaning |
|---|---|
| `accessKeyId`, `secretAccessKey`, `sessionToken` | the credentials; some have no session token |
| `leaseId`, `expiration` | their lease, and when it ends |

The clean-up revokes the lease. An API key may lack the right to do so; then the lease ends at its own time, and the
clean-up reports that it could not revoke it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
from yarl import URL

from eso_api.generators.tokens import BEYONDTRUST_WORKLOAD_CREDENTIALS_DYNAMIC_SECRET as V1_DYNAMIC_SECRET
from eso_api.generators.tokens import BeyondtrustProvider, BeyondtrustWorkloadCredentialsDynamicSecretSpec
from eso_api.values import SecretBytes
from eso_provider_tokens.kinds import BEYONDTRUST
from eso_sdk.errors import backend_error, invalid_config, invalid_request
from eso_sdk.http import ca_bundle
from eso_sdk.logins import FixedHeaders, bearer
from eso_sdk.provider import Generator, generator_kind
from eso_sdk.rest import Rest, RestRequest, RestSettings, segments
from eso_wire.values import Generated, GenerateRequest, ValueMetadata

API_VERSION: Final = {"bt-secrets-api-version": "2026-04-28"}
_GONE: Final = (404, 410)


class _Credentials(msgspec.Struct, rename="camel"):
    access_key_id: str
    secret_access_key: str
    lease_id: str
    expiration: str
    session_token: str = ""


class _Lease(msgspec.Struct):
    secret: _Credentials


class LeaseState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The lease to revoke. States of the operator in Go hold only the path of the secret."""

    lease_id: str = msgspec.field(default="", name="leaseID")
    path: str = ""


@generator_kind(objects=(BEYONDTRUST,), bridged=(V1_DYNAMIC_SECRET,))
class BeyondtrustGenerator(Generator[BeyondtrustWorkloadCredentialsDynamicSecretSpec]):
    """Credentials of one dynamic secret."""

    API_NAME = "Beyondtrust/WorkloadCredentials"

    @classmethod
    def check_config(cls, config: BeyondtrustWorkloadCredentialsDynamicSecretSpec) -> tuple[str, ...]:
        if not _place(config.provider)[1]:
            raise invalid_config("/provider/folderPath", "must be FOLDER/NAME of a dynamic secret")
        if not config.provider.server.site_id:
            raise invalid_config("/provider/server/siteId", "must not be empty")
        ca_bundle(config.provider.ca_bundle, "/provider/caBundle")
        return ()

    async def open(self) -> None:
        provider = self.config.provider
        base = URL(provider.server.api_url.rstrip("/")) / provider.server.site_id / "secrets"
        bundle, field = ca_bundle(provider.ca_bundle, "/provider/caBundle"), "/provider/caBundle"
        if not bundle and provider.ca_provider is not None:
            bundle, field = self.ca(provider.ca_provider), "/provider/caProvider"
        settings = RestSettings(
            f'BeyondTrust, dynamic secret "{provider.folder_path}"',
            base,
            headers=API_VERSION,
            ca=bundle,
            ca_field=field,
            field="/provider/server/apiUrl",
        )
        token = self.secret(provider.auth.apikey.token)
        authorization = FixedHeaders(bearer(token, "/provider/auth/apikey/token"))
        self._rest = self.close_later(Rest(self, settings, authorization))

    async def generate(self, request: GenerateRequest) -> Generated:
        del request
        folder, name = _place(self.config.provider)
        query = {"folder": folder} if folder else {}
        path = f"dynamic/{segments(name)}/generate"
        made = (await self._rest.send(RestRequest("POST", path, "GenerateSecret", query))).read(_Lease).secret
        values = {
            "accessKeyId": made.access_key_id,
            "secretAccessKey": made.secret_access_key,
            "leaseId": made.lease_id,
            "expiration": made.expiration,
            **({"sessionToken": made.session_token} if made.session_token else {}),
        }
        state = LeaseState(lease_id=made.lease_id, path=self.config.provider.folder_path)
        return Generated(
            {key: SecretBytes(text.encode()) for key, text in values.items()},
            SecretBytes(msgspec.json.encode(state)),
            ValueMetadata(expires_at=_moment(made.expiration)),
        )

    async def cleanup(self, state: SecretBytes) -> bool:
        try:
            lease = msgspec.json.decode(state.reveal(), type=LeaseState).lease_id
        except msgspec.DecodeError:
            raise invalid_request("the state is not one of a BeyondTrust generator") from None
        if not lease:
            return False
        response = await self._rest.get("leases/revoke", call="RevokeLease", query={"id": lease}, allowed=_GONE)
        return response.status not in _GONE


def _place(provider: BeyondtrustProvider) -> tuple[str, str]:
    """Return the folder and the name of the dynamic secret."""
    folder, _, name = provider.folder_path.strip("/").rpartition("/")
    return folder, name


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise backend_error("BeyondTrust sends an invalid time of expiry") from None
    if found.tzinfo is None:
        raise backend_error("BeyondTrust sends a time of expiry without a time zone")
    return found
