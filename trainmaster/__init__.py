"""Trainmaster: runs distributed training jobs, on one machine and on Kubernetes.

Nothing runs on import. The command line lives in `trainmaster.cli`, the composition root in `trainmaster.app`.
`trainmaster.TrainerClient` is the Kubeflow SDK's client with deadlines and TTLs (`trainmaster.sdk`), loaded when asked;
`trainmaster.connect()` returns one for the local server.
"""

import os as _os
import typing as _typing

__version__ = "0.1.0"


def connect(home: str | _os.PathLike[str] | None = None, namespace: str | None = None) -> _typing.Any:
    """The Kubeflow SDK's client for the server that runs in `home` (default: $TRAINMASTER_HOME, else the user's own).

    Starts nothing and leaves the user's kubeconfig alone. `trainmaster.sdk.connection.NotConnected`, a ConnectionError
    that says what to type, when there is no such server. Needs the Kubeflow SDK: pip install 'trainmaster[sdk]'.
    """
    import importlib  # noqa: PLC0415  # every command imports this module

    return importlib.import_module("trainmaster.sdk.connection").connect(home, namespace)


def __getattr__(name: str) -> object:
    if name == "TrainerClient":
        import importlib  # noqa: PLC0415  # every command imports this module

        client: object = importlib.import_module("trainmaster.sdk.client").TrainerClient
        return client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
