"""Reviews the certificates of one Service: parse, plan, carry out. Pure, except for random keys.

This needs cryptography, which the operator does not load: it asks a process (`notary.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from eso_api.values import SecretBytes
from eso_operator.certificates import authority, secrets
from eso_operator.certificates.bundle import Authorities, IssueLeaf, Leaf, State
from eso_operator.certificates.issuance import carry_out
from eso_operator.certificates.planning import plan
from eso_operator.certificates.review import Content, Question, Review
from eso_operator.certificates.values import Credential, join
from kubebase.clock import parse_rfc3339, rfc3339


def review(question: Question) -> Review:
    """Return the steps that are due now and the content that the Secrets get by them."""
    state = _state(question.stored)
    due = plan(state, question.now, question.lifetimes, question.identity)
    after = state
    for step in due.steps:
        after = carry_out(step, after, question.now, question.lifetimes, question.identity)
    ends = [authority.validity_of(leaf.credential.certificate).not_after for leaf in after.leaves]
    return Review(
        steps=tuple((type(step).__name__, step.reason if isinstance(step, IssueLeaf) else "") for step in due.steps),
        due=due.due,
        changed=_changed(state, after, rfc3339(question.now)),
        phase=None if after.issuer is None else after.issuer.phase,
        expires_at=min(ends, default=None),
    )


def _changed(before: State, after: State, now: str) -> dict[str, Content]:
    """Return the Secrets to write, in the order of writes: an authority is stored before it signs."""
    changed = {}
    if after.issuer is not None and after.issuer is not before.issuer:
        changed[secrets.ISSUER] = Content(secrets.issuer_data(after.issuer), now)
    pairs = ((secrets.SERVER, before.server, after.server), (secrets.CLIENT, before.client, after.client))
    for part, old, new in pairs:
        if new is not None and new is not old:
            changed[part] = Content(secrets.leaf_data(new), rfc3339(new.written_at))
    return changed


def _state(stored: Mapping[str, Content]) -> State:
    issuer, server, client = (stored.get(part) for part in (secrets.ISSUER, secrets.SERVER, secrets.CLIENT))
    return State(
        issuer=None if issuer is None else issuer_of(issuer.data),
        server=None if server is None else leaf_of(server.data, server.written_at),
        client=None if client is None else leaf_of(client.data, client.written_at),
    )


def issuer_of(data: Mapping[str, bytes]) -> Authorities | None:
    """Return the issuer of the content; None if it is inconsistent and must be created again."""
    try:
        return Authorities(
            _credential(data, secrets.CERTIFICATE, secrets.KEY),
            _credential(data, secrets.NEXT_CERTIFICATE, secrets.NEXT_KEY) if secrets.NEXT_CERTIFICATE in data else None,
            authority.split(data[secrets.PREVIOUS]) if secrets.PREVIOUS in data else (),
        )
    except (KeyError, ValueError):
        return None


def leaf_of(data: Mapping[str, bytes], written_at: str) -> Leaf | None:
    """Return the leaf of the content; None if it is inconsistent and must be issued again."""
    try:
        moment = parse_rfc3339(written_at)
        if moment.tzinfo is None:
            return None
        return Leaf(_credential(data, secrets.CERTIFICATE, secrets.KEY), authority.split(data[secrets.TRUST]), moment)
    except (KeyError, ValueError):
        return None


def _credential(data: Mapping[str, bytes], certificate: str, key: str) -> Credential:
    return Credential(join(authority.split(data[certificate])), SecretBytes(data[key]))
