"""Writes trainmaster/api/formats/go_types.json: the structs into which Go clients read the kinds that we serve.

    python tools/generate_go_types.py [--version v0.36.3] [--jobset v0.12.0] [--trainer v2.3.0]

The facts come from the struct tags in the Go module cache (`go mod download k8s.io/api@VERSION` fetches a module): the
protobuf number (fields of custom kinds have none and are counted instead), the JSON name, whether a field is a pointer
(then a zero value is meant) or is written even when it is zero, and whether a message is inlined in JSON. The .proto
files and the schemas lack the last three.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from pathlib import Path

TARGET = Path(__file__).parent.parent / "trainmaster" / "api" / "formats" / "go_types.json"

PACKAGES = {
    "core.v1": "k8s.io/api@{version}/core/v1/types.go",
    "batch.v1": "k8s.io/api@{version}/batch/v1/types.go",
    "rbac.v1": "k8s.io/api@{version}/rbac/v1/types.go",
    "scheduling.v1": "k8s.io/api@{version}/scheduling/v1/types.go",
    "storage.v1": "k8s.io/api@{version}/storage/v1/types.go",
    "authentication.v1": "k8s.io/api@{version}/authentication/v1/types.go",
    "authorization.v1": "k8s.io/api@{version}/authorization/v1/types.go",
    "coordination.v1": "k8s.io/api@{version}/coordination/v1/types.go",
    "events.v1": "k8s.io/api@{version}/events/v1/types.go",
    "meta.v1": "k8s.io/apimachinery@{version}/pkg/apis/meta/v1/types.go",
    "jobset.v1alpha2": "sigs.k8s.io/jobset@{jobset}/api/jobset/v1alpha2/jobset_types.go",
    "trainer.v1alpha1": "github.com/kubeflow/trainer/v2@{trainer}/pkg/apis/trainer/v1alpha1/*_types.go",
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
CUSTOM_KINDS = {
    "jobset.x-k8s.io/v1alpha2": ("jobset.v1alpha2", "JobSet"),
    "trainer.kubeflow.org/v1alpha1": ("trainer.v1alpha1", "ClusterTrainingRuntime TrainJob TrainingRuntime"),
}
DELETE_OPTIONS = "meta.v1.DeleteOptions"

IMPORTS = {
    **{"metav1": "meta.v1", "v1": "core.v1", "corev1": "core.v1", "apiv1": "core.v1", "batchv1": "batch.v1"},
    "jobsetv1alpha2": "jobset.v1alpha2",
}
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
    "volcanov1beta1.NetworkTopologySpec": "raw",
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
STRUCT = re.compile(r"^type (\w+) struct ?\{(?:\}|\n(.*?)^\})", re.MULTILINE | re.DOTALL)
ALIAS = re.compile(r"^type (\w+) (map\[.*|\[\].*|\w+)$", re.MULTILINE)
FIELD = re.compile(r"^\t(?:(\w+)\s+)?([\w.*\[\]]+)\s+`([^`]*)`", re.MULTILINE)


class Sources:
    def __init__(self, cache: Path, versions: dict[str, str]) -> None:
        self.structs: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        for package, place in PACKAGES.items():
            text = "\n".join(file.read_text() for file in sorted(cache.glob(place.format(**versions))))
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


CUSTOM = tuple(package for package, _ in CUSTOM_KINDS.values())


def read_fields(sources: Sources, full: str) -> dict[str, list[str]]:
    package = full.rpartition(".")[0]
    out: dict[str, list[str]] = {}
    for _, go_type, tags in FIELD.findall(sources.structs[full]):
        found = re.search(r'protobuf:"\w+,(\d+)', tags)
        if go_type == "metav1.TypeMeta" or (found is None and package not in CUSTOM):
            continue
        number = str(len(out) + 1) if found is None else found.group(1)
        name, *options = re.search(r'json:"([^"]*)"', tags).group(1).split(",")  # type: ignore[union-attr]
        pointer = go_type.startswith("*")
        kind, repeated = sources.resolve(package, go_type.lstrip("*"))
        if "inline" in options or not name:
            repeated = "inline"
        elif not repeated and pointer:
            repeated = "pointer"
        elif not repeated and not {"omitempty", "omitzero"}.intersection(options) and not kind.startswith("@"):
            repeated = "always"
        out[number] = [name, kind, repeated] if repeated else [name, kind]
    return out


def list_kinds(table: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {
        f"{api_version} {name}": f"{package}.{name}"
        for api_version, (package, names) in table.items()
        for name in names.split()
    }


def build(sources: Sources) -> dict[str, dict[str, object]]:
    kinds, custom = list_kinds(KINDS), list_kinds(CUSTOM_KINDS)
    for api_version in (*KINDS, "meta.k8s.io/v1"):
        kinds[f"{api_version} DeleteOptions"] = DELETE_OPTIONS
    messages: dict[str, dict[str, list[str]]] = {}
    waiting = sorted({*kinds.values(), *custom.values()})
    while waiting:
        full = waiting.pop()
        if full not in messages:
            messages[full] = read_fields(sources, full)
            waiting.extend(field[1][1:] for field in messages[full].values() if field[1].startswith("@"))
    return {"kinds": dict(kinds), "custom_kinds": dict(custom), "messages": dict(sorted(messages.items()))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="v0.36.3")
    parser.add_argument("--jobset", default="v0.12.0")
    parser.add_argument("--trainer", default="v2.3.0")
    versions = vars(parser.parse_args())
    cache = subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout.strip()
    lines = [f'{{"source":{json.dumps(versions)}']
    for name, table in build(Sources(Path(cache), versions)).items():
        lines.append(f',"{name}":{{')
        lines.append(",\n".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in table.items()))
        lines.append("}")
    lines.append("}")
    TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
