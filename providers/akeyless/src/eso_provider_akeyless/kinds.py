"""The kinds this provider owns; found through the entry point group `eso.kinds`."""

from __future__ import annotations

from typing import Final

from eso_api.stores.akeyless import AkeylessProvider
from eso_api.v2.owned import fields_of, store_kinds

KINDS: Final = store_kinds(
    AkeylessProvider,
    module=__name__,
    kind="Akeyless",
    plural="akeylesses",
    cluster="ClusterAkeyless",
    about="Items of Akeyless",
    spec=fields_of("akeyless"),
)
