"""Choose and read the connection settings: a kubeconfig or the pod's own service account.

The order is the usual one of controllers: an explicit kubeconfig, KUBECONFIG, the pod we run in, ~/.kube/config.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from kubebase.clock import Clock, SystemClock
from kubebase.yamlvalues import Rules, YamlError, read_one, text_scalar
from kuberun.connection import (
    ClientCertificate,
    Connection,
    Credential,
    CredentialSource,
    FixedCredentials,
    ReadCredentials,
    Tls,
    basic,
    bearer,
    read_file,
)
from kuberun.errors import ConfigError
from kuberun.exec_plugin import API_VERSIONS, ExecCredentials, ExecPlugin

# --- Read kubeconfig files, merge them, and turn one context into a `Connection` --------------------------------------
# Several files are merged as kubectl does it: for each named entry, and for current-context, the first file wins.
# Messages name the file, the entry and what to do, never the content of a credential.


EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"


class _Part(msgspec.Struct, rename="kebab", kw_only=True):
    """Base of the parts of a kubeconfig. Unknown fields belong to other tools and are ignored."""


class Cluster(_Part):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class ExecEnv(msgspec.Struct):
    name: str
    value: str


class Exec(msgspec.Struct, rename="camel", kw_only=True):
    command: str
    api_version: str
    args: list[str] | None = None
    env: list[ExecEnv] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class User(_Part):
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    username: str | None = None
    password: str | None = None
    exec: Exec | None = None
    auth_provider: Any = None
    as_user: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class Context(_Part):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _NamedCluster(_Part):
    name: str
    cluster: Cluster | None = None


class _NamedUser(_Part):
    name: str
    user: User | None = None


class _NamedContext(_Part):
    name: str
    context: Context | None = None


class _File(_Part):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Entry(Generic[P]):
    """A named part of a kubeconfig and the file it came from. Relative paths in it start at that file's folder."""

    file: Path
    name: str
    part: P

    def path(self, text: str) -> Path:
        return self.file.parent / Path(text).expanduser()


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """All files merged into one."""

    files: tuple[Path, ...]
    contexts: Mapping[str, Entry[Context]]
    clusters: Mapping[str, Entry[Cluster]]
    users: Mapping[str, Entry[User]]
    current_context: str

    @property
    def origin(self) -> str:
        return "kubeconfig " + ", ".join(str(file) for file in self.files)


def read(files: Sequence[Path]) -> Kubeconfig:
    """Read and merge the files. As with kubectl, some of several files may be missing, but not all."""
    present = [file for file in files if file.exists()] if len(files) > 1 else list(files)
    if not present:
        raise ConfigError(f"none of these kubeconfig files exists: {', '.join(map(str, files))}; set KUBECONFIG")
    return _merged([(file, _parsed(read_file(file, "kubeconfig"), file)) for file in present])


def parse_self_contained(text: bytes, name: str) -> Kubeconfig:
    """Read a kubeconfig from an untrusted author; `name` stands for its file in messages.

    Programs to run and files to read are refused in every entry: they would be those of this machine, not the author's.
    """
    config = _merged([(Path(name), _parsed(text, Path(name)))])
    for cluster in config.clusters.values():
        forbidden: dict[str, object] = {"the path of a certificate authority": cluster.part.certificate_authority}
        _refuse(f"cluster {cluster.name!r}", forbidden, name)
    for user in config.users.values():
        forbidden = {
            "an exec plugin": user.part.exec,
            "an auth provider": user.part.auth_provider,
            "the path of a token": user.part.token_file,
            "the path of a client certificate": user.part.client_certificate,
            "the path of a client key": user.part.client_key,
        }
        _refuse(f"user {user.name!r}", forbidden, name)
    return config


def _refuse(entry: str, forbidden: Mapping[str, object], name: str) -> None:
    for what, given in forbidden.items():
        if given is not None:
            raise ConfigError(
                f"kubeconfig {name}: {entry}: {what} is not allowed here: it would run a program or read a file of this"
                " machine; write the credentials into the kubeconfig itself (token, or the fields that end in -data)"
            )


def _merged(files: Sequence[tuple[Path, _File]]) -> Kubeconfig:
    contexts: dict[str, Entry[Context]] = {}
    clusters: dict[str, Entry[Cluster]] = {}
    users: dict[str, Entry[User]] = {}
    current = ""
    for file, found in files:
        for context in found.contexts or ():
            contexts.setdefault(context.name, Entry(file, context.name, context.context or Context()))
        for cluster in found.clusters or ():
            clusters.setdefault(cluster.name, Entry(file, cluster.name, cluster.cluster or Cluster()))
        for user in found.users or ():
            users.setdefault(user.name, Entry(file, user.name, user.user or User()))
        current = current or found.current_context or ""
    return Kubeconfig(tuple(file for file, _ in files), contexts, clusters, users, current)


