"""Grafana: tokens of Grafana service accounts, for v2 generators."""

from __future__ import annotations

import msgspec

from eso_api.generators.grafana import GrafanaSpec
from eso_api.v2.generator import GENERATOR_CATEGORIES
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP, OwnedStatus, namespaced_config
from kubebase.meta import Object


class Grafana(Object, kw_only=True):
    """Tokens of Grafana service accounts, for v2 generators."""

    spec: GrafanaSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


GRAFANA = namespaced_config(Grafana, GENERATOR_CONFIG_GROUP, "grafanas", GENERATOR_CATEGORIES)
