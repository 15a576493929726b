"""Writing secrets: everything that is pushed to one secret becomes one new version, or none when nothing changed.

    describe -> may we write it? -> read the value -> set every item -> align tags, policy, replicas -> equal: stop
    -> write

| existing secret | what a push does |
|---|---|
| nothing | CreateSecret; if another writer created it first, the call fails and the next attempt starts |
| ours | alignment, then PutSecretValue if the value differs |
| ours, marked for deletion | RestoreSecret, then as above; its former value does not count as existing |
| without our tag `managed-by` | nothing: OWNERSHIP_CONFLICT |

Secrets Manager compares no versions. Writes of one session to one secret wait for each other; between processes the
last writer wins. Only the creation of a secret is atomic: the loser of that race reads the secret again.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, TypeVar
from weakref import WeakValueDictionary

import msgspec

from eso_api.references import ObjectKeySelector
from eso_api.stores.aws import SecretsManagerDeletion
from eso_api.values import SecretBytes
from eso_provider_aws.api import MARK, OWNER, Api, decoded
from eso_provider_aws.changes.listings import SECRETS
from eso_provider_aws.clients import SECRETS_MANAGER
from eso_provider_aws.kinds import SecretsManagerConfig
from eso_provider_aws.secrets.reading import SecretFinder, SecretReader, SecretState, about, read_state, with_value
from eso_provider_aws.store import ValueFinder, ValueReader, ValueStore, ValueWriter
from eso_sdk.errors import backend_error, credentials_not_found, invalid_config, invalid_request
from eso_sdk.provider import Pushed
from eso_sdk.push import Draft, Envelope, MetadataSpec, payload_of, removed
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome, PushPrecondition

# --- The `metadata` of a PushSecret entry for a secret ---------------------------------------------------------------
#
# Fields that the metadata does not name stay unchanged at an existing secret.


POLICY_MARK: Final = "external-secrets-resource-policy"
"""Tag of a secret whose resource policy we set; `alignment.PolicyMark` is its value."""

_POLICY: Final = "/spec/resourcePolicy/policySourceRef"
_REFERENCE: Final = frozenset({"kind", "name", "key", "namespace"})


class ResourcePolicy(MetadataSpec, frozen=True, kw_only=True):
    """The resource policy of the secret."""

    block_public_policy: bool | None = None
    """Let the service refuse a policy that grants broad access."""
    policy_source_ref: ObjectKeySelector
    """Key of a ConfigMap or Secret that holds the policy."""


class SecretMetadata(MetadataSpec, frozen=True, kw_only=True):
    """`spec` of the metadata."""

    tags: dict[str, str] | None = None
    """All tags of the secret, besides the marks of External Secrets; absent leaves tags alone."""
    description: str | None = None
    """Set at creation."""
    secret_push_format: Literal["binary", "string"] | None = None
    """The format of the value; absent keeps the format of an existing secret, and is binary for a new one."""
    kms_key_id: str | None = None
    """Key that encrypts the value; set at creation."""
    resource_policy: ResourcePolicy | None = None
    """Who else may use the secret."""
    replication_locations: list[str] | None = None
    """All regions with a replica; absent leaves replicas alone."""


PushMetadata = Envelope[SecretMetadata]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a secret from all items of one push."""

    metadata: SecretMetadata = field(default_factory=SecretMetadata)
    policy: bytes | None = field(default=None, repr=False)
    """The resource policy, as its source has it."""
    policy_property: str = ""
    """The property of the item that names the policy."""
    properties: frozenset[str] = frozenset()
    """The properties of all items; the empty one is the whole value."""
    has_metadata: bool = False
    """True if the push has metadata."""


def settings_of(item: PushItem) -> Settings:
    """Decode the metadata of one item, with the policy that it refers to."""
    key = item.remote.key
    properties = frozenset({item.remote.property})
    if not item.provider_metadata:
        return Settings(properties=properties)
    metadata = decoded(item.provider_metadata, SecretMetadata, key)
    if POLICY_MARK in (metadata.tags or ()):
        raise invalid_request(f'metadata of "{key}": tag {POLICY_MARK} is set by External Secrets; remove it')
    policy = _policy(item, item.provider_metadata) if metadata.resource_policy else None
    return Settings(metadata, policy, item.remote.property, properties, has_metadata=True)


