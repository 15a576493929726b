"""The samples of metrics that were rendered as text, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples_of(pages: Iterable[bytes]) -> list[Sample]:
    families = text_string_to_metric_families(b"".join(pages).decode())
    return [sample for family in families for sample in family.samples]
