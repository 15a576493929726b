"""What an installation with one provider consists of, in `golden.yaml`: a change of the chart is a small difference.

`ESO_GOLDEN=write pytest tests/deploy/test_golden.py` writes the file anew; look at the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from kubebase.meta import JsonObject

GOLDEN: Final = Path(__file__).with_name("golden.yaml")
CHART: Final = Path(__file__).resolve().parents[2] / "deploy" / "charts" / "external-secrets"
VERSION: Final = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
HEAD: Final = "# Written by test_golden.py: the chart with providers.vault.enabled, without labels and CRDs.\n"


class Chart(Protocol):
    def __call__(self, *, hooks: bool = False, **values: Any) -> list[JsonObject]: ...


def essence(document: JsonObject) -> Any:
    """Return what a reader of a change wants to see."""
    match document["kind"]:
        case "Deployment":
            pod = document["spec"]["template"]["spec"]
            containers = {
                each["name"]: {
                    key: each[key] for key in ("image", "args", "env", "ports", "volumeMounts") if key in each
                }
                for each in pod["containers"]
            }
            account = {key: pod[key] for key in ("serviceAccountName", "automountServiceAccountToken")}
            return {"replicas": document["spec"]["replicas"], **account, **containers}
        case "Role" | "ClusterRole" if not document["metadata"]["name"].endswith(("-view", "-edit")):
            return [
                f"{', '.join(rule['verbs'])}: {', '.join(rule['resources'])} in {', '.join(rule['apiGroups'])}"
                for rule in document["rules"]
                if rule["apiGroups"] == [""] or rule["verbs"] != ["get", "list", "watch"]  # kinds come with their CRDs
            ]
        case "Service" | "NetworkPolicy":
            annotations = {key: document["metadata"][key] for key in ("annotations",) if key in document["metadata"]}
            return {**annotations, **{key: value for key, value in document["spec"].items() if "elector" not in key}}
        case "RoleBinding" | "ClusterRoleBinding":
            return f"{document['roleRef']['name']} for {document['subjects'][0]['name']}"
        case _:
            return None


def test_an_installation_with_one_provider_is_as_written(operator_chart: Chart) -> None:
    objects = operator_chart(providers={"vault": {"enabled": True}})
    found = {f"{each['kind']} {each['metadata']['name']}": essence(each) for each in objects}
    found = yaml.safe_load(yaml.safe_dump(found).replace(f":{VERSION}\n", ":VERSION\n"))
    if os.environ.get("ESO_GOLDEN") == "write":
        GOLDEN.write_text(HEAD + yaml.safe_dump(found, width=118, sort_keys=True))

    assert found == yaml.safe_load(GOLDEN.read_text())
