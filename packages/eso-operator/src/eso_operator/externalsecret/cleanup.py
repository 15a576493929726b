"""What an ExternalSecret leaves behind, removed: on its deletion, and when its target is another one now.

Owned targets go by garbage collection. A finalizer is set only where more than that is promised (deletionPolicy
Delete); one that the existing operator set is taken off when its time has come.
"""

from __future__ import annotations

from typing import Final

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_operator.externalsecret.snapshot import Rules
from eso_operator.sync.reporting import News
from eso_operator.targets.marks import FINALIZER
from eso_operator.targets.target import Target
from kuberun.client import Client
from kuberun.controller import Done, Outcome, Retry
from kuberun.errors import Conflict, NotFound
from kuberun.events import EventType
from kuberun.ownership import add_finalizer, remove_finalizer

_KIND: Final = EXTERNAL_SECRET.kind()


class Cleanup:
    """One for the process."""

    def __init__(self, client: Client, rules: Rules) -> None:
        self._client = client
        self._rules = rules

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
            return Retry("the ExternalSecret changed meanwhile")
        return Done()

    def _may_write(self, es: ExternalSecret) -> bool:
        """Kinds that the administrator does not allow (any more) are left alone."""
        return es.spec.target.manifest is None or self._rules.generic_targets

    async def delete_orphans(self, es: ExternalSecret, target: Target) -> tuple[News, ...]:
        """Targets under an earlier name, or of an earlier kind."""
        deleted = await target.delete_orphans(es)
        return tuple(News(EventType.NORMAL, "Deleted", "secret deleted because it was orphaned") for _ in deleted)
