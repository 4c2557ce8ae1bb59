"""Environments with real interpreters: layers, packages, and what pip inside a Pod may touch."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support import wheels
from tests.support.wheels import make_project, make_sdist
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import SystemClock
from trainmaster.node.images import fetch_program, layers
from trainmaster.node.images.contract import Check, Errand, ErrandReport, ImageError
from trainmaster.node.images.environments import Environments, InstallLimits, InstallRequest, hash_packages

pytestmark = pytest.mark.node

NAME = "tm_sample_package"


def make_wheel(directory: Path, version: str = "1.0") -> Path:
    return wheels.make_wheel(directory, NAME, version, script="tm-sample")


def run(env_directory: Path, base: layers.Base, root: Path, script: str) -> str:
    """As a container's shell would run it."""
    shared, programs = layers.make_shared(root, base), layers.make_programs(root, base.prefix)
    path = f"{env_directory}/bin:{shared}/bin:{programs}:{base.prefix}/bin:{os.defpath}"
    env = {
        "PATH": path,
        "VIRTUAL_ENV": str(env_directory),
        "TRAINMASTER_ENV": str(env_directory),
        "HOME": str(root),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = subprocess.run(["bash", "-ec", script], env=env, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def list_installed(prefix: str) -> list[str]:
    return [str(path) for path in Path(prefix).glob(f"lib/python3.*/site-packages/{NAME}*")]


def test_pip_inside_a_pod_writes_into_its_own_environment_and_nowhere_else(tmp_path: Path) -> None:
    base = layers.read_base(sys.prefix)
    own, wheel, newer = tmp_path / "own", make_wheel(tmp_path), make_wheel(tmp_path, "2.0")
    script = f"""
    python -c 'import sys, pytest; print(sys.prefix)'
    test ! -e {own}
    python -m pip install -q --no-index {wheel}
    tm-sample
    python -c 'import {NAME}, orjson; print({NAME}.__file__)'
    pip install -q --no-index {newer}
    python3 -c 'import {NAME}; print({NAME}.VERSION)'
    pip uninstall -q -y {NAME}
    python3 -c 'import {NAME}' 2>/dev/null && echo there || echo gone
    """
    lines = run(own, base, tmp_path, script).splitlines()
    assert lines[0].startswith(f"{tmp_path}/layers/"), "the shared layer, with the packages of the base"
    assert lines[1] == "script 1.0"
    assert lines[2].startswith(f"{own}/lib/"), "also from a shell that remembers the other interpreter"
    assert lines[3:] == ["2.0", "gone"]
    assert list_installed(sys.prefix) == []


def test_a_name_can_be_looked_up_although_pods_have_no_name_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nslookup of a machine was preferred, and asked a name server that knows no Services."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    programs = layers.make_programs(tmp_path, sys.prefix)
    found = subprocess.run([f"{programs}/nslookup", "localhost"], capture_output=True, text=True, check=False)
    assert found.returncode == 0
    assert "localhost" in found.stdout
    missing = subprocess.run([f"{programs}/nslookup", "nosuch.invalid"], capture_output=True, text=True, check=False)
    assert missing.returncode == 1
    assert "nosuch.invalid" in missing.stderr


def test_what_one_pod_installs_no_other_sees(tmp_path: Path) -> None:
    base, wheel = layers.read_base(sys.prefix), make_wheel(tmp_path)
    run(tmp_path / "one", base, tmp_path, f"pip install -q --no-index {wheel}")
    look = f"python -c 'import {NAME}' 2>/dev/null && echo there || echo gone"
    assert run(tmp_path / "other", base, tmp_path, look) == "gone\n"
    assert run(tmp_path / "one", base, tmp_path, look) == "there\n"


class LocalErrands:
    """Runs them as they are, one after the other."""

    def __init__(self) -> None:
        self.done: list[Errand] = []

    async def run(self, pod: Pod, errand: Errand, check: Check) -> ErrandReport:
        self.done.append(errand)
        done = await asyncio.to_thread(
            subprocess.run, errand.argv, env=dict(errand.env), cwd=errand.directory, capture_output=True, check=False
        )
        return ErrandReport(done.returncode, (done.stdout + done.stderr).decode())


def build(root: Path, index: Path, **environ: str) -> tuple[Environments, LocalErrands]:
    errands = LocalErrands()
    known = {"PATH": os.defpath, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), **environ}
    return Environments(root / "environments", known, SystemClock(), errands, InstallLimits()), errands


def order(
    *requirements: str, is_tenants: bool = False, namespace: str = "uid-1", user: int | None = None
) -> InstallRequest:
    pod = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"containers": [{"name": "main"}]}}
    return InstallRequest(Pod(pod), "main", namespace, is_tenants, user, requirements)


