"""Writes `trainmaster/api/schemas/data/*.json` from a running Kubernetes API server.

Only structure is taken: field names, types, formats, required, enums, defaults, limits, patterns, list and map
types, patch strategies, merge keys and CEL rules with their messages. Descriptions are dropped; ours live in
`trainmaster/api/schemas/descriptions.json`.

Built-in kinds come from `/openapi/v3`. Custom kinds come from the CustomResourceDefinition objects, because the
server's OpenAPI drops what structural schemas say beyond plain OpenAPI. The server must have the JobSet and Trainer
CRDs installed. Usage: `KUBECONFIG=... python tools/generate_schemas.py [--kubectl kubectl]`; the output is
deterministic, so a second run against the same versions changes nothing.

The kinds of training-operator come from the files of their CRDs, because their operator is not installed beside
Trainer: `python tools/generate_schemas.py --v1 FILE...` (1.9.4, and MXJob of 1.8.1).
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

Raw = dict[str, Any]

DATA = Path(__file__).resolve().parent.parent / "trainmaster" / "api" / "schemas" / "data"

META = "io.k8s.apimachinery.pkg.apis.meta.v1"

# Each output file: the OpenAPI document it is read from, and the definitions everything else is reached from.
BUILT_IN: dict[str, tuple[str, ...]] = {
    "api/v1": (
        "io.k8s.api.core.v1.Binding",
        "io.k8s.api.core.v1.ConfigMap",
        "io.k8s.api.core.v1.Endpoints",
        "io.k8s.api.core.v1.Event",
        "io.k8s.api.core.v1.LimitRange",
        "io.k8s.api.core.v1.Namespace",
        "io.k8s.api.core.v1.Node",
        "io.k8s.api.core.v1.PersistentVolume",
        "io.k8s.api.core.v1.PersistentVolumeClaim",
        "io.k8s.api.core.v1.Pod",
        "io.k8s.api.core.v1.ResourceQuota",
        "io.k8s.api.core.v1.Secret",
        "io.k8s.api.core.v1.Service",
        "io.k8s.api.core.v1.ServiceAccount",
        "io.k8s.api.authentication.v1.TokenRequest",
        "io.k8s.api.policy.v1.Eviction",
        f"{META}.APIResourceList",
        f"{META}.DeleteOptions",
        f"{META}.ListMeta",
        f"{META}.Patch",
        f"{META}.Status",
        f"{META}.WatchEvent",
    ),
    "apis": (f"{META}.APIGroupList",),
    "version": ("io.k8s.apimachinery.pkg.version.Info",),
    "apis/apiextensions.k8s.io/v1": (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    ),
    "apis/apps/v1": ("io.k8s.api.apps.v1.Deployment", "io.k8s.api.autoscaling.v1.Scale"),
    "apis/authentication.k8s.io/v1": (
        "io.k8s.api.authentication.v1.SelfSubjectReview",
        "io.k8s.api.authentication.v1.TokenReview",
    ),
    "apis/authorization.k8s.io/v1": (
        "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
        "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
        "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
        "io.k8s.api.authorization.v1.SubjectAccessReview",
    ),
    "apis/batch/v1": ("io.k8s.api.batch.v1.Job",),
    "apis/coordination.k8s.io/v1": ("io.k8s.api.coordination.v1.Lease",),
    "apis/events.k8s.io/v1": ("io.k8s.api.events.v1.Event",),
    "apis/rbac.authorization.k8s.io/v1": (
        "io.k8s.api.rbac.v1.ClusterRole",
        "io.k8s.api.rbac.v1.ClusterRoleBinding",
        "io.k8s.api.rbac.v1.Role",
        "io.k8s.api.rbac.v1.RoleBinding",
    ),
    "apis/scheduling.k8s.io/v1": ("io.k8s.api.scheduling.v1.PriorityClass",),
    "apis/storage.k8s.io/v1": ("io.k8s.api.storage.v1.StorageClass",),
}

# Custom kinds: the CRD, the definition name that a server's OpenAPI gives to it, and the output file.
CUSTOM: tuple[tuple[str, str, str], ...] = (
    ("jobsets.jobset.x-k8s.io", "io.x-k8s.jobset.v1alpha2.JobSet", "jobset_v1alpha2"),
    ("trainjobs.trainer.kubeflow.org", "org.kubeflow.trainer.v1alpha1.TrainJob", "trainer_v1alpha1"),
    ("trainingruntimes.trainer.kubeflow.org", "org.kubeflow.trainer.v1alpha1.TrainingRuntime", "trainer_v1alpha1"),
    (
        "clustertrainingruntimes.trainer.kubeflow.org",
        "org.kubeflow.trainer.v1alpha1.ClusterTrainingRuntime",
        "trainer_v1alpha1",
    ),
)

# Free-form by nature, which OpenAPI does not say: a JSON schema holds JSON schemas, and the other two any object.
OPEN = {
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    f"{META}.FieldsV1",
}

# JSON schema keyword -> our shorter key (see `trainmaster.api.schemas` for the reader).
COPIED: dict[str, str] = {
    "format": "format",
    "required": "required",
    "enum": "enum",
    "nullable": "nullable",
    "minimum": "min",
    "maximum": "max",
    "minLength": "minLen",
    "maxLength": "maxLen",
    "pattern": "pattern",
    "minItems": "minItems",
    "maxItems": "maxItems",
    "minProperties": "minProps",
    "maxProperties": "maxProps",
    "x-kubernetes-list-type": "listType",
    "x-kubernetes-list-map-keys": "keys",
    "x-kubernetes-patch-merge-key": "mergeKey",
    "x-kubernetes-preserve-unknown-fields": "open",
}


def file_of(definition: str) -> str:
    """The output file of a definition, by the package part of its name."""
    if definition.startswith("io.k8s.apimachinery."):
        return "apimachinery"
    if definition.startswith("io.k8s.apiextensions-apiserver."):
        return "apiextensions_v1"
    group, version = definition.split(".")[-3:-1]
    return f"{group}_{version}"


def ref_of(schema: Raw) -> str:
    target = schema.get("$ref") or (schema.get("allOf") or [{}])[0].get("$ref", "")
    return str(target).rpartition("/")[2]


def compact(schema: Raw) -> Raw:
    """One schema in our short form, children included."""
    out: Raw = {}
    if target := ref_of(schema):
        out["ref"] = target
    if "type" in schema:
        out["type"] = schema["type"]
    if schema.get("x-kubernetes-int-or-string") or "oneOf" in schema:
        out.pop("type", None)
        out["ios"] = True
    for keyword, short in COPIED.items():
        value = schema.get(keyword)
        if value is not None and value is not False and value not in ([], ""):
            out[short] = value
    if schema.get("default") not in (None, {}, "", 0, False) or ("default" in schema and "_custom" in schema):
        out["default"] = schema["default"]
    if schema.get("x-kubernetes-map-type") == "atomic":
        out["atomicMap"] = True
    if strategy := schema.get("x-kubernetes-patch-strategy"):
        out["patch"] = strategy.split(",")
    if rules := schema.get("x-kubernetes-validations"):
        out["rules"] = [compact_rule(rule) for rule in rules]
    if properties := schema.get("properties"):
        out["props"] = {name: compact(child) for name, child in sorted(properties.items())}
    if isinstance(schema.get("items"), dict):
        out["items"] = compact(schema["items"])
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        out["extra"] = compact(extra)
    elif extra is True:
        out["open"] = True
    return out


def compact_rule(rule: Raw) -> Raw:
    names = {"rule": "rule", "message": "message", "messageExpression": "expression", "reason": "reason"}
    names |= {"fieldPath": "path", "optionalOldSelf": "optionalOld"}
    unknown = set(rule) - set(names)
    if unknown:
        raise SystemExit(f"a rule has parts that we do not carry: {sorted(unknown)}")
    return {short: rule[long] for long, short in names.items() if long in rule}


def mark_custom(schema: Any) -> None:
    """In a CRD every default is applied by the server, an empty one too; in built-ins `""` and `{}` say nothing."""
    for node in walk(schema, children_of_raw):
        node["_custom"] = True


def children_of_raw(schema: Raw) -> Iterator[Raw]:
    yield from schema.get("properties", {}).values()
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield schema[keyword]


def children_of_compact(schema: Raw) -> Iterator[Raw]:
    yield from schema.get("props", {}).values()
    for keyword in ("items", "extra"):
        if keyword in schema:
            yield schema[keyword]


def walk(schema: Raw, children: Callable[[Raw], Iterator[Raw]]) -> Iterator[Raw]:
    yield schema
    for child in children(schema):
        yield from walk(child, children)


def read_built_in(get: Callable[[str], Raw]) -> dict[str, Raw]:
    """Every definition reachable from the roots, in short form."""
    found: dict[str, Raw] = {}
    for document, roots in BUILT_IN.items():
        schemas = get(f"/openapi/v3/{document}")["components"]["schemas"]
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            short: Raw = {"type": "object", "open": True} if name in OPEN else compact(schemas[name])
            found[name] = short
            waiting.extend(node["ref"] for node in walk(short, children_of_compact) if "ref" in node)
    return found


def read_custom(get: Callable[[str], Raw], crd: str) -> Raw:
    return read_version(get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}")["spec"]["versions"])


def read_version(versions: Sequence[Raw]) -> Raw:
    schema = next(version for version in versions if version["storage"])["schema"]["openAPIV3Schema"]
    mark_custom(schema)
    short = compact(schema)
    short["props"]["apiVersion"] = {"type": "string"}
    short["props"]["kind"] = {"type": "string"}
    short["props"]["metadata"] = {"ref": f"{META}.ObjectMeta"}
    return short


def read_v1(files: Sequence[Path]) -> dict[str, Raw]:
    """The kinds of `kubeflow.org/v1`. MXJob, which is older, gets the parts that all have in common from the others."""
    found: dict[str, Raw] = {}
    for file in files:
        crd = yaml.safe_load(file.read_text())
        found[f"org.kubeflow.v1.{crd['spec']['names']['kind']}"] = read_version(crd["spec"]["versions"])
    newer = found["org.kubeflow.v1.PyTorchJob"]["props"]
    older = found["org.kubeflow.v1.MXJob"]["props"]
    older["status"] = newer["status"]
    older["spec"]["props"]["runPolicy"] = newer["spec"]["props"]["runPolicy"]
    older["spec"]["props"]["mxReplicaSpecs"] = newer["spec"]["props"]["pytorchReplicaSpecs"]
    return found


def hoist(definitions: dict[str, Raw], smallest: int = 600) -> dict[str, Raw]:
    """Moves large subtrees that occur more than once into definitions of their own, named `#1`, `#2`, ...

    A Pod template occurs in every custom kind, and containers occur in it three times; sharing keeps the files and
    the trees built from them small.
    """
    counts = Counter(
        text
        for root in definitions.values()
        for node in walk(root, children_of_compact)
        if len(text := dump(node)) >= smallest
    )
    names: dict[str, str] = {}
    shared: dict[str, Raw] = {}

    def replaced(node: Raw) -> Raw:
        text = dump(node)
        if counts.get(text, 0) < 2:
            return children_replaced(node)
        if text not in names:
            body = children_replaced(node)
            names[text] = f"#{len(names) + 1}"
            shared[names[text]] = body
        return {"ref": names[text]}

    def children_replaced(node: Raw) -> Raw:
        out = dict(node)
        if "props" in node:
            out["props"] = {name: replaced(child) for name, child in node["props"].items()}
        for keyword in ("items", "extra"):
            if keyword in node:
                out[keyword] = replaced(node[keyword])
        return out

    return {name: children_replaced(root) for name, root in definitions.items()} | shared


def dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def write(name: str, definitions: dict[str, Raw]) -> None:
    lines = [f"{json.dumps(key)}:{dump(definitions[key])}" for key in sorted(definitions)]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (DATA / f"{name}.json").write_text(text)
    print(f"{name}.json: {len(definitions)} definitions, {len(text)} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("--v1", nargs="+", type=Path, metavar="FILE", help="only the v1 kinds, from these CRDs")
    arguments = parser.parse_args()
    if arguments.v1:
        write("kubeflow_v1", hoist(read_v1(arguments.v1)))
        return

    def get(path: str) -> Raw:
        answer = subprocess.run([arguments.kubectl, "get", "--raw", path], check=True, capture_output=True)
        parsed: Raw = json.loads(answer.stdout)
        return parsed

    files: dict[str, dict[str, Raw]] = {}
    for definition, short in read_built_in(get).items():
        files.setdefault(file_of(definition), {})[definition] = short
    for crd, definition, name in CUSTOM:
        files.setdefault(name, {})[definition] = read_custom(get, crd)
    DATA.mkdir(parents=True, exist_ok=True)
    for name, definitions in sorted(files.items()):
        custom = any(name == file for _, _, file in CUSTOM)
        write(name, hoist(definitions) if custom else definitions)


if __name__ == "__main__":
    main()
