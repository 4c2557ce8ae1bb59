"""A certificate with its key and its CA as the data of a Secret, and the annotations that say what it is for.

All Secrets of the operator have this form: that of the status server (`status_keys`), and those of the webhooks and of
the records (`webhooks.rotation`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from trainmaster.api.meta import Object
from trainmaster.auth.pki import ServerKeys

PARTS = ("ca.crt", "tls.crt", "tls.key")
EXPIRES = "trainmaster.dev/expires"
NAMES = "trainmaster.dev/names"


def encode(keys: ServerKeys, prefix: str = "") -> Object:
    texts = (keys.ca, keys.certificate, keys.key)
    return {f"{prefix}{part}": encode_text(text) for part, text in zip(PARTS, texts, strict=True)}


def decode(data: Mapping[str, str], prefix: str = "") -> ServerKeys | None:
    """None if a part is missing. Raises ValueError if one is not base64."""
    texts = [decode_text(data.get(f"{prefix}{part}", "")) for part in PARTS]
    return ServerKeys(*texts) if all(texts) else None


def encode_text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decode_text(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def build_secret(name: str, namespace: str, data: Object, marks: Object) -> Object:
    meta = {"name": name, "namespace": namespace, "annotations": marks}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": meta, "data": data}


def join_names(names: Sequence[str]) -> str:
    return ",".join(sorted(names))
