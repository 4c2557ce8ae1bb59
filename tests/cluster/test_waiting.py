"""Why Pods do not start is said in the status, and by all commands that people ask."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import make_site
from tests.cluster.site import Site
from tests.kube.node import NODE
from tests.kube.real import RealCluster
from trainmaster.api.resources import TRAIN_JOBS

pytestmark = pytest.mark.cluster

_LABEL = "trainmaster.test/chosen"
WANT = {
    "greedy": ("Unschedulable", "Insufficient cpu"),
    "unloaded": ("ErrImageNeverPull", "localhost/nothing:1"),
    "unreachable": ("ErrImagePull", "127.0.0.1:9/nothing:1"),
    "secretive": ("CreateContainerConfigError", 'secret "nothing" not found'),
}


def submit(site: Site) -> None:
    site.add_runtime("plain")
    site.add_runtime("never", container={"imagePullPolicy": "Never"})
    site.add_runtime("picky", nodeSelector={_LABEL: "yes"})
    site.submit("picky", "true", runtime="picky")
    site.submit("greedy", "true", runtime="plain", trainer={"resourcesPerNode": {"requests": {"cpu": "1000"}}})
    site.submit("unloaded", "true", runtime="never", image="localhost/nothing:1")
    site.submit("unreachable", "true", runtime="plain", image="127.0.0.1:9/nothing:1")
    secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "nothing", "key": "x"}}}
    site.submit("secretive", "true", runtime="plain", trainer={"env": [secret]})


@pytest.fixture(scope="module")
def restricted(operated: RealCluster) -> Site:
    """A namespace that takes only Pods that may do next to nothing."""
    return make_site(operated, **{"pod-security.kubernetes.io/enforce": "restricted"})


@pytest.mark.parametrize("name", list(WANT))
def test_the_reason_is_named_everywhere(site: Site, name: str) -> None:
    reason, part = WANT[name]
    waiting = site.await_that(f"{name} says why it waits", lambda: site.find_waiting(name))
    assert waiting["reason"] == reason and part in waiting["message"], waiting
    for command in (["explain", name], ["doctor", "trainjob", name], ["describe", name], ["list"]):
        answer = site.run(*command)
        assert reason in answer.text and part in answer.text, f"{command}: {answer.text}"


def test_a_refused_pod_is_named(restricted: Site) -> None:
    restricted.submit("refused", "true")
    waiting = restricted.await_that("it says why it waits", lambda: restricted.find_waiting("refused"))
    assert waiting["reason"] == "FailedCreate" and 'violates PodSecurity "restricted' in waiting["message"]
    for command in ("explain", "describe"):
        assert "violates PodSecurity" in restricted.run(command, "refused").text
    assert "violates PodSecurity" in restricted.run("doctor", "trainjob", "refused").text


def test_what_is_corrected_goes_on_and_the_reason_is_gone(site: Site) -> None:
    site.await_that("it waits", lambda: site.find_waiting("picky"))
    site.cluster.kubectl("label", "node", NODE, f"{_LABEL}=yes")
    done = site.await_end("picky")
    assert "waiting" not in done["status"]
    assert [one["type"] for one in done["status"]["conditions"]] == ["Complete"]


def test_suggested_commands_go_to_the_same_cluster(site: Site) -> None:
    flag = f"--kubeconfig {site.cluster.kubeconfig}"
    assert site.get(TRAIN_JOBS, "greedy")
    for command in (["describe", "greedy"], ["doctor", "trainjob", "greedy"], ["logs", "greedy"]):
        assert flag in site.run(*command).text, command
