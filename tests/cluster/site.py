"""`Site`: one namespace of the real cluster, in which a test submits TrainJobs and uses our commands as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ssl import create_default_context
from typing import Any, TypeVar

from tests.kube.images import BUSYBOX
from tests.kube.real import RealCluster
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import NAMESPACES, PODS, TRAIN_JOBS, TRAINING_RUNTIMES

T = TypeVar("T")
_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


class Site:
    def __init__(self, cluster: RealCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._tls = create_default_context(cafile=str(cluster.ca))

    # ---- objects ----------------------------------------------------------------

    def find(self, gvr: GVR, name: str) -> Object | None:
        return self._request(f"{self._path(gvr)}/{name}")

    def get(self, gvr: GVR, name: str) -> Object:
        found = self.find(gvr, name)
        assert found is not None, f"no {gvr.plural} {name} in {self.namespace}"
        return found

    def list_all(self, gvr: GVR, selector: str = "") -> list[Object]:
        found = self._request(f"{self._path(gvr)}?labelSelector={selector}")
        return [] if found is None else list(found["items"])

    def create(self, gvr: GVR, obj: Object) -> Object:
        made = self._request(self._path(gvr), obj)
        assert made is not None
        return made

    def _path(self, gvr: GVR) -> str:
        group = f"apis/{gvr.group}" if gvr.group else "api"
        place = "" if gvr == NAMESPACES else f"/namespaces/{self.namespace}"
        return f"{self.cluster.server}/{group}/{gvr.version}{place}/{gvr.plural}"

    def _request(self, url: str, content: Object | None = None) -> Object | None:
        data = None if content is None else json.dumps(content).encode()
        headers = {"Authorization": f"Bearer {self.cluster.token}", "Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers), timeout=30, context=self._tls
            ) as answer:
                found: Object = json.loads(answer.read())
                return found
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            if error.code == 404 and content is None:
                return None
            raise AssertionError(f"{url}: {text}") from None

    def await_that(self, what: str, look: Callable[[], T | None], seconds: float = _PATIENCE_SECONDS) -> T:
        """Looks again and again until the answer is neither None nor false."""
        end = time.monotonic() + seconds
        while not (found := look()):
            if time.monotonic() > end:
                jobs = json.dumps([job.get("status") for job in self.list_all(TRAIN_JOBS)], indent=1)
                raise AssertionError(f"not within {seconds:.0f} s: {what}\n{jobs}")
            time.sleep(_POLL_SECONDS)
        return found

    def await_job(
        self, name: str, what: str, is_so: Callable[[Object], Any], seconds: float = _PATIENCE_SECONDS
    ) -> Object:
        def look() -> Object | None:
            found = self.find(TRAIN_JOBS, name)
            return found if found is not None and is_so(found) else None

        return self.await_that(f"{name} {what}", look, seconds)

    def await_end(self, name: str) -> Object:
        return self.await_job(name, "ends", lambda job: job.get("status", {}).get("conditions"))

    def await_ready(self, name: str) -> Object:
        """All Pods of its one step are ready."""
        return self.await_job(
            name, "runs", lambda job: any(one.get("ready") for one in job.get("status", {}).get("jobsStatus", []))
        )

    # ---- jobs ---------------------------------------------------------------------

    def submit(
        self, name: str, script: str, *, nodes: int = 1, image: str = BUSYBOX, runtime: str = "", **spec: Any
    ) -> Object:
        """A TrainJob whose ranks run a shell script. `runtime`: of `add_runtime`."""
        trainer = {"image": image, "command": ["sh", "-c", script], "numNodes": nodes, **spec.pop("trainer", {})}
        if runtime:
            spec["runtimeRef"] = {"name": runtime, "kind": "TrainingRuntime"}
        job = {
            "apiVersion": TRAIN_JOBS.api_version,
            "kind": "TrainJob",
            "metadata": {"name": name, "namespace": self.namespace, **spec.pop("metadata", {})},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer, **spec},
        }
        return self.create(TRAIN_JOBS, job)

    def add_runtime(self, name: str, *, max_restarts: int = 0, backoff_limit: int = 0, **pod: Any) -> Object:
        """A TrainingRuntime with one step, `node`. `pod`: fields of the Pod's spec; `container`: of its container;
        `policy`: of `mlPolicy`."""
        ml_policy = {"numNodes": 1, **pod.pop("policy", {})}
        container = {"name": "node", "image": BUSYBOX, **pod.pop("container", {})}
        template = {"spec": {"restartPolicy": "Never", "containers": [container], **pod}}
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
        job_spec = {"backoffLimit": backoff_limit, "template": template}
        step = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": job_spec}}
        policy = {"failurePolicy": {"maxRestarts": max_restarts}} if max_restarts else {}
        runtime = {
            "apiVersion": TRAINING_RUNTIMES.api_version,
            "kind": "TrainingRuntime",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"mlPolicy": ml_policy, "template": {"spec": {"replicatedJobs": [step], **policy}}},
        }
        return self.create(TRAINING_RUNTIMES, runtime)

    def find_waiting(self, name: str) -> Object:
        """`status.waiting`; empty if it does not wait."""
        waiting: Object = self.get(TRAIN_JOBS, name).get("status", {}).get("waiting") or {}
        return waiting

    def list_pods(self, name: str) -> list[Object]:
        return self.list_all(PODS, f"jobset.sigs.k8s.io/jobset-name={name}")

    # ---- commands -------------------------------------------------------------------

    def run(self, *arguments: str, **options: Any) -> Answer:
        """`trainmaster COMMAND ...`, in this namespace of this cluster."""
        environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        command = self.build_command(*arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environ, **options)
        return Answer(done.returncode, done.stdout, done.stderr)

    def build_command(self, *arguments: str) -> Sequence[str]:
        place = ["--kubeconfig", str(self.cluster.kubeconfig), "-n", self.namespace]
        cut = arguments.index("--") if "--" in arguments else len(arguments)
        return [sys.executable, "-m", "trainmaster.cli", *arguments[:cut], *place, *arguments[cut:]]
