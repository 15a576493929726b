"""Discovery of a provider that shares no version of the protocol with this operator (R140, R141)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eso_api.references import StoreRef
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import Reason, ResolutionError, ResolvedStore
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    caller,
    cluster,
    obj,
    provider_service,
    ready,
    serving,
)
from eso_wire.values import Handshake, KindId
from eso_wire.versions import ProtocolVersion
from kubebase.meta import JsonObject

FAKE = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake")
OTHER = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Other")
STORE = obj("external-secrets.io/v1", "SecretStore", "store", "team-a", spec={"provider": {"fake": {}}}, status=ready())
FITS = serving(FAKE, v1_key="fake")
NEWER = (ProtocolVersion(3, 0), ProtocolVersion(3, 1))


def newer(handshake: Handshake) -> Handshake:
    return replace(handshake, selected=None, supported=NEWER)


class ByService(dict[str, Handshake | str]):
    """Handshakes by the name of the Service, which is part of the key of a connection."""

    def get(self, key: str, default: object = None) -> Handshake | str | None:  # type: ignore[override]  # narrower
        del default
        return next((answer for name, answer in self.items() if name in key), None)


def resolved(**answers: Handshake | str) -> ResolvedStore:
    services: list[JsonObject] = [provider_service(name, CORE) for name in answers]
    view = cluster(STORE, *services, handshakes=ByService(answers))
    return resolve(StoreRef(name="store"), caller(), need=ANYTHING, view=view, settings=SETTINGS)


@pytest.mark.parametrize(
    ("answers", "reason", "says"),
    [
        pytest.param(
            {"one": newer(FITS)},
            Reason.INCOMPATIBLE,
            "speaks protocol 3.0, 3.1, this operator speaks 2.1, 2.2",
            id="alone",
        ),
        pytest.param(
            {"one": newer(FITS), "two": "refused"}, Reason.INCOMPATIBLE, "3.0, 3.1", id="besides one that is down"
        ),
        pytest.param(
            {"one": newer(serving(OTHER, v1_key="other"))}, Reason.NOT_INSTALLED, 'for "fake"', id="of another kind"
        ),
    ],
)
def test_an_incompatible_provider_of_the_kind_is_the_cause(
    answers: dict[str, Handshake | str], reason: Reason, says: str
) -> None:
    with pytest.raises(ResolutionError, match=says) as raised:
        resolved(**answers)

    assert raised.value.reason is reason


def test_a_provider_that_fits_is_found_besides_an_incompatible_one() -> None:
    """Both releases of a provider run for a while."""
    assert resolved(one=newer(FITS), two=FITS).endpoint.label.endswith("two")
