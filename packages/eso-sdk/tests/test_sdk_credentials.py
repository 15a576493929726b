"""The values that the operator sent for references, and the namespaces to which references may point."""

from dataclasses import replace
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Config, Context, ObjectRef, RemoteRef, Token
from kubebase.clock import SystemClock

SPEC: dict[str, Any] = {
    "tokenRef": {"name": "login", "key": "token"},
    "accountRef": {"name": "robot"},
    "wholeRef": {"name": "all"},
    "caProvider": {"type": "ConfigMap", "name": "ca", "key": "ca.crt"},
    "more": [{"name": "login", "key": "token"}, {"name": "x", "key": "y"}],
    "byName": {"a/b~c": {"name": "z", "key": "z"}},
}


async def read(what: Any, credentials: dict[str, Any], spec: dict[str, Any] | None = None) -> Any:
    async def get(store: Scripted, _: RemoteRef) -> bytes:
        answer: bytes = what(store)
        return answer

    script = Script.new(get=get)
    async with InMemory(SCRIPTED) as provider:
        context = call_context(Scripted, {"script": script.name, **(SPEC if spec is None else spec)}, credentials)
        return (await provider.get_one(context, "key")).outcome


def some(value: Any) -> Any:
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("what", "credentials", "expected"),
    [
        pytest.param(
            lambda store: store.secret(some(store.config.token_ref)).reveal(),
            {"/tokenRef": "t0ken"},
            b"t0ken",
            id="a key of a Secret",
        ),
        pytest.param(
            lambda store: store.token(some(store.config.account_ref)).token.reveal(),
            {"/accountRef": Token(SecretBytes(b"jwt"))},
            b"jwt",
            id="a service account's token",
        ),
        pytest.param(
            lambda store: store.whole_secret(some(store.config.whole_ref))["user"].reveal(),
            {"/wholeRef": {"user": SecretBytes(b"anna")}},
            b"anna",
            id="a whole Secret",
        ),
        pytest.param(
            lambda store: store.ca(some(store.config.ca_provider)), {"/caProvider": "PEM"}, b"PEM", id="a CA bundle"
        ),
        pytest.param(
            lambda store: store.secret(store.config.more[1]).reveal(), {"/more/1": "second"}, b"second", id="in a list"
        ),
        pytest.param(
            lambda store: store.secret(store.config.by_name["a/b~c"]).reveal(),
            {"/byName/a~1b~0c": "odd"},
            b"odd",
            id="in a map, its name escaped",
        ),
        pytest.param(
            lambda store: store.secret(store.config.more[0]).reveal(),
            {"/tokenRef": "one", "/more/0": "two"},
            b"two",
            id="equal references are told apart by their place",
        ),
    ],
)
async def test_a_reference_finds_what_was_sent_for_it(what: Any, credentials: dict[str, Any], expected: bytes) -> None:
    assert await read(what, credentials) == SecretBytes(expected)


@pytest.mark.parametrize(
    ("what", "credentials", "said"),
    [
        pytest.param(
            lambda store: store.secret(some(store.config.token_ref)),
            {},
            'the operator sent nothing for /tokenRef, which names "login", key "token"',
            id="nothing was sent",
        ),
        pytest.param(
            lambda store: store.secret(some(store.config.token_ref)),
            {"/tokenRef": Token(SecretBytes(b"jwt"))},
            "/tokenRef was not sent as one value",
            id="a token instead of a value",
        ),
        pytest.param(
            lambda store: store.token(some(store.config.account_ref)),
            {"/accountRef": "jwt"},
            "/accountRef was not sent as a token",
            id="a value instead of a token",
        ),
        pytest.param(
            lambda store: store.whole_secret(some(store.config.whole_ref)),
            {"/wholeRef": "x"},
            "/wholeRef was not sent as a whole Secret",
            id="a value instead of a Secret",
        ),
    ],
)
async def test_a_credential_that_is_not_there_is_named(what: Any, credentials: dict[str, Any], said: str) -> None:
    outcome = await read(what, credentials)

    assert isinstance(outcome, ProviderError)
    assert (outcome.reason, outcome.message) == (ErrorReason.CREDENTIALS_NOT_FOUND, said)


# --- the namespace rule (R114, R119: enforced in the resolver, and again here) ----------------------------------------

CLUSTER_STORE = ObjectRef("external-secrets.io/v1", "ClusterSecretStore", "", "shared", uid="c")
V1_GENERATOR = ObjectRef("generators.external-secrets.io/v1alpha1", "Password", "team", "p", uid="g")


@pytest.mark.parametrize(
    ("namespace", "holder", "pinned", "allowed"),
    [
        pytest.param("", None, False, True, id="no namespace: the auth namespace is meant"),
        pytest.param("team", None, False, True, id="the auth namespace itself"),
        pytest.param("other", None, False, False, id="another one, in a namespaced object"),
        pytest.param("other", None, True, False, id="pinning does not widen what a namespaced object may name"),
        pytest.param("other", CLUSTER_STORE, False, True, id="a cluster-scoped object names namespaces"),
        pytest.param("other", V1_GENERATOR, False, True, id="a v1 generator's namespace is ignored, hence harmless"),
    ],
)
@pytest.mark.parametrize("field", ["tokenRef", "accountRef", "wholeRef", "caProvider", "more", "byName"])
async def test_references_stay_in_the_auth_namespace(
    field: str, namespace: str, holder: ObjectRef | None, pinned: bool, allowed: bool
) -> None:
    script = Script.new(values={"a": b"1"})
    reference = {"type": "Secret", "name": "n", "key": "k"} | ({"namespace": namespace} if namespace else {})
    spec = {"script": script.name, field: {"more": [reference], "byName": {"x": reference}}.get(field, reference)}
    context = call_context(Scripted, spec, auth_namespace_pinned=pinned)
    if holder is not None:
        config = Config(holder, context.config.kind, context.config.spec_json)
        context = call_context(Scripted, spec, config=config, store=holder, auth_namespace_pinned=pinned)

    async with InMemory(SCRIPTED, SystemClock()) as provider:
        try:
            await provider.get_one(context, "a")
            verdict = None
        except ProviderError as exc:
            verdict = exc

    if allowed:
        assert verdict is None
    else:
        assert verdict is not None
        assert verdict.reason is ErrorReason.NAMESPACE_DENIED
        assert f'names namespace "{namespace}"' in verdict.message
        assert "open" not in script.log


def elsewhere(context: Context, what: str) -> Context:
    """Return the same call with one part of it in another namespace."""
    match what:
        case "caller":
            return replace(context, caller=replace(context.caller, namespace="other"))
        case "configuration":
            ref = replace(context.config.ref, namespace="other")
            return replace(context, config=replace(context.config, ref=ref))
        case _:
            return replace(context, auth_namespace="other")


@pytest.mark.parametrize("what", ["caller", "configuration", "credentials"])
async def test_a_namespaced_store_serves_its_own_namespace_only(what: str) -> None:
    """This also holds if the session is already open, because a session does not know its callers."""
    context = call_context(Scripted, {"script": Script.new(values={"a": b"1"}).name})
    outside = elsewhere(context, what)

    async with InMemory(SCRIPTED, SystemClock()) as provider:
        await provider.get_one(context, "a")
        with pytest.raises(ProviderError) as caught:
            await provider.get_one(outside, "a")
        shared = await provider.get_one(replace(outside, store=CLUSTER_STORE), "a")

    assert caught.value.reason is ErrorReason.NAMESPACE_DENIED
    assert what in caught.value.message
    assert shared.outcome == SecretBytes(b"1")
