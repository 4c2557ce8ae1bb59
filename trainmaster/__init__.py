"""Trainmaster: runs distributed training jobs, on one machine and on Kubernetes.

Nothing runs on import. The command line lives in `trainmaster.cli`, the composition root in `trainmaster.app`.
`trainmaster.TrainerClient` is the Kubeflow SDK's client with deadlines and TTLs (`trainmaster.sdk`), loaded when asked.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "TrainerClient":
        import importlib  # noqa: PLC0415  # every command imports this module

        client: object = importlib.import_module("trainmaster.sdk.client").TrainerClient
        return client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
