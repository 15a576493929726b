"""An opened store: secrets of GitHub Actions, which are written, checked and deleted, and never read.

GitHub tells of a secret only when it was last updated. That time is the version of a push: the operator compares it
before it writes an unchanged value again, so a value that another client replaced is restored.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from nacl.exceptions import CryptoError
from nacl.public import PublicKey, SealedBox

from eso_api.stores.github import GithubProvider
from eso_api.values import SecretBytes
from eso_provider_github.app import App, issue, settings_of, store_base
from eso_provider_github.kinds import STORES
from eso_sdk.errors import backend_error, invalid_config, invalid_request, unavailable
from eso_sdk.logins import Grant, LoginHeaders, bearer, digest, join_login
from eso_sdk.provider import Check, Pushed, Store, pushes, store_kind
from eso_sdk.rest import Rest, RestRequest, RestResponse, next_link, segments
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome, RemoteRef, SourceSecret, Validation, ValidationState

# ---------------------------------------------------------------------------------------------------------------------
# Where secrets are: an organization, a repository, or an environment of a repository; and what names they may have.


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_RESERVED: Final = "GITHUB_"


@dataclass(frozen=True, slots=True)
class Scope:
    """A place with secrets."""

    organization: str
    repository: str = ""
    environment: str = ""

    @staticmethod
    def of(config: GithubProvider) -> Scope:
        if not config.organization:
            raise invalid_config("/organization", "must be set")
        if config.environment and not config.repository:
            raise invalid_config("/environment", "needs a repository; set repository too")
        return Scope(config.organization, config.repository, config.environment)

    def __str__(self) -> str:
        if not self.repository:
            return f'organization "{self.organization}"'
        place = f'repository "{self.organization}/{self.repository}"'
        return f'environment "{self.environment}" of {place}' if self.environment else place

    @property
    def is_organization(self) -> bool:
        return not self.repository

    @property
    def permission(self) -> str:
        """Return the permission that the App needs, as GitHub's pages name it."""
        if self.is_organization:
            return 'the organization permission "Secrets: write"'
        return f'the repository permission "{"Environments" if self.environment else "Secrets"}: write"'

    def path(self, *more: str) -> str:
        if self.is_organization:
            return segments("orgs", self.organization, "actions", "secrets", *more)
        place = ("repos", self.organization, self.repository)
        if self.environment:
            return segments(*place, "environments", self.environment, "secrets", *more)
        return segments(*place, "actions", "secrets", *more)


def name_of(remote: RemoteRef) -> str:
    """Return the name of a secret. Secrets of GitHub have no properties, and their values cannot be read to add one."""
    if remote.property:
        raise invalid_request(
            f'"{remote.key}": GitHub never returns a secret, so a property cannot be added to it; remove property'
        )
    if not _NAME.fullmatch(remote.key) or remote.key.upper().startswith(_RESERVED):
        raise invalid_request(
            f'"{remote.key}" cannot be the name of a secret of GitHub; use letters, digits and underscores, no digit at'
            f" the beginning, and not the prefix {_RESERVED}"
        )
    return remote.key


# ---------------------------------------------------------------------------------------------------------------------
# Encrypts values for GitHub: sealed boxes of libsodium, which only the holder of the private key can open.


class PublishedKey(msgspec.Struct, frozen=True, gc=False):
    """The public key of an organization, a repository or an environment."""

    key_id: str
    key: str

    def seal(self, value: bytes) -> str:
        """Return the encrypted value, as GitHub expects it."""
        try:
            box = SealedBox(PublicKey(base64.b64decode(self.key, validate=True)))
        except (CryptoError, TypeError, ValueError, binascii.Error):
            raise backend_error("GitHub published a key that is not a public key of libsodium") from None
        return base64.b64encode(box.encrypt(value)).decode()


# --- An opened store -------------------------------------------------------------------------------------------------


