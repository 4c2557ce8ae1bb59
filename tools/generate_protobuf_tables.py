"""Writes trainmaster/api/formats/protobuf_tables.json: the field numbers of the kinds that clients send as protobuf.

    python tools/generate_protobuf_tables.py [--version v0.36.3]

The facts come from the struct tags of the k8s.io/api and k8s.io/apimachinery Go modules in the module cache
(`go mod download k8s.io/api@VERSION` brings them): the number, the JSON name, whether a field is a pointer (then a zero
value on the wire is meant), and whether a message is inlined in JSON. The .proto files lack the last two.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from pathlib import Path

TARGET = Path(__file__).parent.parent / "trainmaster" / "api" / "formats" / "protobuf_tables.json"

PACKAGES = {
    "core.v1": "api@{}/core/v1",
    "batch.v1": "api@{}/batch/v1",
    "rbac.v1": "api@{}/rbac/v1",
    "scheduling.v1": "api@{}/scheduling/v1",
    "storage.v1": "api@{}/storage/v1",
    "authentication.v1": "api@{}/authentication/v1",
    "authorization.v1": "api@{}/authorization/v1",
    "coordination.v1": "api@{}/coordination/v1",
    "events.v1": "api@{}/events/v1",
    "meta.v1": "apimachinery@{}/pkg/apis/meta/v1",
}
KINDS = {
    "v1": (
        "core.v1",
        "ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod ResourceQuota "
        "Secret Service ServiceAccount Binding",
    ),
    "batch/v1": ("batch.v1", "Job"),
    "rbac.authorization.k8s.io/v1": ("rbac.v1", "Role RoleBinding ClusterRole ClusterRoleBinding"),
    "scheduling.k8s.io/v1": ("scheduling.v1", "PriorityClass"),
    "storage.k8s.io/v1": ("storage.v1", "StorageClass"),
    "coordination.k8s.io/v1": ("coordination.v1", "Lease"),
    "events.k8s.io/v1": ("events.v1", "Event"),
    "authentication.k8s.io/v1": ("authentication.v1", "TokenRequest TokenReview SelfSubjectReview"),
    "authorization.k8s.io/v1": (
        "authorization.v1",
        "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
    ),
}
DELETE_OPTIONS = "meta.v1.DeleteOptions"

IMPORTS = {"metav1": "meta.v1", "v1": "core.v1", "corev1": "core.v1", "apiv1": "core.v1"}
SPECIAL = {
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "int_or_string",
    "metav1.Time": "time",
    "Time": "time",
    "metav1.MicroTime": "micro_time",
    "MicroTime": "micro_time",
    "FieldsV1": "raw",
    "metav1.FieldsV1": "raw",
    "runtime.RawExtension": "raw",
    "types.UID": "string",
    "[]byte": "bytes",
    "string": "string",
    "bool": "bool",
    "int32": "int",
    "int64": "int",
    "int": "int",
    "uint32": "int",
    "uint64": "int",
}
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
ALIAS = re.compile(r"^type (\w+) (map\[.*|\[\].*|\w+)$", re.MULTILINE)
FIELD = re.compile(r"^\t(?:(\w+)\s+)?([\w.*\[\]]+)\s+`([^`]*)`", re.MULTILINE)


class Sources:
    def __init__(self, cache: Path, version: str) -> None:
        self.structs: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        for package, place in PACKAGES.items():
            text = (cache / "k8s.io" / place.format(version) / "types.go").read_text()
            for name, body in STRUCT.findall(text):
                self.structs[f"{package}.{name}"] = body
            for name, target in ALIAS.findall(text):
                self.aliases[f"{package}.{name}"] = target

    def resolve(self, package: str, go_type: str) -> tuple[str, str]:
        """The kind of a Go type, and how it is repeated: "", "list" or "map"."""
        if go_type in SPECIAL:
            return SPECIAL[go_type], ""
        if go_type.startswith("[]"):
            return self.resolve(package, go_type[2:])[0], "list"
        if go_type.startswith("map["):
            kind, repeated = self.resolve(package, go_type.partition("]")[2])
            return ("strings" if repeated == "list" else kind), "map"
        prefix, dot, name = go_type.rpartition(".")
        full = f"{IMPORTS[prefix]}.{name}" if dot else f"{package}.{go_type}"
        if full in self.structs:
            return "@" + full, ""
        return self.resolve(full.rpartition(".")[0], self.aliases[full])


def read_fields(sources: Sources, full: str) -> dict[str, list[str]]:
    package = full.rpartition(".")[0]
    out: dict[str, list[str]] = {}
    for _, go_type, tags in FIELD.findall(sources.structs[full]):
        found = re.search(r'protobuf:"\w+,(\d+)', tags)
        if found is None:
            continue
        name, *options = re.search(r'json:"([^"]*)"', tags).group(1).split(",")  # type: ignore[union-attr]
        pointer = go_type.startswith("*")
        kind, repeated = sources.resolve(package, go_type.lstrip("*"))
        if "inline" in options or not name:
            repeated = "inline"
        elif not repeated and (pointer or ("omitempty" not in options and not kind.startswith("@"))):
            repeated = "keep"
        out[found.group(1)] = [name, kind, repeated] if repeated else [name, kind]
    return out


def build(sources: Sources) -> dict[str, object]:
    kinds = {
        f"{api_version} {name}": f"{package}.{name}"
        for api_version, (package, names) in KINDS.items()
        for name in names.split()
    }
    for api_version in (*KINDS, "meta.k8s.io/v1"):
        kinds[f"{api_version} DeleteOptions"] = DELETE_OPTIONS
    messages: dict[str, dict[str, list[str]]] = {}
    waiting = sorted(set(kinds.values()))
    while waiting:
        full = waiting.pop()
        if full not in messages:
            messages[full] = read_fields(sources, full)
            waiting.extend(field[1][1:] for field in messages[full].values() if field[1].startswith("@"))
    return {"kinds": kinds, "messages": dict(sorted(messages.items()))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="v0.36.3")
    options = parser.parse_args()
    cache = subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout.strip()
    tables = build(Sources(Path(cache), options.version))
    lines = [f'{{"source":"k8s.io/api {options.version}",', '"kinds":{']
    lines.append(",\n".join(f"{json.dumps(k)}:{json.dumps(v)}" for k, v in tables["kinds"].items()))  # type: ignore[attr-defined]
    lines.append('},"messages":{')
    messages = tables["messages"].items()  # type: ignore[attr-defined]
    lines.append(",\n".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in messages))
    lines.append("}}")
    TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
