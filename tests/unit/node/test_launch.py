"""What a container becomes: environment, arguments, and what is said about approximations."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.api.meta import Object
from trainmaster.api.supported import list_unsupported
from trainmaster.node.fields import POD
from trainmaster.node.launch import Launch, LaunchError, Place, build_launch

pytestmark = pytest.mark.unit


def make_pod(**container: object) -> Object:
    return {
        "metadata": {
            "name": "job-node-0-1-abcde",
            "namespace": "ns",
            "uid": "u",
            "labels": {"team": "a"},
            "annotations": {"rank": "1"},
        },
        "spec": {
            "hostname": "job-node-0-1",
            "subdomain": "job",
            "nodeName": "local",
            "containers": [{"name": "node", "image": "train:1", "command": ["sh"], **container}],
        },
    }


def launch(tmp_path: Path, *, port: int = 29500, **container: object) -> Launch:
    pod = make_pod(**container)
    place = Place(str(tmp_path), "/python", "/usr/bin:/bin", lambda asked: port)
    return build_launch(pod, pod["spec"]["containers"][0], place)


def value(tmp_path: Path, text: str) -> str:
    return launch(tmp_path, env=[{"name": "A", "value": text}]).env["A"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("job-node-0-0.job", "127.0.0.1", id="short name"),
        pytest.param("job-node-0-0.job:29500", "127.0.0.1:29500", id="with a port"),
        pytest.param("tcp://job-node-0-0.job.ns.svc.cluster.local:1/x", "tcp://127.0.0.1:1/x", id="in a URL"),
        pytest.param("a.job,b.job", "127.0.0.1,127.0.0.1", id="a list"),
        pytest.param("a.jobs", "a.jobs", id="another service"),
        pytest.param("a.job.other.svc", "a.job.other.svc", id="another namespace"),
        pytest.param("a.job.example.com", "a.job.example.com", id="another domain"),
        pytest.param("job", "job", id="no host"),
    ],
)
def test_names_of_the_own_service_become_the_loopback_address(tmp_path: Path, text: str, want: str) -> None:
    assert value(tmp_path, text) == want


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("metadata.name", "job-node-0-1-abcde", id="name"),
        pytest.param("metadata.labels['team']", "a", id="label"),
        pytest.param("metadata.annotations['rank']", "1", id="annotation"),
        pytest.param("metadata.annotations['missing']", "", id="a missing key is empty"),
        pytest.param("spec.nodeName", "local", id="node"),
        pytest.param("status.podIP", "127.0.0.1", id="address"),
    ],
)
def test_fields_of_the_pod_reach_the_environment(tmp_path: Path, path: str, want: str) -> None:
    env = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    assert launch(tmp_path, env=env).env["A"] == want


def test_references_are_expanded_in_order_and_unknown_ones_stay(tmp_path: Path) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(C)-$$(A)"}, {"name": "C", "value": "2"}]
    result = launch(tmp_path, env=env, args=["-c", "echo $(B) $(C) $HOME"])
    assert result.env["B"] == "1-$(C)-$(A)"
    assert result.argv[1:] == ("-c", "echo 1-$(C)-$(A) 2 $HOME")


def test_every_approximation_is_said(tmp_path: Path) -> None:
    env = [{"name": "PET_MASTER_ADDR", "value": "job-node-0-0.job"}, {"name": "PET_MASTER_PORT", "value": "29500"}]
    result = launch(tmp_path, port=30001, env=env, resources={"limits": {"cpu": "1"}})
    assert result.env["PET_MASTER_PORT"] == "30001"
    said = "\n".join(result.approximations)
    for part in ("train:1", "/python", "job-node-0-0.job", "29500 became 30001", "limits are not enforced"):
        assert part in said


def test_a_port_that_could_be_kept_is_not_an_approximation(tmp_path: Path) -> None:
    result = launch(tmp_path, env=[{"name": "PET_MASTER_PORT", "value": "29500"}])
    assert not any("29500" in line for line in result.approximations)


@pytest.mark.parametrize(
    ("container", "want"),
    [
        pytest.param({"command": ["no-such-program-here"]}, "executable file not found in $PATH", id="no program"),
        pytest.param({"command": ["/no/such/file"]}, "not executable", id="no file"),
        pytest.param({"command": []}, "has no command", id="no command"),
        pytest.param({"workingDir": "/no/such/directory"}, "workingDir", id="no directory"),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}, "spec.x", id="no such field"
        ),
    ],
)
def test_what_cannot_start_says_why(tmp_path: Path, container: dict[str, object], want: str) -> None:
    with pytest.raises(LaunchError, match=want.replace("$", r"\$")):
        launch(tmp_path, **container)  # type: ignore[arg-type]  # keyword arguments pass through


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"volumes": [{"name": "v"}]}, ["spec.volumes"], id="volumes"),
        pytest.param({"initContainers": [{"name": "i"}]}, ["spec.initContainers"], id="init containers"),
        pytest.param({"hostNetwork": True}, ["spec.hostNetwork"], id="host network"),
        pytest.param({"securityContext": {"runAsUser": 1}}, ["spec.securityContext"], id="another user"),
        pytest.param({"securityContext": {}, "dnsPolicy": "ClusterFirst"}, [], id="defaults ask for nothing"),
        pytest.param(
            {"containers": [{"name": "a", "readinessProbe": {"exec": {}}}]},
            ["spec.containers[0].readinessProbe"],
            id="probes",
        ),
        pytest.param(
            {"containers": [{"name": "a", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}]},
            ["spec.containers[0].env[0].valueFrom.secretKeyRef"],
            id="secrets in variables",
        ),
    ],
)
def test_fields_that_are_not_carried_out_are_named(spec: Object, want: list[str]) -> None:
    assert list_unsupported(spec, POD, "spec") == want
