"""An environment that has a warm zygote without having torch: the stand-in is all that warm start asks of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.crash.chaos_jobs import WARM_IMAGE
from trainmaster.api.meta import Object

_TORCH = """
class cuda:
    @staticmethod
    def is_initialized(): return False

class default_generator:
    @staticmethod
    def seed(): return 0

def set_num_threads(count): pass
"""
_MODULES = {"__init__.py": _TORCH, "_dynamo.py": "", "distributed/__init__.py": "", "distributed/run.py": ""}


def make_environment(prefix: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
    (packages,) = (prefix / "lib").glob("python*/site-packages")
    for name, text in _MODULES.items():
        path = packages / "torch" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def build_image_rules(prefix: Path) -> Object:
    table = {
        "environments": {"chaos": {"path": str(prefix)}},
        "rules": [{"image": WARM_IMAGE, "environment": "chaos"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "image-rules", "namespace": "kubeflow-system"},
        "data": {"rules.yaml": json.dumps(table)},
    }
