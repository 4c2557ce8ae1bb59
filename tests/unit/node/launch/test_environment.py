"""Variables of containers: envFrom, env, references, and what is said when something is missing."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node.making import make_config_map, make_pod, make_prepared
from trainmaster.api.meta import Object
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.launch.contract import ContainerSources, LaunchError
from trainmaster.node.launch.environment import build_variables, list_bad_names, list_references
from trainmaster.node.launch.expansion import expand

pytestmark = pytest.mark.unit

SECRET: Object = {"data": {"token": base64.b64encode(b"s3cret").decode()}}
SOURCES = ContainerSources(
    {"settings": make_config_map(mode="fast", size="3"), "gone": None}, {"keys": SECRET, "gone": None}
)


def build(tmp_path: Path, container: Object, **site: Any) -> dict[str, str]:
    pod = make_pod(container)
    return build_variables(Pod(pod), pod["spec"]["containers"][0], make_prepared(tmp_path, sources=SOURCES, site=site))


def one(source: Object) -> Object:
    return {"env": [{"name": "A", "valueFrom": source}]}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("$(A)", "1", id="a known name"),
        pytest.param("x$(A)y$(B)", "x1y2", id="several"),
        pytest.param("$(C)", "$(C)", id="an unknown name stays"),
        pytest.param("$$(A)", "$(A)", id="an escaped one"),
        pytest.param("$$$(A)", "$1", id="an escaped dollar before one"),
        pytest.param("$A ${A}", "$A ${A}", id="what a shell expands is left to it"),
        pytest.param("$(A", "$(A", id="an open bracket"),
        pytest.param("100$", "100$", id="a dollar at the end"),
    ],
)
def test_references_are_expanded_as_the_kubelet_does(text: str, want: str) -> None:
    assert expand(text, {"A": "1"}, {"A": "other", "B": "2"}) == want


def test_env_goes_over_env_from_and_sees_what_came_before(tmp_path: Path) -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "settings"}}, {"prefix": "KEY_", "secretRef": {"name": "keys"}}],
        "env": [{"name": "mode", "value": "slow"}, {"name": "B", "value": "$(mode)-$(size)-$(C)"}, {"name": "C"}],
    }
    found = build(tmp_path, container)
    assert found == {"mode": "slow", "size": "3", "KEY_token": "s3cret", "B": "slow-3-$(C)", "C": ""}


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param({"fieldRef": {"fieldPath": "metadata.name"}}, "job-node-0-1-abcde", id="name"),
        pytest.param({"fieldRef": {"fieldPath": "metadata.labels['team']"}}, "a", id="label"),
        pytest.param({"fieldRef": {"fieldPath": "metadata.annotations['missing']"}}, "", id="missing annotation"),
        pytest.param({"fieldRef": {"fieldPath": "status.podIP"}}, "10.0.0.7", id="address of the Pod"),
        pytest.param({"fieldRef": {"fieldPath": "status.hostIP"}}, "127.0.0.1", id="address of the machine"),
        pytest.param({"fieldRef": {"fieldPath": "spec.nodeName"}}, "local", id="node"),
        pytest.param({"configMapKeyRef": {"name": "settings", "key": "mode"}}, "fast", id="key of a ConfigMap"),
        pytest.param({"secretKeyRef": {"name": "keys", "key": "token"}}, "s3cret", id="key of a Secret"),
        pytest.param({"resourceFieldRef": {"resource": "limits.cpu"}}, "2", id="CPU limit rounded up"),
        pytest.param({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, "1500", id="in thousandths"),
        pytest.param({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}, "8192", id="node's memory"),
        pytest.param({"resourceFieldRef": {"resource": "requests.cpu"}}, "0", id="no request is none"),
        pytest.param({"resourceFieldRef": {"resource": "limits.cpu", "containerName": "node"}}, "2", id="by container"),
    ],
)
def test_values_come_from_fields_resources_and_keys(tmp_path: Path, source: Object, want: str) -> None:
    container = {**one(source), "resources": {"limits": {"cpu": "1500m"}}}
    assert build(tmp_path, container, address="10.0.0.7")["A"] == want


@pytest.mark.parametrize(
    ("container", "want"),
    [
        pytest.param({"envFrom": [{"configMapRef": {"name": "gone"}}]}, 'configmap "gone" not found', id="ConfigMap"),
        pytest.param({"envFrom": [{"secretRef": {"name": "gone"}}]}, 'secret "gone" not found', id="Secret"),
        pytest.param(
            one({"configMapKeyRef": {"name": "gone", "key": "k"}}), 'configmap "gone" not found', id="of a key"
        ),
        pytest.param(
            one({"configMapKeyRef": {"name": "settings", "key": "k"}}),
            "couldn't find key k in ConfigMap ns/settings",
            id="key of a ConfigMap",
        ),
        pytest.param(
            one({"secretKeyRef": {"name": "keys", "key": "k"}}),
            "couldn't find key k in Secret ns/keys",
            id="of a Secret",
        ),
        pytest.param(one({"fieldRef": {"fieldPath": "spec.x"}}), "unsupported fieldPath: spec.x", id="no such field"),
        pytest.param(
            one({"resourceFieldRef": {"resource": "limits.cpu", "containerName": "x"}}),
            'container "x" not found',
            id="no such container",
        ),
    ],
)
def test_what_is_missing_is_said_in_upstreams_words_and_may_come(tmp_path: Path, container: Object, want: str) -> None:
    with pytest.raises(LaunchError) as caught:
        build(tmp_path, container)
    assert (caught.value.reason, caught.value.message) == ("CreateContainerConfigError", want)
    assert caught.value.retry


def test_optional_references_to_nothing_set_no_variable(tmp_path: Path) -> None:
    container = {
        "envFrom": [
            {"configMapRef": {"name": "gone", "optional": True}},
            {"secretRef": {"name": "gone", "optional": True}},
        ],
        "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k", "optional": True}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k", "optional": True}}},
        ],
    }
    assert build(tmp_path, container) == {}


def test_the_api_servers_service_is_found_by_variables(tmp_path: Path) -> None:
    found = build(tmp_path, {"env": [{"name": "URL", "value": "$(KUBERNETES_SERVICE_HOST)"}]}, api=("10.0.0.1", 6443))
    assert (found["KUBERNETES_SERVICE_HOST"], found["KUBERNETES_SERVICE_PORT"]) == ("10.0.0.1", "6443")
    assert found["KUBERNETES_PORT"] == found["KUBERNETES_PORT_6443_TCP"] == "tcp://10.0.0.1:6443"
    assert found["URL"] == "10.0.0.1"


def test_keys_that_are_no_names_are_skipped_and_listed(tmp_path: Path) -> None:
    sources = ContainerSources({"settings": make_config_map(**{"a=b": "1", "c.d": "2"})})
    prepared = make_prepared(tmp_path, sources=sources)
    pod = make_pod({"envFrom": [{"configMapRef": {"name": "settings"}}]})
    container = pod["spec"]["containers"][0]
    assert build_variables(Pod(pod), container, prepared) == {"c.d": "2"}
    assert list_bad_names(container, prepared) == ["a=b"]


def test_all_named_sources_are_listed_for_reading() -> None:
    containers = [
        {"envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}]},
        one({"configMapKeyRef": {"name": "c", "key": "k"}}),
        one({"secretKeyRef": {"name": "d", "key": "k"}}),
        one({"fieldRef": {"fieldPath": "metadata.name"}}),
    ]
    assert list_references(containers) == ({"a", "c"}, {"b", "d"})
