"""The Vault provider with an operator, on a real OpenBao: the requests in its audit log.

1,000 ExternalSecrets of one store on 1,000 keys, each refreshed ten times (every ten seconds instead of every minute:
the same number of refreshes, in less time); 50 ExternalSecrets on one key that are due together; a find of 500 keys;
and 1,000 unchanged keys that are watched.
"""

from __future__ import annotations

import asyncio
import base64
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Row, shown

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_provider_vault.testing.openbao import AuditedRequests, OpenBao
from eso_testkit.cli.upprocess import up_running
from kubebase.meta import JsonObject, Resource
from kuberun.testing.builders import CONFIG_MAPS, NAMESPACES, SECRETS
from kuberun.testing.rawapi import RawApi, raw_api

OBJECTS, ROUNDS, SECONDS_A_ROUND = 1000, 10, 10.0
SHARERS, FOUND = 50, 500
WATCHED_SECONDS = 60.0
PATIENCE = 300.0
TEAM = "bench"
ES, STORES = EXTERNAL_SECRET.resource(), SECRET_STORE.resource()


def measure() -> list[Row]:
    with (
        tempfile.TemporaryDirectory() as folder,
        OpenBao.started(Path(folder) / "bao") as bao,
        up_running(Path(folder) / "up", "--provider", "vault") as up,
    ):

        async def run() -> list[Row]:
            async with raw_api(up.url, up.token, str(up.ca_file)) as api:
                return await Bench(api, bao).measured()

        return asyncio.run(run())


