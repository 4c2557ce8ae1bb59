"""Executes the notebook of examples/ against a running server and writes it down with its outputs.

    python tools/notebook.py                 starts a server in a temporary home, executes, writes it back
    <SDK's python> tools/notebook.py IN OUT  only executes; the server is that of $TRAINMASTER_HOME

The second form runs in the environment of the Kubeflow SDK (`tools/frameworks.py`), where Jupyter's parts are; the
first one calls it there. What changes from run to run (times, the environment's version) is left out of the file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "examples" / "notebook" / "training.ipynb"
CELL_SECONDS = 120


def execute(source: Path, target: Path) -> None:
    """In the SDK's environment. nbclient's CellExecutionError when a cell fails."""
    import nbclient  # noqa: PLC0415  (only there)
    import nbformat  # noqa: PLC0415

    notebook = nbformat.read(source, as_version=4)
    nbclient.NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3").execute()
    strip(notebook)
    nbformat.write(notebook, target)


def strip(notebook: Any) -> None:
    """Takes out when it ran and on which Python."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        join_streams(cell)
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def join_streams(cell: Any) -> None:
    """How the lines of a stream are cut into pieces is chance."""
    joined: list[Any] = []
    for output in cell.get("outputs", ()):
        if joined and output.output_type == "stream" == joined[-1].output_type and output.name == joined[-1].name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    if "outputs" in cell:
        cell.outputs = joined


def run_in_sdk(sdk: Path, home: Path, source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        # Nothing of the person's own Jupyter or Kubernetes configuration is seen.
        environ = {
            "PATH": f"{sdk / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": folder,
            "TRAINMASTER_HOME": str(home),
        }
        command = [str(sdk / "bin" / "python"), str(Path(__file__)), str(source), str(target)]
        return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True)


def main(arguments: list[str]) -> int:
    if arguments:
        execute(Path(arguments[0]), Path(arguments[1]))
        return 0
    sys.path.insert(0, str(ROOT))
    from tools.frameworks import SDK, ensure_environment  # noqa: PLC0415  (run as a script, the root is not on the path)

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        trainmaster = [sys.executable, "-m", "trainmaster.cli"]
        subprocess.run([*trainmaster, "up", "--detach", "--home", str(home)], check=True, cwd=ROOT)
        try:
            done = run_in_sdk(ensure_environment(SDK), home, NOTEBOOK, NOTEBOOK)
        finally:
            subprocess.run([*trainmaster, "down", "--stop-jobs", "--home", str(home)], check=True, cwd=ROOT)
    print(done.stderr if done.returncode else f"wrote {NOTEBOOK.relative_to(ROOT)}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
