"""Trainmaster: runs distributed training jobs, on one machine and on Kubernetes.

Nothing runs on import. The command line lives in `trainmaster.cli`, the composition root in `trainmaster.app`.
For users, loaded when asked: `trainmaster.report` says how far a training program is (`trainmaster.progress`),
`trainmaster.TrainerClient` is the Kubeflow SDK's client with deadlines and TTLs (`trainmaster.sdk`), and
`trainmaster.connect()` returns one for the local server.
"""

import os as _os
import typing as _typing

from trainmaster.version import __version__ as __version__

if _typing.TYPE_CHECKING:
    from trainmaster.progress import report as report
    from trainmaster.sdk.client import TrainerClient as TrainerClient


def connect(home: "str | _os.PathLike[str] | None" = None, namespace: str | None = None) -> "TrainerClient":
    """The Kubeflow SDK's client for the server that runs in `home` (default: $TRAINMASTER_HOME, else the user's own).

    Starts nothing and leaves the user's kubeconfig alone. `trainmaster.sdk.connection.NotConnected`, a ConnectionError
    that says what to type, when there is no such server. Needs the Kubeflow SDK: pip install 'trainmaster[sdk]'.
    """
    from trainmaster.sdk import connection  # noqa: PLC0415 - programs that do not call it need no SDK

    return connection.connect(home, namespace)


def __getattr__(name: str) -> object:
    """Imports what is asked for, and keeps it."""
    found: object
    if name == "report":
        from trainmaster.progress import report  # noqa: PLC0415

        found = report
    elif name == "TrainerClient":
        from trainmaster.sdk.client import TrainerClient  # noqa: PLC0415

        found = TrainerClient
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
