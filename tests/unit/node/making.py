"""Pods and what was prepared for them, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainmaster.api.meta import Object
from trainmaster.node.images.contract import Environment
from trainmaster.node.launch.contract import ContainerSources, Prepared, Site
from trainmaster.node.volumes.contract import Volume
from trainmaster.shim.protocol import PLAIN


def make_pod(*containers: Object, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "job-node-0-1-abcde",
            "namespace": "ns",
            "uid": "u",
            "labels": labels or {"team": "a"},
            "annotations": {"rank": "1"},
        },
        "spec": {
            "hostname": "job-node-0-1",
            "subdomain": "job",
            "nodeName": "local",
            "serviceAccountName": "default",
            "containers": [{"name": "node", "image": "train:1", "command": ["sh"], **entry} for entry in containers],
            **spec,
        },
    }


def make_prepared(tmp_path: Path, *, level: str = PLAIN, image: Environment | None = None, **parts: Any) -> Prepared:
    """`site` overrides fields of the site; the rest goes to Prepared."""
    site = Site(str(tmp_path), level, **parts.pop("site", {}))
    (tmp_path / "work").mkdir(exist_ok=True)
    volumes = {name: Volume(name, str(source)) for name, source in parts.pop("directories", {}).items()}
    return Prepared(
        site,
        parts.pop("sources", ContainerSources()),
        {**volumes, **parts.pop("volumes", {})},
        {"node": image or Environment("/python", ("/python/bin",), note="image train:1 is run as /python")},
        {"cpu": 4, "memory": 8 << 30},
        **parts,
    )


def make_config_map(**data: str) -> Object:
    return {"metadata": {"name": "settings"}, "data": data}
