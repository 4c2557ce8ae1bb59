"""A server under test as a client sees it, whichever server that is: address, CA, credentials, kubeconfig files.

`Target` describes our server and the real kube-apiserver in the same terms, so that the wire tests run on both. `Raw`
is a small HTTPS client for what a test prepares or inspects beside the client it tests: JSON in, JSON out, a status
code, and no retries, caches or discovery that could hide something.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

JSON = dict[str, Any]
Issue = Callable[[str, tuple[str, ...], Path], tuple[Path, Path]]
"""Makes a client certificate for (user, groups) in a folder; returns certificate and key files."""


class Refused(AssertionError):
    """The server answered a preparing request with an error."""

    def __init__(self, code: int, body: Any) -> None:
        super().__init__(f"{code}: {body}")
        self.code = code
        self.body = body


class Raw:
    """One keep-alive connection to one server as one user."""

    def __init__(self, url: str, context: ssl.SSLContext, token: str = "") -> None:
        parts = urllib.parse.urlsplit(url)
        self._connection = http.client.HTTPSConnection(parts.netloc, context=context, timeout=30)
        self._headers = {"Content-Type": "application/json", "User-Agent": "wire-tests/1"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def close(self) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status code and decoded answer; header names are given with `_` for `-`, bytes are sent as they are."""
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, path, data, {**self._headers, **extra})
        response = self._connection.getresponse()
        text = response.read()
        if response.headers.get_content_type() == "application/json":
            return response.status, json.loads(text)
        return response.status, text.decode(errors="replace")

    def must(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        code, answer = self.call(method, path, body, **headers)
        if code >= 300:
            raise Refused(code, answer)
        return answer

    def get(self, path: str) -> Any:
        return self.must("GET", path)

    def create(self, path: str, body: JSON) -> Any:
        return self.must("POST", path, body)

    def merge(self, path: str, body: JSON) -> Any:
        return self.must("PATCH", path, body, Content_Type="application/merge-patch+json")

    def delete(self, path: str) -> Any:
        return self.must("DELETE", path)

    def exists(self, path: str) -> bool:
        code, answer = self.call("GET", path)
        if code not in (200, 404):
            raise Refused(code, answer)
        return code == 200

    @contextmanager
    def watch(self, path: str) -> Iterator[Iterator[JSON]]:
        """The events of a watch as they come, on this connection; leaving the block closes it."""
        self._connection.request("GET", path, None, self._headers)
        response = self._connection.getresponse()
        try:
            if response.status != 200:
                raise Refused(response.status, response.read())
            yield (json.loads(line) for line in iter(response.readline, b""))
        finally:
            response.close()
            self._connection.close()


class Visitor(Raw):
    """Connects for each request: the server closes a connection that is not used for minutes."""

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        try:
            return super().call(method, path, body, **headers)
        finally:
            self.close()


@dataclass(frozen=True)
class Target:
    name: str
    """`ours` or `kube`."""
    kubeconfig: Path
    """The administrator's, as the server's own start-up wrote it."""
    issue: Issue

    @property
    def is_ours(self) -> bool:
        return self.name == "ours"

    def _entry(self, section: str, key: str) -> JSON:
        entry: JSON = yaml.safe_load(self.kubeconfig.read_text())[section][0][key]
        return entry

    @property
    def url(self) -> str:
        return str(self._entry("clusters", "cluster")["server"])

    @property
    def ca_data(self) -> bytes:
        cluster = self._entry("clusters", "cluster")
        if "certificate-authority-data" in cluster:
            return base64.b64decode(cluster["certificate-authority-data"])
        return Path(cluster["certificate-authority"]).read_bytes()

    @property
    def user(self) -> JSON:
        """The administrator's credential as kubeconfig fields."""
        return self._entry("users", "user")

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca_data.decode())

    def raw(self, token: str | None = None) -> Raw:
        """As the administrator, or as the bearer of a token."""
        return Raw(self.url, self.context(), self.admin_token() if token is None else token)

    def admin_token(self) -> str:
        user = self.user
        if "tokenFile" in user:
            return Path(user["tokenFile"]).read_text().strip()
        return str(user["token"])

    def write_kubeconfig(self, path: Path, user: JSON, namespace: str = "default", url: str = "") -> Path:
        """A kubeconfig for this server with another credential."""
        cluster = {
            "server": url or self.url,
            "certificate-authority-data": base64.b64encode(self.ca_data).decode(),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "wire",
            "clusters": [{"name": "wire", "cluster": cluster}],
            "users": [{"name": "wire", "user": user}],
            "contexts": [{"name": "wire", "context": {"cluster": "wire", "user": "wire", "namespace": namespace}}],
        }
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path


@contextmanager
def connect(target: Target) -> Iterator[Any]:
    """The official Python client, configured from the administrator's kubeconfig as every user does it."""
    from kubernetes import config

    api = config.new_client_from_config(config_file=str(target.kubeconfig))
    try:
        yield api
    finally:
        api.rest_client.pool_manager.clear()
        api.close()
