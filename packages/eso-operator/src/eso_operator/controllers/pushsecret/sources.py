"""The sources of a push: Secrets of the PushSecret's own namespace, by name or by label, or generated values.

Secrets are read live. The annotation in which kubectl stores a copy of the whole manifest, values included, never
leaves the cluster.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from eso_api.externalsecret import ExternalSecret
from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_api.references import GeneratorRef, SelectorError
from eso_api.values import SecretBytes
from eso_operator.controllers.pushsecret.snapshot import SeenSource
from eso_operator.dependencies.dependencies import ANY_PROVIDER, Dependency, on_object
from eso_operator.generators.values import Generators, Made
from eso_operator.providers.errors import cause_of
from eso_operator.report.messages import READY, api_error_text
from eso_operator.stores.resolved import ResolutionError
from eso_wire.errors import ProviderError, RetryClass
from eso_wire.values import ObjectRef, SourceSecret
from kubebase.clock import parse_rfc3339
from kubebase.meta import JsonObject, Object, ObjectKey, Resource, raw
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.conditions import is_false, is_true
from kuberun.errors import ApiError, NotFound

SECRETS: Final = Resource("", "v1", "secrets", "Secret")
MAX_SOURCES: Final = 500
BY_NAMESPACE: Final = "namespace"
"""The index that every informer of the operator has."""

_KIND: Final = raw(SECRETS)
_MADE_SECONDS: Final = 10.0
"""A source that an ExternalSecret makes is looked for again after this time, if it does not appear before."""
_MANIFEST_COPY: Final = "kubectl.kubernetes.io/last-applied-configuration"


class SourceError(Exception):
    """There is nothing to push. The message names the source and the reason, never a value."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        retry: RetryClass = RetryClass.BACKOFF,
        after: float = 0.0,
        waits: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry = retry
        self.retry_after = after
        self.waits = waits
        """As in `reading.fetched.Failure`."""


MakerOf = Callable[[str, str], ExternalSecret | None]
"""Returns the ExternalSecret that makes a Secret, by the namespace and name of the Secret."""


class SourceGoneError(SourceError):
    """The Secret, or every Secret that was selected, is not there."""