def say_nothing(_: str) -> None:
    return


def test_an_environment_with_packages_is_made_once_and_seen_through_layers(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    base = layers.read_base(sys.prefix)
    environments, errands = build(tmp_path, tmp_path)
    said: list[str] = []

    async def main() -> list[Path]:
        asked = [environments.ensure(base, order(NAME), said.append) for _ in range(3)]
        return list(await asyncio.gather(*asked))

    slots = asyncio.run(main())
    assert len(set(slots)) == len(errands.done) == 1
    assert said[0] == f"installing {NAME}"
    assert sorted(os.listdir(slots[0])) == ["env", "ready"], "what was only needed to make it is gone"
    made = replace(base, prefix=f"{slots[0]}/env", packages=(*layers.read_base(f"{slots[0]}/env").packages,))
    assert run(tmp_path / "own", made, tmp_path, "tm-sample; python -c 'import orjson'").strip() == "script 1.0"
    assert list_installed(sys.prefix) == []


def test_namespaces_and_users_do_not_share_environments(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    base = layers.read_base(sys.prefix)
    environments, errands = build(tmp_path, tmp_path)

    async def main() -> None:
        one = await environments.ensure(base, order(NAME), say_nothing)
        two = await environments.ensure(base, order(NAME, namespace="uid-2"), say_nothing)
        own = os.geteuid() or 61234
        three = await environments.ensure(base, order(NAME, namespace="uid-2", user=own), say_nothing)
        assert len({one, two, three}) == len(errands.done) == 3
        assert three.joinpath("env").stat().st_uid == own
        await environments.keep_only({"uid-1"})
        assert one.is_dir()
        assert not two.exists()
        assert not three.exists()

    asyncio.run(main())


@pytest.mark.parametrize("is_tenants", [True, False])
def test_a_package_that_does_not_exist_is_a_clear_error_and_is_not_tried_again_at_once(
    tmp_path: Path, is_tenants: bool
) -> None:
    environments, errands = build(tmp_path, tmp_path)
    base = layers.read_base(sys.prefix)
    asked = order("no-such-package-tm", is_tenants=is_tenants)
    said: list[str] = []
    for _ in range(3):
        with pytest.raises(ImageError, match=r"cannot install no-such-package-tm: .*no-such-package-tm") as caught:
            asyncio.run(environments.ensure(base, asked, said.append))
        assert caught.value.lasts
    assert len(said) == 1
    assert errands.done == []
    assert not any((tmp_path / "environments").rglob("env"))


@pytest.mark.parametrize(("code", "lasts"), [(404, True), (403, True), (502, False), (None, False)])
def test_an_index_that_does_not_answer_is_tried_again(tmp_path: Path, code: int | None, lasts: bool) -> None:
    with answering(code) as index:
        known = {"PATH": os.defpath, "PIP_INDEX_URL": f"{index}/simple", "PIP_RETRIES": "0"}
        environments = Environments(tmp_path / "e", known, SystemClock(), LocalErrands(), InstallLimits())
        asked = order("no-such-package-tm", is_tenants=True)
        with pytest.raises(ImageError, match="No matching distribution") as caught:
            asyncio.run(environments.ensure(layers.read_base(sys.prefix), asked, say_nothing))
    assert caught.value.lasts is lasts
    if code not in (404, None):
        assert f"{code} " in str(caught.value), "the index's answer is part of the reason"


@contextmanager
def answering(code: int | None) -> Iterator[str]:
    """An index that gives this answer to everything; None for one that is down."""

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert code is not None
            self.send_response(code)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return None

    with HTTPServer(("127.0.0.1", 0), Index) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        if code is None:
            server.server_close()
            yield address
            return
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield address
        server.shutdown()


def test_an_sdist_is_built_for_the_owner_and_for_no_tenant(tmp_path: Path) -> None:
    make_sdist(tmp_path, "tm_sample_source", "pass")
    environments, errands = build(tmp_path, tmp_path)
    base = layers.read_base(sys.prefix)
    with pytest.raises(ImageError, match="only wheels"):
        asyncio.run(environments.ensure(base, order("tm_sample_source", is_tenants=True), say_nothing))
    assert errands.done == []
    slot = asyncio.run(environments.ensure(base, order("tm_sample_source", namespace="uid-2"), say_nothing))
    assert list(slot.glob("env/lib/python3*/site-packages/tm_sample_source.py"))
    assert errands.done[0].egress


def test_a_newer_sdist_is_built_for_the_owner_and_an_older_wheel_is_for_tenants(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    make_sdist(tmp_path, NAME, "pass", "2.0")
    wheels.make_wheel(tmp_path, "tm_beside")
    wheels.make_wheel(tmp_path, "tm_beside", "2.0")
    environments, errands = build(tmp_path, tmp_path)
    base = layers.read_base(sys.prefix)

    def list_versions(asked: InstallRequest) -> list[str]:
        slot = asyncio.run(environments.ensure(base, asked, say_nothing))
        return sorted(path.name for path in slot.glob("env/lib/python3*/site-packages/tm_*.dist-info"))

    both = (NAME, "tm_beside<2")
    assert list_versions(order(*both)) == ["tm_beside-1.0.dist-info", f"{NAME}-2.0.dist-info"]
    assert list_versions(order(*both, namespace="uid-2", is_tenants=True)) == [
        "tm_beside-1.0.dist-info",
        f"{NAME}-1.0.dist-info",
    ]
    assert list_versions(order(f"{NAME}==1.0")) == [f"{NAME}-1.0.dist-info"]
    assert [errand.egress for errand in errands.done] == [True, False, False], "a wheel needs no build"


def test_a_build_looks_where_pips_configuration_says_and_has_none_of_its_passwords(tmp_path: Path) -> None:
    make_sdist(tmp_path, "tm_sample_source", "pass")
    certificates = tmp_path / "ca.pem"
    certificates.touch()
    config = tmp_path / "pip.conf"
    config.write_text(
        f"[global]\nno-index = true\nfind-links = {tmp_path}\ncert = {certificates}\n"
        "extra-index-url = https://reader:s3cret@index.example/simple\nproxy = http://me:s3cret@proxy.example:3128\n"
    )
    errands = LocalErrands()
    known = {"PATH": os.defpath, "PIP_CONFIG_FILE": str(config)}
    environments = Environments(tmp_path / "environments", known, SystemClock(), errands, InstallLimits())
    asyncio.run(environments.ensure(layers.read_base(sys.prefix), order("tm_sample_source"), say_nothing))
    errand = errands.done[0]
    assert errand.env["PIP_FIND_LINKS"] == str(tmp_path)
    assert errand.env["PIP_EXTRA_INDEX_URL"] == "https://index.example/simple"
    assert errand.env["PIP_PROXY"] == "http://proxy.example:3128"
    assert errand.env["PIP_CERT"] == str(certificates)
    assert {str(tmp_path), str(certificates)} <= {mount.target for mount in errand.mounts}
    assert "s3cret" not in repr(errand)


def test_the_fetch_of_wheels_starts_no_program(tmp_path: Path) -> None:
    project = make_project(tmp_path, "tm_inner", f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    wheels.make_wheel(tmp_path, "tm_outer", requires=[f"tm_inner @ file://{project}"])
    environments, errands = build(tmp_path, tmp_path)
    with pytest.raises(ImageError, match="named by a URL or path"):
        asyncio.run(environments.ensure(layers.read_base(sys.prefix), order("tm_outer", is_tenants=True), say_nothing))
    assert errands.done == []
    assert not (tmp_path / "ran").exists()


def test_the_fetching_process_cannot_execute_anything(tmp_path: Path) -> None:
    source = Path(fetch_program.__file__).parent
    script = "import fetch_program, os, subprocess\nfetch_program.forbid_programs()\n"
    for attempt in ("subprocess.run(['true'])", "os.system('true')", "os.fork()", "os.execv('/bin/true', ['true'])"):
        done = subprocess.run(
            [sys.executable, "-c", script + attempt], env={"PYTHONPATH": str(source)}, capture_output=True, text=True
        )
        assert "packages are not built here" in done.stderr, attempt


def test_a_huge_package_is_stopped(tmp_path: Path) -> None:
    wheels.make_wheel(tmp_path, "tm_huge", files={"tm_huge_data.py": "x" * (3 << 20)})
    errands = LocalErrands()
    known = {"PATH": os.defpath, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    limits = InstallLimits(space=1 << 20)
    environments = Environments(tmp_path / "environments", known, SystemClock(), errands, limits)
    with pytest.raises(ImageError, match="cannot install tm_huge"):
        asyncio.run(environments.ensure(layers.read_base(sys.prefix), order("tm_huge"), say_nothing))


def test_only_the_owner_uses_an_environment_of_an_earlier_version_on(tmp_path: Path) -> None:
    base = layers.read_base(sys.prefix)
    environments, _ = build(tmp_path, tmp_path)
    old = tmp_path / "environments" / hash_packages(base, ["tqdm"])
    layers.make_layer(str(old), base)
    assert environments.find_old(base, ["tqdm"]) == "", "it is not whole"
    (old / ".ready").touch()
    assert environments.find_old(base, ["tqdm"]) == str(old)
