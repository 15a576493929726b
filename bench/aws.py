"""The AWS provider with an operator, on moto: the calls to its services, and the memory for credentials.

1,000 secrets and 1,000 parameters that one ExternalSecret reads; 1,000 ExternalSecrets of one store that are due
together; 1,000 ExternalSecrets over 20 stores of one role; and 200 stores with their own keys.
"""

from __future__ import annotations

import asyncio
import base64
import math
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Row, shown
from stage import ES, NAMESPACES, SECRETS, STORES_OF_NAMESPACE, is_ready, parallel, until

from eso_provider_aws.testing.front import Front, environment_of, moto_in_thread
from eso_provider_aws.testing.sessions import KEYS, REGION, admin
from eso_testkit.cli.upprocess import UpProcess, up_running
from kubebase.meta import JsonObject, Kind, ObjectKey, raw
from kuberun import config
from kuberun.client import Client
from kuberun.requests import Selection
from kuberun.testing.builders import CONFIG_MAPS
from kuberun.transport import AiohttpTransport

OBJECTS, SHARING, CREDENTIALS = 1000, 20, 200
MEBIBYTES = 20
"""A higher value for 200 credentials would mean that each has its own client."""
READS = ("BatchGetSecretValue", "GetSecretValue", "GetParameters", "GetParameter")
TEAM = "bench"
ROLE = "arn:aws:iam::123456789012:role/external-secrets"
MAPS = raw(CONFIG_MAPS)


def measure() -> list[Row]:
    with (
        tempfile.TemporaryDirectory() as folder,
        moto_in_thread(Path(folder) / "moto") as front,
        up_running(Path(folder) / "up", "--provider", "aws", environment=environment_of(front.url, KEYS)) as up,
    ):

        async def run() -> list[Row]:
            client = Client(AiohttpTransport(config.load(up.kubeconfig)))
            try:
                return await Bench(client, front, up).measured()
            finally:
                await client.close()

        return asyncio.run(run())


