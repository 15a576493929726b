"""Batch reads. If batches are denied, a session reads values one by one for an hour and reports a condition."""

from __future__ import annotations

from typing import Final

from eso_provider_aws.api import Api
from eso_wire.values import ConditionReport

NO_BATCH_SECONDS: Final = 3600.0


class Batching:
    """The permission of one session to read several values with one call."""

    def __init__(self, api: Api, operation: str, *, what: str) -> None:
        """`what` names a full batch in the condition: `ten parameters`."""
        self._clock = api.clock
        self._operation = operation
        self._action = api.asked(operation).action
        self._what = what
        self._denied_until = 0.0

    @property
    def is_denied(self) -> bool:
        return self._clock.monotonic() < self._denied_until

    def deny(self) -> None:
        """Remember that batches are denied."""
        self._denied_until = self._clock.monotonic() + NO_BATCH_SECONDS

    def conditions(self) -> tuple[ConditionReport, ...]:
        """Return the condition of the store; empty while batches work."""
        if not self.is_denied:
            return ()
        words = (
            f"values are read one by one because {self._operation} is denied; allow {self._action} to read {self._what}"
            " with one call"
        )
        return (ConditionReport("BatchReads", "False", "PermissionMissing", words),)
