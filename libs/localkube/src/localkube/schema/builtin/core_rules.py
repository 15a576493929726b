"""Rules and defaults of core/v1 kinds beyond their schemas, and their table cells."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, names

DATA_LIMIT: Final = 1024 * 1024
_IMMUTABLE: Final = "field is immutable when `immutable` is set"
_REQUIRED_KEYS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_JSON_KEYS: Final = (".dockerconfigjson", ".dockercfg")
_ACCOUNT_TOKEN: Final = "kubernetes.io/service-account-token"  # noqa: S105 - a type of Secret, not a secret
_ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_SERVICE_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")


def prepare_namespace(new: JsonObject, old: JsonObject | None) -> list[Cause]:
    meta = new["metadata"]
    if meta.get("name"):
        meta.setdefault("labels", {})[_NAME_LABEL] = meta["name"]
    if old is None:
        new["spec"] = {"finalizers": ["kubernetes"]}
        new["status"] = {"phase": "Active"}
    return []


def prepare_secret(new: JsonObject, old: JsonObject | None) -> list[Cause]:
    _fold_string_data(new)
    new["type"] = new.get("type") or "Opaque"
    data: dict[str, str] = new.get("data") or {}
    found = [*_key_causes(data, "data"), *_secret_type_causes(new, data)]
    if sum(_decoded_size(value) for value in data.values()) > DATA_LIMIT:
        found.append(causes.too_long("data", DATA_LIMIT))
    if old is not None:
        if new["type"] != old.get("type"):
            found.append(causes.invalid("type", new["type"], "field is immutable"))
        found += _immutable_causes(new, old, ("data",))
    return found


def prepare_config_map(new: JsonObject, old: JsonObject | None) -> list[Cause]:
    data, binary = new.get("data") or {}, new.get("binaryData") or {}
    found = [
        causes.invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data if key in binary
    ]
    found += [*_key_causes(data, "data"), *_key_causes(binary, "binaryData")]
    size = sum(len(value.encode()) for value in data.values())
    if size + sum(_decoded_size(value) for value in binary.values()) > DATA_LIMIT:
        found.append(causes.too_long("[]", DATA_LIMIT))
    if old is not None:
        found += _immutable_causes(new, old, ("data", "binaryData"))
    return found


def prepare_service(new: JsonObject, old: JsonObject | None) -> list[Cause]:
    spec = new.setdefault("spec", {})
    new.setdefault("status", {"loadBalancer": {}})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if "port" in port:
            port.setdefault("targetPort", port["port"])
    found = list(_service_causes(spec))
    if not found and spec["type"] != "ExternalName":
        _assign_addresses(new, (old or {}).get("spec") or {})
    return found


def data_count(obj: JsonObject) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def external_ip(obj: JsonObject) -> str:
    spec = obj.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    found = [*(item.get("ip") or item.get("hostname") or "" for item in ingress), *(spec.get("externalIPs") or [])]
    if not found and spec.get("type") == "LoadBalancer":
        return "<pending>"
    return ",".join(found) or "<none>"


def port_list(obj: JsonObject) -> str:
    ports = (obj.get("spec") or {}).get("ports") or []
    shown = [
        f"{port.get('port')}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port')}/{port.get('protocol')}"
        for port in ports
    ]
    return ",".join(shown) or "<none>"


def selector_text(obj: JsonObject) -> str:
    selector: dict[str, Any] = (obj.get("spec") or {}).get("selector") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>"


def _fold_string_data(secret: JsonObject) -> None:
    plain: dict[str, str] = secret.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode((value or "").encode()).decode() for key, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _decoded_size(value: str | None) -> int:
    text = value or ""
    return len(text) // 4 * 3 - text.count("=")


def _key_causes(data: dict[str, str], field: str) -> Iterator[Cause]:
    for key in data:
        for message in names.config_key(key):
            yield causes.invalid(f"{field}[{key}]", key, message)


def _secret_type_causes(secret: JsonObject, data: dict[str, str]) -> Iterator[Cause]:
    kind = secret["type"]
    if kind == _ACCOUNT_TOKEN:
        if not (secret["metadata"].get("annotations") or {}).get(_ACCOUNT_NAME):
            yield causes.required(f"metadata.annotations[{_ACCOUNT_NAME}]")
    elif kind == "kubernetes.io/basic-auth" and "username" not in data and "password" not in data:
        yield causes.required("data[username]")
        yield causes.required("data[password]")
    for key in _REQUIRED_KEYS.get(kind, ()):
        if key not in data or (kind == "kubernetes.io/ssh-auth" and not data[key]):
            yield causes.required(f"data[{key}]")
        elif key in _JSON_KEYS and not _is_json(data[key]):
            yield causes.invalid(f"data[{key}]", "<secret contents redacted>", "invalid JSON")


def _is_json(value: str) -> bool:
    try:
        json.loads(base64.b64decode(value))
    except ValueError:
        return False
    return True


def _immutable_causes(new: JsonObject, old: JsonObject, fields: tuple[str, ...]) -> Iterator[Cause]:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield causes.forbidden("immutable", _IMMUTABLE)
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            yield causes.forbidden(field, _IMMUTABLE)


def _service_causes(spec: JsonObject) -> Iterator[Cause]:
    ports, kind = spec.get("ports") or [], spec["type"]
    if kind not in _SERVICE_TYPES:
        yield causes.not_supported("spec.type", kind, _SERVICE_TYPES)
    if kind == "ExternalName" and not spec.get("externalName"):
        yield causes.required("spec.externalName")
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        yield causes.required("spec.ports")
    seen: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port_causes(port, f"spec.ports[{index}]", seen, single=len(ports) == 1)
    if spec["sessionAffinity"] not in {"ClientIP", "None"}:
        yield causes.not_supported("spec.sessionAffinity", spec["sessionAffinity"], ("ClientIP", "None"))


def _port_causes(port: JsonObject, path: str, seen: set[str], *, single: bool) -> Iterator[Cause]:
    name = port.get("name") or ""
    if not name and not single:
        yield causes.required(f"{path}.name")
    elif name:
        for message in names.dns_label(name):
            yield causes.invalid(f"{path}.name", name, message)
        if name in seen:
            yield causes.duplicate(f"{path}.name", name)
        seen.add(name)
    yield from _number_causes(port.get("port") or 0, f"{path}.port")
    if port["protocol"] not in _PROTOCOLS:
        yield causes.not_supported(f"{path}.protocol", port["protocol"], _PROTOCOLS)
    target = port.get("targetPort")
    if isinstance(target, int):
        yield from _number_causes(target, f"{path}.targetPort")


def _number_causes(number: int, path: str) -> Iterator[Cause]:
    if not 1 <= number <= 65535:
        yield causes.invalid(path, number, "must be between 1 and 65535, inclusive")


def _assign_addresses(service: JsonObject, old: JsonObject) -> None:
    """Assign a stable address. Clients read the field; localkube routes no traffic."""
    spec = service["spec"]
    if not spec.get("clusterIP"):
        spec["clusterIP"] = old.get("clusterIP") or _made_up_address(service["metadata"])
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    dual = spec["clusterIP"] == "None" and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if dual else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if dual else "SingleStack")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in {"NodePort", "LoadBalancer"}:
        spec.setdefault("externalTrafficPolicy", "Cluster")


def _made_up_address(meta: JsonObject) -> str:
    digest = hashlib.sha256(f"{meta.get('namespace')}/{meta.get('name')}".encode()).digest()
    return f"10.{96 + digest[0] % 16}.{digest[1]}.{1 + digest[2] % 254}"
