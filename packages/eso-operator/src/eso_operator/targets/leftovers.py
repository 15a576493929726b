"""What an ExternalSecret made and does not write any more, because its target has another name or another kind now.

Secrets are all watched, and an index finds those that carry its label. Which objects of other kinds there were, nobody
could find out by looking: they are on record in `status.manifests`, from before one is made until it is known to be
gone. Nothing is asked of the API server unless there is something to remove.

Only what it made and still controls is removed, and only while its policy is Owner. What somebody merged into, copied,
took over or let go of stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eso_api.externalsecret import ExternalSecret, MadeManifest
from eso_api.validation.externalsecret import writes_secret
from eso_operator.targets.discovery import served_in_group
from eso_operator.targets.manifest import is_denied
from eso_operator.targets.marks import CREATED_BY_LABEL, OWNER, created_by, target_name
from eso_operator.targets.secret import CREATED_BY_INDEX, SECRETS
from kuberun.cache import Store
from kuberun.client import Client
from kuberun.errors import NotFound
from kuberun.meta import Object, ObjectKey, ObjectMeta, Resource, metadata_of
from kuberun.ownership import is_controlled_by
from kuberun.requests import DeleteOptions

MAX_ON_RECORD: Final = 32
"""Of objects that cannot be removed while the target changes again and again, the oldest go with their owner."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What was removed, in the words of events; and what is on record from now on."""

    told: tuple[str, ...] = ()
    on_record: tuple[MadeManifest, ...] = ()


class Leftovers:
    """One for the process. Other kinds than Secret are left alone unless the administrator allows them."""

    def __init__(self, client: Client, secrets: Store[Object], *, generic_targets: bool) -> None:
        self._client = client
        self._secrets = secrets
        self._generic_targets = generic_targets

    def exist(self, es: ExternalSecret) -> bool:
        """Whether there may be something to remove, as far as is known without asking."""
        return bool(self._of_secrets(es) or self._of_manifests(es))

    async def remove(self, es: ExternalSecret) -> Removal:
        """Once its target is written. Raises ApiError when the API server does not let us."""
        secrets = [secret for secret in self._of_secrets(es) if await self._delete(SECRETS, secret)]
        left = self._of_manifests(es)
        manifests = [made for made in left if await self._remove_manifest(es, made)]
        told = [
            *("secret deleted because it was orphaned" for _ in secrets),
            *(f"Deleted {made.kind} {made.name} because it was orphaned" for made in manifests),
        ]
        return Removal(tuple(told), tuple(made for made in es.status.manifests if made not in left))

    def _of_secrets(self, es: ExternalSecret) -> list[ObjectMeta]:
        if es.spec.target.creation_policy != OWNER:
            return []
        wanted = target_name(es) if writes_secret(es.spec.target) else ""
        labelled = self._secrets.find(CREATED_BY_INDEX, (es.metadata.namespace, created_by(es)))
        return [
            secret.metadata for secret in labelled if secret.metadata.name != wanted and _is_ours(es, secret.metadata)
        ]

    def _of_manifests(self, es: ExternalSecret) -> list[MadeManifest]:
        if es.spec.target.creation_policy != OWNER or not self._generic_targets:
            return []
        wanted = record_of(es)
        return [made for made in es.status.manifests if wanted is None or not _are_same(made, wanted)]

    async def _remove_manifest(self, es: ExternalSecret, made: MadeManifest) -> bool:
        """Whether it was there and ours. Of a kind that is gone nothing is left."""
        if is_denied(made.api_version):
            return False
        resource = await served_in_group(self._client, _group(made), made.kind)
        if resource is None or not resource.namespaced:
            return False
        try:
            found = await self._client.get(metadata_of(resource), ObjectKey(es.metadata.namespace, made.name))
        except NotFound:
            return False
        return _is_ours(es, found.metadata) and await self._delete(resource, found.metadata)

    async def _delete(self, resource: Resource, seen: ObjectMeta) -> bool:
        """Exactly what was seen: whoever was given it meanwhile keeps it, and we look again."""
        exactly = DeleteOptions(uid=seen.uid, resource_version=seen.resource_version)
        try:
            await self._client.delete(metadata_of(resource), seen.key, exactly)
        except NotFound:
            return False
        return True


def record_of(es: ExternalSecret) -> MadeManifest | None:
    """What has to be on record before the target is written; None if it is found without, or will not be removed."""
    target = es.spec.target
    if target.manifest is None or target.creation_policy != OWNER or writes_secret(target):
        return None
    return MadeManifest(api_version=target.manifest.api_version, kind=target.manifest.kind, name=target_name(es))


def is_on_record(es: ExternalSecret) -> bool:
    """Whether its target could be found again after it became another one."""
    made = record_of(es)
    return made is None or any(_are_same(made, known) for known in es.status.manifests)


def with_record(es: ExternalSecret) -> Sequence[MadeManifest]:
    """What has to be on record, its target included."""
    made = record_of(es)
    known = es.status.manifests
    return known if made is None or is_on_record(es) else [*known, made][-MAX_ON_RECORD:]


def _is_ours(es: ExternalSecret, metadata: ObjectMeta) -> bool:
    """Made and controlled by this very ExternalSecret. What is going already needs nobody to delete it."""
    marked = metadata.labels.get(CREATED_BY_LABEL) == created_by(es)
    return marked and is_controlled_by(metadata, es.metadata.uid) and metadata.deletion_timestamp is None


def _are_same(one: MadeManifest, other: MadeManifest) -> bool:
    """Versions are spellings of the same object."""
    return (_group(one), one.kind, one.name) == (_group(other), other.kind, other.name)


def _group(made: MadeManifest) -> str:
    return made.api_version.rpartition("/")[0]
