"""The Pod in which an operator runs, so that events about the operator are shown with it.

Its name and uid are in the token that the kubelet mounts, which is bound to the Pod; no right and no variable is
needed. The token is not verified here: only its owner reads it, to learn who it is.
"""

from __future__ import annotations

import base64
from pathlib import Path

import orjson

from trainmaster.api.meta import Object
from trainmaster.client.kubeconfig import SERVICE_ACCOUNT_DIR


def find_own_pod(directory: Path = SERVICE_ACCOUNT_DIR) -> Object | None:
    """apiVersion, kind and metadata. None outside a Pod, or with a token that is not bound to one."""
    try:
        payload = (directory / "token").read_text().split(".")[1]
        claims = orjson.loads(base64.urlsafe_b64decode(payload + "=="))
    except (OSError, ValueError, IndexError):
        return None
    own = claims.get("kubernetes.io") if isinstance(claims, dict) else None
    pod = own.get("pod") if isinstance(own, dict) else None
    if not (isinstance(own, dict) and isinstance(pod, dict) and pod.get("name") and pod.get("uid")):
        return None
    meta = {"name": str(pod["name"]), "namespace": str(own.get("namespace", "")), "uid": str(pod["uid"])}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
