"""GitlabDeployToken: makes a deploy token, and deletes it when it is no longer used.

| value | meaning |
|---|---|
| `username` | user name of the token |
| `token` | the token |

The state names the token by its id and holds no secret. It has the fields that the operator in Go writes, so either
operator deletes the tokens of the other.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import msgspec

from eso_api.generators.gitlab import GITLAB_DEPLOY_TOKEN as V1_GITLAB_DEPLOY_TOKEN
from eso_api.generators.gitlab import GitlabDeployTokenSpec
from eso_api.values import SecretBytes
from eso_provider_gitlab.kinds import DEPLOY_TOKEN
from eso_provider_gitlab.variables import REFUSED, Place, base_of, connect, group, project, refusal
from eso_sdk.errors import backend_error, invalid_config, invalid_request
from eso_sdk.processwide import generations_of
from eso_sdk.provider import Generator, generator_kind
from eso_sdk.rest import RestRequest
from eso_wire.values import Generated, GenerateRequest, Validation, ValidationState, ValueMetadata

TOKEN_FIELD: Final = "/auth/token/secretRef"  # noqa: S105 - the name of a field
RIGHTS: Final = "the scope api, and the role Maintainer (project) or Owner (group)"


class DeployTokenState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The data needed to delete a token. The operator stores it in the cluster."""

    url: str = ""
    project_id: str = msgspec.field(default="", name="projectID")
    group_id: str = msgspec.field(default="", name="groupID")
    token_id: int = msgspec.field(default=0, name="tokenID")


class _Created(msgspec.Struct, gc=False):
    id: int = 0
    username: str = ""
    token: str = ""
    expires_at: datetime | None = None

    def __repr__(self) -> str:
        return "<deploy token>"


@generator_kind(objects=(DEPLOY_TOKEN,), bridged=(V1_GITLAB_DEPLOY_TOKEN,))
class GitlabDeployTokenGenerator(Generator[GitlabDeployTokenSpec]):
    """A deploy token of a project or group."""

    API_NAME: ClassVar = "GitLab"

    @classmethod
    def check_config(cls, config: GitlabDeployTokenSpec) -> tuple[str, ...]:
        base_of(config.url)
        if bool(config.project_id) == bool(config.group_id):
            raise invalid_config("/projectID", "exactly one of projectID and groupID must be set")
        if not config.scopes:
            raise invalid_config("/scopes", "needs at least one scope, such as read_registry")
        _expiry(config)
        return ()

    async def open(self) -> None:
        token = self.secret(self.config.auth.token.secret_ref)
        self._rest = self.close_later(connect(self, self.config.url, token, field=TOKEN_FIELD))
        self._generations = generations_of("GitlabDeployToken", self.clock)

    async def validate(self) -> Validation:
        """List the deploy tokens of the place."""
        place, query = _place(self.config.project_id, self.config.group_id), {"per_page": "1"}
        path = place.path("deploy_tokens")
        answer = await self._rest.send(RestRequest("GET", path, "DeployTokensList", query, allowed=REFUSED))
        if answer.status in REFUSED:
            raise refusal(answer.status, place, RIGHTS)
        return Validation(ValidationState.READY)

    async def generate(self, request: GenerateRequest) -> Generated:
        if (former := self._generations.of(request.idempotency_key)) is not None:
            await self.cleanup(former)  # the answer was lost, so its token was never used
        created = await self._create()
        made = DeployTokenState(
            url=self.config.url,
            project_id=self.config.project_id,
            group_id=self.config.group_id,
            token_id=created.id,
        )
        state = SecretBytes(msgspec.json.encode(made))
        self._generations.add(request.idempotency_key, state)
        if not created.token or not created.id:
            await self._remove(made)
            raise backend_error("GitLab answered without a deploy token; try again, and check the version of GitLab")
        data = {"username": created.username, "token": created.token}
        values = {name: SecretBytes(text.encode()) for name, text in data.items()}
        return Generated(values, state, ValueMetadata(expires_at=created.expires_at))

    async def cleanup(self, state: SecretBytes) -> bool:
        try:
            made = msgspec.json.decode(state.reveal(), type=DeployTokenState)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise invalid_request("the state is not that of a GitlabDeployToken") from None
        return await self._remove(made)

    async def cleanup_lost(self, idempotency_key: str) -> bool | None:
        """Delete the token of a call whose answer was lost, if this process still remembers the call."""
        state = self._generations.of(idempotency_key)
        if state is None:
            return await super().cleanup_lost(idempotency_key)
        removed = await self.cleanup(state)
        self._generations.forget(idempotency_key)
        return removed

    async def _create(self) -> _Created:
        config, place = self.config, _place(self.config.project_id, self.config.group_id)
        body: dict[str, Any] = {"name": config.name, "scopes": config.scopes}
        if config.username:
            body["username"] = config.username
        if (expiry := _expiry(config)) is not None:
            body["expires_at"] = expiry.strftime("%Y-%m-%dT%H:%M:%SZ")
        refused = (*REFUSED, 400, 422)
        answer = await self._rest.post(place.path("deploy_tokens"), body, call="DeployTokenCreate", allowed=refused)
        if answer.status in REFUSED:
            raise refusal(answer.status, place, RIGHTS)
        if answer.status in refused:
            raise backend_error(
                f"GitLab refuses to create a deploy token for {place}: HTTP {answer.status}; check name, username,"
                " scopes, and that expiresAt is in the future",
                backend_code=str(answer.status),
            )
        created: _Created = answer.read(_Created)
        return created

    async def _remove(self, made: DeployTokenState) -> bool:
        """Delete a token; return whether it still existed."""
        if not made.token_id or not (made.project_id or made.group_id):
            return False
        if base_of(made.url) != base_of(self.config.url):
            raise invalid_request(
                "the state names another GitLab than the generator; its access token is not sent there"
            )
        place = _place(made.project_id, made.group_id)
        path = place.path("deploy_tokens", str(made.token_id))
        answer = await self._rest.delete(path, call="DeployTokenDelete", allowed=REFUSED)
        if answer.status == 403:
            raise refusal(answer.status, place, RIGHTS)
        return answer.status != 404


def _place(project_id: str, group_id: str) -> Place:
    return project(project_id) if project_id else group(group_id)


def _expiry(config: GitlabDeployTokenSpec) -> datetime | None:
    if not config.expires_at:
        return None
    try:
        expiry = datetime.fromisoformat(config.expires_at)
    except ValueError:
        raise invalid_config("/expiresAt", "must be a time such as 2027-01-31T12:00:00Z") from None
    return (expiry if expiry.tzinfo else expiry.replace(tzinfo=UTC)).astimezone(UTC)