def connection(config: Kubeconfig, context: str, clock: Clock) -> Connection:
    """Return the connection that one context describes; an empty name means current-context."""
    chosen = _context(config, context)
    cluster = _entry(config.clusters, chosen.part.cluster, f"{config.origin}: context {chosen.name!r}: cluster")
    user = _entry(config.users, chosen.part.user, f"{config.origin}: context {chosen.name!r}: user", default=User())
    origin = f"{cluster.file}: cluster {cluster.name!r}"
    return Connection(
        server=_server(cluster, origin),
        credentials=_credentials(user, cluster, clock),
        tls=_tls(cluster, origin),
        namespace=chosen.part.namespace or "default",
        proxy=_proxy(cluster, origin),
        headers=_impersonation(user),
        origin=f"{chosen.file}, context {chosen.name!r}",
    )


def _parsed(text: bytes, file: Path) -> _File:
    document = _yaml(text, file, Rules(scalar=text_scalar))  # msgspec converts the few booleans
    if document is None:
        return _File()
    try:
        return msgspec.convert(document, _File, strict=False)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"kubeconfig {file}: {exc}; compare it with the output of 'kubectl config view'") from exc


def _yaml(text: bytes, file: Path, rules: Rules) -> Any:
    try:
        return read_one(text, rules)
    except YamlError as exc:
        raise ConfigError(f"kubeconfig {file}: not valid YAML: {exc}") from None


def _context(config: Kubeconfig, wanted: str) -> Entry[Context]:
    name = wanted or config.current_context
    known = ", ".join(sorted(config.contexts)) or "none"
    if not name:
        raise ConfigError(f"{config.origin}: no current-context; name one of its contexts ({known})")
    if name not in config.contexts:
        raise ConfigError(f"{config.origin}: there is no context {name!r}; it has: {known}")
    return config.contexts[name]


def _entry(entries: Mapping[str, Entry[P]], name: str | None, what: str, *, default: P | None = None) -> Entry[P]:
    if not name and default is not None:
        return Entry(Path(), "", default)
    if not name or name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise ConfigError(f"{what} {name or ''!r} is not defined; defined are: {known}")
    return entries[name]


def _server(cluster: Entry[Cluster], origin: str) -> str:
    server = (cluster.part.server or "").rstrip("/")
    parts = urlsplit(server)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{origin}: server must be an address like https://10.0.0.1:6443")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(f"{origin}: server must be a plain address; credentials belong into the user entry")
    return server


def _proxy(cluster: Entry[Cluster], origin: str) -> str:
    proxy = cluster.part.proxy_url or ""
    if proxy and urlsplit(proxy).scheme not in {"http", "https"}:
        raise ConfigError(f"{origin}: proxy-url must be an http or https proxy; other kinds are not supported")
    return proxy


def _tls(cluster: Entry[Cluster], origin: str) -> Tls:
    part = cluster.part
    authority: bytes | None = None
    if part.certificate_authority_data:
        authority = _decoded(part.certificate_authority_data, f"{origin}: certificate-authority-data")
    elif part.certificate_authority:
        authority = read_file(cluster.path(part.certificate_authority), f"{origin}: certificate-authority")
    if part.insecure_skip_tls_verify and authority:
        raise ConfigError(f"{origin}: give either a certificate authority or insecure-skip-tls-verify, not both")
    return Tls(authority, part.tls_server_name or "", verify=not part.insecure_skip_tls_verify)


def _credentials(user: Entry[User], cluster: Entry[Cluster], clock: Clock) -> CredentialSource:
    part = user.part
    origin = f"{user.file}: user {user.name!r}"
    if part.auth_provider is not None:
        raise ConfigError(f"{origin}: auth-provider is no longer supported by Kubernetes; use an exec plugin instead")
    has_token = bool(part.token or part.token_file)
    if has_token and part.username:
        raise ConfigError(f"{origin}: give either a token or a user name with password, not both")
    if part.exec is not None and not has_token and not part.username:
        return ExecCredentials(_plugin(part.exec, user, cluster, origin), clock)
    if part.token_file or part.client_certificate or part.client_key:
        return ReadCredentials(lambda: _stored(user, origin), clock)
    return FixedCredentials(_stored(user, origin))


def _stored(user: Entry[User], origin: str) -> Credential:
    part = user.part
    authorization = ""
    if part.token_file:
        token = read_file(user.path(part.token_file), f"{origin}: tokenFile").decode(errors="replace")
        authorization = bearer(token, f"{origin}: tokenFile")
    elif part.token:
        authorization = bearer(part.token, origin)
    elif part.username:
        authorization = basic(part.username, part.password or "")
    return Credential(authorization, _certificate(user, origin))


