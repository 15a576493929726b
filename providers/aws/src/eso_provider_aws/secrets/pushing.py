"""One attempt to push to one secret.

    describe -> may we write it? -> read the value -> set every item -> align tags, policy, replicas -> equal: stop
    -> write

| existing secret | what a push does |
|---|---|
| nothing | CreateSecret; if another writer created it first, the call fails and the next attempt starts |
| ours | alignment, then PutSecretValue if the value differs |
| ours, marked for deletion | RestoreSecret, then as above; its former value does not count as existing |
| without our tag `managed-by` | nothing: OWNERSHIP_CONFLICT |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from eso_provider_aws.api import Api
from eso_provider_aws.ownership import MARK, OWNER
from eso_provider_aws.secrets.alignment import Alignment, policy_mark, replica_list, tag_list
from eso_provider_aws.secrets.metadata import Settings, merged, settings_of
from eso_provider_aws.secrets.reading import Reader, about
from eso_provider_aws.secrets.standing import Standing, standing_of, with_value
from eso_provider_aws.secrets.values import storable
from eso_provider_aws.secrets.versions import (
    ConflictError,
    Form,
    check_original,
    form_of,
    is_stored,
    put_version,
    token_of,
)
from eso_sdk.drafts import Draft, payload_of
from eso_sdk.errors import backend_error, invalid_request
from eso_sdk.provider import Pushed
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushItem, PushOutcome, PushPrecondition

DESCRIPTION: Final = "secret 'managed-by:external-secrets'"


class Push:
    """Items for one secret. Equal call keys mean one push, repeated."""

    def __init__(self, api: Api, reader: Reader, secret_id: str, items: Sequence[PushItem], call_key: str) -> None:
        self._api = api
        self._reader = reader
        self._secret_id = secret_id
        self._items = items
        self._call_key = call_key
        self._owner = items[0].owner_token or OWNER
        self._wanted: list[Settings] = []

    async def run(self) -> list[Pushed | ProviderError]:
        """Push the items; return one outcome for each, in order."""
        standing = await self._standing()
        draft = Draft(standing.secret.value if standing.secret else None)
        before = draft.value
        outcomes = [await self._set(item, draft, standing) for item in self._items]
        if not any(_writes(outcome) for outcome in outcomes):
            return [_with_version(outcome, standing.version) for outcome in outcomes]
        version, changed = await self._write(storable(draft.value, self._items[0].remote.key), standing)
        settled = PushOutcome.UPDATED if changed else PushOutcome.UNCHANGED
        if draft.value == before:  # only settings changed, or items cancelled each other out
            outcomes = [Pushed(settled) if _writes(outcome) else outcome for outcome in outcomes]
        return [_with_version(outcome, version) for outcome in outcomes]

    async def _standing(self) -> Standing:
        """Read the secret, with its value only if an item needs it: reading foreign secrets may be denied."""
        standing = await standing_of(self._reader, self._secret_id)
        if standing.exists and any(self._needs_value(item, standing) for item in self._items):
            return await with_value(self._reader, standing)
        return standing

    def _needs_value(self, item: PushItem, standing: Standing) -> bool:
        if item.precondition is PushPrecondition.IF_ABSENT:
            return bool(item.remote.property)
        return standing.is_of(self._owner)

    async def _set(self, item: PushItem, draft: Draft, standing: Standing) -> Pushed | ProviderError:
        """Put one item into the draft."""
        try:
            settings = settings_of(item)
            if item.precondition is PushPrecondition.IF_ABSENT and await _has(item.remote.property, draft, standing):
                return Pushed(PushOutcome.SKIPPED_EXISTS)
            if standing.arn and not standing.is_of(self._owner):
                return self._foreign(standing)
            changed = await draft.put(item.remote.key, item.remote.property, payload_of(item))
        except ProviderError as refused:
            return refused
        self._wanted.append(settings)
        if not standing.exists or not standing.version:
            return Pushed(PushOutcome.CREATED)
        return Pushed(PushOutcome.UPDATED if changed else PushOutcome.UNCHANGED)

    # --- the service -------------------------------------------------------------------------------------------------

    async def _write(self, value: bytes, standing: Standing) -> tuple[str, bool]:
        """Create or update the secret; return its version and whether anything changed."""
        settings = merged(self._wanted)
        form = form_of(value, standing, settings)
        if not standing.arn:
            return await self._create(form, settings), True
        check_original(self._api, self._secret_id, standing)
        if standing.doomed:
            await self._api.call("RestoreSecret", about=about(self._secret_id), SecretId=standing.arn)
            standing = await with_value(self._reader, replace(standing, doomed=False))
        changed = await Alignment(self._api, self._secret_id, standing.arn).align(standing, settings)
        if is_stored(value, standing, settings):
            return standing.version, changed
        return await put_version(self._api, self._secret_id, standing, form, self._call_key), True

    async def _create(self, form: Form, settings: Settings) -> str:
        metadata = settings.metadata
        parameters: dict[str, Any] = {
            "Name": self._secret_id,
            "ClientRequestToken": token_of(self._call_key, self._secret_id, ""),
            "Description": DESCRIPTION if metadata.description is None else metadata.description,
            "Tags": tag_list({**(metadata.tags or {}), **policy_mark(settings), MARK: self._owner}),
            **form,
        }
        if metadata.kms_key_id:
            parameters["KmsKeyId"] = metadata.kms_key_id
        if metadata.replication_locations:
            parameters["AddReplicaRegions"] = replica_list(metadata.replication_locations, settings)
        try:
            made = await self._api.call("CreateSecret", about=about(self._secret_id), **parameters)
        except ProviderError as failed:
            raise self._not_created(failed) from None
        if settings.policy is not None:
            await Alignment(self._api, self._secret_id, made["ARN"]).put_policy(settings)
        return str(made.get("VersionId", ""))

    def _not_created(self, failed: ProviderError) -> Exception:
        secret = self._api.asked("CreateSecret", about(self._secret_id))
        if failed.reason is ErrorReason.ALREADY_EXISTS:
            return ConflictError()
        if failed.reason is not ErrorReason.SECRET_NOT_FOUND:
            return failed
        if failed.backend_code == "ResourceNotFoundException":
            return invalid_request(f"{secret}: metadata names a KMS key or region that does not exist")
        return backend_error(f"{secret} is still being deleted; pushed again later", backend_code=failed.backend_code)

    def _foreign(self, standing: Standing) -> ProviderError:
        secret = self._api.asked("PutSecretValue", about(self._secret_id))
        exists = "is marked for deletion" if standing.doomed else "exists"
        return ProviderError(
            ErrorReason.OWNERSHIP_CONFLICT,
            f"{secret} {exists} and was not created by External Secrets: it has no tag {MARK}: {self._owner}; choose"
            " another remoteKey, or add that tag to hand the secret over",
        )


async def _has(name: str, draft: Draft, standing: Standing) -> bool:
    """Return whether a property exists; without a name, whether there is a value."""
    return standing.exists and bool(standing.version) and (not name or await draft.has(name))


def _with_version(outcome: Pushed | ProviderError, version: str) -> Pushed | ProviderError:
    return Pushed(outcome.outcome, version) if isinstance(outcome, Pushed) else outcome


def _writes(outcome: Pushed | ProviderError) -> bool:
    return isinstance(outcome, Pushed) and outcome.outcome is not PushOutcome.SKIPPED_EXISTS
