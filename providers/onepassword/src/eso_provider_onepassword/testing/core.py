"""A stand-in for the closed core of the vendor's SDK, at the border of the wheel's own Python code.

    account = FakeAccount(); account.vault("team").put("app", {"password": "first"})
    with account.installed(): ...                      in this process
    environment_with(folder, {TOKEN: {"team": ...}})   for a process of the provider

The wheel's `Client` sends JSON to `UniffiCore`, which hands it to a native library. The stand-in replaces
`UniffiCore`: the wheel's code in front of it, with all its types, is the real one. Texts of errors are those that the
library has.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from eso_provider_onepassword.testing.connect import new_id


def token_of(name: str, address: str = "example.1password.com") -> str:
    """Return a token of the form that the SDK accepts, for an account that exists only in tests."""

    def text(raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    parts = {
        "signInAddress": address,
        "userAuth": {"method": "SRPg-4096", "alg": "PBES2g-HS256", "iterations": 650000, "salt": text(b"s" * 16)},
        "email": f"{name}@1passwordserviceaccounts.com",
        "srpX": "ab" * 32,
        "muk": {
            "alg": "A256GCM",
            "ext": True,
            "k": text(b"k" * 32),
            "key_ops": ["encrypt", "decrypt"],
            "kty": "oct",
            "kid": "mp",
        },
        "secretKey": "A3-ABCDEF-GHJKLM-NPQRS-TVWXY-Z2345-6789A",
        "throttleSecret": {"seed": "ab" * 32, "uuid": "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
        "deviceUuid": "abcdefghijklmnopqrstuvwxyz",
    }
    return "ops_" + text(json.dumps(parts, separators=(",", ":")).encode())


TOKEN: Final = token_of("example")
_BATCH: Final = 50
_NAME: Final = re.compile(r"[A-Za-z0-9 _.-]+")


class CoreError(Exception):
    """An error of the core; the wheel reads `msg`."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.msg = json.dumps({"name": name, "message": message})


RATE_LIMITED: Final = CoreError("rate limit exceeded", "RateLimitExceeded")


