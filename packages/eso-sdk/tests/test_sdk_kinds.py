"""Properties derived from an author's class: operations, credential paths, CRDs, the manifest."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import pytest

from eso_api.marks import WholeSecret
from eso_api.references import CaProvider, SecretKeySelector, ServiceAccountSelector
from eso_api.shapes import Fragment
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, namespaced_config
from eso_api.values import SecretBytes
from eso_sdk import (
    Check,
    Generator,
    Provider,
    Pushed,
    Store,
    audiences,
    finds,
    generator_kind,
    pushes,
    reads,
    store_kind,
)
from eso_sdk.provider import served_kind
from eso_sdk.testing.scripted import SCRIPTED, PlainMaker, ReadOnly, Scripted, ScriptedMaker
from eso_wire.values import (
    CredentialKind,
    CredentialPath,
    FindQuery,
    Found,
    GenerateRequest,
    KindId,
    KindRole,
    Operation,
    PushItem,
    PushOutcome,
    RemoteRef,
    SourceSecret,
)
from kubebase.meta import Object


class Config(Fragment, frozen=True, kw_only=True):
    """Where the backend is."""

    url: str
    """Address of the backend."""


class Reader(Store[Config]):
    async def get(self, ref: RemoteRef) -> bytes:
        return ref.key.encode()


class Finder(Store[Config]):
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        yield Found(query.path, SecretBytes(b""))


class TagFinder(Store[Config]):
    @finds("tags", "path")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        yield Found(query.path, SecretBytes(b""))


class Writer(Store[Config]):
    @pushes("whole_secret", "if_absent", "if_version")
    async def push(self, item: PushItem, _: SourceSecret) -> Pushed:
        return Pushed(PushOutcome.CREATED, item.expected_version)

    async def check(self, ref: RemoteRef) -> Check:
        return Check(exists=bool(ref.key))


class Careful(Store[Config]):
    @reads("metadata", "not_found")
    async def get(self, ref: RemoteRef) -> bytes:
        return ref.key.encode()


class Heir(Careful):
    """Inherits what it does."""


def kind(store: type[Store[Any]], **changes: Any) -> Any:
    """Apply the decorator to a copy of the class, so that the class stays unchanged for other tests."""
    copy = type(store.__name__, (store,), {"__module__": store.__module__})
    return served_kind(store_kind(**({"kind": "Thing", "plural": "things"} | changes))(copy))


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        pytest.param(Reader, {"GET", "GET_MAP"}, id="get gives maps too"),
        pytest.param(Finder, {"FIND_BY_NAME"}, id="find means by name unless it says otherwise"),
        pytest.param(TagFinder, {"FIND_BY_TAGS", "FIND_BY_PATH"}, id="find says what it understands"),
        pytest.param(
            Writer,
            {"PUSH", "PUSH_WHOLE_SECRET", "PUSH_IF_ABSENT", "EXISTS"},
            id="push says what it also does, and an expected version is no operation",
        ),
        pytest.param(Careful, {"GET", "GET_MAP", "METADATA_FETCH", "NOT_FOUND_SEMANTICS"}, id="get says what it keeps"),
        pytest.param(Heir, {"GET", "GET_MAP", "METADATA_FETCH", "NOT_FOUND_SEMANTICS"}, id="inherited methods count"),
        pytest.param(ReadOnly, {"GET", "GET_MAP"}, id="reading in batches is reading"),
    ],
)
def test_operations_are_what_the_class_overrides(store: type[Store[Any]], expected: set[str]) -> None:
    assert kind(store).operations == {Operation(name) for name in expected}


def test_operations_can_be_narrowed() -> None:
    assert kind(Reader, operations=frozenset({Operation.GET})).operations == {Operation.GET}


def test_operations_without_a_method_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="declares PUSH"):
        kind(Reader, operations=frozenset({Operation.GET, Operation.PUSH}))


def test_a_generator_cleans_up_only_if_it_says_how() -> None:
    assert served_kind(ScriptedMaker).operations == {Operation.GENERATE, Operation.CLEANUP}
    assert served_kind(PlainMaker).operations == {Operation.GENERATE}


def test_a_generator_that_makes_nothing_is_refused() -> None:
    class Idle(Generator[Config]):
        pass

    with pytest.raises(TypeError, match="generate"):
        generator_kind(kind="Idle", plural="idles")(Idle)


class Login(Fragment, frozen=True, kw_only=True):
    """How to log in."""

    account_ref: Annotated[ServiceAccountSelector, audiences("a", "b")] | None = None
    """A service account."""
    ca: CaProvider | None = None
    """A CA."""


class Nested(Fragment, frozen=True, kw_only=True):
    """References everywhere."""

    login: Login
    """In a struct."""
    many: list[Login] = []  # noqa: RUF012 - msgspec gives every object one of its own
    """In a list of structs."""
    named: dict[str, SecretKeySelector] = {}  # noqa: RUF012 - msgspec gives every object one of its own
    """In a map."""
    whole: WholeSecret | None = None
    """All keys."""


def test_credential_paths_come_from_the_types_of_the_config() -> None:
    class Deep(Store[Nested]):
        async def get(self, ref: RemoteRef) -> bytes:
            return ref.key.encode()

    assert kind(Deep).credentials == (
        CredentialPath("/login/accountRef", CredentialKind.SERVICE_ACCOUNT, ("a", "b")),
        CredentialPath("/login/ca", CredentialKind.CA_PROVIDER),
        CredentialPath("/many/*/accountRef", CredentialKind.SERVICE_ACCOUNT, ("a", "b")),
        CredentialPath("/many/*/ca", CredentialKind.CA_PROVIDER),
        CredentialPath("/named/*", CredentialKind.SECRET_KEY),
        CredentialPath("/whole", CredentialKind.WHOLE_SECRET),
    )


def test_one_decorator_gives_the_namespaced_kind_and_its_cluster_twin() -> None:
    own, twin = kind(Reader, cluster="ClusterThing").owned

    assert (own.name, own.namespaced, own.crd_name) == ("Thing", True, f"things.{STORE_CONFIG_GROUP}")
    assert (twin.name, twin.namespaced, twin.crd_name) == (
        "ClusterThing",
        False,
        f"clusterthings.{STORE_CONFIG_GROUP}",
    )


def test_the_crd_has_the_config_with_its_descriptions_and_the_common_policy() -> None:
    own, twin = (made.crd() for made in kind(Reader, cluster="ClusterThing").owned)

    fields, cluster_fields = (
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] for crd in (own, twin)
    )
    assert fields["required"] == ["url"]
    assert fields["properties"]["url"] == {"description": "Address of the backend.", "type": "string"}
    assert "refreshInterval" in fields["properties"]["common"]["properties"]
    assert "authenticationScope" not in fields["properties"]["common"]["properties"]
    assert "authenticationScope" in cluster_fields["properties"]["common"]["properties"]


def test_an_object_of_the_generated_kind_decodes() -> None:
    own = kind(Reader).owned[0]

    decoded = msgspec.convert({"spec": {"url": "u", "common": {"controller": "x"}}}, own.type)

    assert (decoded.spec.url, decoded.spec.common.controller) == ("u", "x")


class HandWritten(Object, kw_only=True):
    """A kind written by hand."""

    spec: Config
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


HAND_WRITTEN = namespaced_config(HandWritten, "example.com", "handwrittens")


def test_kinds_written_by_hand_are_taken_as_they_are() -> None:
    served = kind(Reader, kind="", plural="", objects=(HAND_WRITTEN,))

    assert served.owned == (HAND_WRITTEN,)
    assert [info.kind for info in served.infos] == [KindId("example.com", "v2alpha1", "HandWritten")]


def test_kinds_of_others_are_served_and_not_owned() -> None:
    class Maker(Generator[Config]):
        async def generate(self, _: GenerateRequest) -> dict[str, bytes]:
            return {}

    served = served_kind(generator_kind(kind="Maker", plural="makers", bridged=(HAND_WRITTEN,))(Maker))

    assert [owned.name for owned in served.owned] == ["Maker"]
    assert [info.kind.kind for info in served.infos] == ["Maker", "HandWritten"]


def test_the_v1_key_belongs_to_one_kind_only() -> None:
    infos = served_kind(Scripted).infos

    assert [(info.kind.kind, info.v1_provider_key) for info in infos] == [
        ("Scripted", "scripted"),
        ("ClusterScripted", ""),
    ]


def test_the_manifest_is_plain_json() -> None:
    manifest = msgspec.json.decode(msgspec.json.encode(SCRIPTED.manifest()))

    assert (manifest["name"], manifest["version"]) == ("scripted", "1.2.3")
    assert manifest["protocol"] == {"min": "2.1", "max": "2.2"}
    assert [entry["kind"] for entry in manifest["kinds"]] == [
        "Scripted",
        "ClusterScripted",
        "ReadOnly",
        "ScriptedMaker",
        "PlainMaker",
    ]
    assert {entry["role"] for entry in manifest["kinds"]} == {KindRole.STORE, KindRole.GENERATOR}


@pytest.mark.parametrize("name", ["", "Aws", "1pass", "a_b", "-a", "a-", "a" * 41, "../x"])
def test_a_provider_needs_a_name_that_fits_everywhere(name: str) -> None:
    with pytest.raises(ValueError, match="no name for a provider"):
        Provider(name=name, version="1", kinds=())


def test_two_classes_cannot_serve_one_kind() -> None:
    class Other(Store[Config]):
        async def get(self, ref: RemoteRef) -> bytes:
            return ref.key.encode()

    both = (kind(Reader).backend, kind(Other).backend)

    with pytest.raises(ValueError, match="served by two classes"):
        Provider(name="twice", version="1", kinds=both)


def test_a_class_without_decorator_is_no_kind() -> None:
    class Bare(Store[Config]):
        pass

    with pytest.raises(TypeError, match="@store_kind"):
        Provider(name="bare", version="1", kinds=(Bare,))


def test_a_class_has_to_say_its_configuration() -> None:
    with pytest.raises(TypeError, match=r"write Store\[Config\]"):
        kind(type("Vague", (Store,), {}))
