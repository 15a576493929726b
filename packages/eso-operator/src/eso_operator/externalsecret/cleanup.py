"""What an ExternalSecret leaves behind, removed: on its deletion, and when its target is another one now.

Owned targets go by garbage collection. A finalizer is set only where more than that is promised (deletionPolicy
Delete); one that the existing operator set is taken off when its time has come. A target that could not be found again
once it is another one is put on record before it is written.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret, MadeManifest
from eso_operator.externalsecret.snapshot import Rules
from eso_operator.sync.reporting import News
from eso_operator.targets.leftovers import Leftovers, with_record
from eso_operator.targets.marks import FINALIZER
from eso_operator.targets.target import Target
from kuberun.client import Client
from kuberun.controller import Done, Outcome, Retry
from kuberun.errors import Conflict, NotFound
from kuberun.events import EventType
from kuberun.ownership import add_finalizer, remove_finalizer
from kuberun.status import status_patch

_KIND: Final = EXTERNAL_SECRET.kind()


class Cleanup:
    """One for the process."""

    def __init__(self, client: Client, rules: Rules, leftovers: Leftovers) -> None:
        self._client = client
        self._rules = rules
        self._leftovers = leftovers

    async def prepare(self, es: ExternalSecret) -> Outcome | None:
        """Make sure that deletion waits for us, if it has to; an outcome when it is time to look again.

        Raises ApiError when the API server does not let us.
        """
        if es.spec.target.deletion_policy != "Delete" or FINALIZER in es.metadata.finalizers:
            return None
        try:
            await add_finalizer(self._client, _KIND, es.metadata, FINALIZER)
        except NotFound:
            return Done()
        except Conflict:
            return Retry("the ExternalSecret changed meanwhile")
        return Done()  # the change that this is comes back as an event

    async def finish(self, es: ExternalSecret, target: Target) -> Outcome:
        """The ExternalSecret is being deleted. Raises ApiError when the API server does not let us clean up."""
        try:
            if es.spec.target.deletion_policy == "Delete" and self._may_write(es):
                await target.delete(es)
            await remove_finalizer(self._client, _KIND, es.metadata, FINALIZER)
        except NotFound:
            return Done()
        except Conflict:
            return Retry("the ExternalSecret or its target changed meanwhile")
        return Done()

    def _may_write(self, es: ExternalSecret) -> bool:
        """Kinds that the administrator does not allow (any more) are left alone."""
        return es.spec.target.manifest is None or self._rules.generic_targets

    async def put_on_record(self, es: ExternalSecret) -> ExternalSecret:
        """The object with its target on record. Raises ApiError; Conflict if it is not the latest version."""
        status = msgspec.structs.replace(es.status, manifests=list(with_record(es)))
        patch = status_patch(es.metadata, es.status, status)
        if patch is None:
            return es
        return await self._client.merge_patch(_KIND, es.key, patch, subresource="status")

    def has_orphans(self, es: ExternalSecret) -> bool:
        """Whether there may be targets under an earlier name, or of an earlier kind."""
        return self._leftovers.exist(es)

    async def delete_orphans(self, es: ExternalSecret) -> tuple[tuple[News, ...], tuple[MadeManifest, ...]]:
        """What there is to say about them; and what is on record from now on."""
        removal = await self._leftovers.remove(es)
        return tuple(News(EventType.NORMAL, "Deleted", text) for text in removal.told), removal.on_record
