"""Real training jobs on a real server: the examples, the frameworks' environment, and what is left afterwards.

    with training(tmp_path / "home") as lab:
        lab.start("jax")
        assert lab.wait_for_end("jax")["type"] == "Complete"
        lab.remove("jax")

Pods run in the environment of `tools/frameworks.py`, by an image rule as an administrator writes it. Leaving the block
stops the server and checks that nothing of any job is left on the machine: no process, mount, interface, control group
or Pod directory. `remove` checks the same for one job.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.clients import Raw, Target
from tests.support.environments import find_or_skip
from tests.support.leaks import assert_nothing_left, list_marked, take_stock
from tests.support.server import ServerProcess, launch_server
from tools.frameworks import TOOL

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
Object = dict[str, Any]

_TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
_CORE = "/api/v1/namespaces/default"
_RULES = "/api/v1/namespaces/kubeflow-system/configmaps"


class Lab:
    def __init__(self, home: Path, environ: Mapping[str, str], frameworks: Path) -> None:
        self.home = home
        self.limit = 180.0
        """Seconds that anything may take."""
        self._environ = environ
        self._frameworks = frameworks
        self.server = self._launch()
        self.raw = self._connect()
        self._write_rules()

    def _launch(self) -> ServerProcess:
        return launch_server(self.home, environ=self._environ)

    def _connect(self) -> Raw:
        return Target("ours", self.server.kubeconfig, _issue_nothing).raw()

    def _write_rules(self) -> None:
        """Every image is the frameworks' environment."""
        self.raw.create(_RULES, {"metadata": {"name": "image-rules"}, "data": self._build_rules()})

    def _build_rules(self, *first: Object, **prefixes: Path) -> Object:
        rules = [*first, {"image": "*", "environment": "frameworks"}]
        environments = {"frameworks": self._frameworks, **prefixes}
        table = {"environments": {name: {"path": str(path)} for name, path in environments.items()}, "rules": rules}
        return {"rules.yaml": json.dumps(table)}

    def change_rules(self, *first: Object, **prefixes: Path) -> None:
        """Adds rules before the one for all images, and the environments that they name."""
        self.raw.merge(f"{_RULES}/image-rules", {"data": self._build_rules(*first, **prefixes)})

    # ---- jobs --------------------------------------------------------------

    def start(
        self,
        example: str,
        *,
        name: str = "",
        runtime: str = "",
        files: Mapping[str, str] | None = None,
        trainer: Object | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Submits an example: under another name, with more files beside its program, with changes of spec.trainer."""
        folder, name = EXAMPLES / example, name or example
        text = (folder / "trainjob.yaml").read_text().replace(f"name: {example}\n", f"name: {name}\n")
        job: Object = yaml.safe_load(text)
        if (folder / "train.py").exists():
            data = {"train.py": (folder / "train.py").read_text(), **(files or {})}
            self.raw.create(f"{_CORE}/configmaps", {"metadata": {"name": name}, "data": data})
        job["spec"]["trainer"].update(trainer or {})
        if annotations:
            job["metadata"]["annotations"] = dict(annotations)
        if runtime:
            job["spec"]["runtimeRef"]["name"] = runtime
        self.submit(job)

    def submit(self, job: Object) -> None:
        self.raw.create(_TRAINJOBS, {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", **job})

    def get(self, name: str) -> Object:
        job: Object = self.raw.get(f"{_TRAINJOBS}/{name}")
        return job

    def patch(self, name: str, spec: Object) -> None:
        self.raw.merge(f"{_TRAINJOBS}/{name}", {"spec": spec})

    def list_pods(self, name: str) -> list[Object]:
        return self._select_pods(f"jobset.sigs.k8s.io/jobset-name={name}")

    def list_v1_pods(self, name: str) -> list[Object]:
        return self._select_pods(f"training.kubeflow.org/job-name={name}")

    def _select_pods(self, selector: str) -> list[Object]:
        items: list[Object] = self.raw.get(f"{_CORE}/pods?labelSelector={selector}")["items"]
        return items

    def wait_until(self, wanted: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + self.limit
        while not (found := wanted()):
            assert time.monotonic() < deadline, f"{what}: not within {self.limit:.0f} s\n{self.server.log[-3000:]}"
            time.sleep(0.05)
        return found

    def wait_for_end(self, name: str) -> Object:
        """The condition that ended the job."""

        def find() -> Object | None:
            conditions = self.get(name).get("status", {}).get("conditions", [])
            return next((e for e in conditions if e["type"] in ("Complete", "Failed") and e["status"] == "True"), None)

        try:
            ended: Object = self.wait_until(find, f"{name} ends")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe(name)}") from None
        return ended

    def describe(self, name: str) -> str:
        """A description for failure messages."""
        lines = [json.dumps(self.get(name).get("status", {}))]
        for pod in self.list_pods(name):
            lines += [pod["metadata"]["name"], json.dumps(pod["status"]), self.read_log(pod)[-3000:]]
        return "\n".join(lines)

    def read_log(self, pod: Object, container: str = "node") -> str:
        code, text = self.raw.call("GET", f"{_CORE}/pods/{pod['metadata']['name']}/log?container={container}")
        return str(text) if code == 200 else ""

    def read_logs(self, name: str) -> str:
        return "".join(self.read_log(pod) for pod in self.list_pods(name))

    def get_results(self, name: str) -> Path:
        return self.home / "history" / "results" / str(self.get(name)["metadata"]["uid"])

    def read_losses(self, name: str) -> list[Object]:
        """What rank 0 of the checkpoint example has reported so far, over all attempts."""
        path = self.get_results(name) / "outputs" / "loss.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_step(self, name: str, step: int) -> None:
        self.wait_until(
            lambda: any(entry["step"] >= step for entry in self.read_losses(name)), f"{name} reaches step {step}"
        )

    # ---- the server --------------------------------------------------------

    def kill_server(self) -> None:
        self.raw.close()
        self.server.kill()

    def start_server(self) -> None:
        self.server = self._launch()
        self.raw = self._connect()

    # ---- ends --------------------------------------------------------------

    def remove(self, name: str) -> None:
        """Deletes the job: nothing of it may be left but its results."""
        uids = {pod["metadata"]["uid"] for pod in self.list_pods(name)}
        self.raw.delete(f"{_TRAINJOBS}/{name}")
        self.wait_until(lambda: not self.list_pods(name), f"the Pods of {name} go")
        folders = [self.home / "pods" / uid for uid in uids]
        self.wait_until(lambda: not any(folder.exists() for folder in folders), f"the directories of {name}'s Pods go")
        self.wait_until(lambda: not any(map(list_marked, uids)), f"the processes and groups of {name} go")

    def close(self) -> None:
        for job in self.raw.get(_TRAINJOBS)["items"]:
            self.remove(job["metadata"]["name"])
        self.raw.close()
        assert self.server.stop() == 0, self.server.log[-3000:]


@contextmanager
def training(home: Path, **environ: str) -> Iterator[Lab]:
    """`environ`: settings of the server, TRAINMASTER_NODE_ISOLATION="plain" for example."""
    frameworks = find_or_skip(TOOL)
    group = hashlib.sha256(os.fspath((home / "pods").resolve()).encode()).hexdigest()[:8]
    before = {mark: take_stock(mark) for mark in (str(home), group)}
    lab = Lab(home, environ, frameworks)
    try:
        yield lab
    except BaseException:
        lab.kill_server()
        raise
    lab.close()
    for mark, stock in before.items():
        assert_nothing_left(stock, mark)


def _issue_nothing(user: str, groups: tuple[str, ...], folder: Path) -> tuple[Path, Path]:
    raise AssertionError("these tests are the administrator")
