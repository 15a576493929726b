"""Write the table of protobuf field numbers that localkube reads typed clients' bodies with.

The numbers are part of the public wire format of the Kubernetes API and stand in the struct tags of its Go types. This
reads those tags from the module cache of a Go toolchain and writes one line for each message that a served kind needs:

    core/v1.Secret 1:metadata:@meta/v1.ObjectMeta 2:data:{}bytes 3:type:string ...

    python tools/gen_protobuf_fields.py ~/go/pkg/mod/k8s.io 0.36.3
"""

import re
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "libs/localkube/src/localkube/wire/protobuf_fields.txt"
PACKAGES = {
    "meta/v1": ("apimachinery", "pkg/apis/meta/v1"),
    **{
        name: ("api", name)
        for name in (
            "core/v1",
            "apps/v1",
            "rbac/v1",
            "authentication/v1",
            "authorization/v1",
            "coordination/v1",
            "events/v1",
        )
    },
}
ROOTS = [
    "meta/v1.DeleteOptions",
    *(f"core/v1.{kind}" for kind in ("Namespace", "Secret", "ConfigMap", "ServiceAccount", "Service", "Event")),
    *(
        f"core/v1.{kind}"
        for kind in ("Endpoints", "Pod", "PersistentVolumeClaim", "ResourceQuota", "LimitRange", "Node")
    ),
    *(f"apps/v1.{kind}" for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    *(f"rbac/v1.{kind}" for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")),
    *(f"authentication/v1.{kind}" for kind in ("TokenRequest", "TokenReview", "SelfSubjectReview")),
    "authorization/v1.SelfSubjectAccessReview",
    "authorization/v1.SubjectAccessReview",
    "authorization/v1.LocalSubjectAccessReview",
    "authorization/v1.SelfSubjectRulesReview",
    "coordination/v1.Lease",
    "events/v1.Event",
]
SCALARS = {
    "string": "string",
    "bool": "bool",
    "int32": "int",
    "int64": "int",
    "int": "int",
    "float64": "double",
    "[]byte": "bytes",
    "metav1.Time": "time",
    "meta/v1.Time": "time",
    "metav1.MicroTime": "microtime",
    "meta/v1.MicroTime": "microtime",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intorstring",
    "runtime.RawExtension": "json",
    "meta/v1.FieldsV1": "json",
    "types.UID": "string",
    "types.NodeName": "string",
}
STRUCT = re.compile(r"^type (\w+) struct \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
ALIAS = re.compile(r"^type (\w+) (?!struct|interface)(\S+)$", re.MULTILINE)
FIELD = re.compile(r"^\t(?:(\w+)\s+)?(\S+)\s+`([^`]*)`", re.MULTILINE)
IMPORTS = {"metav1": "meta/v1", "v1": "core/v1", "corev1": "core/v1", "apiv1": "core/v1"}
WRAPPED_LISTS = {"authentication/v1.ExtraValue", "authorization/v1.ExtraValue", "meta/v1.Verbs"}


class Types:
    """Every struct and alias of the packages, by qualified name."""

    def __init__(self, root: Path, version: str) -> None:
        self.structs: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        for package, (module, folder) in PACKAGES.items():
            for file in sorted((root / f"{module}@v{version}" / folder).glob("*.go")):
                if not file.name.endswith("_test.go") and "generated" not in file.name:
                    self._read(package, file.read_text())

    def _read(self, package: str, source: str) -> None:
        for name, body in STRUCT.findall(source):
            self.structs[f"{package}.{name}"] = body
        for name, target in ALIAS.findall(source):
            self.aliases[f"{package}.{name}"] = target

    def line(self, name: str) -> tuple[str, list[str]]:
        """The table's line of one message, and the messages that it refers to."""
        package = name.partition(".")[0]
        fields, needed = [], []
        for field, go_type, tags in FIELD.findall(self.structs[name]):
            number = re.search(r'protobuf:"\w+,(\d+),', tags)
            json_tag = re.search(r'json:"([^",]*)([^"]*)"', tags)
            if number is None or json_tag is None:
                continue
            written = self.type_of(go_type, package)
            inline = "inline" in json_tag[2] or not (field or json_tag[1])
            fields.append(f"{number[1]}:{'' if inline else json_tag[1]}:{written}")
            needed += re.findall(r"@(\S+)", written)
        return " ".join([name, *sorted(fields, key=lambda text: int(text.split(":")[0]))]), needed

    def type_of(self, go_type: str, package: str) -> str:
        """`*` optional, `[]` list, `{}` map from strings, then a scalar or `@message`."""
        if go_type in SCALARS:
            return SCALARS[go_type]
        if go_type.startswith("*"):
            return "*" + self.type_of(go_type[1:], package)
        if go_type.startswith("[]"):
            return "[]" + self.type_of(go_type[2:], package)
        if found := re.fullmatch(r"map\[[\w.]+\](\S+)", go_type):
            return "{}" + self.type_of(found[1], package)
        full = self.qualified(go_type, package)
        if full in WRAPPED_LISTS:
            return "strings"
        if full in SCALARS:
            return SCALARS[full]
        if full in self.aliases:
            return self.type_of(self.aliases[full], full.partition(".")[0])
        if full not in self.structs:
            raise SystemExit(f"unknown Go type {go_type} in {package}")
        return f"@{full}"

    def qualified(self, go_type: str, package: str) -> str:
        prefix, dot, name = go_type.rpartition(".")
        return f"{IMPORTS[prefix]}.{name}" if dot else f"{package}.{name}"


def main() -> int:
    types = Types(Path(sys.argv[1]), sys.argv[2])
    lines: dict[str, str] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in lines:
            lines[name], needed = types.line(name)
            waiting += needed
    header = "# Field numbers of the Kubernetes API's protobuf messages; written by tools/gen_protobuf_fields.py."
    TARGET.write_text("\n".join([header, *sorted(lines.values())]) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
