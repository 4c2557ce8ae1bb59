"""Backup while the server runs, restore, and what clients see of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.shell import Person

pytestmark = pytest.mark.e2e


def test_a_backup_of_a_running_server_restores_into_another_home(
    make_person: Callable[[str], Person], tmp_path: Path
) -> None:
    one, two = make_person("one"), make_person("two")
    one.must("up", "--detach")
    one.kubectl("create", "configmap", "kept", "--from-literal=a=b")
    before = json.loads(one.kubectl("get", "configmap", "kept", "-o", "json"))
    file = tmp_path / "copy.db"
    assert "wrote" in one.must("backup", str(file))
    one.kubectl("create", "configmap", "later", "--from-literal=a=b")
    assert "continues at revision" in two.must("restore", str(file))
    two.must("up", "--detach")
    after = json.loads(two.kubectl("get", "configmap", "kept", "-o", "json"))
    assert after == before
    assert "later" not in two.kubectl("get", "configmaps", "-o", "name")


def test_no_client_holds_a_larger_revision_than_a_restored_server(person: Person, tmp_path: Path) -> None:
    person.must("up", "--detach")
    person.must("backup", str(tmp_path / "copy.db"))
    person.kubectl("create", "configmap", "later", "--from-literal=a=b")
    newest = json.loads(person.kubectl("get", "configmap", "later", "-o", "json"))["metadata"]["resourceVersion"]
    answer = person.trainmaster("restore", str(tmp_path / "copy.db"))
    assert answer.code == 5, "a running server's home must not change under it"
    person.must("run", "--detach", "--name", "late", "--", "sleep", "1000")
    person.must("wait", "late", "--for", "running")
    person.must("down")
    refused = person.trainmaster("restore", str(tmp_path / "copy.db"))
    assert refused.code == 1 and "default/late-node-0-0-" in refused.err
    kept = person.must("restore", str(tmp_path / "copy.db"), "--keep-running")
    assert "kept the jobs of 1 running Pod not in the backup: default/late-node-0-0-" in kept
    person.must("up", "--detach")
    person.must("wait", "late", "--for", "running")
    (pod,) = json.loads(person.kubectl("get", "pods", "-o", "json"))["items"]
    assert f"default/{pod['metadata']['name']}" in kept and pod["status"]["phase"] == "Running"
    assert "later" not in person.kubectl("get", "configmaps", "-o", "name")
    person.must("down")
    said = person.must("restore", str(tmp_path / "copy.db"), "--yes")
    assert f"what was there before lies in {person.home}/store.replaced-2" in said
    person.must("up", "--detach")
    listed = json.loads(person.kubectl("get", "--raw", "/api/v1/configmaps"))
    assert int(listed["metadata"]["resourceVersion"]) > int(newest)
    told = person.must("history", "get", "late")
    assert "by trainmaster restore (not in the backup copy.db)" in told


def test_a_backup_never_overwrites_a_file(person: Person, tmp_path: Path) -> None:
    person.must("up", "--detach")
    (tmp_path / "mine").write_text("mine")
    answer = person.trainmaster("backup", str(tmp_path / "mine"))
    assert answer.code == 1
    assert "does not overwrite" in answer.err
    assert (tmp_path / "mine").read_text() == "mine"