def merged(settings: Iterable[Settings]) -> Settings:
    """Merge the settings of several items of one secret; for each field, the last item that sets it wins."""
    result = Settings()
    for each in settings:
        names = SecretMetadata.__struct_fields__
        named = {name: value for name in names if (value := getattr(each.metadata, name)) is not None}
        result = Settings(
            metadata=msgspec.structs.replace(result.metadata, **named),
            policy=result.policy if each.policy is None else each.policy,
            policy_property=result.policy_property if each.policy is None else each.policy_property,
            properties=result.properties | each.properties,
            has_metadata=result.has_metadata or each.has_metadata,
        )
    return result


def _policy(item: PushItem, plain: Mapping[str, Any]) -> bytes:
    """Return the policy that the metadata refers to; the operator has read it."""
    key = item.remote.key
    reference = plain["spec"]["resourcePolicy"]["policySourceRef"]
    if unknown := sorted(set(reference) - _REFERENCE):
        raise invalid_request(f'metadata of "{key}": policySourceRef has no field {unknown[0]}')
    source = f'key "{reference["key"]}" of {reference["kind"]} "{reference["name"]}"'
    sent = [credential.value for credential in item.resolved if credential.pointer == _POLICY]
    if not sent or not isinstance(sent[0], SecretBytes):
        raise credentials_not_found(f'resource policy of "{key}": the operator did not send {source}; upgrade it')
    raw = sent[0].reveal()
    try:
        msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        raw.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise invalid_request(f'resource policy of "{key}": {source} is not a JSON object') from None
    return raw


# ---------------------------------------------------------------------------------------------------------------------
# Updates tags, resource policy and replicas of an existing secret to match the metadata of its pushes.
#
# A policy counts as ours while the tag `external-secrets-resource-policy` holds its digest. Any other policy stays
# unchanged, unless the metadata names one. The tag is written before the policy: a failure in between leaves a tag
# without a matching policy, never a policy that later pushes do not recognise as ours.
#
# Our policy is revoked when the entry that set it no longer names it. The tag holds the property of that entry, so that
# entries without metadata for other properties of the secret leave the policy alone.


_OF_AWS: Final = "aws:"
"""Tags that only AWS may write."""
_BETWEEN: Final = "/"