def _certificate(user: Entry[User], origin: str) -> ClientCertificate | None:
    part = user.part
    certificate = _pem(user, part.client_certificate_data, part.client_certificate, f"{origin}: client-certificate")
    key = _pem(user, part.client_key_data, part.client_key, f"{origin}: client-key")
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError(f"{origin}: client-certificate and client-key go together; one of them is missing")
    return ClientCertificate(certificate, key)


def _pem(user: Entry[User], data: str | None, path: str | None, origin: str) -> bytes | None:
    if data:
        return _decoded(data, f"{origin}-data")
    return read_file(user.path(path), origin) if path else None


def _decoded(text: str, origin: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{origin}: not valid base64") from None


def _plugin(spec: Exec, user: Entry[User], cluster: Entry[Cluster], origin: str) -> ExecPlugin:
    if spec.api_version not in API_VERSIONS:
        raise ConfigError(f"{origin}: exec apiVersion must be one of {', '.join(sorted(API_VERSIONS))}")
    if spec.interactive_mode == "Always":
        raise ConfigError(f"{origin}: the exec plugin needs a terminal (interactiveMode Always), and here is none")
    command = str(user.path(spec.command)) if "/" in spec.command else spec.command
    return ExecPlugin(
        command=command,
        api_version=spec.api_version,
        args=tuple(spec.args or ()),
        env=tuple((variable.name, variable.value) for variable in spec.env or ()),
        cluster=_cluster_info(cluster) if spec.provide_cluster_info else None,
        install_hint=spec.install_hint or "",
        origin=origin,
    )


def _cluster_info(cluster: Entry[Cluster]) -> dict[str, Any]:
    """Describe the cluster for a plugin; `config` is what the plugin's vendor stored in the kubeconfig for it."""
    part = cluster.part
    tls = _tls(cluster, f"{cluster.file}: cluster {cluster.name!r}")
    info = {
        "server": part.server,
        "tls-server-name": part.tls_server_name,
        "insecure-skip-tls-verify": part.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(tls.ca).decode() if tls.ca else None,
        "proxy-url": part.proxy_url,
        "config": _extension(cluster),
    }
    return {name: value for name, value in info.items() if value is not None}


def _extension(cluster: Entry[Cluster]) -> Any:
    """Read the plugin's extension again with typed numbers and booleans, as its vendor wrote them."""
    document = _yaml(read_file(cluster.file, "kubeconfig"), cluster.file, Rules())
    for entry in document["clusters"]:
        if str(entry["name"]) == cluster.name:
            for extension in entry["cluster"].get("extensions") or ():
                if extension.get("name") == EXEC_EXTENSION:
                    return extension.get("extension")
    return None


def _impersonation(user: Entry[User]) -> tuple[tuple[str, str], ...]:
    """Return the impersonation headers. Without them we would act with more rights than the kubeconfig grants."""
    part = user.part
    headers = [("Impersonate-User", part.as_user)] if part.as_user else []
    headers += [("Impersonate-Uid", part.as_uid)] if part.as_uid else []
    headers += [("Impersonate-Group", group) for group in part.as_groups or ()]
    headers += [
        (f"Impersonate-Extra-{quote(name, safe='')}", value)
        for name, values in (part.as_user_extra or {}).items()
        for value in values
    ]
    return tuple(headers)


SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load(
    kubeconfig: Path | None = None,
    *,
    context: str = "",
    clock: Clock | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Return the settings that apply here; `ConfigError` says what is missing."""
    clock = clock or SystemClock()
    if kubeconfig is not None:
        return _from_files([kubeconfig], context, clock)
    if listed := environ.get("KUBECONFIG"):
        return _from_files([Path(file).expanduser() for file in listed.split(os.pathsep) if file], context, clock)
    if environ.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster(clock, environ=environ, service_account=service_account)
    home = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    if home.exists():
        return _from_files([home], context, clock)
    raise ConfigError(f"no Kubernetes configuration: KUBECONFIG is not set, {home} does not exist, and this is no pod")


def in_cluster(
    clock: Clock, *, environ: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT
) -> Connection:
    """Connect with the pod's service account. Its token is read repeatedly, because the kubelet rotates it."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError("not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    token_file, origin = service_account / "token", "service account"

    def read() -> Credential:
        return Credential(bearer(read_file(token_file, origin).decode(errors="replace"), f"{origin}: {token_file}"))

    read()  # a pod without a mounted token fails at start, not at the first call
    namespace = service_account / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        credentials=ReadCredentials(read, clock),
        tls=Tls(ca=read_file(service_account / "ca.crt", origin)),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        origin=f"service account in {service_account}",
    )


def _from_files(files: list[Path], context: str, clock: Clock) -> Connection:
    return connection(read(files), context, clock)
