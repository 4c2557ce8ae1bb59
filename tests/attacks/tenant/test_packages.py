"""A tenant has packages installed, and tries to get more than packages: the server's rights, its files, its secrets."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.conftest import PACKAGES as INDEX
from tests.attacks.site import Caller, Site, unique
from tests.support.clients import JSON
from tests.support.wheels import make_project, make_sdist, make_wheel
from trainmaster.api.labels import PACKAGES
from trainmaster.node.images import layers
from trainmaster.node.images.environments import hash_packages

pytestmark = pytest.mark.attacks

LIMIT = 60.0
SECRET = "opensesame"


def choose(name: str) -> str:
    """A package's name that no other test uses."""
    return unique(name).replace("-", "_")


@pytest.fixture
def evidence() -> Iterator[Path]:
    """Where code writes that runs on the machine itself; a sandbox has another /tmp."""
    directory = Path(tempfile.mkdtemp(prefix="tm-evidence-", dir="/tmp"))
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


def build_payload(site: Site, evidence: Path) -> str:
    return f"""
try:
    with open("{evidence}/ran-" + str(os.getuid()), "w") as stream:
        stream.write(open("{site.server.home}/pki/owner.token").read())
except OSError:
    pass
"""


def find_index() -> Path:
    return Path(INDEX["PIP_FIND_LINKS"])


def ask(caller: Caller, requirements: str, script: str, **spec: Any) -> str:
    """A Pod with these packages; its name."""
    name = unique("packages")
    caller.start_pod(name, script, metadata={"annotations": {PACKAGES: requirements}}, **spec)
    return name


def wait_for_refusal(caller: Caller, name: str) -> str:
    """What the Pod says once an installation has failed: that it waits, or that it has failed. The Pod is deleted."""
    deadline = time.monotonic() + LIMIT
    while True:
        pod: JSON = caller.kube.get(caller.path("pods", name))
        states = [one.get("state") or {} for one in pod.get("status", {}).get("containerStatuses") or ()]
        words = [state["waiting"] for state in states if "waiting" in state]
        words += [pod["status"]] if pod.get("status", {}).get("reason") == "InstallationFailed" else []
        if words and words[-1]["reason"] in ("ErrImagePull", "InstallationFailed"):
            caller.kube.delete(f"{caller.path('pods', name)}?gracePeriodSeconds=0")
            return str(words[-1]["message"])
        assert time.monotonic() < deadline, pod.get("status")
        time.sleep(0.05)


def finish(caller: Caller, name: str) -> str:
    try:
        pod = caller.wait_for_pod(name)
        assert pod["status"]["phase"] == "Succeeded", caller.read_log(name)
        return caller.read_log(name)
    finally:
        caller.kube.delete(f"{caller.path('pods', name)}?gracePeriodSeconds=0")


@pytest.mark.parametrize(
    "how", ["/data/project", "evil @ file:///data/project", "git+https://example.com/evil", "-e ."]
)
def test_code_of_the_tenants_own_is_refused_by_kubectl_and_rest(site: Site, how: str) -> None:
    pod = site.ann.build_pod(unique("p"), "true", metadata={"annotations": {PACKAGES: f"tqdm\n{how}"}})
    code, answer = site.ann.kube.call("POST", site.ann.path("pods"), pod)
    assert code == 422, answer
    assert [cause["field"] for cause in answer["details"]["causes"]] == [f"metadata.annotations[{PACKAGES}]"]
    body = {"user": "ann", "framework": "pytorch", "code": "print(1)", "packages": ["tqdm", how]}
    code, answer = site.ann.rest.call("POST", "/api/v1/jobs", body)
    assert code == 422, answer
    problem = answer if isinstance(answer, dict) else json.loads(answer)
    assert [error["pointer"] for error in problem["errors"]] == ["/packages/1"], answer


def test_a_trainjob_and_a_runtime_are_refused_with_their_fields(site: Site) -> None:
    notes = {"annotations": {PACKAGES: "./evil"}}
    spec = {
        "runtimeRef": {"name": "torch-distributed"},
        "podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "metadata": notes}],
    }
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": unique("t")}}
    path = site.ann.path("trainjobs", group="trainer.kubeflow.org/v1alpha1")
    code, answer = site.ann.kube.call("POST", path, {**body, "spec": spec})
    assert code == 422, answer
    assert answer["details"]["causes"][0]["field"].startswith("spec.podTemplateOverrides[0].metadata")


def test_an_sdist_named_by_version_is_not_built_by_the_server(site: Site, evidence: Path) -> None:
    name = choose("evil")
    make_sdist(find_index(), name, build_payload(site, evidence))
    said = wait_for_refusal(site.ann, ask(site.ann, f"{name}==1.0", "true"))
    assert "cannot install" in said
    assert "only wheels" in said
    assert os.listdir(evidence) == []


