"""References while the gate V2Stores is off (R150, R153): v1 kinds resolve, everything else is refused by name."""

import pytest

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.loading import check_gate, normalise
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_testkit.operator.clusters import caller
from eso_wire.errors import RetryClass

STORES = "secretstore.external-secrets.io/v2alpha1"
GENERATORS = "generator.external-secrets.io/v2alpha1"


@pytest.mark.parametrize(
    "ref",
    [
        pytest.param(StoreRef(name="s"), id="SecretStore"),
        pytest.param(StoreRef(kind="ClusterSecretStore", name="s"), id="ClusterSecretStore"),
        pytest.param(
            StoreRef(api_version="external-secrets.io/v1", kind="SecretStore", name="s"), id="with apiVersion"
        ),
        pytest.param(
            GeneratorRef(api_version="generators.external-secrets.io/v1alpha1", kind="Password", name="g"),
            id="v1alpha1 generator",
        ),
        pytest.param(
            GeneratorRef(api_version="generators.external-secrets.io/v1alpha1", kind="ClusterGenerator", name="g"),
            id="v1alpha1 ClusterGenerator",
        ),
        pytest.param(StoreRef(api_version="v1", kind="Secret", name="s"), id="a kind that is refused anyway"),
    ],
)
def test_a_reference_to_a_v1_kind_passes(ref: StoreRef | GeneratorRef) -> None:
    check_gate(normalise(ref, caller()), v2_stores=False)


@pytest.mark.parametrize(
    "ref",
    [
        pytest.param(StoreRef(api_version=STORES, kind="SecretStore", name="s"), id="v2 SecretStore"),
        pytest.param(StoreRef(api_version=STORES, kind="ClusterSecretStore", name="s"), id="v2 ClusterSecretStore"),
        pytest.param(StoreRef(kind="Provider", name="s"), id="Provider"),
        pytest.param(StoreRef(kind="ClusterProvider", name="s"), id="ClusterProvider"),
        pytest.param(StoreRef(api_version="example.com/v1", kind="Backend", name="s"), id="a provider's own kind"),
        pytest.param(GeneratorRef(api_version=GENERATORS, kind="Generator", name="g"), id="v2 Generator"),
        pytest.param(GeneratorRef(api_version=GENERATORS, kind="ClusterGenerator", name="g"), id="v2 ClusterGenerator"),
    ],
)
def test_a_reference_to_a_v2_kind_names_the_gate(ref: StoreRef | GeneratorRef) -> None:
    reference = normalise(ref, caller())
    check_gate(reference, v2_stores=True)

    with pytest.raises(ResolutionError, match=r"V2Stores is off.*--feature-gates=V2Stores=true") as raised:
        check_gate(reference, v2_stores=False)

    assert (raised.value.reason, raised.value.retry) == (Reason.FEATURE_DISABLED, RetryClass.NEVER)
