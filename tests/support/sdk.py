"""The Kubeflow SDKs, unmodified, each in the environment that `tools/frameworks.py` keeps for it, talking to a server.

    with running_sdk(tmp_path, server.home) as sdk:
        sdk.run("name", "client.train(...)")    # `ours` is what trainmaster.connect() returns

What a program prints is returned; what it raises fails the test, with the server's log. Nothing of the developer's own
configuration is seen: HOME is the test's, and there is no KUBECONFIG.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from tests.support.environments import find_or_skip
from tools.frameworks import SDK, TRAINING_SDK

ROOT = Path(__file__).resolve().parent.parent.parent
PRELUDE = r"""
import logging, os, sys
from kubeflow.trainer import *
from kubeflow.trainer.options import *
import trainmaster

# The SDK's own client, made its own way.
def make(namespace="default"):
    config = os.environ["TRAINMASTER_HOME"] + "/kubeconfig"
    return TrainerClient(KubernetesBackendConfig(config_file=config, namespace=namespace))

client = make()
ours = trainmaster.connect()

def wait(name, *status, client=client):
    wanted = set(status or ("Complete",))
    try:
        return client.wait_for_job_status(name, status=wanted, timeout=100, polling_interval=0.2)
    except (RuntimeError, TimeoutError):
        print(*client.get_job_logs(name), *client.get_job_events(name), sep="\n", file=sys.stderr)
        raise
"""


TRAINING_PRELUDE = r"""
import time
from kubeflow.training import *
from kubernetes.client import *

client = TrainingClient()

def wait(name, *conditions):
    wanted = set(conditions or ("Succeeded",))
    return client.wait_for_job_conditions(name, expected_conditions=wanted, wait_timeout=100, polling_interval=0.2)

def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.1)
"""


def find_sdk_or_skip() -> Path:
    return find_or_skip(SDK)


def find_training_sdk_or_skip() -> Path:
    return find_or_skip(TRAINING_SDK)


def build_environ(folder: Path, home: Path, **more: str) -> dict[str, str]:
    return {
        # The command `trainmaster` is beside our interpreter.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "TRAINMASTER_HOME": str(home),
        **more,
    }


class Sdk:
    def __init__(self, process: subprocess.Popen[str], folder: Path, home: Path) -> None:
        self._process = process
        self._folder = folder
        self._home = home

    def run(self, name: str, program: str, session: str = "") -> str:
        """What it printed. The program lies in a file of that name while it runs, as a person's would.

        It has what PRELUDE made, and what the programs before it in the same session did.
        """
        path = self._folder / f"{name}.py"
        path.write_text(dedent(program))
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps([str(path), session]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the SDK's process ended with {self._process.wait()}"
        answer = json.loads(line)
        if answer["error"]:
            log = (self._home / "logs" / "test.log").read_text(errors="replace")
            raise AssertionError(f"{answer['out']}\n{answer['error']}\n{log[-2000:]}")
        assert path.read_text() == dedent(program), "the job has written over the program that made it"
        return str(answer["out"])


@contextmanager
def running_sdk(folder: Path, home: Path) -> Iterator[Sdk]:
    with _running(find_sdk_or_skip(), folder, home, PRELUDE, build_environ(folder, home)) as sdk:
        yield sdk


@contextmanager
def running_training_sdk(folder: Path, home: Path) -> Iterator[Sdk]:
    """The SDK of training-operator. It finds the server through KUBECONFIG, as its documentation shows."""
    environ = build_environ(folder, home, KUBECONFIG=str(home / "kubeconfig"))
    with _running(find_training_sdk_or_skip(), folder, home, TRAINING_PRELUDE, environ) as sdk:
        yield sdk


@contextmanager
def _running(sdk: Path, folder: Path, home: Path, prelude: str, environ: dict[str, str]) -> Iterator[Sdk]:
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [str(sdk / "bin" / "python"), str(Path(__file__).with_name("sdk_worker.py"))],
        cwd=folder,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        found = Sdk(process, folder, home)
        found.run("prelude", prelude, "first")
        yield found
    finally:
        assert process.stdin and process.stdout
        process.stdin.close()
        process.stdout.close()
        process.wait()
