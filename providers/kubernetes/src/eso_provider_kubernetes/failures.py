"""Turn errors of an API server into errors of the provider protocol.

A message names the verb, the resource and the namespace of the request that failed. It never repeats the server's own
words, because some of them quote the request.
"""

from __future__ import annotations

from dataclasses import dataclass

from eso_sdk.errors import (
    already_exists,
    backend_error,
    invalid_request,
    not_found,
    rejected,
    throttled,
    timed_out,
    unavailable,
    version_differs,
    with_status,
)
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.meta import Resource
from kuberun import errors as kube


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the API server, as a message names it."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""

    @property
    def place(self) -> str:
        if not self.resource.namespaced:
            return ""
        return f' in namespace "{self.namespace}"' if self.namespace else " in all namespaces"

    def __str__(self) -> str:
        named = f' "{self.name}"' if self.name else ""
        return f"{self.verb} {self.resource}{named}{self.place}"


def provider_error(error: kube.ApiError, request: Request) -> ProviderError:
    """Return the protocol's error for an answer of the API server."""
    return with_status(_by_kind(error, request), error.code or 0)


def _by_kind(error: kube.ApiError, request: Request) -> ProviderError:
    code = str(error.code or "")
    match error:
        case kube.Unauthorized():
            what = "the API server does not accept the credentials of the store; check that they belong to this cluster"
            return rejected(f"{what} and have not expired", backend_code=code)
        case kube.Forbidden():
            return forbidden(request, code)
        case kube.NotFound() if _is_absent(error, request):
            return not_found(request.name)
        case kube.NotFound():
            return _missing_around(request, code)
        case kube.AlreadyExists():
            return already_exists(request.name)
        case kube.Conflict():
            return version_differs(request.name)
        case kube.Throttled():
            return throttled(error.retry_after or 0.0, backend_code=code, subject="the API server")
        case kube.TooLarge():
            what = f"the API server refuses to {request}: the object is too large"
            return ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, what, backend_code=code)
        case kube.Invalid() | kube.BadRequest():
            return _refused(error, request)
        case kube.ServerTimeout():
            return timed_out(f"the API server took too long to {request}; it is retried")
        case kube.Unreachable():
            return unavailable(f"the API server is not reachable: {error.message}")
        case kube.ServerError() | kube.Gone():
            return unavailable(f"the API server failed to {request} (HTTP {code})", backend_code=code)
        case _:
            what = (
                f"the API server answered the request to {request} with something unexpected (HTTP {code or 'error'})"
            )
            return backend_error(f"{what}; check the address of the server", backend_code=code)


def _is_absent(error: kube.NotFound, request: Request) -> bool:
    """Return whether the API itself reports that this object does not exist.

    Deletion policies act on it, so the 404 of a proxy or of a missing namespace must not count.
    """
    return bool(request.name) and error.details.kind == request.resource.plural and error.details.name == request.name


def _missing_around(request: Request, code: str) -> ProviderError:
    if request.verb == "create":
        what = f"cannot {request}: the namespace does not exist; create it or correct remoteNamespace"
        return invalid_request(what)
    what = f"the server does not know {request.resource}; check that its address is that of a Kubernetes API server"
    return backend_error(f"{what} and that the kind is installed there", backend_code=code)


def forbidden(request: Request, code: str = "") -> ProviderError:
    """Return the error for a missing verb, with the right to grant."""
    kind = "ClusterRole" if not request.namespace else "Role"
    what = f"the credentials of the store are not allowed to {request}"
    hint = f'grant the verb "{request.verb}" on "{request.resource.plural}" with a {kind}{request.place}'
    return ProviderError(ErrorReason.PERMISSION_DENIED, f"{what}; {hint}", backend_code=code)


def _refused(error: kube.ApiError, request: Request) -> ProviderError:
    """Name the fields that the server rejects, never their content."""
    fields = ", ".join(sorted({cause.field for cause in error.causes if cause.field}))
    where = f"; rejected fields: {fields}" if fields else ""
    return invalid_request(f"the API server refuses to {request} as invalid{where}")
