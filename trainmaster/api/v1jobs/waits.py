"""The init container in which a worker of a PyTorchJob waits until the name of its master can be resolved, as upstream
creates it. Pure.
"""

from __future__ import annotations

from trainmaster.api.meta import Fields, Object

_NAME, _IMAGE = "init-pytorch", "alpine:3.10"
_TRIES = 100


def build_wait(master: str) -> Object:
    """`master`: the name of its Pod and of its Service."""
    return {
        "name": _NAME,
        "image": _IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": _build_command(master),
        "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
    }


def is_wait(container: Fields, master: str) -> bool:
    """Whether it does nothing but wait for that name."""
    return container.get("name") == _NAME and container.get("command") == _build_command(master)


def _build_command(master: str) -> list[str]:
    script = (
        f"err=1;for i in $(seq {_TRIES}); do if nslookup {master}; then err=0 && break; fi;"
        "echo waiting for master; sleep 2; done; exit $err"
    )
    return ["sh", "-c", script]