@dataclass(slots=True)
class Bench:
    """One operator, one server."""

    api: RawApi
    bao: OpenBao

    async def measured(self) -> list[Row]:
        await self.api.post(NAMESPACES.path(), {"metadata": {"name": TEAM}})
        self.bao.enable("kv")
        for number in range(OBJECTS):
            self.bao.put("kv", f"app/{number:04}", {"password": f"value-{number}"})
        self._role("reader", ["read"], [])
        self._role("finder", ["read"], ["read", "list", "scan"])
        return [*await self._refreshes(), *await self._sharing(), *await self._finding(), *await self._watching()]

    # --- what is measured --------------------------------------------------------------------------------------------

    async def _refreshes(self) -> list[Row]:
        mark = self.bao.mark()
        await self._store("many", "reader")
        names = [f"many-{number:04}" for number in range(OBJECTS)]
        await self._create(
            external_secret(name, "many", f"app/{number:04}", refreshInterval=f"{SECONDS_A_ROUND:.0f}s")
            for number, name in enumerate(names)
        )
        await self._until_ready(names)
        begun = self.bao.audited(mark).count("read", "kv/data/")
        wanted = begun + OBJECTS * ROUNDS
        await self._until(lambda: self._count(mark, "kv/data/") >= wanted, "the refreshes do not happen")
        asked = self.bao.audited(mark)
        await self._delete(names, "many")
        return [
            shown(
                "reads of 1,000 ExternalSecrets, created and refreshed ten times", str(asked.count("read", "kv/data/"))
            ),
            _at_most("logins meanwhile", asked.logins, 2),
            _at_most("revocations meanwhile", asked.revocations, 0),
        ]

    async def _sharing(self) -> list[Row]:
        """Change the template that all of them use, so that all are due at once."""
        await self._store("shared", "reader")
        await self._post(CONFIG_MAPS, {"metadata": {"name": "shared"}, "data": {"text": "version: one"}})
        names = [f"shared-{number:02}" for number in range(SHARERS)]
        template = {"templateFrom": [{"configMap": {"name": "shared", "items": [{"key": "text"}]}}]}
        await self._create(external_secret(name, "shared", "app/0001", target={"template": template}) for name in names)
        await self._until_ready(names)
        mark = self.bao.mark()
        await self.api.patch(CONFIG_MAPS.path(TEAM, "shared"), {"data": {"text": "version: two"}})
        wanted = base64.b64encode(b"version: two").decode()

        async def all_have_it() -> bool:
            answer = await self.api.get(SECRETS.path(TEAM))
            have = [obj for obj in answer.body["items"] if obj.get("data", {}).get("text") == wanted]
            return len(have) == SHARERS

        await self._until(all_have_it, "the change does not arrive")
        reads = self._count(mark, "kv/data/app/0001")
        await self._delete(names, "shared")
        return [_at_most("reads for a refresh of 50 ExternalSecrets on one key", reads, 1)]

    async def _finding(self) -> list[Row]:
        await self._store("found", "finder")
        await self._until_ready(["found"], STORES)
        mark = self.bao.mark()
        spec = {"dataFrom": [{"find": {"path": "app", "name": {"regexp": "^app/0[0-4]"}}}], "data": []}
        await self._create([external_secret("found", "found", "", **spec)])
        await self._until_ready(["found"])
        asked = self.bao.audited(mark)
        reads = asked.count("read", "kv/data/")
        await self._delete(["found"], "found")
        return [
            Row("keys read by a find of 500", str(reads), str(FOUND), reads == FOUND),
            _at_most("its calls besides the reads", len(asked.requests) - reads, 3),
        ]

    async def _watching(self) -> list[Row]:
        await self._store("watched", "finder")
        names = [f"watched-{number:04}" for number in range(OBJECTS)]
        await self._create(external_secret(name, "watched", f"app/{number:04}") for number, name in enumerate(names))
        await self._until_ready(names)
        await asyncio.sleep(30.0)  # the subscription covers all of them
        mark = self.bao.mark()
        await asyncio.sleep(WATCHED_SECONDS)
        asked = self.bao.audited(mark)
        rounds = asked.count("scan", "kv/detailed-metadata/")
        others = AuditedRequests(tuple(each for each in asked.requests if each[0] != "scan"))
        return [
            Row(f"rounds of looking for changes in {WATCHED_SECONDS:.0f} s", str(rounds), "> 0", rounds > 0),
            _at_most("calls besides one a round, for 1,000 unchanged keys", len(others.requests), 0),
        ]

    # --- arranging ---------------------------------------------------------------------------------------------------

    def _role(self, name: str, data: Sequence[str], metadata: Sequence[str]) -> None:
        if name == "reader":
            self.bao.enable_auth("approle", "approle")
        rules = [f'path "kv/data/*" {{ capabilities = {_listed(data)} }}']
        if metadata:
            rules.append(f'path "kv/metadata/*" {{ capabilities = {_listed(metadata)} }}')
            rules.append(f'path "kv/detailed-metadata/*" {{ capabilities = {_listed(metadata)} }}')
        self.bao.policy(name, "\n".join(rules))
        self.bao.must("POST", f"auth/approle/role/{name}", {"token_policies": name, "token_ttl": "1h"})

    async def _store(self, name: str, role: str) -> None:
        role_id = self.bao.must("GET", f"auth/approle/role/{role}/role-id")["data"]["role_id"]
        secret_id = self.bao.must("POST", f"auth/approle/role/{role}/secret-id")["data"]["secret_id"]
        auth = {"appRole": {"path": "approle", "roleId": role_id, "secretRef": {"name": name, "key": "secret-id"}}}
        secret = {"metadata": {"name": name}, "stringData": {"secret-id": secret_id}}
        store = {"server": self.bao.url, "path": "kv", "auth": auth}
        await self._post(SECRETS, secret)
        await self._post(STORES, {"metadata": {"name": name}, "spec": {"provider": {"vault": store}}})

    async def _create(self, objects: Iterable[JsonObject]) -> None:
        await _parallel([self._post(ES, obj) for obj in objects])

    async def _delete(self, names: Sequence[str], store: str) -> None:
        await _parallel([self.api.delete(ES.path(TEAM, name)) for name in names])
        await self.api.delete(STORES.path(TEAM, store))

    async def _post(self, resource: Resource, obj: JsonObject) -> None:
        answer = await self.api.post(
            resource.path(TEAM), {"apiVersion": resource.api_version, "kind": resource.kind} | obj
        )
        if answer.status != 201:
            raise AssertionError(f"{resource.kind} was answered with {answer.status}: {answer.body}")

    async def _until_ready(self, names: Sequence[str], resource: Resource = ES) -> None:
        wanted = set(names)

        async def ready() -> bool:
            answer = await self.api.get(resource.path(TEAM))
            return wanted <= {obj["metadata"]["name"] for obj in answer.body["items"] if _is_ready(obj)}

        await self._until(ready, f"{resource.kind} objects do not become ready")

    async def _until(self, holds: Callable[[], bool | Awaitable[bool]], otherwise: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                held = holds()
                if held if isinstance(held, bool) else await held:
                    return
                await asyncio.sleep(0.5)
        raise TimeoutError(otherwise)

    def _count(self, mark: int, path: str) -> int:
        return self.bao.audited(mark).count("read", path)


def external_secret(name: str, store: str, key: str, **spec: Any) -> JsonObject:
    data = [{"secretKey": "password", "remoteRef": {"key": key, "property": "password"}}]
    return {
        "metadata": {"name": name},
        "spec": {"refreshInterval": "1h", "secretStoreRef": {"name": store}, "data": data, **spec},
    }


def _is_ready(obj: JsonObject) -> bool:
    conditions = obj.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _at_most(name: str, value: int, most: int) -> Row:
    return Row(name, str(value), f"<= {most}", value <= most)


def _listed(capabilities: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{each}"' for each in capabilities) + "]"


async def _parallel(calls: Sequence[Any]) -> None:
    gate = asyncio.Semaphore(16)

    async def gated(call: Awaitable[object]) -> None:
        async with gate:
            await call

    await asyncio.gather(*(gated(call) for call in calls))