class Alignment:
    """The update of one secret."""

    def __init__(self, api: Api, secret_id: str, arn: str) -> None:
        self._api = api
        self._about = about(secret_id)
        self._arn = arn
        self._changed = False

    async def align(self, state: SecretState, settings: Settings) -> bool:
        """Update everything that differs; return whether anything changed."""
        await self._tags(state, settings)
        mark = PolicyMark.of(state)
        if settings.policy is not None:
            await self._set_policy(settings, mark)
        elif mark is not None and (settings.has_metadata or mark.is_of(settings.properties)):
            await self._revoke_policy(mark)
        await self._replicas(state, settings)
        return self._changed

    async def release_policy(self, state: SecretState, properties: frozenset[str]) -> None:
        """Revoke our policy if the entry that set it is being deleted."""
        mark = PolicyMark.of(state)
        if mark is not None and mark.is_of(properties):
            await self._revoke_policy(mark)

    async def put_policy(self, settings: Settings) -> None:
        """Set the policy that the metadata names."""
        source = settings.metadata.resource_policy
        block = source.block_public_policy if source else None
        options = {} if block is None else {"BlockPublicPolicy": block}
        await self._write("PutResourcePolicy", ResourcePolicy=(settings.policy or b"").decode(), **options)

    async def _set_policy(self, settings: Settings, mark: PolicyMark | None) -> None:
        """Set the policy that the metadata names, unless it is in place."""
        desired = policy_mark(settings)
        present = await self._policy()
        if present is not None and _digest(present) == _digest(settings.policy or b""):
            return
        if str(mark) != desired[POLICY_MARK]:
            await self._write("TagResource", Tags=tag_list(desired))
        await self.put_policy(settings)

    async def _revoke_policy(self, mark: PolicyMark) -> None:
        present = await self._policy()
        if present is not None and _digest(present) == mark.policy:
            await self._write("DeleteResourcePolicy")
        await self._write("UntagResource", TagKeys=[POLICY_MARK])

    async def _policy(self) -> bytes | None:
        response = await self._api.call("GetResourcePolicy", about=self._about, SecretId=self._arn)
        found = response.get("ResourcePolicy")
        return found.encode() if isinstance(found, str) and found else None

    async def _tags(self, state: SecretState, settings: Settings) -> None:
        desired = settings.metadata.tags
        if desired is None:
            return
        if missing := {name: value for name, value in desired.items() if state.tags.get(name) != value}:
            await self._write("TagResource", Tags=tag_list(missing))
        extra = sorted(set(state.tags) - set(desired) - {MARK, POLICY_MARK})
        if removable := [name for name in extra if not name.startswith(_OF_AWS)]:
            await self._write("UntagResource", TagKeys=removable)

    async def _replicas(self, state: SecretState, settings: Settings) -> None:
        locations = settings.metadata.replication_locations
        if locations is None:
            return
        if missing := [region for region in dict.fromkeys(locations) if region not in state.replicas]:
            await self._write("ReplicateSecretToRegions", AddReplicaRegions=replica_list(missing, settings))
        if extra := sorted(state.replicas - set(locations)):
            await self._write("RemoveRegionsFromReplication", RemoveReplicaRegions=extra)

    async def _write(self, operation: str, **parameters: Any) -> None:
        await self._api.call(operation, about=self._about, SecretId=self._arn, **parameters)
        self._changed = True


@dataclass(frozen=True, slots=True)
class PolicyMark:
    """The value of our tag: the digest of the policy, and that of the property whose entry set it."""

    policy: str
    property: str = ""
    """Empty in tags that hold the digest of the policy alone: earlier versions wrote them."""

    @staticmethod
    def of(state: SecretState) -> PolicyMark | None:
        tag = state.tags.get(POLICY_MARK)
        return None if tag is None else PolicyMark(*tag.split(_BETWEEN, 1))

    def is_of(self, properties: frozenset[str]) -> bool:
        """Return whether an entry of one of these properties set the policy."""
        if not self.property:
            return "" in properties
        return self.property in {_short_digest(name) for name in properties}

    def __str__(self) -> str:
        return f"{self.policy}{_BETWEEN}{self.property}" if self.property else self.policy


def policy_mark(settings: Settings) -> dict[str, str]:
    """Return the tag of the policy that we set."""
    if settings.policy is None:
        return {}
    return {POLICY_MARK: str(PolicyMark(_digest(settings.policy), _short_digest(settings.policy_property)))}


def tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": name, "Value": value} for name, value in sorted(tags.items())]


def replica_list(regions: list[str], settings: Settings) -> list[dict[str, str]]:
    """Return the replicas. They are encrypted with the key of the metadata, if it names one."""
    key = settings.metadata.kms_key_id
    return [{"Region": region, **({"KmsKeyId": key} if key else {})} for region in regions]


def _short_digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _digest(policy: bytes) -> str:
    """Return a digest that does not depend on the formatting of the policy."""
    with suppress(msgspec.DecodeError):
        policy = msgspec.json.encode(msgspec.json.decode(policy), order="sorted")
    return hashlib.sha256(policy).hexdigest()


# --- Writing secrets -------------------------------------------------------------------------------------------------


MAX_BYTES: Final = 65_536


def storable(value: bytes | None, key: str) -> bytes:
    """Return the value; raise if Secrets Manager cannot store it."""
    if not value:
        raise invalid_request(f'the value for "{key}" is empty, and Secrets Manager stores no empty values')
    if len(value) > MAX_BYTES:
        message = f'the value for "{key}" has more than {MAX_BYTES} bytes, the limit of Secrets Manager; split it'
        raise ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, message)
    return value