@dataclass(frozen=True, slots=True)
class Source:
    """One Secret, or generated values. `mark` shows whether it is still the same one."""

    name: str
    mark: str
    about: SourceSecret
    values: Mapping[str, SecretBytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sources:
    """All sources of a PushSecret, in the order of names."""

    found: tuple[Source, ...]
    made: tuple[Made, ...] = ()
    depends_on: frozenset[Dependency] = frozenset()

    @property
    def marks(self) -> frozenset[str]:
        return frozenset(source.mark for source in self.found if not self.made)

    @property
    def renew_within(self) -> float | None:
        return min((made.refresh_within for made in self.made if made.refresh_within is not None), default=None)


class SourceReader:
    """Reads sources. The process has one. `secrets` holds metadata only."""

    def __init__(self, client: Client, secrets: Cache[Object], generators: Generators, *, maker_of: MakerOf) -> None:
        self._client = client
        self._secrets = secrets
        self._generators = generators
        self._maker_of = maker_of

    def seen(self, push: PushSecret) -> tuple[SeenSource, ...]:
        """Return the source Secrets with their cached metadata."""
        source = push.spec.selector.secret
        if source is None:
            return ()
        if source.name:
            found = self._secrets.get(ObjectKey(push.metadata.namespace, source.name))
            return (_seen(found),) if isinstance(found, Object) else ()
        try:
            return tuple(_seen(each) for each in self._selected(push))
        except SelectorError:
            return ()

    async def read(self, push: PushSecret) -> Sources:
        """Return the values. Raises SourceError."""
        selector = push.spec.selector
        if selector.generator_ref is not None:
            return await self._generated(push, selector.generator_ref)
        if selector.secret is None or not selector.secret.chooses:
            raise SourceError("InvalidSpec", "spec.selector must name a Secret, select Secrets, or name a generator")
        if selector.secret.name:
            return Sources((await self._one(push.metadata.namespace, selector.secret.name),))
        return Sources(await self._many(push))

    async def _one(self, namespace: str, name: str) -> Source:
        try:
            return _source(await self._client.get(_KIND, ObjectKey(namespace, name)))
        except NotFound:
            raise self._gone(namespace, name) from None
        except ApiError as problem:
            message = f"Secret {namespace}/{name} cannot be read: {api_error_text(problem)}"
            raise SourceError("SecretUnreadable", message) from None

    def _gone(self, namespace: str, name: str) -> SourceGoneError:
        """Return the error of a Secret that does not exist. One that an ExternalSecret is about to make is awaited."""
        maker = self._maker_of(namespace, name)
        if maker is None or is_true(maker.status.conditions, READY):
            message = f"Secret {namespace}/{name} does not exist: create it, or correct spec.selector"
            return SourceGoneError("SecretNotFound", message)
        made = f"Secret {namespace}/{name} does not exist yet: ExternalSecret {maker.metadata.name} makes it"
        if is_false(maker.status.conditions, READY):
            return SourceGoneError("SecretNotFound", f"{made}, and is not ready; its condition says why")
        return SourceGoneError("SecretNotFound", made, waits=_MADE_SECONDS)

    async def _many(self, push: PushSecret) -> tuple[Source, ...]:
        namespace = push.metadata.namespace
        try:
            names = sorted(each.metadata.name for each in self._selected(push))
        except SelectorError as problem:
            raise SourceError("InvalidSelector", f"spec.selector.secret.selector: {problem}") from None
        if len(names) > MAX_SOURCES:
            message = f"{len(names)} Secrets match spec.selector.secret.selector; at most {MAX_SOURCES} can be pushed"
            raise SourceError("TooManySecrets", message)
        found = []
        for name in names:
            try:
                found.append(await self._one(namespace, name))
            except SourceGoneError:
                continue  # deleted since it was listed
        if not found:
            raise SourceGoneError("SecretNotFound", f"no Secret of {namespace} matches spec.selector.secret.selector")
        return tuple(found)

    async def _generated(self, push: PushSecret, ref: GeneratorRef) -> Sources:
        try:
            made = await self._generators.generate(caller_of(push), 0, ref)
        except ResolutionError as error:
            raise SourceError(error.reason.value, error.message, retry=error.retry, waits=error.waits) from error
        except ProviderError as error:
            raise SourceError(cause_of(error), error.message, retry=error.retry, after=error.retry_after) from error
        name = f"{ref.kind} {ref.name}"
        return Sources((Source(name, name, SourceSecret(), made.values),), (made,), made.depends_on)

    def _selected(self, push: PushSecret) -> list[Object]:
        source = push.spec.selector.secret
        if source is None or source.selector is None:
            return []
        found = self._secrets.find(BY_NAMESPACE, push.metadata.namespace)
        return source.selector.among(found, lambda secret: secret.metadata.labels)


def caller_of(push: PushSecret) -> ObjectRef:
    """Return the identity of the PushSecret for providers and the resolver."""
    meta = push.metadata
    version = PUSH_SECRET.resource().api_version
    return ObjectRef(version, "PushSecret", meta.namespace, meta.name, meta.uid, meta.generation)


def missed(error: SourceError) -> frozenset[Dependency]:
    """Return the dependencies whose change may make the source readable."""
    cause = error.__cause__
    if isinstance(cause, ResolutionError):
        return frozenset({on_object(cause.subject), ANY_PROVIDER})
    return frozenset({ANY_PROVIDER} if isinstance(cause, ProviderError) else ())


def _seen(secret: Object) -> SeenSource:
    meta = secret.metadata
    created = parse_rfc3339(meta.creation_timestamp) if meta.creation_timestamp else None
    return SeenSource(meta.name, meta.uid, meta.resource_version, created)


def _source(secret: JsonObject) -> Source:
    meta = secret["metadata"]
    annotations = {key: text for key, text in (meta.get("annotations") or {}).items() if key != _MANIFEST_COPY}
    return Source(
        name=meta["name"],
        mark=f"{meta['name']} {meta.get('uid', '')} {meta.get('resourceVersion', '')}",
        about=SourceSecret(secret.get("type") or "", meta.get("labels") or {}, annotations),
        values={key: SecretBytes(base64.b64decode(text or "")) for key, text in (secret.get("data") or {}).items()},
    )
