"""An operator, and the fake provider as a process behind a Service, each with its certificates."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from eso_api.references import StoreRef
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_operator.certificates.local import LocalCertificates, replace_set
from eso_operator.providers import reachability
from eso_operator.providers.settings import BreakerSettings, DirectorySettings, RuntimeSettings
from eso_operator.settings import ProviderSettings, Settings, Tempo
from eso_operator.stores.credentials import bind
from eso_operator.stores.resolved import VALIDATION, BoundStore, ServiceKey
from eso_operator.wiring import Operator
from eso_testkit.cli.providerprocess import ProviderProcess, local_certificates
from eso_testkit.operator.clusters import NotedReads
from eso_testkit.operator.operators import LABEL, SERVICES, Bench, install_crds
from eso_wire.tls import client_id
from eso_wire.values import ObjectRef
from kubebase.backoff import ExponentialBackoff
from kubebase.meta import Condition, JsonObject
from kubebase.testing.servers import ApiServer, free_ports
from kuberun.testing.builders import SECRETS
from kuberun.testing.rawapi import RawApi

STORES = SECRET_STORE_V2.resource()
SERVICE = "provider-fake"
PORT = 8080
COMMAND = (str(Path(sys.executable).parent / "eso-provider-fake"),)
_QUICK = ExponentialBackoff(first=0.2, cap=1.0)
HASTY = Tempo(
    RuntimeSettings(breaker=BreakerSettings(rest=_QUICK)), DirectorySettings(refresh=2.0, again=_QUICK, start=0.0)
)
"""Between two tries the operator waits up to half a minute, and minutes for a provider that starts. How long is tested
in virtual time, elsewhere.
"""


@dataclass(slots=True)
class Site:
    """One test's operator and provider, in a namespace of their own."""

    bench: Bench
    provider: ProviderProcess
    faults_file: Path
    certificates: LocalCertificates
    tempo: Tempo = HASTY
    operator: Operator = field(init=False)

    @property
    def namespace(self) -> str:
        return self.bench.namespace

    @property
    def service(self) -> ServiceKey:
        return ServiceKey(self.namespace, SERVICE)

    @property
    def settings(self) -> Settings:
        """The provider's Service is dialled on loopback, with certificates that the test has made."""
        folders = ((self.service, self.certificates.client),)
        return replace(self.managed, providers=replace(self.managed.providers, client_folders=folders))

    @property
    def managed(self) -> Settings:
        """The same with certificates that the operator issues.

        The operator serves this namespace only: objects that earlier tests left would use the provider, too.
        """
        providers = ProviderSettings(trusted=((self.service, self.provider.address),), tempo=self.tempo)
        return replace(self.bench.settings, providers=providers, namespace=self.namespace)

    @asynccontextmanager
    async def running(self, settings: Settings | None = None) -> AsyncIterator[Operator]:
        """The operator, and the provider's Service."""
        async with self.bench.operator(settings or self.settings) as operator:
            self.operator = operator
            await self.create_service(SERVICE)
            yield operator

    async def create_service(self, name: str) -> None:
        spec = {"ports": [{"name": "grpc", "port": PORT}]}
        await self.bench.create(SERVICES, name, metadata={"labels": LABEL}, spec=spec)

    # --- the provider -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.provider.start("--faults", str(self.faults_file))

    def fails(self, *rules: JsonObject, **script: Any) -> None:
        """Set the faults from now on; none without rules."""
        fresh = self.faults_file.with_suffix(".new")
        fresh.write_text(json.dumps({"rules": rules, **script}))
        fresh.rename(self.faults_file)

    async def issued(self) -> dict[str, bytes] | None:
        """Return the certificates that the operator issued for the provider, as its pod would mount them."""
        found = await self.bench.find(SECRETS, f"{SERVICE}-provider-tls")
        return None if found is None else {key: base64.b64decode(value) for key, value in found["data"].items()}

    def use(self, files: dict[str, bytes]) -> None:
        """Put certificates where the provider looks."""
        replace_set(self.provider.tls, {name: files[name] for name in ("ca.crt", "tls.crt", "tls.key")})

    # --- stores -------------------------------------------------------------------------------------------------------

    async def create_store(self, name: str = "fake", *, service: str = SERVICE, **spec: Any) -> None:
        """Create a store that is validated every second."""
        inline = {"kind": "Fake", "spec": {"data": [{"key": "a", "value": "value-of-a"}]}}
        config = {"address": f"{service}.{self.namespace}.svc:{PORT}", "inline": inline}
        await self.bench.create(STORES, name, spec={"refreshInterval": "1s", "providerConfig": config, **spec})

    async def point_at(self, service: str, name: str = "fake") -> None:
        """Change the address of the store, as an administrator would."""
        address = f"{service}.{self.namespace}.svc:{PORT}"
        await self.bench.patch(STORES, name, {"spec": {"providerConfig": {"address": address}}})

    async def ready(self, name: str = "fake") -> JsonObject:
        return await self.bench.ready(STORES, name, lambda condition: condition.status == "True")

    async def broken(self, reason: str, *words: str, name: str = "fake") -> str:
        """The message of the store's condition, once it has this reason and these words."""

        def wanted(condition: Condition) -> bool:
            return (
                condition.status == "False"
                and condition.reason == reason
                and all(w in condition.message for w in words)
            )

        found = await self.bench.ready(STORES, name, wanted)
        return str(next(one["message"] for one in found["status"]["conditions"] if one["type"] == "Ready"))

    async def bound(self, name: str = "fake") -> BoundStore:
        """The store as an ExternalSecret would use it."""
        caller = ObjectRef("external-secrets.io/v1", "ExternalSecret", self.namespace, "user", "uid-user")
        ref = StoreRef(api_version=STORES.api_version, kind=STORES.kind, name=name)
        target = await self.operator.resolver.resolve(ref, caller, VALIDATION)
        return await bind(target, NotedReads())


def files_in(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("ca.crt", "tls.crt", "tls.key")}


@pytest.fixture
def short_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "_CACHE_SECONDS", 0.5)


@pytest.fixture
async def site(
    api_server: ApiServer, api: RawApi, namespace: str, tmp_path: Path, short_diagnosis: None
) -> AsyncIterator[Site]:
    del short_diagnosis
    await install_crds(api_server.kubeconfig)
    client = client_id("cluster.local", namespace, "external-secrets")
    port = free_ports(1)[0]
    provider = ProviderProcess(COMMAND, tmp_path / "provider", tmp_path / "tls", client, port)
    made = local_certificates(tmp_path / "certificates", "fake", namespace=namespace)
    site = Site(Bench(api, api_server.kubeconfig, namespace, port), provider, tmp_path / "faults.json", made)
    site.fails()
    site.use(files_in(made.server))
    yield site
    provider.kill()