_TOKENS: Final = uuid.UUID("5f1c9c0e-6d0b-4c39-9f5b-0c6a3b1f6a5e")

Form = dict[str, Any]
"""A value as parameters of a call: `SecretString` or `SecretBinary`."""


class SecretConflictError(Exception):
    """Another writer changed the secret between our read and our write."""


async def put_version(api: Api, secret_id: str, state: SecretState, form: Form, call_key: str) -> str:
    """Write a new version; returns its id."""
    token = token_of(call_key, secret_id, state.version)
    try:
        made = await api.call(
            "PutSecretValue", about=about(secret_id), SecretId=state.arn, ClientRequestToken=token, **form
        )
    except ProviderError as failed:
        if failed.reason is ErrorReason.ALREADY_EXISTS:  # a version of that id, with another value
            raise SecretConflictError from None
        raise
    return str(made.get("VersionId", ""))


def token_of(call_key: str, secret_id: str, version: str) -> str:
    """Return the id of the new version.

    Repetitions of one push get the same id, so the service creates only one version.
    """
    return str(uuid.uuid5(_TOKENS, f"{call_key}\n{secret_id}\n{version}") if call_key else uuid.uuid4())


def form_of(value: bytes, state: SecretState, settings: Settings) -> Form:
    """Return the format of the value: that of the metadata, else the one that the secret has."""
    push_format = settings.metadata.secret_push_format
    try:
        if push_format == "string" or (push_format is None and state.secret is not None and state.secret.is_text):
            return {"SecretString": value.decode()}
    except UnicodeDecodeError:
        if push_format == "string":
            raise invalid_request(
                "the value is binary, and secretPushFormat is string; use binary, or encode the value first"
            ) from None
    return {"SecretBinary": value}


def is_stored(value: bytes, state: SecretState, settings: Settings) -> bool:
    """Return whether the secret has this value, in the form that the metadata names."""
    if state.secret is None:
        return False
    push_format = settings.metadata.secret_push_format
    return value == state.secret.value and (push_format is None or state.secret.is_text == (push_format == "string"))


def check_original(api: Api, secret_id: str, state: SecretState) -> None:
    """Refuse to write a replica: the service takes changes in the region of the original only."""
    if state.primary and state.primary != api.region:
        replica = api.subject("PutSecretValue", about(secret_id))
        raise invalid_request(f"{replica} is a replica of a secret in {state.primary}; use a store of that region")


DESCRIPTION: Final = "secret 'managed-by:external-secrets'"


