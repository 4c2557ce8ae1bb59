"""Records a home as some version of Trainmaster writes it, for `tests/upgrade`: every later version must open it.

    sudo python tools/record_home.py c96e675                          the version of this checkout
    sudo python tools/record_home.py c96e675 --python OTHER/.venv/bin/python

NAME (a commit, a version) names the file, tests/upgrade/data/NAME.tar.gz. Record before a release, from a clean
checkout, as root, so that the tenants have walls. What is in it:

- the tenants ann and bob, with tokens for a year, and carl, who is disabled;
- in `default`, `ann` and `bob`: a Complete and a Failed TrainJob with records, logs and outputs, one that was deleted
  and lives on in the history only, a claim with data, a ConfigMap and a Secret;
- in `default` and `ann`: a TrainJob that was suspended while it ran, and one that runs when the server stops;
- in `default`: a job with code, and a job with a derived runtime that used its restart;
- `expected.json`: what the server that wrote it answered.

The processes of the running jobs are ended after the server has stopped, as a reboot would, and the home is told that
it was on another boot of the machine. What a start makes anew (sockets, locks, logs, probes) is left out. The keys and
tokens in it are throw-away: nothing but the tests ever trusts them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.scrub import scrub  # noqa: E402

DATA = ROOT / "tests" / "upgrade" / "data"
EXPECTED = "expected.json"
OTHER_BOOT = "00000000-0000-4000-8000-000000000000"
NAMESPACES = ("default", "ann", "bob")
GOOD = 'echo "good in $PLACE"; echo "kept $PLACE" > $TRAINMASTER_OUTPUT_DIR/result'
BAD = 'echo "bad in $PLACE"; echo "half $PLACE" > $TRAINMASTER_OUTPUT_DIR/half; exit 3'
GONE = 'echo "gone from $PLACE"; echo "left $PLACE" > $TRAINMASTER_OUTPUT_DIR/left'
FILL = 'mkdir -p /data/deep; echo "claimed in $PLACE" > /data/deep/file; ln -s deep/file /data/link'
LIVES = """f=$TRAINMASTER_OUTPUT_DIR/lives-$PET_NODE_RANK; echo life >> $f; n=$(wc -l < $f)
echo "life $n of $PET_NODE_RANK"
[ "$n" -ge 2 ] || sleep 3600"""
AGAIN = 'echo "attempt $TRAINMASTER_ATTEMPT"; test "$TRAINMASTER_ATTEMPT" = 1'
RESOURCES = {
    "/api/v1": (
        "namespaces", "configmaps", "secrets", "serviceaccounts", "persistentvolumeclaims", "persistentvolumes",
        "resourcequotas", "pods", "services",
    ),
    "/apis/trainer.kubeflow.org/v1alpha1": ("trainjobs", "trainingruntimes", "clustertrainingruntimes"),
    "/apis/jobset.x-k8s.io/v1alpha2": ("jobsets",),
    "/apis/batch/v1": ("jobs",),
    "/apis/rbac.authorization.k8s.io/v1": ("roles", "rolebindings", "clusterroles", "clusterrolebindings"),
}  # fmt: skip
LEFT_OUT = (
    "control.sock", "environments", "isolation.json", "lock", "logs", "pods/.common", "pods/.zygote", "server.json",
    "store/store.lock",
)  # fmt: skip


class Recorder:
    """One home and the command that serves it."""

    def __init__(self, python: str, home: Path) -> None:
        self.home = home
        self._command = [python, "-P", "-m", "trainmaster.cli"]
        self._environ = {**scrub(os.environ), "TRAINMASTER_HOME": str(home)}
        self.kubeconfigs = {"default": home / "kubeconfig"}

    def call(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [*self._command, *arguments], env=self._environ, capture_output=True, text=True, cwd="/", check=False
        )
        if done.returncode != code:
            sys.exit(f"{arguments}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
        return done.stdout

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The API server, as the owner; with a body: POST."""
        address = json.loads((self.home / "server.json").read_text())["server"]
        token = (self.home / "pki" / "owner.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{address}{path}", data, headers)
        context = ssl.create_default_context(cafile=str(self.home / "pki" / "ca.crt"))
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return json.load(answer)

    def submit(self, namespace: str, name: str, script: str, *flags: str, code: int = 0) -> None:
        """Runs a job; without -d among the flags, to its end."""
        words = ["run", "--no-code", "--name", name, "--env", f"PLACE={namespace}", *flags, "--", "sh", "-c", script]
        self.call(words[0], "--kubeconfig", str(self.kubeconfigs[namespace]), "-n", namespace, *words[1:], code=code)

    def on(self, namespace: str, verb: str, *arguments: str) -> str:
        return self.call(verb, "--kubeconfig", str(self.kubeconfigs[namespace]), "-n", namespace, *arguments)


def add_tenants(recorder: Recorder, folder: Path) -> list[dict[str, Any]]:
    address = json.loads((recorder.home / "server.json").read_text())["server"]
    issued = []
    for name in ("ann", "bob", "carl"):
        flags = ("--cpu", "4", "--memory", "4Gi", "--jobs", "20")
        tenant = json.loads(recorder.call("tenant", "add", name, "--lasts", "365d", *flags, "-o", "json"))
        issued.append(tenant)
        cluster = {"server": address, "certificate-authority": str(recorder.home / "pki" / "ca.crt")}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": tenant["token"]}}],
            "contexts": [{"name": name, "context": {"cluster": "c", "user": name, "namespace": name}}],
        }  # fmt: skip
        recorder.kubeconfigs[name] = folder / f"{name}.kubeconfig"
        recorder.kubeconfigs[name].write_text(json.dumps(config))
    recorder.call("tenant", "disable", "carl")
    return issued