KEY_FIELD: Final = "/auth/privateKey"
MAX_VALUE: Final = 48 * 1024
KEY_SECONDS: Final = 3600.0
VISIBILITIES: Final = ("", "all", "private")

_CREATED: Final = 201
_MISSING: Final = 404
_REFUSED: Final = 422


class _Secret(msgspec.Struct, frozen=True, gc=False):
    updated_at: str = ""
    visibility: str = ""


class _Repository(msgspec.Struct, frozen=True, gc=False):
    id: int


class _Repositories(msgspec.Struct, frozen=True, gc=False):
    total_count: int
    repositories: list[_Repository]


@store_kind(objects=STORES, v1_key="github")
class ActionsStore(Store[GithubProvider]):
    """A store of `spec.provider.github`, `GitHub` or `ClusterGitHub`."""

    @classmethod
    def check_config(cls, config: GithubProvider) -> tuple[str, ...]:
        store_base(config.url)
        Scope.of(config)
        if config.org_secret_visibility not in VISIBILITIES:
            raise invalid_config("/orgSecretVisibility", f"must be {' or '.join(VISIBILITIES[1:])}")
        return ()

    async def open(self) -> None:
        config, settings = self.config, settings_of(store_base(self.config.url))
        self._scope = Scope.of(config)
        self._app = App(str(config.app_id), self.secret(config.auth.private_key), self.clock, field=KEY_FIELD)
        self._as_app = self.close_later(Rest(self, settings, self._app))
        proof = digest(str(settings.base), str(config.installation_id), self._app.proof)
        self._login = join_login(proof, self.clock, self._log_in)
        self.resources.callback(self._login.leave, self._log_in)
        self._rest = self.close_later(Rest(self, settings, LoginHeaders(self._login, proof, bearer)))
        self._published: tuple[PublishedKey, float] | None = None

    async def validate(self) -> Validation:
        """List one secret of the scope."""
        await self._send(RestRequest("GET", self._scope.path(), "ListSecrets", {"per_page": "1"}))
        return Validation(ValidationState.READY)

    async def check(self, ref: RemoteRef) -> Check:
        found = await self._find(name_of(ref))
        if found is None:
            await self._key()  # raises if the scope is missing: then nothing is known about the secret
            return Check(exists=False)
        return Check(exists=True, version=found.updated_at)

    @pushes("whole_secret")
    async def push(self, item: PushItem, source: SourceSecret) -> Pushed:
        del source
        name, value = name_of(item.remote), _value(item)
        access = await self._access(name) if self._scope.is_organization else {}
        answer = await self._put(name, value, access)
        if answer.status == _REFUSED:
            self._published = None  # GitHub may have replaced its key since we read it
            answer = await self._put(name, value, access)
        if answer.status == _REFUSED:
            raise ProviderError(
                ErrorReason.INVALID_REQUEST,
                f'GitHub refuses secret "{name}" of {self._scope}: HTTP {_REFUSED}; check its name and its value',
                backend_code=str(_REFUSED),
            )
        outcome = PushOutcome.CREATED if answer.status == _CREATED else PushOutcome.UPDATED
        return Pushed(outcome, await self._version(name))

    async def delete(self, item: DeleteItem) -> bool:
        name = name_of(item.remote)
        path = self._scope.path(name)
        answer = await self._send(RestRequest("DELETE", path, "DeleteSecret", allowed=(_MISSING,)))
        if answer.status == _MISSING:
            self._published = None
            await self._key()  # raises if the scope is missing: then the secret may still be there
            return False
        return True

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _log_in(self) -> Grant:
        issued = await issue(self._as_app, self._app, str(self.config.installation_id))
        seconds = (issued.expiry - self.clock.now()).total_seconds()
        return Grant(SecretBytes(issued.token.encode()), seconds)

    async def _find(self, name: str) -> _Secret | None:
        """Return what GitHub tells of a secret; None if it does not exist, which is asked anew each time."""
        try:
            answer = await self._rest.send(RestRequest("GET", self._scope.path(name), "GetSecret"))
        except ProviderError as failed:
            if failed.backend_code == str(_MISSING):
                return None
            raise self._explained(failed) from None
        found: _Secret = answer.read(_Secret)
        return found

    async def _version(self, name: str) -> str:
        """Return the version after a push. The push has succeeded, so a failure here only makes the version unknown."""
        try:
            found = await self._find(name)
        except ProviderError:
            return ""
        return "" if found is None else found.updated_at

    async def _put(self, name: str, value: bytes, access: Mapping[str, Any]) -> RestResponse:
        key = await self._key()
        body = {"encrypted_value": key.seal(value), "key_id": key.key_id, **access}
        path = self._scope.path(name)
        return await self._send(RestRequest("PUT", path, "CreateOrUpdateSecret", json=body, allowed=(_REFUSED,)))

    async def _access(self, name: str) -> Mapping[str, Any]:
        """Return who may use a secret of an organization: as configured, or as it is, or everybody if it is new."""
        if self.config.org_secret_visibility:
            return {"visibility": self.config.org_secret_visibility}
        existing = await self._find(name)
        visibility = existing.visibility if existing is not None and existing.visibility else "all"
        if visibility != "selected":
            return {"visibility": visibility}
        return {"visibility": visibility, "selected_repository_ids": await self._selected(name)}

    async def _selected(self, name: str) -> list[int]:
        """Return all repositories that may use a secret: those that a push leaves out lose it."""
        path, query = self._scope.path(name, "repositories"), {"per_page": "100"}
        ids: list[int] = []
        totals: set[int] = set()
        async for answer in self._rest.pages(RestRequest("GET", path, "ListSelectedRepositories", query), next_link):
            page: _Repositories = answer.read(_Repositories)
            totals.add(page.total_count)
            ids += [each.id for each in page.repositories]
        if totals != {len(set(ids))}:
            raise unavailable(f'the repositories of secret "{name}" of {self._scope} changed while they were listed')
        return ids

    async def _key(self) -> PublishedKey:
        """Return the public key of the scope, which is read once an hour."""
        now = self.clock.monotonic()
        if self._published is None or now - self._published[1] > KEY_SECONDS:
            answer = await self._send(RestRequest("GET", self._scope.path("public-key"), "GetPublicKey"))
            self._published = (answer.read(PublishedKey), now)
        return self._published[0]

    async def _send(self, request: RestRequest) -> RestResponse:
        try:
            return await self._rest.send(request)
        except ProviderError as failed:
            raise self._explained(failed) from None

    def _explained(self, failed: ProviderError) -> ProviderError:
        if failed.reason is ErrorReason.PERMISSION_DENIED and failed.backend_code == "403":
            problem = f"GitHub denies access to secrets of {self._scope}; give the App {self._scope.permission}"
        elif failed.reason is ErrorReason.BACKEND_ERROR and failed.backend_code == str(_MISSING):
            problem = f"{self._scope} does not exist at GitHub, or the App is not installed there"
        else:
            return failed
        return ProviderError(ErrorReason.PERMISSION_DENIED, problem, backend_code=failed.backend_code)


def _value(item: PushItem) -> bytes:
    """Return the value of a push. A whole Secret is a JSON object with its values in base64, as in Go."""
    payload = item.payload
    if isinstance(payload, SecretBytes):
        value = payload.reveal()
    else:
        value = msgspec.json.encode(
            {key: base64.b64encode(each.reveal()).decode() for key, each in sorted(payload.items())}
        )
    if len(value) > MAX_VALUE:
        raise ProviderError(
            ErrorReason.PAYLOAD_TOO_LARGE,
            f'the value for "{item.remote.key}" is larger than {MAX_VALUE} bytes, the limit of GitHub; push less',
        )
    return value