@dataclass(slots=True)
class Bench:
    """One operator, one account."""

    client: Client
    front: Front
    up: UpProcess

    async def measured(self) -> list[Row]:
        await self._create(NAMESPACES, {"metadata": {"name": TEAM}})
        await asyncio.to_thread(self._fill)
        return [
            await self._whole("SecretsManager", "BatchGetSecretValue", "app/{:04}", 20),
            await self._whole("ParameterStore", "GetParameters", "/app/{:04}", 10),
            *await self._together(),
            await self._sharing(),
            await self._memory(),
        ]

    def _fill(self) -> None:
        secrets, parameters = (admin(service, self.front.behind) for service in ("secretsmanager", "ssm"))
        for number in range(OBJECTS):
            secrets.create_secret(Name=f"app/{number:04}", SecretString=f"value-{number}")
            parameters.put_parameter(Name=f"/app/{number:04}", Value=f"value-{number}", Type="SecureString")

    # --- what is measured --------------------------------------------------------------------------------------------

    async def _whole(self, service: str, operation: str, key: str, batch: int) -> Row:
        """One ExternalSecret reads everything; any other reading call is counted as well."""
        name = service.lower()
        await self._store(name, service=service)
        data = [_entry(key.format(number), f"k{number}") for number in range(OBJECTS)]
        self.front.forget()
        calls = await self._counted([external_secret(name, name, data)])
        await self._delete([name], [name])
        return _exactly(f"{operation} for {OBJECTS:,} keys of one ExternalSecret", calls, math.ceil(OBJECTS / batch))

    async def _together(self) -> list[Row]:
        """Change the template that all of them use, so that all are due at once."""
        await self._store("together")
        await self._create(MAPS, {"metadata": {"name": "text", "namespace": TEAM}, "data": {"text": "one"}})
        template = {"templateFrom": [{"configMap": {"name": "text", "items": [{"key": "text"}]}}]}
        names = [f"together-{number:04}" for number in range(OBJECTS)]
        entries = [[_entry(f"app/{number:04}", "value")] for number in range(OBJECTS)]
        self.front.forget()
        first = await self._counted(
            [
                external_secret(name, "together", data, target={"template": template})
                for name, data in zip(names, entries, strict=True)
            ]
        )
        self.front.forget()
        await self.client.merge_patch(MAPS, ObjectKey(TEAM, "text"), {"data": {"text": "two"}})
        await until(lambda: self._have_text("two"), "the change does not arrive")
        again = self._reads()
        await self._delete(names, ["together"])
        return [
            shown("calls for 1,000 ExternalSecrets on 1,000 secrets, created one after the other", str(first)),
            _at_most("calls when they become due together (one each: 1,000)", again, OBJECTS // 5),
        ]

    async def _sharing(self) -> Row:
        stores = [f"role-{number:02}" for number in range(SHARING)]
        self.front.forget()
        for name in stores:
            await self._store(name, role=ROLE)
        names = [f"role-{number:04}" for number in range(OBJECTS)]
        await self._counted(
            [
                external_secret(name, stores[number % SHARING], [_entry(f"app/{number:04}", "value")])
                for number, name in enumerate(names)
            ]
        )
        logins = self.front.count("AssumeRole")
        await self._delete(names, stores)
        return _exactly("AssumeRole for 1,000 ExternalSecrets over 20 stores of one role", logins, 1)

    async def _memory(self) -> Row:
        before = self._resident()
        names = [f"keys-{number:03}" for number in range(CREDENTIALS)]
        for name in names:
            secret = {"id": f"AKIA{name.upper()}", "key": f"secret of {name}"}
            await self._create(SECRETS, {"metadata": {"name": name, "namespace": TEAM}, "stringData": secret})
            references = {"accessKeyIDSecretRef": {"name": name, "key": "id"}}
            references["secretAccessKeySecretRef"] = {"name": name, "key": "key"}
            await self._store(name, auth={"secretRef": references})
        await self._counted([external_secret(name, name, [_entry("app/0001", "value")]) for name in names])
        grown = (self._resident() - before) / 2**20
        wanted = f"<= {MEBIBYTES} MiB"
        return Row(f"memory for {CREDENTIALS} credentials in use", f"{grown:.1f} MiB", wanted, grown <= MEBIBYTES)

    # --- arranging ---------------------------------------------------------------------------------------------------

    async def _create(self, kind: Kind[Any], obj: JsonObject) -> None:
        await self.client.create(kind, obj)

    async def _store(self, name: str, *, service: str = "SecretsManager", **block: Any) -> None:
        spec = {"provider": {"aws": {"service": service, "region": REGION, **block}}}
        await self._create(STORES_OF_NAMESPACE, {"metadata": {"name": name, "namespace": TEAM}, "spec": spec})

    async def _counted(self, objects: Sequence[JsonObject]) -> int:
        """Create the objects, wait until they are ready, and count the reads so far."""
        await parallel([self._create(ES, obj) for obj in objects])
        wanted = {obj["metadata"]["name"] for obj in objects}

        async def ready() -> bool:
            page = await self.client.list(ES, Selection(TEAM))
            return wanted <= {one["metadata"]["name"] for one in page.items if isinstance(one, dict) and is_ready(one)}

        await until(ready, "ExternalSecrets do not become ready")
        return self._reads()

    def _reads(self) -> int:
        return sum(count for operation, count in self.front.counts.items() if operation in READS)

    async def _have_text(self, text: str) -> bool:
        wanted = base64.b64encode(text.encode()).decode()
        page = await self.client.list(SECRETS, Selection(TEAM))
        have = [one for one in page.items if isinstance(one, dict) and one.get("data", {}).get("text") == wanted]
        return len(have) == OBJECTS

    async def _delete(self, names: Sequence[str], stores: Sequence[str]) -> None:
        await parallel([self.client.delete(ES, ObjectKey(TEAM, name)) for name in names])
        await parallel([self.client.delete(STORES_OF_NAMESPACE, ObjectKey(TEAM, name)) for name in stores])

    def _resident(self) -> int:
        status = Path(f"/proc/{self.up.component('provider serve aws')}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0


def external_secret(name: str, store: str, data: Sequence[JsonObject], **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"refreshInterval": "1h", "secretStoreRef": {"name": store}, "data": list(data), **spec},
    }


def _entry(key: str, secret_key: str) -> JsonObject:
    return {"secretKey": secret_key, "remoteRef": {"key": key}}


def _exactly(name: str, value: int, wanted: int) -> Row:
    return Row(name, str(value), str(wanted), value == wanted)


def _at_most(name: str, value: int, most: int) -> Row:
    return Row(name, str(value), f"<= {most}", value <= most)
