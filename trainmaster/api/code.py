"""How a job refers to its code: an inline CSI volume with a digest, and annotations on the TrainJob. Pure.

`trainmaster run` writes both; the node reads the volume, users and `history` read the annotations. The CSI driver
exists only on this machine, so a manifest with such a volume does not work on a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainmaster.api.meta import Object

DRIVER = "code.trainmaster.dev"
DIGEST = "digest"
"""The one key of volumeAttributes: `sha256:` and 64 hexadecimal digits, a bundle of the home."""
MOUNT_PATH = "/workspace/code"
"""Where `trainmaster run` mounts it."""
VOLUME_NAME = "code"
CODE_DIGEST = "trainmaster.dev/code-digest"
"""Annotation on TrainJobs, by whoever packed the code: the digest of the volume."""
GIT_COMMIT = "trainmaster.dev/git-commit"
"""Annotation on TrainJobs, by whoever packed the code: the commit that the directory was at."""
GIT_DIRTY = "trainmaster.dev/git-dirty"
"""Annotation on TrainJobs, by whoever packed the code: "true" when the directory differed from that commit."""

_MENTION = re.compile(rb"sha256[:-][0-9a-f]{64}")


def build_volume(digest: str, name: str = VOLUME_NAME) -> Object:
    return {"name": name, "csi": {"driver": DRIVER, "volumeAttributes": {DIGEST: digest}}}


def build_annotations(digest: str, commit: str, dirty: bool | None) -> dict[str, str]:
    """The annotations of the TrainJob; unknown values are left out."""
    said = {CODE_DIGEST: digest, GIT_COMMIT: commit}
    if commit and dirty is not None:
        said[GIT_DIRTY] = "true" if dirty else "false"
    return {key: text for key, text in said.items() if text}


def find_digest(volume: Mapping[str, Any]) -> str | None:
    """The digest of a code volume; "" if it has none, None if it is another kind of volume."""
    source = volume.get("csi") or {}
    if source.get("driver") != DRIVER:
        return None
    return str((source.get("volumeAttributes") or {}).get(DIGEST) or "")


def list_mentions(raw: bytes) -> set[str]:
    """All digests anywhere in the JSON of an object; their bundles are in use."""
    return {text.decode().replace("-", ":") for text in _MENTION.findall(raw)}
