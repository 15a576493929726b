"""The fields that the records of all controllers have (`eso_operator.memory`)."""

from __future__ import annotations

from dataclasses import dataclass

from eso_operator.dependencies.dependencies import Dependency


@dataclass(slots=True, eq=False)
class Record:
    """The fields that the records of all kinds have, and their purpose.

    field         kept for                                              if it is lost
    uid           an object does not get the record of a former object
    written_on    a cache that is older than our last status write      the status is compared with the older one
    depends_on    a change of a dependency wakes the object             recorded again at the next reconcile
    """

    uid: str = ""
    written_on: str = ""
    """The resourceVersion on which the status was last written; empty if this process has not written it."""
    depends_on: frozenset[Dependency] = frozenset()
