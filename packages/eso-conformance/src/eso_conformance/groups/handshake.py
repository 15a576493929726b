"""Negotiation: what a provider says about itself before any other call."""

from __future__ import annotations

from eso_conformance.cases import Profile, case, expect
from eso_conformance.subject import Subject, shake_hands
from eso_wire._generated import provider_pb2 as pb
from eso_wire.versions import CURRENT, SUPPORTED

_STORE_ONLY = {
    pb.OPERATION_GET,
    pb.OPERATION_GET_MAP,
    pb.OPERATION_FIND_BY_NAME,
    pb.OPERATION_FIND_BY_TAGS,
    pb.OPERATION_FIND_BY_PATH,
    pb.OPERATION_EXISTS,
    pb.OPERATION_PUSH,
    pb.OPERATION_PUSH_WHOLE_SECRET,
    pb.OPERATION_PUSH_IF_ABSENT,
    pb.OPERATION_DELETE,
}


@case(Profile.READ, "handshake", "names itself, its version and its instance")
async def names_itself(subject: Subject) -> None:
    said = subject.handshake

    expect(said.provider_name, "provider_name is empty")
    expect(said.provider_version, "provider_version is empty")
    expect(said.instance_id, "instance_id is empty, so a restart would go unnoticed")


@case(Profile.READ, "handshake", "selects the highest version that both sides speak")
async def selects_highest(subject: Subject) -> None:
    theirs = {(version.major, version.minor) for version in subject.handshake.supported}
    common = theirs & set(SUPPORTED)

    expect(common, f"no version of {sorted(theirs)} is one of ours")
    selected = (subject.handshake.selected.major, subject.handshake.selected.minor)
    expect(selected == max(common), f"selected {selected}, although both sides speak {max(common)}")


@case(Profile.READ, "handshake", "accepts each version it lists when it is the only one offered")
async def accepts_each(subject: Subject) -> None:
    for version in subject.handshake.supported:
        response = await shake_hands(subject.channel, [(version.major, version.minor)])

        expect(
            (response.selected.major, response.selected.minor) == (version.major, version.minor),
            f"{version.major}.{version.minor} is listed as supported and not accepted",
        )


@case(Profile.READ, "handshake", "leaves `selected` unset for a version it does not speak, and says which it does")
async def refuses_unknown(subject: Subject) -> None:
    response = await shake_hands(subject.channel, [(CURRENT.major + 7, 0)])

    expect(not response.HasField("selected"), "a version from the future was accepted")
    expect(response.supported, "an incompatible core is not told which versions would do")


@case(Profile.READ, "handshake", "keeps its instance id while it runs")
async def has_stable_instance(subject: Subject) -> None:
    again = await shake_hands(subject.channel)

    expect(again.instance_id == subject.handshake.instance_id, "instance_id changed without a restart")


@case(Profile.READ, "handshake", "gives every kind a role, operations that fit it, and a way to get its configuration")
async def kinds_are_complete(subject: Subject) -> None:
    expect(subject.handshake.kinds, "no kind is served")
    for kind in subject.handshake.kinds:
        name = kind.gvk.kind or kind.v1_provider_key
        expect(name, "a kind has no name")
        expect(kind.operations, f"{name} has no operation")
        expect(kind.deliveries, f"{name} names no delivery of its configuration")
        roles = (pb.KIND_ROLE_STORE, pb.KIND_ROLE_GENERATOR)
        expect(kind.role in roles, f"{name} is neither a store nor a generator")
        if kind.role == pb.KIND_ROLE_GENERATOR:
            expect(not _STORE_ONLY & set(kind.operations), f"the generator {name} offers an operation of stores")


@case(Profile.READ, "handshake", "uses no feature that core did not name")
async def invents_no_feature(subject: Subject) -> None:
    response = await shake_hands(subject.channel)

    expect(not response.features, "the answer names a feature that the request does not offer")


CASES = (
    names_itself,
    selects_highest,
    accepts_each,
    refuses_unknown,
    has_stable_instance,
    kinds_are_complete,
    invents_no_feature,
)
