"""The objects behind a Secret: the ExternalSecrets that write it, and the PushSecrets that read it.

An ExternalSecret writes a Secret that is its target, that has it as an owner, or that has the label of its creator.
Only metadata of the Secret is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_api.references import SelectorError
from eso_operator.targets.metadata import CREATED_BY_LABEL, MANAGED_LABEL, created_by, target_name
from eso_tools.objects import SECRETS, AnyKind, ObjectReader, ObjectSummary, ReadState, UnreadableError
from eso_tools.why.explanation import Finding, Mark
from kubebase.meta import ObjectKey, ObjectMeta
from kuberun.client import Client
from kuberun.requests import Selection

SECRET_KIND_NAMES: Final = frozenset({"secret", "secrets", "secret.v1", "secrets.v1"})


@dataclass(frozen=True, slots=True)
class SecretOwners:
    """A Secret with the objects to explain: writers first, then readers."""

    secret: ObjectSummary
    writers: tuple[ObjectKey, ...] = ()
    readers: tuple[ObjectKey, ...] = ()
    former: str = ""
    """The ExternalSecret that wrote the Secret and does not exist; empty if there is none."""
    unreadable: tuple[str, ...] = ()
    """The kinds that the user may not list."""

    @property
    def subjects(self) -> tuple[tuple[AnyKind, ObjectKey], ...]:
        writers: list[tuple[AnyKind, ObjectKey]] = [(EXTERNAL_SECRET, key) for key in self.writers]
        return (*writers, *((PUSH_SECRET, key) for key in self.readers))

    @property
    def finding(self) -> Finding:
        """Return the Secret itself, with the objects that use it or the reason why there are none."""
        titled = f"Secret {self.secret.key}"
        if self.secret.read_state is ReadState.UNREADABLE:
            return Finding("object", Mark.OPEN, titled, "; ".join((self.secret.why, *self._uses())))
        exists = self.secret.read_state is ReadState.FOUND
        state = "it exists" if exists else "it does not exist"
        if uses := self._uses():
            return Finding("object", Mark.GOOD if exists else Mark.BAD, titled, "; ".join((state, *uses)))
        if self.unreadable:
            why = f"whether an object uses it is not known: you may not list {' and '.join(self.unreadable)}"
            return Finding("object", Mark.OPEN if exists else Mark.BAD, titled, f"{state}; {why}")
        if self.former:
            gone = f"{self.former} wrote it and does not exist any more, so nothing updates it"
            return Finding("object", Mark.BAD, titled, f"{state}; {gone}")
        unused = "no ExternalSecret of its namespace writes it and no PushSecret reads it"
        managed = "; External Secrets does not manage it" if exists else ""
        return Finding("object", Mark.GOOD if exists else Mark.BAD, titled, f"{state}; {unused}{managed}")

    def _uses(self) -> list[str]:
        found = []
        if self.writers:
            found.append(f"ExternalSecret {_names(self.writers)} writes it")
        if self.readers:
            found.append(f"PushSecret {_names(self.readers)} reads it")
        return found


async def owners_of(client: Client, key: ObjectKey) -> SecretOwners:
    """Find the objects that write or read a Secret, which need not exist."""
    reader, unreadable = ObjectReader(client), []
    secret = await reader.read_metadata(SECRETS, key)
    external: list[ExternalSecret] = []
    pushes: list[PushSecret] = []
    try:
        external = await reader.list_all(EXTERNAL_SECRET.kind(), Selection(key.namespace))
    except UnreadableError:
        unreadable.append("ExternalSecrets")
    try:
        pushes = await reader.list_all(PUSH_SECRET.kind(), Selection(key.namespace))
    except UnreadableError:
        unreadable.append("PushSecrets")
    writers = tuple(es.metadata.key for es in external if _writes(es, secret))
    readers = tuple(push.metadata.key for push in pushes if _reads(push, secret))
    owner = next(_owners(secret.metadata), "")
    if not writers and owner and "ExternalSecrets" in unreadable:
        writers = (ObjectKey(key.namespace, owner),)
    former = "" if writers or "ExternalSecrets" in unreadable else _former(secret.metadata)
    return SecretOwners(secret, writers, readers, former, tuple(unreadable))


def _writes(es: ExternalSecret, secret: ObjectSummary) -> bool:
    metadata = secret.metadata
    if es.spec.target.manifest is None and target_name(es) == secret.key.name:
        return es.spec.target.creation_policy != "None"
    if es.metadata.uid and any(owner.uid == es.metadata.uid for owner in metadata.owner_references):
        return True
    return metadata.labels.get(CREATED_BY_LABEL) == created_by(es)


def _reads(push: PushSecret, secret: ObjectSummary) -> bool:
    source = push.spec.selector.secret
    if source is None:
        return False
    if source.name or source.selector is None:
        return source.name == secret.key.name
    try:
        return secret.read_state is ReadState.FOUND and source.selector.matches(secret.metadata.labels)
    except SelectorError:
        return False


def _owners(metadata: ObjectMeta) -> Iterator[str]:
    for owner in metadata.owner_references:
        if owner.kind == EXTERNAL_SECRET.name and owner.api_version.startswith(f"{EXTERNAL_SECRET.group}/"):
            yield owner.name


def _former(metadata: ObjectMeta) -> str:
    """Return the ExternalSecret that wrote a Secret, as its owner reference or its labels say."""
    if owner := next(_owners(metadata), ""):
        return f"ExternalSecret {owner}"
    marked = CREATED_BY_LABEL in metadata.labels or MANAGED_LABEL in metadata.labels
    return "an ExternalSecret" if marked else ""


def _names(keys: tuple[ObjectKey, ...]) -> str:
    return ", ".join(key.name for key in keys)
