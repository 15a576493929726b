"""An opened store: the CI/CD variables of a project and of groups, read with lists that answer all keys at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Final

from eso_api.stores.gitlab import GitlabProvider
from eso_provider_gitlab.kinds import STORES
from eso_provider_gitlab.variables import (
    ANY,
    Catalog,
    Place,
    Variable,
    base_of,
    chosen,
    connect,
    group,
    is_possible,
    key_of,
    merged,
    project,
    value_in,
)
from eso_sdk.credentials import require_namespaces
from eso_sdk.errors import invalid_config, invalid_request, not_found
from eso_sdk.http import ca_bundle
from eso_sdk.matching import Matcher
from eso_sdk.provider import Store, Value, finds, reads, store_kind
from eso_wire.errors import ProviderError
from eso_wire.values import FindQuery, Found, RemoteRef, Validation, ValidationState

TOKEN_FIELD: Final = "/auth/SecretRef/accessToken"  # noqa: S105 - the name of a field
SCOPE_TAG: Final = "environment_scope"

Outcome = Variable | ProviderError


@store_kind(objects=STORES, v1_key="gitlab")
class VariableStore(Store[GitlabProvider]):
    """A store of `spec.provider.gitlab`, `GitLab` or `ClusterGitLab`."""

    API_NAME: ClassVar = "GitLab"

    @classmethod
    def check_config(cls, config: GitlabProvider) -> tuple[str, ...]:
        base_of(config.url)
        token = config.auth.secret_ref.access_token
        if not token.name or not token.key:
            raise invalid_config(TOKEN_FIELD, "needs the name of a Secret and a key")
        if not config.project_id and not config.group_ids:
            raise invalid_config("/projectID", "is empty, and so is groupIDs; set one of them")
        if config.inherit_from_groups and config.group_ids:
            raise invalid_config("/groupIDs", "must not be set with inheritFromGroups; remove one of them")
        return ()

    async def open(self) -> None:
        config, token = self.config, self.config.auth.secret_ref.access_token
        require_namespaces(self.holder, {TOKEN_FIELD: token})
        ca = b""
        if config.ca_bundle:
            ca = ca_bundle(config.ca_bundle)
        elif config.ca_provider is not None:
            ca = self.ca(config.ca_provider)
        self._rest = self.close_later(connect(self, config.url, self.secret(token), field=TOKEN_FIELD, ca=ca))
        self._catalog = Catalog(self._rest, config.environment)
        # Stores with the same token share what is known of missing keys, so the name of a key has its store's places.
        self._scope = f"{config.project_id} {config.group_ids} {config.inherit_from_groups} {config.environment}"

    async def validate(self) -> Validation:
        """List one variable of each place."""
        for place in (*self._projects(), *await self._groups()):
            await self._catalog.probe(place)
        return Validation(ValidationState.READY)

    # --- reading -----------------------------------------------------------------------------------------------------

    @reads("not_found")
    async def get_many(self, refs: Sequence[RemoteRef]) -> Sequence[Value | ProviderError]:
        found = await self._found({key_of(ref) for ref in refs})
        return [await _value_or_error(ref, found.get(key_of(ref))) for ref in refs]

    @finds("name", "tags")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield the variables whose keys match. Hidden ones are left out: their values cannot be read."""
        environment = self._environment(query)
        if not query.name_regexp:
            raise invalid_request("find of a GitLab store needs name.regexp")
        accepts = Matcher(FindQuery(name_regexp=query.name_regexp)).accepts
        groups = [await self._catalog.all(place, accepts) for place in await self._groups()]
        own = [variable for place in self._projects() for variable in await self._catalog.all(place, accepts)]
        for variable in merged(groups, own, environment).values():
            if variable.value is not None:
                yield Found(variable.key, variable.value)

    async def _found(self, keys: Collection[str]) -> dict[str, Outcome]:
        """Return the variable of each key that exists; groups are asked only for keys that the project lacks."""
        found: dict[str, Outcome] = {}
        left = {key for key in keys if is_possible(key)}
        if all(self._rest.is_missing(self._named(key)) for key in left):
            return found
        try:
            places = await self._search(self._projects(), left, found)
            if left:
                places += await self._search(reversed(await self._groups()), left, found)
            await self._read_singly(places, left, found)
        except ProviderError as failed:
            if not found:
                raise
            return {**found, **dict.fromkeys(left, failed)}
        for key in left:
            self._rest.note_missing(self._named(key))
        return found

    async def _search(self, places: Iterable[Place], left: set[str], found: dict[str, Outcome]) -> list[Place]:
        """Move keys from `left` to `found`, place by place; return the places that were asked."""
        searched = []
        for place in places:
            if left:
                searched.append(place)
                candidates = await self._catalog.of_keys(place, frozenset(left))
                self._choose(candidates, left, found)
        return searched

    async def _read_singly(self, places: Iterable[Place], left: set[str], found: dict[str, Outcome]) -> None:
        """Ask for keys that no list had: deletion policies act on what is missing."""
        for place in places:
            for key in sorted(left):
                self._choose({key: await self._catalog.overlooked(place, key)}, left, found)

    def _choose(self, candidates: Mapping[str, Sequence[Variable]], left: set[str], found: dict[str, Outcome]) -> None:
        for key, variables in candidates.items():
            if (outcome := _chosen(variables, self.config.environment)) is not None:
                found[key] = outcome
                left.discard(key)

    def _projects(self) -> Sequence[Place]:
        return [project(self.config.project_id)] if self.config.project_id else []

    async def _groups(self) -> Sequence[Place]:
        """Return the groups, the one that wins last."""
        if self.config.inherit_from_groups:
            return [group(each) for each in await self._catalog.groups_above(project(self.config.project_id))]
        return [group(each) for each in self.config.group_ids]

    def _environment(self, query: FindQuery) -> str:
        if others := query.tags.keys() - {SCOPE_TAG}:
            raise invalid_request(f'find.tags of a GitLab store may only have {SCOPE_TAG}, not "{min(others)}"')
        own = self.config.environment
        if SCOPE_TAG not in query.tags:
            return own
        if own not in ("", ANY):
            raise invalid_request(f"find.tags may have {SCOPE_TAG} only if the store has no environment; remove one")
        return query.tags[SCOPE_TAG]

    def _named(self, key: str) -> str:
        return f"{self._scope} {key}"


def _chosen(variables: Sequence[Variable], environment: str) -> Outcome | None:
    try:
        return chosen(variables, environment)
    except ProviderError as ambiguous:
        return ambiguous


async def _value_or_error(ref: RemoteRef, found: Outcome | None) -> Value | ProviderError:
    if isinstance(found, ProviderError):
        return found
    try:
        if found is None:
            raise not_found(ref.key)
        return Value.of(await value_in(found, ref))
    except ProviderError as failed:
        return failed
