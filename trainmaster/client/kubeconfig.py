"""Reads the configuration for reaching a cluster: a kubeconfig file, or the files mounted into a Pod.

Supports what kubectl does (several files in KUBECONFIG, inline data, paths relative to the file) except exec and
auth-provider plugins and basic authentication, which are refused by name.

Only `app` and `cli` read the environment; they pass it in.
"""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_fields, read_text

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigError(OSError):
    """The kubeconfig, or a file that it names, cannot be used; the text says why and where."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    server: str
    namespace: str = "default"
    ca_pem: str = ""
    """"" uses the system's certificate authorities."""
    insecure: bool = False
    """Skips verification of the server; only if the kubeconfig says insecure-skip-tls-verify."""
    tls_server_name: str = ""
    certificate_pem: str = ""
    key_pem: str = ""
    token: str = ""
    token_file: str = ""
    """Read anew for every use: mounted tokens are renewed in place."""
    context: str = ""

    def read_token(self) -> str:
        if self.token_file:
            try:
                return Path(self.token_file).read_text().strip()
            except OSError as error:
                raise ConfigError(f"cannot read the token file {self.token_file}: {error.strerror}") from error
        return self.token


def build_tls(config: ClusterConfig) -> ssl.SSLContext | None:
    if not config.server.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cadata=config.ca_pem or None)
    except ssl.SSLError as error:
        raise ConfigError(f"the certificate authority of {config.server} is not a valid certificate") from error
    context.set_alpn_protocols(["http/1.1"])
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.certificate_pem:
        # Python's ssl reads key pairs from files only; this one is private and temporary.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
            pair.write(config.certificate_pem + "\n" + config.key_pem)
            pair.flush()
            try:
                context.load_cert_chain(pair.name)
            except ssl.SSLError as error:
                raise ConfigError("the client certificate and its key do not fit together") from error
    return context


def choose_config(
    *, path: str = "", context: str = "", environ: Mapping[str, str], home: Path | None = None
) -> ClusterConfig:
    """As kubectl: the given file, else KUBECONFIG, else ~/.kube/config, else the mounted service account."""
    if path:
        return load_kubeconfig([Path(path)], context=context)
    listed = [Path(part) for part in environ.get("KUBECONFIG", "").split(":") if part]
    if listed:
        return load_kubeconfig([part for part in listed if part.exists()] or listed[:1], context=context)
    default = (home or Path.home()) / ".kube" / "config"
    if default.exists():
        return load_kubeconfig([default], context=context)
    return load_in_cluster(environ)


def load_in_cluster(environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT_DIR) -> ClusterConfig:
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = directory / "token", directory / "ca.crt"
    if not host or not token.exists():
        raise ConfigError("no kubeconfig was found, and this is not a Pod of a cluster")
    namespace = directory / "namespace"
    return ClusterConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        ca_pem=ca.read_text() if ca.exists() else "",
        token_file=str(token),
    )


def load_kubeconfig(paths: list[Path], *, context: str = "") -> ClusterConfig:
    """Merges the files (the first to set a value wins) and resolves the context."""
    import yaml  # noqa: PLC0415 - slow to import, and only needed here

    # The C loader takes 1 ms instead of 12, and every command reads a kubeconfig.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    merged: dict[str, dict[str, tuple[Path, Fields]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = context
    for path in paths:
        try:
            raw = yaml.load(path.read_text(), loader)
        except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
            helps = "`trainmaster kubeconfig` prints the path of the one for this machine"
            raise ConfigError(f"cannot read the kubeconfig {path}: {why}; {helps}") from error
        if raw is None:
            continue
        if not isinstance(raw, dict):
            raise ConfigError(f"the kubeconfig {path} is not a mapping")
        current = current or read_text(raw, "current-context")
        for section, found in merged.items():
            for entry in list_items(raw, section):
                if isinstance(entry, dict) and "name" in entry:
                    found.setdefault(str(entry["name"]), (path, read_fields(entry, section[:-1])))
    return _resolve(merged, current)


def _resolve(merged: dict[str, dict[str, tuple[Path, Fields]]], current: str) -> ClusterConfig:
    if not current:
        raise ConfigError("the kubeconfig has no current-context")
    if current not in merged["contexts"]:
        raise ConfigError(f'the kubeconfig has no context "{current}"')
    _, context = merged["contexts"][current]
    cluster_name, user_name = read_text(context, "cluster"), read_text(context, "user")
    if cluster_name not in merged["clusters"]:
        raise ConfigError(f'context "{current}" names the cluster "{cluster_name}", which does not exist')
    where, cluster = merged["clusters"][cluster_name]
    user_where, user = merged["users"].get(user_name, (where, {}))
    for key, advice in _UNSUPPORTED.items():
        if key in user:
            raise ConfigError(f'user "{user_name}" uses {key}, which is not supported; {advice}')
    server = read_text(cluster, "server")
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f'cluster "{cluster_name}" has no http(s) server address')
    return ClusterConfig(
        server=server,
        namespace=str(context.get("namespace") or "default"),
        ca_pem=_data(cluster, "certificate-authority", where),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=read_text(cluster, "tls-server-name"),
        certificate_pem=_data(user, "client-certificate", user_where),
        key_pem=_data(user, "client-key", user_where),
        token=read_text(user, "token"),
        token_file=_relative(user_where, str(user["tokenFile"])) if user.get("tokenFile") else "",
        context=current,
    )


_UNSUPPORTED = {
    "exec": "create a token (kubectl create token) or a client certificate and put it into the kubeconfig",
    "auth-provider": "create a token and put it into the kubeconfig",
    "username": "Kubernetes removed basic authentication; use a token",
}


def _relative(where: Path, path: str) -> str:
    return path if Path(path).is_absolute() else str(where.parent / path)


def _data(section: Fields, key: str, where: Path) -> str:
    """Inline data takes precedence over a path, as in kubectl."""
    inline = section.get(f"{key}-data")
    if inline:
        try:
            return base64.b64decode(str(inline), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"{key}-data in {where} is not valid base64") from error
    path = section.get(key)
    if not path:
        return ""
    full = _relative(where, str(path))
    try:
        return Path(full).read_text()
    except OSError as error:
        raise ConfigError(f"cannot read {full} named by {key} in {where}: {error.strerror}") from error