def fill_namespace(recorder: Recorder, namespace: str) -> None:
    """Creates finished jobs and data."""
    root = f"/api/v1/namespaces/{namespace}"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}}
    recorder.ask(f"{root}/persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": claim})
    recorder.ask(f"{root}/configmaps", {"metadata": {"name": "mine"}, "data": {"place": namespace}})
    recorder.ask(f"{root}/secrets", {"metadata": {"name": "mine"}, "stringData": {"key": f"of {namespace}"}})
    recorder.submit(namespace, "good", GOOD)
    recorder.submit(namespace, "bad", BAD, code=3)
    recorder.submit(namespace, "gone", GONE)
    recorder.submit(namespace, "filled", FILL, "--volume", "data:/data")
    recorder.on(namespace, "delete", "gone")


def fill(recorder: Recorder, folder: Path) -> None:
    for namespace in NAMESPACES:
        fill_namespace(recorder, namespace)
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text(
        "import helper\nprint('code says', helper.WORD)\nopen('beside', 'w').write('seen')\n"
    )
    (project / "helper.py").write_text("WORD = 'hello'\n")
    recorder.call("run", "--name", "coded", "--code", str(project), str(project / "train.py"))
    recorder.submit("default", "again", AGAIN, "--max-restarts", "2")
    for namespace in ("default", "ann"):
        nodes = ("--nodes", "2") if namespace == "default" else ()
        for name in ("paused", "alive"):
            recorder.submit(namespace, name, LIVES, "-d", *nodes)
            wait_for_life(recorder, namespace, name, len(nodes) or 1)
        recorder.on(namespace, "suspend", "paused")


def wait_for_life(recorder: Recorder, namespace: str, name: str, ranks: int) -> None:
    deadline = time.monotonic() + 60
    while recorder.on(namespace, "logs", name).count("life 1 of") < ranks:
        if time.monotonic() > deadline:
            sys.exit(f"{namespace}/{name} does not run")
        time.sleep(0.2)


def describe(recorder: Recorder, tenants: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the server that writes it answers: the later one must answer the same."""
    objects = {
        f"{group}/{resource}": recorder.ask(f"{group}/{resource}")["items"]
        for group, resources in RESOURCES.items()
        for resource in resources
    }
    history, logs, outputs = {}, {}, {}
    for namespace in NAMESPACES:
        records = json.loads(recorder.call("history", "list", "-n", namespace, "-o", "json"))
        history[namespace] = records
        for record in records:
            name = record["name"]
            logs[f"{namespace}/{name}"] = recorder.call("history", "logs", "-n", namespace, name, "--all-attempts")
            with tempfile.TemporaryDirectory() as to:
                recorder.call("outputs", "get", "-n", namespace, name, "--to", f"{to}/o")
                found = sorted(path for path in Path(to, "o").rglob("*") if path.is_file())
                outputs[f"{namespace}/{name}"] = {str(p.relative_to(f"{to}/o")): p.read_text() for p in found}
    return {
        "version": recorder.call("version").strip(),
        "tenants": list(tenants),
        "listed": json.loads(recorder.call("tenant", "list", "-o", "json")),
        "objects": objects,
        "history": history,
        "logs": logs,
        "outputs": outputs,
    }


def end_processes(home: Path) -> None:
    """Ends all processes of the home, as a reboot would."""
    deadline = time.monotonic() + 30
    while found := list(list_processes(str(home).encode())):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            sys.exit(f"these do not end: {found}")
        time.sleep(0.1)


def list_processes(mark: bytes) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes() + Path(f"/proc/{name}/environ").read_bytes()
            if mark in words and Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                yield int(name)


def forget_boot(home: Path) -> None:
    """Makes the home look as if it came from another boot of another machine."""
    ours = Path("/proc/sys/kernel/random/boot_id").read_text().strip().encode()
    for path in (home / "pods").rglob("*"):
        if path.is_file() and not path.is_symlink() and ours in (data := path.read_bytes()):
            path.write_bytes(data.replace(ours, OTHER_BOOT.encode()))


def pack(home: Path, expected: dict[str, Any], file: Path) -> None:
    """Everything but what a start makes anew, with owners by number and without times."""

    def keep(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        inside = info.name.partition("/")[2]
        if inside in LEFT_OUT or not (info.isfile() or info.isdir() or info.issym()):
            return None
        info.uname = info.gname = ""
        return info

    text = json.dumps(expected, indent=1, sort_keys=True).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w:gz", compresslevel=9) as archive:
        archive.add(home, "home", filter=keep)
        info = tarfile.TarInfo(EXPECTED)
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", help="of the recording: the commit or version that writes it")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environment that has that version")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("record as root: tenants get walls only then")
    with tempfile.TemporaryDirectory(prefix="tm-record-") as folder:
        os.chmod(folder, 0o755)
        recorder = Recorder(options.python, Path(folder) / "home")
        recorder.call("up", "--detach")
        try:
            tenants = add_tenants(recorder, Path(folder))
            fill(recorder, Path(folder))
            expected = describe(recorder, tenants)
        finally:
            recorder.call("down")
            end_processes(recorder.home)
        forget_boot(recorder.home)
        file = DATA / f"{options.name}.tar.gz"
        pack(recorder.home, expected, file)
    print(f"{file}: {file.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
