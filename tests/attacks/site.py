"""The place that is attacked: a real server, run as root, with two tenants who do not trust each other.

    site.ann.kube.call("GET", "/api/v1/namespaces/bob/pods")
    site.ann.rest.call("GET", "/api/v1/me")
    site.ann.run_pod("probe", "id -u")          # what it printed, once it has ended

`site.owner` is whoever runs the server. A test that needs other settings, or that may kill the server, starts one of
its own with `running_site`.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.clients import JSON, Raw
from tests.support.server import ServerProcess, clean_environ, command, start_server

POD_SECONDS = 60
ENDED = ("Succeeded", "Failed")


class Separate(Raw):
    """A connection per call: nothing stays open between tests, and no limit on connections is met by accident."""

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        try:
            return super().call(method, path, body, **headers)
        finally:
            self.close()


@dataclass(frozen=True)
class Caller:
    """Somebody with a token, on both ports."""

    namespace: str
    token: str
    kube: Raw
    rest: Raw

    def close(self) -> None:
        self.kube.close()
        self.rest.close()

    def path(self, resource: str, name: str = "", subresource: str = "", group: str = "") -> str:
        """Of a resource in the caller's namespace: `path("pods", "probe", "log")`."""
        root = f"/apis/{group}" if group else "/api/v1"
        parts = (root, "namespaces", self.namespace, resource, name, subresource)
        return "/".join(part for part in parts if part)

    def build_pod(self, name: str, script: str, **spec: Any) -> JSON:
        """One container, `main`, that runs a shell script. `spec` overrides the Pod's, `container` the container's."""
        container = {"name": "main", "image": "plain", "command": ["sh", "-c", script], **spec.pop("container", {})}
        metadata = {"name": name, **spec.pop("metadata", {})}
        body = {"restartPolicy": "Never", "containers": [container], **spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}

    def start_pod(self, name: str, script: str, **spec: Any) -> JSON:
        created: JSON = self.kube.create(self.path("pods"), self.build_pod(name, script, **spec))
        return created

    def wait_for_pod(self, name: str, *phases: str) -> JSON:
        """The Pod once it is in one of these phases (its end, unless others are named)."""
        deadline = time.monotonic() + POD_SECONDS
        while True:
            pod: JSON = self.kube.get(self.path("pods", name))
            if pod.get("status", {}).get("phase") in (phases or ENDED):
                return pod
            assert time.monotonic() < deadline, pod.get("status")
            time.sleep(0.05)

    def read_log(self, name: str) -> str:
        return str(self.kube.get(self.path("pods", name, "log")))

    def run_pod(self, name: str, script: str, **spec: Any) -> str:
        """Starts a Pod, waits for its end, and returns what it printed. The Pod is deleted."""
        self.start_pod(name, script, **spec)
        try:
            self.wait_for_pod(name)
            return self.read_log(name)
        finally:
            self.kube.delete(f"{self.path('pods', name)}?gracePeriodSeconds=0")


@dataclass(frozen=True)
class Site:
    server: ServerProcess
    owner: Caller
    ann: Caller
    bob: Caller

    def trainmaster(self, *arguments: str) -> str:
        return run_command(self.server.home, *arguments)

    def is_alive(self) -> bool:
        return self.server.process.poll() is None and self.owner.kube.call("GET", "/livez")[0] == 200

    @property
    def level(self) -> str:
        """The isolation level of its Pods."""
        node = self.owner.kube.get("/api/v1/nodes/local")
        return str(node["metadata"]["annotations"]["trainmaster.dev/isolation"])


def run_command(home: Path, *arguments: str) -> str:
    environ = clean_environ({"TRAINMASTER_HOME": str(home)})
    done = subprocess.run(command(*arguments), env=environ, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, (
        f"trainmaster {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def make_caller(server: ServerProcess, namespace: str, token: str) -> Caller:
    context = ssl.create_default_context(cafile=str(server.ca))
    return Caller(namespace, token, Separate(server.url, context, token), Separate(server.rest_url, context, token))


def add_tenant(server: ServerProcess, name: str, *flags: str) -> Caller:
    issued = json.loads(run_command(server.home, "tenant", "add", name, *flags, "-o", "json"))
    return make_caller(server, issued["namespace"], issued["token"])


def unique(name: str) -> str:
    """A name that no other test uses: the session's site is shared."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


@contextmanager
def running_site(
    home: Path,
    *flags: str,
    environ: Mapping[str, str] | None = None,
    tenant: tuple[str, ...] = (),
    user: int | None = None,
) -> Iterator[Site]:
    """A server with the owner and the tenants ann and bob; `tenant` are flags of `trainmaster tenant add`, `user` is
    who runs it if not we."""
    with start_server(home, *flags, environ=environ, user=user) as server:
        callers = [make_caller(server, "default", (home / "pki" / "owner.token").read_text().strip())]
        try:
            callers += [add_tenant(server, name, *tenant) for name in ("ann", "bob")]
            yield Site(server, *callers)
        finally:
            for caller in callers:
                caller.close()
        if server.process.poll() is None:
            run_command(home, "down", "--stop-jobs", "--timeout", "20")
            server.process.wait(30)
