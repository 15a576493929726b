"""Which namespaces get events."""

import msgspec
import pytest

from eso_operator.controllers.base import TerminatingNamespaces
from kubebase.meta import Object
from kuberun.cache import Cache
from kuberun.watch import Listed


@pytest.mark.parametrize(
    ("namespace", "accepts"),
    [
        pytest.param("team", True, id="one that exists"),
        pytest.param("ending", False, id="one that is being deleted"),
        pytest.param("new", True, id="one that the cache does not have yet"),
    ],
)
def test_a_namespace_gets_events_unless_it_is_being_deleted(namespace: str, accepts: bool) -> None:
    namespaces = Cache[Object]()
    ending = {"name": "ending", "deletionTimestamp": "2030-01-01T00:00:00Z"}
    listed = [msgspec.convert({"metadata": metadata}, Object) for metadata in ({"name": "team"}, ending)]
    namespaces.apply(Listed(tuple(listed)))

    assert TerminatingNamespaces(namespaces).accepts_events(namespace) is accepts
