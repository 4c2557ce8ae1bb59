"""Field ownership as a real API server decided it, step by step.

`observed_ownership.jsonl` was recorded by `tools/record_field_ownership.py` against kube-apiserver 1.36 with the
Trainer CRDs. Each line has the object before a write, the write, and the answer. Times are compared by presence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from trainmaster.api import status
from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.meta import Object
from trainmaster.api.patches.apply import apply
from trainmaster.api.patches.managed_fields import Writer, keep_times, track_update

pytestmark = pytest.mark.unit

STEPS = [orjson.loads(line) for line in (Path(__file__).parent / "observed_ownership.jsonl").read_bytes().splitlines()]
UPDATES = [step for step in STEPS if step["code"] < 300 and "apply" not in step["content_type"]]
APPLIES = [step for step in STEPS if step["code"] < 300 and "apply" in step["content_type"]]
CONFLICTS = [step for step in STEPS if step["code"] == 409]

NOW = "2030-01-01T00:00:00Z"

SET_LATER = {
    "create a Pod": [".spec.priority", ".spec.preemptionPolicy"],
    "create a Job": [".metadata.labels", ".spec.selector", ".spec.template.metadata.labels"],
    "create a Service": [".spec.clusterIPs", ".spec.ipFamilies", ".spec.ipFamilyPolicy"],
    "create a Namespace": [".spec.finalizers"],
    "create a JobSet": [
        ".spec.network",
        ".spec.startupPolicy",
        ".spec.successPolicy",
        ".spec.replicatedJobs.template.metadata",
        ".spec.replicatedJobs.template.spec.completionMode",
        ".spec.replicatedJobs.template.spec.template.metadata",
    ],
}
"""What upstream's server (or a webhook) fills in after ownership was recorded; nobody owns it."""


def kind_of(obj: Object) -> Kind:
    if obj["kind"] == "PodTemplate":
        return POD_TEMPLATE
    kind = catalogue.build().find_type(obj["apiVersion"], obj["kind"])
    assert kind is not None
    return kind


def _pod_template() -> Kind:
    """Not served here, but the one built-in kind whose Pod spec can be changed freely."""
    job = catalogue.build().find_type("batch/v1", "Job")
    assert job is not None
    tree = job.load()
    node = SchemaNode(
        type="object",
        definition="io.k8s.api.core.v1.PodTemplate",
        properties={
            "metadata": tree.properties["metadata"],
            "template": tree.properties["spec"].properties["template"],
        },
    )
    return Kind("", "v1", "PodTemplate", "podtemplates", "podtemplate", True, node.definition, lambda: node)


POD_TEMPLATE = _pod_template()


def writer_of(step: dict[str, Any], obj: Object) -> Writer:
    return Writer(step["manager"], obj["apiVersion"], NOW, step["subresource"])


def timeless(obj: Object) -> list[dict[str, Any]]:
    """Entries without the value of the time, in an order that does not depend on it."""
    entries = [{**entry, "time": bool(entry.get("time"))} for entry in obj["metadata"].get("managedFields", [])]
    return sorted(entries, key=lambda entry: (entry["operation"], entry["manager"], entry.get("subresource", "")))


def drop(value: Any, path: list[str]) -> None:
    for part in value if isinstance(value, list) else [value]:
        if len(path) == 1:
            del part[path[0]]
        else:
            drop(part[path[0]], path[1:])


def names(step: dict[str, Any]) -> str:
    return str(step["name"])


@pytest.mark.parametrize("step", UPDATES, ids=names)
def test_an_update_leaves_the_ownership_that_upstream_leaves(step: dict[str, Any]) -> None:
    before, after = step["before"], step["after"]
    sent = {**after, "metadata": {key: value for key, value in after["metadata"].items() if key != "managedFields"}}
    given = step["body"].get("metadata", {}) if isinstance(step["body"], dict) else {}
    if step["method"] == "PUT" or "managedFields" in given:
        sent["metadata"]["managedFields"] = given.get("managedFields")
    elif before is not None and "managedFields" in before["metadata"]:
        sent["metadata"]["managedFields"] = before["metadata"]["managedFields"]
    sent = orjson.loads(orjson.dumps(sent))
    for path in SET_LATER.get(step["name"], []):
        drop(sent, path.split(".")[1:])
    entries = track_update(kind_of(after), before, sent, writer_of(step, after))
    ours = {**after, "metadata": {**after["metadata"], "managedFields": entries}}
    assert timeless(ours) == timeless(after)


@pytest.mark.parametrize("step", APPLIES, ids=names)
def test_an_apply_gives_the_object_and_the_ownership_that_upstream_gives(step: dict[str, Any]) -> None:
    before, after = step["before"], step["after"]
    ours = apply(kind_of(after), before, step["body"], writer_of(step, after), step["force"])
    assert timeless(ours) == timeless(after)
    assert_holds(_comparable(ours), _comparable(after))
    if before is not None and before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]:
        assert keep_times(before, ours) == before


def _comparable(obj: Object) -> Object:
    """Without what the server adds on its own, and without status, which belongs to another endpoint."""
    metadata = {
        key: value for key, value in obj["metadata"].items() if key in ("labels", "finalizers", "ownerReferences")
    }
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


def assert_holds(ours: Any, theirs: Any, path: str = "") -> None:
    """Theirs holds all of ours, and nothing more than defaults: fields, never items of keyed lists or keys of maps."""
    if isinstance(ours, dict):
        for key, value in ours.items():
            assert key in theirs or value in ({}, [], None), f"{path}.{key} should be gone"
            if key in theirs:
                assert_holds(value, theirs[key], f"{path}.{key}")
        if path.endswith((".data", ".labels", ".nodeSelector")):
            assert set(ours) == set(theirs), path
    elif isinstance(ours, list):
        if path.endswith(".tolerations"):  # admission adds some
            theirs = theirs[: len(ours)]
        assert len(ours) == len(theirs), path
        for number, value in enumerate(ours):
            assert_holds(value, theirs[number], f"{path}[{number}]")
    else:
        assert ours == theirs, path


@pytest.mark.parametrize("step", CONFLICTS, ids=names)
def test_a_conflict_is_told_in_the_words_of_upstream(step: dict[str, Any]) -> None:
    before = step["before"]
    with pytest.raises(status.Conflict) as caught:
        apply(kind_of(before), before, step["body"], writer_of(step, before))
    want = step["after"]
    assert caught.value.message == want["message"]
    assert caught.value.code == want["code"]
    assert list(caught.value.causes) == sorted(
        want["details"]["causes"], key=lambda cause: (cause["message"], cause["field"])
    )
