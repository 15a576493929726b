"""The public API for provider authors: import from `eso_sdk` only, and in tests from `eso_sdk.testing`.

    class, decorators, marks    Store, Generator, Provider, store_kind, reads, finds, pushes, audiences, ...
    configuration               Fragment, SecretKeySelector, ServiceAccountSelector, CaProvider, SecretBytes
    requests and answers        RemoteRef, PushItem, Found, Value, PushOutcome, Validation, ChangeEvent, ...
    errors                      the module `errors` (`raise errors.not_found(key)`), ProviderError
    tools                       property_in, pushed_value, Matcher, HttpRequest, status_error, run
    JSON over HTTP              Rest, RestSettings, RestRequest, segments, FixedHeaders, bearer, join_login, ...

The HTTP kit and `Matcher` are loaded on first use: a provider without HTTP does not load aiohttp.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from eso_api.references import CaProvider, SecretKeySelector, ServiceAccountSelector
from eso_api.shapes import Fragment
from eso_api.values import SecretBytes
from eso_sdk import errors
from eso_sdk.addresses import AddressPolicy
from eso_sdk.extract import property_in, pushed_value
from eso_sdk.main import run
from eso_sdk.provider import (
    ALWAYS,
    REFERENCE,
    STORE,
    Call,
    Check,
    ConfigMapKey,
    DelegatingStore,
    Generator,
    Maturity,
    Provider,
    Pushed,
    ServiceAccount,
    Store,
    Value,
    WholeSecret,
    annotation,
    audiences,
    default_key,
    finds,
    generator_kind,
    lifetime,
    pushes,
    reads,
    sibling,
    store_kind,
    when,
)
from eso_wire.errors import ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    ConditionReport,
    DeleteItem,
    FindQuery,
    Found,
    Generated,
    GenerateRequest,
    Heartbeat,
    Limits,
    MetadataPolicy,
    PushItem,
    PushOutcome,
    PushPrecondition,
    RemoteRef,
    SourceSecret,
    Token,
    Validation,
    ValidationState,
    ValueMetadata,
    WatchItem,
)

if TYPE_CHECKING:
    from eso_sdk.http import HttpClient, HttpRequest, HttpResponse, status_error
    from eso_sdk.logins import FixedHeaders, Grant, Login, LoginHeaders, basic, bearer, join_login
    from eso_sdk.matching import Matcher
    from eso_sdk.rest import Rest, RestRequest, RestResponse, RestSettings, next_link, next_page, segments

_LOADED_LATER: Final = {
    "FixedHeaders": "eso_sdk.logins",
    "Grant": "eso_sdk.logins",
    "HttpResponse": "eso_sdk.http",
    "HttpClient": "eso_sdk.http",
    "HttpRequest": "eso_sdk.http",
    "Login": "eso_sdk.logins",
    "LoginHeaders": "eso_sdk.logins",
    "Matcher": "eso_sdk.matching",
    "Rest": "eso_sdk.rest",
    "RestResponse": "eso_sdk.rest",
    "RestRequest": "eso_sdk.rest",
    "RestSettings": "eso_sdk.rest",
    "basic": "eso_sdk.logins",
    "bearer": "eso_sdk.logins",
    "join_login": "eso_sdk.logins",
    "next_link": "eso_sdk.rest",
    "next_page": "eso_sdk.rest",
    "segments": "eso_sdk.rest",
    "status_error": "eso_sdk.http",
}

__all__ = [
    "ALWAYS",
    "REFERENCE",
    "STORE",
    "AddressPolicy",
    "CaProvider",
    "Call",
    "ChangeEvent",
    "ChangeType",
    "Check",
    "ConditionReport",
    "ConfigMapKey",
    "DelegatingStore",
    "DeleteItem",
    "FindQuery",
    "FixedHeaders",
    "Found",
    "Fragment",
    "GenerateRequest",
    "Generated",
    "Generator",
    "Grant",
    "Heartbeat",
    "HttpClient",
    "HttpRequest",
    "HttpResponse",
    "Limits",
    "Login",
    "LoginHeaders",
    "Matcher",
    "Maturity",
    "MetadataPolicy",
    "Provider",
    "ProviderError",
    "PushItem",
    "PushOutcome",
    "PushPrecondition",
    "Pushed",
    "RemoteRef",
    "Rest",
    "RestRequest",
    "RestResponse",
    "RestSettings",
    "SecretBytes",
    "SecretKeySelector",
    "ServiceAccount",
    "ServiceAccountSelector",
    "SourceSecret",
    "Store",
    "Token",
    "Validation",
    "ValidationState",
    "Value",
    "ValueMetadata",
    "WatchItem",
    "WholeSecret",
    "annotation",
    "audiences",
    "basic",
    "bearer",
    "default_key",
    "errors",
    "finds",
    "generator_kind",
    "join_login",
    "lifetime",
    "next_link",
    "next_page",
    "property_in",
    "pushed_value",
    "pushes",
    "reads",
    "run",
    "segments",
    "sibling",
    "status_error",
    "store_kind",
    "when",
]


def __getattr__(name: str) -> Any:
    """Load a name whose module is not loaded yet."""
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LOADED_LATER[name]), name)
