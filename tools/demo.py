"""`make demo`: a server in a temporary home trains a job on two nodes, with real rendezvous, and shows its loss.

With kubectl on the machine every step is an ordinary kubectl command, printed before it runs, so that a reader can
repeat it. Without kubectl the same steps go through our own client. Nothing is left behind; the exit code says whether
the job completed and its loss fell.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.toolbox import Toolbox  # noqa: E402  (run as a script, the root is not on the path)
from trainmaster.api.meta import Object  # noqa: E402
from trainmaster.api.resources import PODS, TRAIN_JOBS  # noqa: E402
from trainmaster.client.contract import Client, ListOptions, LogOptions, WatchOptions  # noqa: E402
from trainmaster.client.http import HttpClient  # noqa: E402
from trainmaster.client.kubeconfig import load_kubeconfig  # noqa: E402

LIMIT_SECONDS = 120
LOSS = re.compile(r"\bloss ([0-9.]+)")


class Tour:
    """One home and its server; `show` prints a command and runs it."""

    def __init__(self, home: Path, kubectl: Path | None) -> None:
        self.home = home
        self.kubectl = kubectl
        path = [str(Path(sys.executable).parent), *([str(kubectl.parent)] if kubectl else []), os.environ["PATH"]]
        self.environ = {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "TRAINMASTER_HOME": str(home),
            "KUBECONFIG": str(home / "kubeconfig"),
        }

    def show(self, line: str) -> None:
        print(f"\n$ {line}", flush=True)
        code = subprocess.run(shlex.split(line), env=self.environ, cwd=ROOT).returncode
        if code:
            raise DemoError(f"that failed with exit code {code}")

    def stream(self, line: str) -> list[str]:
        """As `show`, and returns what was printed."""
        print(f"\n$ {line}", flush=True)
        lines = []
        command = shlex.split(line)
        with subprocess.Popen(command, env=self.environ, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for text in process.stdout:
                print(text, end="", flush=True)
                lines.append(text)
        return lines


class DemoError(Exception):
    """A sentence for the person who watches."""


def main() -> int:
    example = "torch-ddp" if importlib.util.find_spec("torch") else "first-job"
    manifest = ROOT / "examples" / example / "trainjob.yaml"
    with tempfile.TemporaryDirectory(prefix="trainmaster-demo-") as folder:
        tour = Tour(Path(folder) / "home", Toolbox().find_kubectl())
        try:
            tour.show("trainmaster up --detach")
            losses = asyncio.run(train(tour, manifest, yaml.safe_load(manifest.read_text())))
        except DemoError as error:
            print(f"\nthe demo failed: {error}", file=sys.stderr)
            return 1
        finally:
            subprocess.run(["trainmaster", "down", "--stop-jobs"], env=tour.environ, cwd=ROOT, check=False)
    print(f"\nTwo nodes trained together: the loss fell from {losses[0]} to {losses[-1]}.")
    return 0


async def train(tour: Tour, manifest: Path, trainjob: Object) -> list[float]:
    """Submits the job, follows it to its end, and returns the losses that rank 0 printed."""
    client = HttpClient(load_kubeconfig([tour.home / "kubeconfig"]))
    name = trainjob["metadata"]["name"]
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            await submit(tour, client, manifest, trainjob)
            pod = await wait_for_rank_0(client, name)
            lines = await follow(tour, client, pod)
            finished = await wait_for_end(client, name)
        await show_end(tour, client, name, finished)
    except TimeoutError:
        raise DemoError(f"{name} did not end within {LIMIT_SECONDS} s") from None
    finally:
        await client.close()
    losses = [float(match.group(1)) for line in lines if (match := LOSS.search(line))]
    condition = finished["status"]["conditions"][-1]
    if condition["type"] != "Complete":
        raise DemoError(f"{name} is {condition['type']}: {condition['message']}")
    if len(losses) < 2 or losses[-1] >= losses[0]:
        raise DemoError(f"the loss did not fall: {losses}")
    return losses


async def submit(tour: Tour, client: Client, manifest: Path, trainjob: Object) -> None:
    if tour.kubectl:
        tour.show(f"kubectl apply -f {manifest.relative_to(ROOT)}")
    else:
        print(f"\nno kubectl here; {manifest.relative_to(ROOT)} is submitted with our own client", flush=True)
        await client.create(TRAIN_JOBS, trainjob, "default")


async def wait_for_rank_0(client: Client, name: str) -> Object:
    """The Pod of rank 0 once it runs (or has run)."""
    labels = f"jobset.sigs.k8s.io/jobset-name={name},batch.kubernetes.io/job-completion-index=0"
    async for pod in watch(client, PODS, WatchOptions(label_selector=labels)):
        if pod.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed"):
            return pod
    raise DemoError("the watch of Pods ended")


async def follow(tour: Tour, client: Client, pod: Object) -> list[str]:
    name = pod["metadata"]["name"]
    if tour.kubectl:
        return await asyncio.get_running_loop().run_in_executor(None, tour.stream, f"kubectl logs -f {name}")
    lines = []
    async for piece in client.logs(name, "default", LogOptions(follow=True)):
        print(piece.decode(), end="", flush=True)
        lines += piece.decode().splitlines()
    return lines


async def wait_for_end(client: Client, name: str) -> Object:
    async for trainjob in watch(client, TRAIN_JOBS, WatchOptions(field_selector=f"metadata.name={name}")):
        conditions = trainjob.get("status", {}).get("conditions", [])
        if any(entry["type"] in ("Complete", "Failed") and entry["status"] == "True" for entry in conditions):
            return trainjob
    raise DemoError("the watch of TrainJobs ended")


async def watch(client: Client, gvr: Any, options: WatchOptions) -> AsyncIterator[Object]:
    async with client.watch(gvr, "default", options) as events:
        async for event in events:
            if event.type in ("ADDED", "MODIFIED"):
                yield event.object


async def show_end(tour: Tour, client: Client, name: str, trainjob: Object) -> None:
    if tour.kubectl:
        tour.show("kubectl get trainjobs,jobsets,jobs,pods")
        tour.show(f"kubectl get events --field-selector involvedObject.name={trainjob['metadata']['name']}")
        return
    condition = trainjob["status"]["conditions"][-1]
    print(f"\nTrainJob {name}: {condition['type']} ({condition['reason']}: {condition['message']})")
    pods = await client.list(PODS, "default", ListOptions(label_selector=f"jobset.sigs.k8s.io/jobset-name={name}"))
    for pod in pods.items:
        print(f"Pod {pod['metadata']['name']}: {pod['status']['phase']}")


if __name__ == "__main__":
    sys.exit(main())