@dataclass(slots=True)
class FakeVault:
    """A vault of an account."""

    title: str
    id: str = field(default_factory=new_id)
    version: int = 1
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)

    def put(self, title: str, fields: dict[str, str], *, section: str = "", **more: Any) -> str:
        """Add an item, or change the one with this title; return its id."""
        made = [
            {"id": label, "title": label, "fieldType": "Concealed", "value": value, "sectionId": section or None}
            for label, value in fields.items()
        ]
        known = next((each for each in self.items.values() if each["title"] == title), None)
        sections = [{"id": section, "title": section}] if section else []
        item = {"title": title, "fields": made, "sections": sections, **more}
        return str(self.store(item if known is None else {**known, **item})["id"])

    def attach(self, title: str, files: dict[str, bytes]) -> str:
        """Add a document."""
        ((name, raw),) = files.items()
        number = new_id()
        self.contents[number] = raw
        return self.put(title, {}, category="Document", document={"name": name, "id": number, "size": len(raw)})

    def store(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Store an item as the service does."""
        self.version += 1
        version = parameters.get("version", 0) + 1
        time = f"2026-11-17T10:{self.version // 60 % 60:02}:{self.version % 60:02}Z"
        filled: dict[str, Any] = {
            "id": new_id(),
            "category": "Login",
            "sections": [],
            "notes": "",
            "tags": [],
            "websites": [],
            "files": [],
            "document": None,
            "createdAt": time,
            **{key: value for key, value in parameters.items() if value is not None},
        }
        filled |= {"vaultId": self.id, "version": version, "updatedAt": time, "state": "active"}
        self.items[filled["id"]] = filled
        return filled

    def values(self, title: str) -> dict[str, str]:
        (found,) = [each for each in self.items.values() if each["title"] == title]
        return {each["title"]: each["value"] for each in found["fields"]}

    def drop(self, title: str) -> None:
        self.items = {key: each for key, each in self.items.items() if each["title"] != title}
        self.version += 1


@dataclass(slots=True)
class FakeAccount:
    """The accounts behind a few tokens, and the calls that arrived."""

    vaults: dict[str, dict[str, FakeVault]] = field(default_factory=lambda: {TOKEN: {}})
    """By token and name."""
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    """Names of the threads in which calls arrived."""
    integrations: list[tuple[str, str]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    """Errors of the next calls, one each."""
    hang: threading.Event | None = None
    """Calls wait, in their thread, until this is set."""

    def vault(self, title: str, token: str = TOKEN) -> FakeVault:
        """Return a vault, made at first use."""
        return self.vaults.setdefault(token, {}).setdefault(title, FakeVault(title))

    @contextmanager
    def installed(self) -> Iterator[FakeAccount]:
        """Replace the core in this process."""
        import onepassword.client as wheel

        FakeCore.account, original = self, wheel.UniffiCore
        wheel.UniffiCore = FakeCore
        try:
            yield self
        finally:
            wheel.UniffiCore = original

    @classmethod
    def of(cls, contents: Mapping[str, Mapping[str, Any]]) -> FakeAccount:
        """Return an account with vaults and environments: by token, vault and title the fields, by id the variables."""
        account = cls(vaults={token: {} for token in contents["tokens"]}, environments=dict(contents["environments"]))
        for token, vaults in contents["tokens"].items():
            for vault, items in vaults.items():
                for title, fields in items.items():
                    account.vault(vault, token).put(title, fields)
        return account

    def respond(self, token: str, name: str, parameters: dict[str, Any]) -> Any:
        """Respond to one call of the SDK."""
        vaults = {each.id: each for each in self.vaults[token].values()}
        match name:
            case "VaultsList":
                return [_vault(each) for each in vaults.values()]
            case "ItemsList":
                return list(_of(vaults, parameters["vault_id"]).items.values())
            case "ItemsGetAll":
                return {"individualResponses": _got(_of(vaults, parameters["vault_id"]), parameters["item_ids"])}
            case "ItemsCreate":
                return _of(vaults, parameters["params"]["vaultId"]).store(parameters["params"])
            case "ItemsPut":
                return _put(_of(vaults, parameters["item"]["vaultId"]), parameters["item"])
            case "ItemsDelete":
                vault = _of(vaults, parameters["vault_id"])
                if vault.items.pop(parameters["item_id"], None) is None:
                    raise CoreError("item couldn't be found")
                vault.version += 1
                return None
            case "ItemsFilesRead":
                return list(_of(vaults, parameters["vault_id"]).contents[parameters["attr"]["id"]])
            case "SecretsResolveAll":
                return {
                    "individualResponses": {each: _resolved(vaults, each) for each in parameters["secret_references"]}
                }
            case "EnvironmentsGetVariables":
                found = self.environments.get(parameters["environment_id"])
                if found is None:
                    raise CoreError("environment couldn't be found")
                return {"variables": [{"name": k, "value": v, "masked": True} for k, v in found.items()]}
        raise CoreError(f"unknown call {name}")


class FakeCore:
    """Replaces the wheel's `UniffiCore`."""

    account: ClassVar[FakeAccount]
    clients: ClassVar[dict[int, str]] = {}

    async def init_client(self, config: dict[str, Any]) -> str:
        self._arrived("Authenticate")
        token = config["serviceAccountToken"]
        if token not in self.account.vaults:
            _raise(
                CoreError("invalid service account token, please make sure you provide a valid service account token")
            )
        self.account.integrations.append((config["integrationName"], config["integrationVersion"]))
        number = len(self.clients) + 1
        self.clients[number] = token
        return str(number)

    async def invoke(self, config: dict[str, Any]) -> str:
        invocation = config["invocation"]
        name, parameters = invocation["parameters"]["name"], invocation["parameters"]["parameters"]
        self._arrived(name)
        token = self.clients[invocation["clientId"]]
        if token not in self.account.vaults:
            _raise(CoreError("you are not authenticated"))
        try:
            # As across the native border: only JSON passes.
            return json.dumps(self.account.respond(token, name, json.loads(json.dumps(parameters))))
        except CoreError as failed:
            _raise(failed)
            raise

    def release_client(self, client_id: int) -> None:
        self.clients.pop(client_id, None)

    def _arrived(self, name: str) -> None:
        account = self.account
        account.calls.append(name)
        account.threads.add(threading.current_thread().name)
        if account.hang is not None:
            account.hang.wait(30)
        if account.failures:
            _raise(account.failures.pop(0))


def _raise(failed: Exception) -> None:
    """Raise an error as the wheel's own code does."""
    from onepassword.errors import raise_typed_exception

    raise_typed_exception(failed)


def _of(vaults: dict[str, FakeVault], number: str) -> FakeVault:
    if number not in vaults:
        raise CoreError("vault couldn't be found")
    return vaults[number]


def _vault(vault: FakeVault) -> dict[str, Any]:
    return {
        "id": vault.id,
        "title": vault.title,
        "description": "",
        "vaultType": "userCreated",
        "activeItemCount": len(vault.items),
        "contentVersion": vault.version,
        "attributeVersion": 1,
        "createdAt": "2026-11-17T10:00:00Z",
        "updatedAt": "2026-11-17T10:00:00Z",
    }


def _got(vault: FakeVault, numbers: list[str]) -> list[dict[str, Any]]:
    if len(numbers) > _BATCH:
        raise CoreError("you can only retrieve up to 50 items at once")
    missing = {"content": None, "error": {"type": "itemNotFound"}}
    return [{"content": vault.items[each], "error": None} if each in vault.items else missing for each in numbers]


def _put(vault: FakeVault, parameters: dict[str, Any]) -> dict[str, Any]:
    known = vault.items.get(parameters["id"])
    if known is None:
        raise CoreError("item update failed: item couldn't be found")
    if known["version"] != parameters["version"]:
        raise CoreError("The submitted item is not up to date. Refetch the item and retry the request.")
    return vault.store(parameters)


def _resolved(vaults: dict[str, FakeVault], reference: str) -> dict[str, Any]:
    """Resolve op://VAULT/ITEM/[SECTION/]FIELD as the service does: each part is an id or a title."""
    vault, item, *rest = reference.removeprefix("op://").partition("?")[0].split("/")
    if len(rest) not in (1, 2) or not all(_NAME.fullmatch(part) for part in (item, *rest)):
        return _failed("parsing", message="the secret reference could not be parsed")
    holders = [each for each in vaults.values() if vault in (each.id, each.title)]
    if len(holders) != 1:
        return _failed("tooManyVaults" if holders else "vaultNotFound")
    items = [each for each in holders[0].items.values() if item in (each["id"], each["title"])]
    if len(items) != 1:
        return _failed("tooManyItems" if items else "itemNotFound")
    sections = {each["id"] for each in items[0]["sections"] if rest[0] in (each["id"], each["title"])}
    if len(rest) == 2 and not sections:
        return _failed("noMatchingSections")
    fields = [
        each
        for each in items[0]["fields"]
        if rest[-1] in (each["id"], each["title"]) and (len(rest) == 1 or each.get("sectionId") in sections)
    ]
    if len(fields) != 1:
        return _failed("tooManyMatchingFields" if fields else "fieldNotFound")
    content = {"secret": fields[0]["value"], "itemId": items[0]["id"], "vaultId": holders[0].id}
    return {"content": content, "error": None}


def _failed(kind: str, **more: Any) -> dict[str, Any]:
    return {"content": None, "error": {"type": kind, **more}}


_SHIM: Final = '''"""Loads the wheel with a stand-in for its native core."""

import json
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
__path__ = [str(found) for each in sys.path if (found := Path(each) / "onepassword").is_dir() and found != here]

import onepassword.client
from eso_provider_onepassword.testing.core import FakeAccount, FakeCore

FakeCore.account = FakeAccount.of(json.loads((here / "contents.json").read_text()))
onepassword.client.UniffiCore = FakeCore
'''


def environment_with(folder: Path, tokens: Mapping[str, Any], environments: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a provider process whose SDK has the stand-in; see `FakeAccount.of`."""
    package = folder / "onepassword"
    package.mkdir()
    (package / "__init__.py").write_text(_SHIM)
    (package / "contents.json").write_text(json.dumps({"tokens": tokens, "environments": environments}))
    return {"PYTHONPATH": str(folder)}
