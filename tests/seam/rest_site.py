"""`trainmaster rest` as its own process before a real API server, with the roles of `deploy/rest/` and no others.

`RestSite` has two tenants, made with `trainmaster tenant --kubeconfig`, and every kind of caller that the isolation
matrix needs. Expired tokens are signed with the cluster's own key, because no API server hands out one that has.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.house.tree import ROOT
from tests.kube.cluster import KubeCluster
from tests.support.clients import Raw

DEPLOY = ROOT / "deploy" / "rest"
ROLES = ("base.yaml", "tenant-role.yaml", "addon.yaml")
_ACCOUNT = ("trainmaster-rest", "-n", "trainmaster-system")


@dataclass
class RestSite:
    cluster: KubeCluster
    url: str
    ca: str
    tokens: dict[str, str] = field(default_factory=dict)
    """Tenant -> token."""
    revoked: str = ""
    """A token that a tenant had once."""

    @property
    def page_url(self) -> str:
        """Of the dashboard."""
        return f"{self.url}/ui/"

    def get_token(self, who: str) -> str:
        """Of a tenant, or of the `owner` of the cluster."""
        return self.cluster.token if who == "owner" else self.tokens[who]

    def make_link(self, who: str, *, read_only: bool = False) -> str:
        """As `trainmaster dashboard` does."""
        code, made = self.call("POST", "/api/v1/login-links", {"read_only": read_only}, token=self.get_token(who))
        assert code == 201, made
        return f"{self.page_url}#/login?link={made['link']}"

    def call(self, method: str, path: str, body: Any = None, *, token: str = "", **headers: str) -> tuple[int, Any]:
        return self._call(self.url, self.ca, method, path, body, token, **headers)

    def ask_kube(self, method: str, path: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
        """The Kubernetes side of the same token."""
        return self._call(self.cluster.server, str(self.cluster.ca), method, path, body, token)

    def tenant(self, *arguments: str) -> Any:
        """`trainmaster tenant ... -o json`."""
        command = [sys.executable, "-m", "trainmaster", "tenant", *arguments]
        command += ["--kubeconfig", str(self.cluster.kubeconfig), "-o", "json"]
        done = subprocess.run(command, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def add(self, name: str, *more: str) -> str:
        token: str = self.tenant("add", name, *more)["token"]
        self.tokens[name] = token

        def is_counted() -> bool:
            quota = json.loads(self.cluster.kubectl("get", "resourcequota", "tenant", "-n", name, "-o", "json"))
            return "count/trainjobs.trainer.kubeflow.org" in quota.get("status", {}).get("used", {})

        # The controller manager counts in its own time.
        eventually(is_counted, f"the quota of {name} is not counted")
        self.await_right(f"{name}:tenant", name)
        return token

    def await_right(self, account: str, namespace: str, verb: str = "get", resource: str = "trainjobs") -> None:
        """Until the API server has seen the binding that gives it; it reads them with a delay."""
        group = "trainer.kubeflow.org" if resource == "trainjobs" else ""
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
        spec = {"user": f"system:serviceaccount:{account}", "resourceAttributes": attributes}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

        def is_allowed() -> bool:
            code, answer = self.ask_kube("POST", path, review, token=self.cluster.token)
            assert code == 201, answer
            return bool(answer["status"]["allowed"])

        eventually(is_allowed, f"{account} may not {verb} {resource}")

    def expire(self, token: str) -> str:
        """The same token as it will be when its time is over."""
        claims = read_claims(token)
        hour = 3600
        return self.sign(
            {**claims, "iat": claims["iat"] - 2 * hour, "nbf": claims["iat"] - 2 * hour, "exp": claims["iat"] - hour}
        )

    def sign(self, claims: Mapping[str, Any]) -> str:
        key = load_pem_private_key((self.cluster.work / "sa.key").read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        head = encode(json.dumps({"alg": "RS256"}).encode())
        signed = f"{head}.{encode(json.dumps(claims).encode())}"
        return f"{signed}.{encode(key.sign(signed.encode(), padding.PKCS1v15(), SHA256()))}"

    def _call(
        self, url: str, ca: str, method: str, path: str, body: Any, token: str, **headers: str
    ) -> tuple[int, Any]:
        raw = Raw(url, ssl.create_default_context(cafile=ca), token)
        try:
            code, answer = raw.call(method, path, body, **headers)
        finally:
            raw.close()
        return code, json.loads(answer) if isinstance(answer, str) and answer.startswith("{") else answer


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def read_claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


def write_kubeconfig(cluster: KubeCluster, folder: Path) -> Path:
    """Of the account in base.yaml, with its token alone."""
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": cluster.kubectl("create", "token", *_ACCOUNT).strip()}
    path = folder / "rest.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path


@contextmanager
def running_site(cluster: KubeCluster, folder: Path, environ: Mapping[str, str] | None = None) -> Iterator[RestSite]:
    for name in ROLES:
        cluster.apply((DEPLOY / name).read_text())
    # As deployment.yaml has it: a certificate that was given, and a folder that holds nothing yet.
    command = [sys.executable, "-m", "trainmaster", "rest", "--kubeconfig", str(write_kubeconfig(cluster, folder))]
    command += ["--tls-cert", str(cluster.work / "tls.crt"), "--tls-key", str(cluster.work / "tls.key")]
    command += ["--state", str(folder / "state"), "--log-form", "json", "--log-level", "warning"]
    errors = (folder / "rest.log").open("wb")
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **(environ or {})}
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().rpartition(" at ")[2].strip()
        assert url, (folder / "rest.log").read_text()
        yield RestSite(cluster, url, str(cluster.ca))
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
        errors.close()


def eventually(check: Any, text: str, limit: float = 60.0) -> None:
    """Caches of the API server end by themselves."""
    end = time.monotonic() + limit
    while not check():
        assert time.monotonic() < end, text
        time.sleep(0.2)