class Push:
    """Items for one secret. Equal call keys mean one push, repeated."""

    def __init__(
        self, api: Api, reader: SecretReader, secret_id: str, items: Sequence[PushItem], call_key: str
    ) -> None:
        self._api = api
        self._reader = reader
        self._secret_id = secret_id
        self._items = items
        self._call_key = call_key
        self._owner = items[0].owner_token or OWNER
        self._settings: list[Settings] = []

    async def run(self) -> list[Pushed | ProviderError]:
        """Push the items; return one outcome for each, in order."""
        state = await self._read_state()
        draft = Draft(state.secret.value if state.secret else None)
        before = draft.value
        outcomes = [await self._set(item, draft, state) for item in self._items]
        if not any(_writes(outcome) for outcome in outcomes):
            return [_with_version(outcome, state.version) for outcome in outcomes]
        version, changed = await self._write(storable(draft.value, self._items[0].remote.key), state)
        outcome_of_write = PushOutcome.UPDATED if changed else PushOutcome.UNCHANGED
        if draft.value == before:  # only settings changed, or items cancelled each other out
            outcomes = [Pushed(outcome_of_write) if _writes(outcome) else outcome for outcome in outcomes]
        return [_with_version(outcome, version) for outcome in outcomes]

    async def _read_state(self) -> SecretState:
        """Read the secret, with its value only if an item needs it: reading foreign secrets may be denied."""
        state = await read_state(self._reader, self._secret_id)
        if state.exists and any(self._needs_value(item, state) for item in self._items):
            return await with_value(self._reader, state)
        return state

    def _needs_value(self, item: PushItem, state: SecretState) -> bool:
        if item.precondition is PushPrecondition.IF_ABSENT:
            return bool(item.remote.property)
        return state.is_of(self._owner)

    async def _set(self, item: PushItem, draft: Draft, state: SecretState) -> Pushed | ProviderError:
        """Put one item into the draft."""
        try:
            settings = settings_of(item)
            if item.precondition is PushPrecondition.IF_ABSENT and await _has(item.remote.property, draft, state):
                return Pushed(PushOutcome.SKIPPED_EXISTS)
            if state.arn and not state.is_of(self._owner):
                return self._foreign(state)
            changed = await draft.put(item.remote.key, item.remote.property, payload_of(item))
        except ProviderError as refused:
            return refused
        self._settings.append(settings)
        if not state.exists or not state.version:
            return Pushed(PushOutcome.CREATED)
        return Pushed(PushOutcome.UPDATED if changed else PushOutcome.UNCHANGED)

    # --- the service -------------------------------------------------------------------------------------------------

    async def _write(self, value: bytes, state: SecretState) -> tuple[str, bool]:
        """Create or update the secret; return its version and whether anything changed."""
        settings = merged(self._settings)
        form = form_of(value, state, settings)
        if not state.arn:
            return await self._create(form, settings), True
        check_original(self._api, self._secret_id, state)
        if state.marked_for_deletion:
            await self._api.call("RestoreSecret", about=about(self._secret_id), SecretId=state.arn)
            state = await with_value(self._reader, replace(state, marked_for_deletion=False))
        changed = await Alignment(self._api, self._secret_id, state.arn).align(state, settings)
        if is_stored(value, state, settings):
            return state.version, changed
        return await put_version(self._api, self._secret_id, state, form, self._call_key), True

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
        secret = self._api.subject("CreateSecret", about(self._secret_id))
        if failed.reason is ErrorReason.ALREADY_EXISTS:
            return SecretConflictError()
        if failed.reason is not ErrorReason.SECRET_NOT_FOUND:
            return failed
        if failed.backend_code == "ResourceNotFoundException":
            return invalid_request(f"{secret}: metadata names a KMS key or region that does not exist")
        return backend_error(f"{secret} is still being deleted; pushed again later", backend_code=failed.backend_code)

    def _foreign(self, state: SecretState) -> ProviderError:
        secret = self._api.subject("PutSecretValue", about(self._secret_id))
        exists = "is marked for deletion" if state.marked_for_deletion else "exists"
        return ProviderError(
            ErrorReason.OWNERSHIP_CONFLICT,
            f"{secret} {exists} and was not created by External Secrets: it has no tag {MARK}: {self._owner}; choose"
            " another remoteKey, or add that tag to hand the secret over",
        )


async def _has(name: str, draft: Draft, state: SecretState) -> bool:
    """Return whether a property exists; without a name, whether there is a value."""
    return state.exists and bool(state.version) and (not name or await draft.has(name))


def _with_version(outcome: Pushed | ProviderError, version: str) -> Pushed | ProviderError:
    return Pushed(outcome.outcome, version) if isinstance(outcome, Pushed) else outcome


def _writes(outcome: Pushed | ProviderError) -> bool:
    return isinstance(outcome, Pushed) and outcome.outcome is not PushOutcome.SKIPPED_EXISTS


ATTEMPTS: Final = 3

T = TypeVar("T")


