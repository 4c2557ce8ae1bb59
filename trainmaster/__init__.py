"""Trainmaster: runs distributed training jobs, on one machine and on Kubernetes.

Nothing runs on import. The command line lives in `trainmaster.cli`, the composition root in `trainmaster.app`.
For users, loaded when asked: `trainmaster.report` says how far a training program is (`trainmaster.progress`),
`trainmaster.TrainerClient` is the Kubeflow SDK's client with deadlines and TTLs (`trainmaster.sdk`), and
`trainmaster.connect()` returns one for the local server.
"""

import os as _os
import typing as _typing

if _typing.TYPE_CHECKING:
    from trainmaster.progress import report as report

__version__ = "0.1.0"

_PLACES = {"TrainerClient": "trainmaster.sdk.client", "report": "trainmaster.progress"}


def connect(home: str | _os.PathLike[str] | None = None, namespace: str | None = None) -> _typing.Any:
    """The Kubeflow SDK's client for the server that runs in `home` (default: $TRAINMASTER_HOME, else the user's own).

    Starts nothing and leaves the user's kubeconfig alone. `trainmaster.sdk.connection.NotConnected`, a ConnectionError
    that says what to type, when there is no such server. Needs the Kubeflow SDK: pip install 'trainmaster[sdk]'.
    """
    import importlib  # noqa: PLC0415  # every command imports this module

    return importlib.import_module("trainmaster.sdk.connection").connect(home, namespace)


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415  # every command imports this module

    found: object = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = found
    return found
