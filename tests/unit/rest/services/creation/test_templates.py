"""Templates: shipped ones, an administrator's over them, and placeholders that cannot change an object's shape."""

from __future__ import annotations

import copy
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainmaster.jobs.compose.request import JobRequest
from trainmaster.jobs.compose.trainjob import OVERRIDES, PATCHES, SupportedFields, complete
from trainmaster.rest.services.creation.server_fields import list_fields
from trainmaster.rest.services.creation.templates import (
    SYSTEM_FILE,
    TRAINJOB_FILE,
    TemplateError,
    Templates,
    Value,
    fill,
)

pytestmark = pytest.mark.unit


def test_the_guides_frameworks_are_shipped() -> None:
    templates = Templates()
    assert templates.list_frameworks() == ["pytorch", "tensorflow"]
    pytorch, tensorflow = templates.find("pytorch"), templates.find("tensorflow")
    assert pytorch is not None and tensorflow is not None
    assert pytorch.system["metadata"]["name"] == "pytorch-pet-setup"
    assert set(pytorch.system["data"]) == {"setup_pytorch_env.sh"}
    assert tensorflow.system["metadata"]["name"] == "tensorflow-tf-config-generator"
    assert set(tensorflow.system["data"]) == {"generate_tf_config.sh"}
    assert pytorch.trainjob["spec"]["runtimeRef"]["name"] == "pytorch-simple"
    assert tensorflow.trainjob["spec"]["runtimeRef"]["name"] == "tensorflow-distributed"
    assert "suspend" not in pytorch.trainjob["spec"]


@pytest.mark.parametrize(
    "name", ["", "jax", "..", "../manifests/pytorch", "PyTorch", "pytorch/", "pytorch\n", "9" * 5000]
)
def test_what_is_no_framework_is_not_found(name: str) -> None:
    assert Templates().find(name) is None


def test_an_administrators_file_goes_over_the_shipped_one_and_is_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "pytorch"
    folder.mkdir()
    templates = Templates(tmp_path)
    shipped = templates.find("pytorch")
    assert shipped is not None
    changed = {**shipped.trainjob, "spec": {**shipped.trainjob["spec"], "managedBy": "me"}}
    file = folder / TRAINJOB_FILE
    file.write_text(yaml.safe_dump(changed))
    found = templates.find("pytorch")
    assert found is not None and found.trainjob["spec"]["managedBy"] == "me"
    assert found.system == shipped.system
    file.write_text(yaml.safe_dump(shipped.trainjob))
    os.utime(file, ns=(1, 1))
    assert templates.find("pytorch") == shipped


def test_a_folder_of_an_administrator_adds_a_framework(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / TRAINJOB_FILE).write_text("kind: TrainJob\nmetadata: {name: x}\nspec: {}\n")
    templates = Templates(tmp_path)
    assert templates.list_frameworks() == ["jax", "pytorch", "tensorflow"]
    with pytest.raises(TemplateError, match=r"jax has no system-configmap\.yaml"):
        templates.find("jax")
    (tmp_path / "jax" / SYSTEM_FILE).write_text("kind: ConfigMap\nmetadata: {name: x}\ndata: {}\n")
    assert templates.find("jax") is not None


