"""Records events about objects: actions and errors, for users who inspect the object."""

from __future__ import annotations

from eso_operator.report.homes import Homes
from eso_operator.report.words import News
from kubebase.meta import ObjectMeta, Resource
from kuberun.events import EventRecorder


class Announcer:
    """Records events in the name of one component; without a name, in that of the recorder's own.

    With `homes`, those about objects in a namespace that is being deleted are recorded about the namespace.
    """

    def __init__(self, recorder: EventRecorder, homes: Homes | None = None, *, component: str = "") -> None:
        self._recorder = recorder
        self._component = component
        self._homes = homes

    def announce(self, resource: Resource, about: ObjectMeta, *news: News) -> None:
        """Record the events, in this order. Returns at once."""
        if self._homes is not None:
            resource, about = self._homes.subject(resource, about)
        for each in news:
            self._recorder.record(resource, about, each.type, each.reason, each.message, component=self._component)
