"""Checklist K: a kopf operator runs unmodified, for one namespace and for all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.clients import JSON, Raw, Target
from tests.wire.conftest import MANIFESTS

pytestmark = pytest.mark.wire

OPERATOR = Path(__file__).with_name("kopf_operator.py")
TRAINER = "/apis/trainer.kubeflow.org/v1alpha1/namespaces"


class Operator:
    def __init__(self, process: subprocess.Popen[bytes], journal: Path, log: Path) -> None:
        self.process, self.journal, self.log = process, journal, log

    def until(self, what: str, test: Callable[[], Any]) -> Any:
        """Looks until the test holds; an operator acts in its own time."""
        end = time.monotonic() + 40
        while time.monotonic() < end and self.process.poll() is None:
            found = test()
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"never: {what}\n{self.log.read_text()[-4000:]}")

    def noted(self, word: str) -> None:
        self.until(word, lambda: word in self.journal.read_text().splitlines())


@contextmanager
def running(target: Target, folder: Path, *scope: str) -> Iterator[Operator]:
    journal, log = folder / "journal", folder / "log"
    journal.touch()
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "JOURNAL": str(journal)}
    environment["KUBECONFIG"] = str(target.kubeconfig)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kopf", "run", "--standalone", *scope, str(OPERATOR)],
            env=environment,
            cwd=folder,
            stdout=output,
            stderr=output,
        )
    try:
        yield Operator(process, journal, log)
        assert process.poll() is None, log.read_text()[-4000:]
    finally:
        process.terminate()
        process.wait(30)


def load(name: str) -> JSON:
    loaded: JSON = yaml.safe_load((MANIFESTS / name).read_text())
    return loaded


@pytest.mark.parametrize("everywhere", [False, True], ids=["one namespace", "all namespaces"])
def test_an_operator_handles_creation_change_and_deletion(
    target: Target, raw: Raw, namespace: str, tmp_path: Path, everywhere: bool
) -> None:
    path = f"{TRAINER}/{namespace}/trainjobs"
    raw.create(f"{TRAINER}/{namespace}/trainingruntimes", load("runtime.yaml"))
    scope = ["-A"] if everywhere else ["-n", namespace]
    with running(target, tmp_path, *scope) as operator:
        raw.create(path, load("trainjob.yaml"))
        operator.noted("created tj1")

        def seen(value: str) -> JSON | None:
            metadata: JSON = raw.get(f"{path}/tj1")["metadata"]
            return metadata if metadata.get("annotations", {}).get("example.org/seen") == value else None

        metadata = operator.until("the annotation", lambda: seen("created"))
        assert metadata["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
        raw.merge(f"{path}/tj1", {"metadata": {"labels": {"stage": "two"}}})
        operator.noted("updated tj1")
        operator.until("the annotation", lambda: seen("updated"))
        raw.delete(f"{path}/tj1")
        operator.noted("deleted tj1")
        operator.until("the end of the object", lambda: not raw.exists(f"{path}/tj1"))
        events = raw.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        assert "the operator has seen it" in {event["message"] for event in events}
        raw.create(f"/api/v1/namespaces/{namespace}/pods", load("pod.yaml"))
        operator.noted("pod idle ADDED")
        raw.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/idle?gracePeriodSeconds=0")
        operator.noted("pod idle DELETED")
    assert "Traceback" not in operator.log.read_text()