def test_a_wheel_that_needs_a_project_by_its_path_runs_nothing(site: Site, evidence: Path, tmp_path: Path) -> None:
    inner, outer = choose("inner"), choose("outer")
    place = Path(tempfile.mkdtemp(prefix="tm-claim-"))
    place.chmod(0o755)
    try:
        project = make_project(place, inner, build_payload(site, evidence))
        make_wheel(find_index(), outer, requires=[f"{inner} @ file://{project}"])
        said = wait_for_refusal(site.ann, ask(site.ann, outer, "true"))
        assert "named by a URL or path" in said
        assert os.listdir(evidence) == []
    finally:
        shutil.rmtree(place)


def test_packages_are_installed_as_the_tenant_and_nobody_else_sees_them(site: Site) -> None:
    name = choose("good")
    make_wheel(find_index(), name, script=f"run-{name}")
    look = f"""
    run-{name}
    python -c 'import {name}, os; print(os.stat({name}.__file__).st_uid == os.getuid())'
    place=$(python -c 'import {name}, os; print(os.path.dirname({name}.__file__))')
    echo x > $place/{name}.py || echo closed
    """
    lines = finish(site.ann, ask(site.ann, name, look)).splitlines()
    assert lines[:2] == ["script 1.0", "True"]
    assert "closed" in lines
    made = site.server.home / "environments"
    printed = site.bob.run_pod(unique("look"), f"find {made} -name '*{name}*'; ls {made}/namespaces; true")
    assert name not in printed
    assert finish(site.bob, ask(site.bob, name, f"run-{name}")).strip() == "script 1.0"
    owners = {path.stat().st_uid for path in made.glob(f"namespaces/*/*/*/env/lib/python3*/site-packages/{name}.py")}
    assert len(owners) == 2, "each tenant has its own"
    assert 0 not in owners
    assert (made / "namespaces").stat().st_mode & 0o077 == 0


def test_a_package_shows_nothing_of_the_machine_by_naming_it(site: Site) -> None:
    name = choose("shower")
    home = site.server.home
    make_wheel(find_index(), name, files={f"{name}.pth": f"{home}/pki\n/root\n", f"__editable___{name}_finder.py": ""})
    script = f"python -c 'import {name}'; cat {home}/pki/owner.token; ls -A /root; ls {home}; true"
    printed = finish(site.ann, ask(site.ann, name, script))
    assert (home / "pki" / "owner.token").read_text().strip() not in printed
    assert "pki" not in printed.replace(f"{home}/pki", "")


def test_what_an_earlier_version_made_for_all_is_the_owners_alone(site: Site) -> None:
    name = choose("old")
    make_wheel(find_index(), name)
    base = layers.read_base(sys.prefix)
    old = site.server.home / "environments" / hash_packages(base, [name])
    layers.make_layer(str(old), base)
    place = old / "lib" / f"python{base.version}" / "site-packages" / f"{name}.py"
    place.write_text("VERSION = 'of before'\n")
    (old / ".ready").touch()
    look = f"python -c 'import {name}; print({name}.VERSION)'"
    assert finish(site.owner, ask(site.owner, name, look)).strip() == "of before"
    assert finish(site.ann, ask(site.ann, name, look)).strip() == "1.0"


def test_credentials_of_the_index_are_seen_nowhere(site: Site) -> None:
    name, built = choose("quiet"), choose("nosy")
    make_wheel(find_index(), name)
    finish(site.ann, ask(site.ann, name, "true"))
    said = wait_for_refusal(site.ann, ask(site.ann, choose("nosuch"), "true"))
    assert SECRET not in said
    # The owner's packages are built, and their code looks around.
    payload = f"""
names = [name for name, value in os.environ.items() if "{SECRET}" in value]
raise SystemExit("ERROR: SEEN " + repr((names, os.path.exists("{site.server.home}/pki"))))
"""
    make_sdist(find_index(), built, payload)
    said = wait_for_refusal(site.owner, ask(site.owner, built, "true"))
    assert "SEEN ([], False)" in said, "it ran, and saw neither the credentials nor the server's home"
    made = site.server.home / "environments"
    for path in made.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20:
            assert SECRET.encode() not in path.read_bytes(), path
    for caller in (site.ann, site.owner):
        assert SECRET not in str(caller.kube.get(caller.path("events")))


def test_what_the_owner_has_built_is_built_in_a_sandbox(site: Site, evidence: Path) -> None:
    name = choose("owners")
    make_sdist(find_index(), name, build_payload(site, evidence))
    script = f"python -c 'import {name}; print({name}.VERSION)'"
    assert finish(site.owner, ask(site.owner, name, script)).strip() == "1.0"
    assert os.listdir(evidence) == []


def test_a_project_of_the_owner_is_built_from_its_path_and_not_written_to(site: Site, evidence: Path) -> None:
    name = choose("path")
    place = Path(tempfile.mkdtemp(prefix="tm-project-"))
    try:
        project = make_project(place, name, build_payload(site, evidence) + '\nopen("littered", "w").close()\n')
        before = sorted(os.listdir(project))
        script = f"python -c 'import {name}; print({name}.VERSION)'"
        assert finish(site.owner, ask(site.owner, str(project), script)).strip() == "1.0"
        assert os.listdir(evidence) == []
        assert sorted(os.listdir(project)) == before
    finally:
        shutil.rmtree(place)
