"""`trainmaster.connect()`: a Kubeflow SDK client for the server of a home.

For notebooks and scripts on the server's machine. It reads the home, so it needs neither KUBECONFIG nor an environment
variable, starts nothing, and does not change what belongs to the user: their kubeconfig, and the default configuration
that other Kubernetes clients in the same process share. A client is returned only if the server has answered.

Loaded on first use of `trainmaster.connect`, like `client`.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

from trainmaster.app.home.folder import Home, HomeError, ServerInfo, default_root
from trainmaster.sdk.client import KubernetesBackendConfig, TrainerClient, read_message

# Both are installed with the SDK, whose absence the line before reports.
from kubernetes import client, config  # isort: skip
from urllib3.exceptions import HTTPError  # isort: skip

_ANSWER_SECONDS = 10
"""How long the server may take to answer; the machine may be busy training."""


class NotConnected(ConnectionError):
    """There is no server, or not for this user; the text says what to do."""


def connect(home: str | os.PathLike[str] | None = None, namespace: str | None = None) -> TrainerClient:
    """The SDK's client for the server of `home`, by default that of $TRAINMASTER_HOME or of the user.

    namespace: where jobs are made and looked for; it must exist. Without it the one of the home's kubeconfig.
    NotConnected when no server runs there, or when it does not answer.
    """
    info = _get_server(Home(Path(home) if home is not None else default_root(os.environ)))
    configuration, own_namespace = _read_configuration(info.kubeconfig)
    _check_answer(configuration, info, namespace)
    chosen = KubernetesBackendConfig(namespace=namespace or own_namespace, client_configuration=configuration)
    return TrainerClient(chosen)


def _get_server(home: Home) -> ServerInfo:
    try:
        info = home.find_running()
    except HomeError as error:
        raise NotConnected(str(error)) from None
    if info is None:
        is_default = home.root == Home(default_root(os.environ)).root
        option = "" if is_default else f" --home {home.root}"
        raise NotConnected(f"no server runs in {home.root}: start it with `trainmaster up --detach{option}`")
    if not info.kubeconfig:
        raise NotConnected(f"the server in {home.root} is still starting: try again in a moment")
    return info


def _read_configuration(kubeconfig: str) -> tuple[Any, str]:
    """How to reach the server, as the Kubernetes client wants it, and the namespace that the file names."""
    configuration = client.Configuration()
    try:
        # With a configuration of its own given, the loader leaves the one that all clients share as it is.
        config.load_kube_config(kubeconfig, client_configuration=configuration, persist_config=False)
        _, current = config.list_kube_config_contexts(kubeconfig)
    except (OSError, config.ConfigException) as error:
        raise NotConnected(
            f"the kubeconfig {kubeconfig} cannot be read: {error}: the next start of the server writes it anew"
        ) from None
    # The server is on this machine: a proxy named in the environment could only lose the way.
    configuration.proxy = None
    return configuration, current["context"].get("namespace") or "default"


def _check_answer(configuration: Any, info: ServerInfo, namespace: str | None) -> None:
    once = copy.copy(configuration)
    # The client would ask three times more before it says that nobody answers.
    once.retries = False
    core = client.CoreV1Api(client.ApiClient(once))
    try:
        if namespace is None:
            client.VersionApi(core.api_client).get_code(_request_timeout=_ANSWER_SECONDS)
        else:
            core.read_namespace(namespace, _request_timeout=_ANSWER_SECONDS)
    except client.ApiException as error:
        if error.status == 404:
            help_ = f"make it with `kubectl --kubeconfig {info.kubeconfig} create namespace {namespace}`"
            raise NotConnected(f"there is no namespace {namespace} on {info.server}: {help_}") from None
        raise NotConnected(f"{info.server} refuses: {read_message(error) or error.reason}") from None
    except HTTPError as error:
        help_ = f"see `trainmaster status --home {info.home}`"
        raise NotConnected(f"{info.server} (process {info.pid}) does not answer: {error}: {help_}") from None
    finally:
        core.api_client.close()
