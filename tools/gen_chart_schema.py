"""Write the generated files of the charts.

    values.schema.json    from values.yaml
    providers.yaml        what each provider serves, from the providers
    providercrds.yaml     the CRDs of each provider, from the providers
    .helmignore           the CRDs of the core, which the chart of one provider does not need

gen_chart_schema.py [--check] CHARTS

With --check, only check that they are up to date.

A value has the type of its default, and a map has no keys but those of its default; an empty map or list has any. What
`values.yaml` cannot say is in the tables below: keys that are accepted without a default, and words to choose from.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from eso_api.kinds import GENERATOR_KINDS, KINDS, provider_kinds
from eso_api.references import GENERATORS_GROUP
from eso_operator.stores.resolved import ServiceKey
from eso_sdk.installed import installed, load
from eso_tools.providers import service_object

PROVIDERS: Final = Path(__file__).resolve().parents[1] / "providers"

Schema = dict[str, Any]

BOOLEAN: Final[Schema] = {"type": "boolean"}
STRING: Final[Schema] = {"type": "string"}
NOT_EMPTY: Final[Schema] = {"type": "string", "minLength": 1}
OBJECT: Final[Schema] = {"type": "object"}
COUNT_OR_SHARE: Final[Schema] = {"type": ["integer", "string"]}

ANY_KEYS: Final = frozenset({"global", "podSecurityContext", "securityContext", "spec", "resources", "podLabels"})
"""Maps by the last part of their path that have keys of Kubernetes, or of a parent chart."""

WORDS: Final[dict[str, list[str]]] = {
    "image.pullPolicy": ["Always", "IfNotPresent", "Never"],
    "serviceMonitor.renderMode": ["skipIfMissing", "failIfMissing", "alwaysRender"],
    "prometheusRule.renderMode": ["skipIfMissing", "failIfMissing", "alwaysRender"],
    "callTokens.verify": ["", "review", "jwks"],
    "callTokens.policy": ["required", "optional"],
    "identity.usedBy": ["", "cluster", "namespaced"],
}
"""Choices by the last two parts of a path."""

OF_GO: Final[dict[str, Schema]] = {
    "bitwarden-sdk-server": OBJECT,
    "crds.conversion": OBJECT,
    "crds.createSecretStore": BOOLEAN,
    "crds.unsafeServeV1Beta1": BOOLEAN,
    "enableHTTP2": BOOLEAN,
    "image.flavour": STRING,
    "vault": OBJECT,
    # A parent chart puts the condition of its dependency here.
    "enabled": BOOLEAN,
}
"""Values of the chart of the operator in Go that have no effect here, or are refused with a sentence."""

OF_PODS: Final = (
    *("imagePullSecrets", "revisionHistoryLimit", "strategy", "podSecurityContext", "securityContext", "extraEnv"),
    *("extraVolumes", "extraVolumeMounts", "nodeSelector", "tolerations", "affinity", "hostAliases"),
    *("topologySpreadConstraints", "priorityClassName", "schedulerName", "runtimeClassName", "dnsPolicy", "dnsConfig"),
    *("service", "podLabels", "podAnnotations", "deploymentAnnotations"),
)
"""Values of the operator's pods that each provider may have for its own."""

