"""Former targets of an ExternalSecret, left behind when its target gets another name or kind.

Former Secrets are found by their label, through an index of the watched Secrets. Objects of other kinds cannot be found
that way, so `status.manifests` records each one before it is created, until it is known to be gone. Requests are sent
only if there is something to remove.

An object is removed only if this ExternalSecret created it and still controls it, and only under creationPolicy Owner.
"""

from __future__ import annotations

from eso_api.externalsecret import ExternalSecret, MadeManifest
from eso_api.validation import writes_secret
from eso_operator.targets.discovery import served_in_group
from eso_operator.targets.manifest import is_denied
from eso_operator.targets.metadata import CREATED_BY_LABEL, OWNER, created_by, target_name
from eso_operator.targets.secret import CREATED_BY_INDEX, SECRETS
from eso_operator.targets.target import RemovedTargets, are_same, group_of, record_of
from kubebase.meta import Object, ObjectKey, ObjectMeta, Resource, metadata_of
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.errors import NotFound
from kuberun.ownership import is_controlled_by
from kuberun.requests import DeleteOptions


class FormerTargets:
    """Removes former targets. The process has one. Only Secrets are removed unless generic targets are allowed."""

    def __init__(self, client: Client, secrets: Cache[Object], *, generic_targets: bool) -> None:
        self._client = client
        self._secrets = secrets
        self._generic_targets = generic_targets

    def exist(self, es: ExternalSecret) -> bool:
        """Return whether there may be former targets, without a request."""
        return bool(self._of_secrets(es) or self._of_manifests(es))

    async def remove(self, es: ExternalSecret) -> RemovedTargets:
        """Delete the former targets, after the current target was written. Raises ApiError."""
        secrets = [secret for secret in self._of_secrets(es) if await self._delete(SECRETS, secret)]
        left = self._of_manifests(es)
        manifests = [made for made in left if await self._remove_manifest(es, made)]
        messages = [
            *("secret deleted because it was orphaned" for _ in secrets),
            *(f"Deleted {made.kind} {made.name} because it was orphaned" for made in manifests),
        ]
        return RemovedTargets(tuple(messages), tuple(made for made in es.status.manifests if made not in left))

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
        return [made for made in es.status.manifests if wanted is None or not are_same(made, wanted)]

    async def _remove_manifest(self, es: ExternalSecret, made: MadeManifest) -> bool:
        """Delete a recorded object. Return whether it existed, was ours, and was deleted."""
        if is_denied(made.api_version):
            return False
        resource = await served_in_group(self._client, group_of(made), made.kind)
        if resource is None or not resource.namespaced:
            return False
        try:
            found = await self._client.get(metadata_of(resource), ObjectKey(es.metadata.namespace, made.name))
        except NotFound:
            return False
        return _is_ours(es, found.metadata) and await self._delete(resource, found.metadata)

    async def _delete(self, resource: Resource, found: ObjectMeta) -> bool:
        """Delete exactly the version that was read; if it changed, a Conflict makes the reconcile start over."""
        exactly = DeleteOptions(uid=found.uid, resource_version=found.resource_version)
        try:
            await self._client.delete(metadata_of(resource), found.key, exactly)
        except NotFound:
            return False
        return True


def _is_ours(es: ExternalSecret, metadata: ObjectMeta) -> bool:
    """Return whether this ExternalSecret created and controls the object, and the object is not being deleted."""
    marked = metadata.labels.get(CREATED_BY_LABEL) == created_by(es)
    return marked and is_controlled_by(metadata, es.metadata.uid) and metadata.deletion_timestamp is None
