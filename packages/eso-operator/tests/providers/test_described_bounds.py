"""The bounds in the API's descriptions are those that the operator enforces."""

from typing import Any

import pytest

from eso_api.crd import CustomKind
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_operator.controllers.refresh import SHORTEST_INTERVAL
from eso_operator.flags import parser
from eso_operator.providers.limits import RetryPlan
from eso_operator.providers.settings import CallSettings, PoolSettings
from eso_operator.settings import FEWEST_WORKERS
from eso_operator.stores.resolved import CallPolicy

CALLS = CallSettings()
LONGEST_PAUSE = RetryPlan.of(CallPolicy(gated=False, retry_interval=1.0), CALLS).pauses.cap


def description(kind: CustomKind[Any], path: str) -> str:
    found: Any = kind.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("spec", *path.split(".")):
        found = found["properties"][name]
    return str(found["description"])


@pytest.mark.parametrize(
    ("kind", "path", "words"),
    [
        (SECRET_STORE, "refreshInterval", f"at least {SHORTEST_INTERVAL:g} s"),
        (SECRET_STORE_V2, "refreshInterval", f"at least {SHORTEST_INTERVAL:g} s"),
        (SECRET_STORE_V2, "timeouts.call", f"at most {CALLS.longest_timeout:g} s"),
        (SECRET_STORE_V2, "timeouts.call", f"absent means {CALLS.timeout:g} s"),
        (SECRET_STORE_V2, "timeouts.connect", f"absent means {PoolSettings().connect_timeout:g} s"),
        (SECRET_STORE, "retrySettings.maxRetries", f"absent means {CALLS.max_retries}"),
        (SECRET_STORE, "retrySettings.retryInterval", f"at most {CALLS.longest_pauses:g} s"),
        (SECRET_STORE, "retrySettings.retryInterval", f"up to {LONGEST_PAUSE:g} s"),
    ],
)
def test_a_field_tells_its_bounds(kind: CustomKind[Any], path: str, words: str) -> None:
    assert words in description(kind, path)


def test_a_flag_tells_the_fewest_workers() -> None:
    assert f"never below {FEWEST_WORKERS}" in parser().format_help()