@pytest.mark.parametrize("text", ["{", "[]", "kind: Pod\nmetadata: {name: x}", "kind: TrainJob", "\xff"])
def test_a_template_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "pytorch").mkdir()
    (tmp_path / "pytorch" / TRAINJOB_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(TemplateError, match=r"pytorch/trainjob\.yaml"):
        Templates(tmp_path).find("pytorch")


def test_placeholders_keep_the_type_of_what_they_stand_for() -> None:
    values: dict[str, Value] = {"number": 2, "name": "a", "nothing": None}
    template = {"n": "${number}", "t": "${text:number}", "s": "x-${name}-${number}", "gone": "${nothing}", "k": [1]}
    assert fill(template, values) == {"n": 2, "t": "2", "s": "x-a-2", "k": [1]}
    with pytest.raises(TemplateError, match=r"\$\{other\}; there are name, nothing, number"):
        fill(["${other}"], values)


def test_a_value_cannot_change_the_shape_of_an_object() -> None:
    evil = "a\nspec: {suspend: true}\n${name}"
    assert fill({"name": "${name}"}, {"name": evil}) == {"name": evil}


def test_overrides_become_patches_for_servers_that_have_only_those() -> None:
    template = Templates().find("pytorch")
    assert template is not None
    shape = SupportedFields("trainmaster.dev/rest", frozenset({PATCHES}))
    spec = complete(JobRequest("job"), copy.deepcopy(template.trainjob), shape)["spec"]
    assert OVERRIDES not in spec
    (patch,) = spec[PATCHES]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    (override,) = template.trainjob["spec"][OVERRIDES]
    assert job == {"name": "node", "template": {"spec": {"template": {"spec": override["spec"]}}}}
    assert OVERRIDES in template.trainjob["spec"]


def test_the_servers_own_document_says_which_shape_it_knows() -> None:
    kind = [{"group": "trainer.kubeflow.org", "kind": "TrainJob", "version": "v1alpha1"}]
    spec: dict[str, Any] = {"properties": {PATCHES: {}, "trainer": {}}}
    schema = {"x-kubernetes-group-version-kind": kind, "properties": {"spec": spec}}
    assert list_fields({"components": {"schemas": {"a": {}, "b": schema}}}) == {PATCHES, "trainer"}
    assert list_fields({}) == frozenset()


# The scripts, in a real shell


def run_script(framework: str, environ: dict[str, str], show: str) -> str:
    template = Templates().find(framework)
    assert template is not None
    (script,) = template.system["data"].values()
    done = subprocess.run(
        ["bash", "-c", f'{script}\nprintf "%s" "{show}"'],
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
    )
    return done.stdout if done.returncode == 0 else f"refused: {done.stderr.strip()}"


SHOW = "$RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT"


def test_the_pytorch_script_gives_the_standard_names() -> None:
    given = {"PET_NNODES": "4", "PET_NODE_RANK": "3", "PET_MASTER_ADDR": "a-node-0-0.a", "PET_MASTER_PORT": "29500"}
    assert run_script("pytorch", given, SHOW) == "3 4 0 a-node-0-0.a 29500"
    assert run_script("pytorch", {}, SHOW).endswith("is not set: the runtime of this job has no torch policy")


def parse_tf_config(environ: dict[str, str]) -> Any:
    return yaml.safe_load(run_script("tensorflow", environ, "$TF_CONFIG"))


def test_the_tensorflow_script_names_all_workers_and_the_task() -> None:
    given = {"PET_NNODES": "3", "TRAINJOB_NAME": "a", "JOB_COMPLETION_INDEX": "2", "HOSTNAME": "x"}
    workers = ["a-node-0-0.a:2222", "a-node-0-1.a:2222", "a-node-0-2.a:2222"]
    assert parse_tf_config(given) == {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 2}}


def test_the_tensorflow_script_takes_ports_of_the_machine_where_pods_have_none() -> None:
    given = {"PET_NNODES": "2", "JOB_COMPLETION_INDEX": "1", "TRAINMASTER_TERMINATION_LOG": "/x"}
    found, again, other = [parse_tf_config({**given, "TRAINJOB_NAME": name}) for name in ("a", "a", "b")]
    (first, second) = [worker.split(":") for worker in found["cluster"]["worker"]]
    assert first[0] == second[0] == "127.0.0.1"
    assert int(second[1]) == int(first[1]) + 1
    assert found == again != other


def test_the_tensorflow_script_finds_its_names_in_the_host_name_too() -> None:
    """A runtime of an administrator's own may set neither."""
    found = parse_tf_config({"PET_NNODES": "1", "HOSTNAME": "al-job-1-node-0-0.al-job-1.default"})
    assert found == {
        "cluster": {"worker": ["al-job-1-node-0-0.al-job-1:2222"]},
        "task": {"type": "worker", "index": 0},
    }
