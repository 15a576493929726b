"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.stores.fake import FakeProvider
from eso_api.v2.owned import store_kinds

KINDS: Final = store_kinds(
    FakeProvider,
    module=__name__,
    kind="Fake",
    plural="fakes",
    cluster="ClusterFake",
    about="Secrets written in the object itself",
    spec="The secrets, as in `spec.provider.fake` of a v1 store.",
    scope="for tests and demonstrations",
    cluster_spec="The secrets, and who may use them.",
)