class SecretWriter:
    """Writes the secrets of one session."""

    def __init__(self, api: Api, reader: SecretReader, deletes: SecretsManagerDeletion) -> None:
        self._api = api
        self._reader = reader
        self._deletes = deletes
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem], call_key: str) -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        secret_id = self._reader.secret_id(items[0].remote.key)
        return await self._serialised(
            secret_id, lambda: Push(self._api, self._reader, secret_id, items, call_key).run()
        )

    async def delete(self, items: Sequence[DeleteItem], call_key: str) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        secret_id = self._reader.secret_id(items[0].remote.key)
        return await self._serialised(secret_id, lambda: self._delete(secret_id, items, call_key))

    async def _serialised(self, secret_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Serialise the writes of one store to one secret. Read the secret again if another writer changed it."""
        async with self._locks.setdefault(secret_id, asyncio.Lock()):
            for _ in range(ATTEMPTS):
                try:
                    return await attempt()
                except SecretConflictError:
                    continue
                except ProviderError as failed:
                    if failed.reason is not ErrorReason.SECRET_NOT_FOUND:
                        raise
        message = (
            f"{self._api.subject('PutSecretValue', about(secret_id))} is being changed by others; tried again later"
        )
        raise ProviderError(ErrorReason.PRECONDITION_FAILED, message)

    async def _delete(self, secret_id: str, items: Sequence[DeleteItem], call_key: str) -> list[bool | ProviderError]:
        state = await read_state(self._reader, secret_id)
        if not state.exists or not state.is_of(items[0].owner_token or OWNER):
            return [False] * len(items)
        check_original(self._api, secret_id, state)
        if any(not item.remote.property for item in items):
            await self._remove(secret_id, state)
            return [True] * len(items)
        state = await with_value(self._reader, state)
        draft = Draft(state.secret.value if state.secret else None)
        outcomes = [await removed(draft, item) for item in items]
        if any(outcome is True for outcome in outcomes):
            if draft.value is None:
                await self._remove(secret_id, state)
            else:
                gone = frozenset(item.remote.property for item in items)
                await Alignment(self._api, secret_id, state.arn).release_policy(state, gone)
                form = form_of(draft.value, state, Settings())
                await put_version(self._api, secret_id, state, form, call_key)
        return outcomes

    async def _remove(self, secret_id: str, state: SecretState) -> None:
        """Delete the secret: by ARN, because another one may have taken its name."""
        if state.replicas:
            regions = sorted(state.replicas)
            await self._call("RemoveRegionsFromReplication", secret_id, state, RemoveReplicaRegions=regions)
        options: dict[str, Any] = {}
        if self._deletes.force_delete_without_recovery:
            options["ForceDeleteWithoutRecovery"] = True
        elif self._deletes.recovery_window_in_days:
            options["RecoveryWindowInDays"] = self._deletes.recovery_window_in_days
        await self._call("DeleteSecret", secret_id, state, **options)

    async def _call(self, operation: str, secret_id: str, state: SecretState, **parameters: Any) -> None:
        await self._api.call(operation, about=about(secret_id), SecretId=state.arn, **parameters)


# --- An opened store of Secrets Manager ------------------------------------------------------------------------------


MIN_DAYS: Final = 7
MAX_DAYS: Final = 30


class SecretsStore(ValueStore[SecretsManagerConfig]):
    """Secrets of one region of one account."""

    SERVICE = SECRETS_MANAGER
    SOURCE = SECRETS
    API_NAME: ClassVar[str] = "AWS/SecretsManager"

    @classmethod
    def check_config(cls, config: SecretsManagerConfig) -> tuple[str, ...]:
        warnings = super().check_config(config)
        field = "/deletion" if config.deletion else "/secretsManager"
        days = config.deletes.recovery_window_in_days
        if days and not MIN_DAYS <= days <= MAX_DAYS:
            problem = f"must be 0 or between {MIN_DAYS} and {MAX_DAYS}"
            raise invalid_config(f"{field}/recoveryWindowInDays", problem)
        if days and config.deletes.force_delete_without_recovery:
            raise invalid_config(field, "forceDeleteWithoutRecovery excludes recoveryWindowInDays; remove one of them")
        return warnings

    def parts(self) -> tuple[ValueReader, ValueFinder, ValueWriter]:
        reader = SecretReader(self.api, self.config.prefix, self.gate)
        return reader, SecretFinder(self.api, reader), SecretWriter(self.api, reader, self.config.deletes)
