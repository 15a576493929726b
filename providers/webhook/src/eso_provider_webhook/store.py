"""The Webhook store: sends the requests that its templates describe, and extracts values from the responses.

| operation | request | response |
|---|---|---|
| get, get_map, check | `method` or GET, with `body` | 404: not found; 304: the value of the earlier response |
| push | `method` or POST, with `body` or else the value | any 2xx |
| delete | DELETE, without a body | any 2xx; 404: did not exist |

Templates may make the response depend on the caller's namespace, so nothing is shared between namespaces. Errors name
the field of the configuration and the status, and quote nothing of a request or a response.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import msgspec

from eso_api.stores.webhook import WebhookProvider
from eso_api.values import SecretBytes
from eso_provider_webhook.endpoint import (
    REMOTE_REF,
    SUBJECT,
    Endpoint,
    Variables,
    check_call,
    computed,
    is_template,
    rendered,
    request_of,
    url_in,
)
from eso_provider_webhook.kinds import STORES
from eso_provider_webhook.responses import PATH_FIELD, members, path_of, single
from eso_sdk.credentials import NamespacedReference, require_namespaces
from eso_sdk.errors import backend_error, invalid_config, invalid_request, not_found
from eso_sdk.http import HttpRequest, HttpResponse, status_error
from eso_sdk.provider import ALWAYS, Check, Store, Value, pushes, reads, store_kind
from eso_sdk.rest import ETagCache, conditional, fingerprint
from eso_wire.errors import ProviderError
from eso_wire.values import (
    DeleteItem,
    PushItem,
    PushOutcome,
    RemoteRef,
    SecretMap,
    SourceSecret,
    Validation,
    ValidationState,
)

T = TypeVar("T")

_FOUND_NOTHING: Final = 404
_NOT_MODIFIED: Final = 304
_HOST: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_NAMES: Final = ("key", "version", "property", "namespace", "remoteKey", "secretKey", "value")
"""Names under `.remoteRef`. Names that an operation does not set are empty, so that `if` can distinguish operations."""


@dataclass(frozen=True, slots=True)
class _Read:
    """The body of an answer, and its version if the endpoint gives one."""

    body: bytes = field(repr=False)
    version: str


@store_kind(objects=STORES, v1_key="webhook", concurrency=32, caller_namespace=ALWAYS)
class WebhookStore(Store[WebhookProvider]):
    """One opened webhook."""

    @classmethod
    def check_config(cls, config: WebhookProvider) -> tuple[str, ...]:
        check_call(config)
        if any(secret.name == REMOTE_REF for secret in config.secrets):
            raise invalid_config("/secrets", f"{REMOTE_REF} is the name of the reference in templates")
        if not is_template(config.result.json_path):
            path_of(config.result.json_path)
        return ()

    async def open(self) -> None:
        self._check_namespaces()
        self._endpoint = self.close_later(Endpoint(self, self.config))
        self._etags = ETagCache()

    async def validate(self) -> Validation:
        """Open a TCP connection to the endpoint. No request is sent: it could change something."""
        host = _HOST.match(self.config.url)
        named = "" if host is None or is_template(host.group()) else host.group()
        try:
            url = url_in(named.encode() or await self._url_without_reference())
        except ProviderError:
            problem = invalid_config("/url", "names its host only once it is filled in; reads will show if it works")
            return Validation(ValidationState.UNKNOWN, error=problem)
        await self._endpoint.reach(url)
        return Validation(ValidationState.READY)

    async def _url_without_reference(self) -> bytes:
        groups = self._variables(RemoteRef(""), {}).in_url
        return await rendered("/url", self.config.url, groups, self.call.caller.namespace)

    # --- reading -----------------------------------------------------------------------------------------------------

    @reads("not_found")
    async def get(self, ref: RemoteRef) -> Value:
        variables = self._of_ref(ref)
        read = await self._read(ref, variables)
        path = await self._path(variables)
        value = await self._found(partial(single, read.body, path)) if path else read.body
        return Value.of(value, version=read.version)

    async def get_map(self, ref: RemoteRef) -> Mapping[str, bytes]:
        variables = self._of_ref(ref)
        read = await self._read(ref, variables)
        return await self._found(partial(members, read.body, await self._path(variables)))

    async def check(self, ref: RemoteRef) -> Check:
        read = await self._read(ref, self._of_ref(ref))
        return Check(exists=True, version=read.version)

    async def _read(self, ref: RemoteRef, variables: Variables) -> _Read:
        """Return a successful answer, which may be an earlier one that the endpoint says is still good."""
        request = await self._request(variables, self.config.method or "GET")
        cached = self._etags.find(request)
        response = await self._endpoint.send(request if cached is None else conditional(request, cached))
        if response.status == _NOT_MODIFIED:
            if cached is None:
                raise backend_error(
                    f"{SUBJECT} answers with HTTP 304, but no earlier answer is known; let it send the value",
                    backend_code="304",
                )
            return _Read(cached.body, self._version(request, cached.etag))
        if response.status == _FOUND_NOTHING:
            raise not_found(ref.key)
        self._check_status(response)
        self._etags.store(request, response)
        return _Read(response.body, self._version(request, response.headers.get("ETag", "")))

    def _version(self, request: HttpRequest, etag: str) -> str:
        """Return the version of a value.

        An ETag is valid for one address only, so the version covers all inputs of the value.
        """
        return fingerprint(request, etag, self.config.result.json_path).hex() if etag else ""

    async def _found(self, work: Callable[..., T]) -> T:
        return await computed(work, self.call.caller.namespace, field=PATH_FIELD)

    async def _path(self, variables: Variables) -> str:
        text = self.config.result.json_path
        if is_template(text):
            namespace = self.call.caller.namespace
            try:
                text = (await rendered(PATH_FIELD, text, variables.plain, namespace)).decode()
            except UnicodeDecodeError:
                raise invalid_config(PATH_FIELD, "is not UTF-8 text once it is filled in") from None
        return text.strip()

    # --- writing -----------------------------------------------------------------------------------------------------

    @pushes("whole_secret")
    async def push(self, item: PushItem, source: SourceSecret) -> PushOutcome:
        del source
        key = item.remote.key
        value = item.payload.reveal() if isinstance(item.payload, SecretBytes) else _whole(item.payload)
        # The value also has the name of its remote key, unless that name is one of `.remoteRef`'s.
        place = {"remoteKey": key.encode(), "secretKey": item.secret_key.encode()}
        variables = self._variables(item.remote, {key: value, "value": value, **place})
        body = None if self.config.body else value
        request = await self._request(variables, self.config.method or "POST", body)
        self._check_status(await self._endpoint.send(request))
        return PushOutcome.UPDATED

    async def delete(self, item: DeleteItem) -> bool:
        variables = self._variables(item.remote, {"remoteKey": item.remote.key.encode()})
        response = await self._endpoint.send(await self._request(variables, "DELETE", b""))
        if response.status == _FOUND_NOTHING:
            return False
        self._check_status(response)
        return True

    # --- both --------------------------------------------------------------------------------------------------------

    async def _request(self, variables: Variables, method: str, body: bytes | None = None) -> HttpRequest:
        return await request_of(self.config, variables, self.call.caller.namespace, method=method, body=body)

    def _of_ref(self, ref: RemoteRef) -> Variables:
        return self._variables(ref, {"key": ref.key.encode(), "version": ref.version.encode()})

    def _variables(self, ref: RemoteRef, known: Mapping[str, bytes]) -> Variables:
        always = {"namespace": self.call.caller.namespace.encode(), "property": ref.property.encode()}
        return Variables(self._endpoint.secrets, {**dict.fromkeys(_NAMES, b""), **always, **known})

    def _check_status(self, response: HttpResponse) -> None:
        if problem := status_error(response, SUBJECT, self.clock):
            raise problem

    def _check_namespaces(self) -> None:
        """Require the namespace of each Secret in a cluster-scoped store: no caller's Secret is sent to its address."""
        named: dict[str, NamespacedReference | None] = {
            f"/secrets/{position}/secretRef": secret.secret_ref for position, secret in enumerate(self.config.secrets)
        }
        if self.config.auth is not None and self.config.auth.ntlm is not None:
            named["/auth/ntlm/usernameSecret"] = self.config.auth.ntlm.username_secret
            named["/auth/ntlm/passwordSecret"] = self.config.auth.ntlm.password_secret
        require_namespaces(self.holder, named)


def _whole(payload: SecretMap) -> bytes:
    """Write a whole Secret as a JSON object of texts, keys sorted."""
    texts: dict[str, str] = {}
    for name, value in sorted(payload.items()):
        try:
            texts[name] = value.reveal().decode()
        except UnicodeDecodeError:
            raise invalid_request(
                f'key "{name}" of the Secret is not UTF-8 text, which JSON needs; push it alone, with secretKey'
            ) from None
    return msgspec.json.encode(texts)