NAME: Final = "^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    folders = [argument for argument in arguments if argument != "--check"]
    if len(folders) != 1:
        print("usage: gen_chart_schema.py [--check] CHARTS", file=sys.stderr)
        return 2
    charts = Path(folders[0])
    wanted = {folder / "values.schema.json": text for folder, text in rendered(charts).items()}
    files = charts / "external-secrets" / "files"
    wanted |= {files / "providers.yaml": served(), files / "providercrds.yaml": definitions()}
    wanted[charts / "eso-provider" / ".helmignore"] = unneeded()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if check:
        for path in stale:
            print(f"{path} is not up to date; run `make gen`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


def served() -> str:
    """Return what each provider serves, as annotations of its Service: known before its first pod runs."""
    annotations = {
        name: service_object(ServiceKey("", name), 0, load(name).kind_infos)["metadata"]["annotations"]
        for name in installed()
        if (PROVIDERS / name).is_dir()
    }
    head = "# Written by `make gen`: what each provider serves, as annotations of its Service.\n"
    return head + yaml.safe_dump(annotations, width=float("inf"))


def definitions() -> str:
    """Return the CRDs that each provider defines, and those of v1 generators that it serves."""
    table: dict[str, dict[str, list[str]]] = {}
    for name, kinds in provider_kinds().items():
        if (PROVIDERS / name).is_dir():
            of_v1 = {info.kind.kind for info in load(name).kind_infos if info.kind.group == GENERATORS_GROUP}
            table[name] = {
                "crds": sorted(kind.crd_name for kind in kinds),
                "v1Generators": sorted(kind.crd_name for kind in GENERATOR_KINDS if kind.name in of_v1),
            }
    head = "# Written by `make gen`: the CRDs of each provider, and those of the v1 generators that it serves.\n"
    return head + yaml.safe_dump(table, width=float("inf"))


def unneeded() -> str:
    """Return the CRDs of the core, which Helm would store with each revision of the release of a provider."""
    head = "# Written by `make gen`: the CRDs of the core, which Helm would store with each revision of a release.\n"
    return head + "".join(f"files/crds/{name}.yaml\n" for name in sorted(kind.crd_name for kind in KINDS))


def rendered(charts: Path) -> dict[Path, str]:
    """Return the text of the schema for the folder of each chart."""
    umbrella, provider = charts / "external-secrets", charts / "eso-provider"
    schemas = {umbrella: of_umbrella(_values(umbrella)), provider: of_provider(_values(provider), _values(umbrella))}
    return {folder: json.dumps(schema, indent=1) + "\n" for folder, schema in schemas.items()}


def of_umbrella(values: Schema) -> Schema:
    schema = _schema(values, ())
    for path, given in OF_GO.items():
        *parents, name = path.split(".")
        place = schema
        for parent in parents:
            place = place["properties"][parent]
        place["properties"][name] = given
    defaults = schema["properties"]["providerDefaults"]
    own = {"enabled": BOOLEAN, **{key: schema["properties"][key] for key in OF_PODS}}
    defaults["properties"] = {**own, **defaults["properties"]}
    names = {"names": {"type": "array", "items": {"type": "string", "pattern": NAME}}}
    shared = {**defaults, "properties": {**defaults["properties"], **names}}
    schema["properties"]["providers"] = {
        "type": "object",
        "properties": {"shared": shared},
        "patternProperties": {f"^({'|'.join(name for name in values['providers'] if name != 'shared')})$": defaults},
        "additionalProperties": False,
    }
    image = {**defaults["properties"]["image"], "required": ["repository", "tag"]}
    image["properties"] = {**image["properties"], "repository": NOT_EMPTY, "tag": NOT_EMPTY}
    foreign = {**defaults, "properties": {**defaults["properties"], "image": image}, "required": ["image"]}
    schema["properties"]["extraProviders"] = {
        "type": "object",
        "patternProperties": {NAME: foreign},
        "additionalProperties": False,
    }
    adapt: Schema = {"enum": ["auto", "force", "disabled"]}
    for name in ("adaptSecurityContext", "openshift", "compatibility"):
        adapt = {"type": "object", "properties": {name: adapt}}
    schema["properties"]["global"] = adapt
    schema["properties"]["featureGates"] = {"type": "object", "additionalProperties": BOOLEAN}
    schema["patternProperties"] = {"^x-": {}}
    return _root(schema)


def of_provider(values: Schema, umbrella: Schema) -> Schema:
    schema = _schema(values, ())
    pods = {key: _schema(umbrella[key], (key,)) for key in (*OF_PODS, "nameOverride", "namespaceOverride", "global")}
    schema["properties"] = {**pods, **schema["properties"], "enabled": BOOLEAN}
    schema["properties"]["name"] = {"type": "string", "pattern": f"{NAME}|^$"}
    return _root(schema)


def _schema(value: Any, path: tuple[str, ...]) -> Schema:
    if words := WORDS.get(".".join(path[-2:])):
        return {"enum": words}
    if path[-1:] == ("minAvailable",):
        return COUNT_OR_SHARE
    if isinstance(value, dict):
        if not value or path[-1] in ANY_KEYS if path else False:
            return OBJECT
        properties = {key: _schema(each, (*path, key)) for key, each in value.items()}
        if "minAvailable" in value:
            properties["maxUnavailable"] = COUNT_OR_SHARE
        return {"type": "object", "properties": properties, "additionalProperties": False}
    if value is None:
        return {"type": ["boolean", "null"]}
    types = {bool: "boolean", int: "integer", str: "string", list: "array"}
    return {"type": types[type(value)]}


def _root(schema: Schema) -> Schema:
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema}


def _values(folder: Path) -> Schema:
    values: Schema = yaml.safe_load((folder / "values.yaml").read_text(encoding="utf-8"))
    return values


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
