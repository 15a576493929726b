"""An opened store: one environment of a project, as one machine identity."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from eso_api.stores.infisical import InfisicalProvider
from eso_api.values import SecretBytes
from eso_provider_infisical.auth.choice import check_auth, open_auth
from eso_provider_infisical.kinds import KINDS
from eso_provider_infisical.reading import Reader
from eso_provider_infisical.secrets import Secrets, api_url, folder_of, location_of
from eso_provider_infisical.writing import Writer
from eso_sdk.drafts import Draft
from eso_sdk.errors import invalid_config
from eso_sdk.http import ca_bundle
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, Pushed, Store, Value, finds, pushes, reads, store_kind
from eso_sdk.rest import Rest, RestSettings
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    DeleteItem,
    FindQuery,
    Found,
    PushItem,
    RemoteRef,
    SourceSecret,
    Validation,
    ValidationState,
)

MAX_RESPONSE: Final = 16 * 1024 * 1024
"""A list has all values of a folder, and with `recursive` those of the folders below it."""


@store_kind(objects=KINDS, v1_key="infisical")
class InfisicalStore(Store[InfisicalProvider]):
    """Secrets of one environment."""

    @classmethod
    def check_config(cls, config: InfisicalProvider) -> tuple[str, ...]:
        scope = config.secrets_scope
        for name, slug in (("projectSlug", scope.project_slug), ("environmentSlug", scope.environment_slug)):
            if not slug.strip():
                raise invalid_config(f"/secretsScope/{name}", "is needed")
        if api_url(config.host_api).scheme not in ("http", "https"):
            raise invalid_config("/hostAPI", "must be a URL such as https://app.infisical.com")
        if config.ca_bundle:
            ca_bundle(config.ca_bundle)
        return check_auth(config.auth)

    async def open(self) -> None:
        self.check_config(self.config)
        settings = self._settings()
        self._auth = open_auth(self, settings)
        self._rest = Rest(self, settings, self._auth.authorization)
        self._secrets = Secrets(self._rest, self.config.secrets_scope)
        self._reader = Reader(self._secrets, self.config.secrets_scope.secrets_path, self.clock)
        self._writer = Writer(self._secrets, self.config.secrets_scope.secrets_path)

    async def close(self) -> None:
        if (rest := self.__dict__.pop("_rest", None)) is not None:
            await rest.close()
        if (auth := self.__dict__.pop("_auth", None)) is not None:
            await auth.close()

    async def validate(self) -> Validation:
        await self._secrets.check(folder_of(self.config.secrets_scope.secrets_path))
        return Validation(ValidationState.READY)

    @reads("not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        return await self._reader.read(refs)

    async def check(self, ref: RemoteRef) -> Check:
        location = location_of(ref.key, self.config.secrets_scope.secrets_path)
        return Check(await Draft(await self._secrets.stored(location, ref.key)).has(ref.property))

    @finds("name", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield the matching secrets of the scope. If folders have equal names, the last listed one counts."""
        scope = self.config.secrets_scope
        listed = await self._secrets.folder(folder_of(scope.secrets_path), recursive=scope.recursive)
        if listed is None:
            message = f'Infisical denies the list of folder "{scope.secrets_path}"; find needs it'
            raise ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code="403")
        matcher = Matcher(FindQuery(name_regexp=query.name_regexp))
        matching = {
            each.secret_key: each
            for each in listed
            if each.secret_path.startswith(query.path) and await matcher.accepts(each.secret_key)
        }
        for name, secret in matching.items():
            yield Found(name, SecretBytes(secret.value(name)))

    @pushes("whole_secret")
    async def push_many(self, items: Sequence[PushItem], source: SourceSecret) -> Sequence[Pushed | ProviderError]:
        """Write all items of one key as one new version."""
        del source
        return await self._writer.push(items)

    async def delete_many(self, items: Sequence[DeleteItem]) -> Sequence[bool | ProviderError]:
        return await self._writer.delete(items)

    def _settings(self) -> RestSettings:
        config = self.config
        bundle = ca_bundle(config.ca_bundle) if config.ca_bundle else b""
        if not bundle and config.ca_provider is not None:
            bundle = self.ca(config.ca_provider)
        base = api_url(config.host_api)
        subject = f"Infisical {base.host}"
        return RestSettings(subject, base, ca=bundle, field="/hostAPI", etags=True, max_response=MAX_RESPONSE)
