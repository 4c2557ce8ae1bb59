"""The image rules: what an administrator may write, which rule an image gets, and what is said about mistakes."""

from __future__ import annotations

import ast
import subprocess
import sys
import venv
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node.making import make_pod
from trainmaster import checkpoint, progress
from trainmaster.api.image_rules import KEY, NAME, NAMESPACE
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.client.contract import PatchType
from trainmaster.controllers.install import list_manifests, parse_manifest
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.images import layers
from trainmaster.node.images.catalogue import Images, ImageSettings, list_interpreter_paths
from trainmaster.node.images.contract import Environment, ImageError
from trainmaster.node.images.environments import hash_packages
from trainmaster.node.images.rules import RulesError, Table, list_names, parse_table
from trainmaster.node.images.shipped import SHIPPED
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

TABLE = """
strict: true
environments:
  science: {path: /opt/science}
  tables: {packages: [pandas==2.2]}
rules:
  - image: "example.com/team/*"
    environment: science
    packages: [tqdm]
    command: [python, -m, app]
    env: {MODE: fast}
  - image: "docker.io/library/python:3.1?"
"""


def test_a_table_says_what_stands_in_for_which_image() -> None:
    table = parse_table(TABLE)
    assert table.strict
    assert table.environments["tables"].packages == ("pandas==2.2",)
    rule = table.find("example.com/team/trainer:v1")
    assert rule is not None
    assert (rule.environment, rule.packages, rule.command, rule.env) == (
        "science",
        ("tqdm",),
        ("python", "-m", "app"),
        {"MODE": "fast"},
    )
    assert table.find("python:3.11") is table.rules[1]
    assert table.find("python:3.9") is None
    assert parse_table("").rules == ()


@pytest.mark.parametrize(
    ("image", "want"),
    [
        pytest.param("python", ["python", "python:latest", "docker.io/library/python"], id="short"),
        pytest.param("python:3", ["python:3", "docker.io/library/python:3"], id="short with a tag"),
        pytest.param("a/b:1", ["a/b:1", "docker.io/a/b:1"], id="of a user"),
        pytest.param("ghcr.io/a/b:1@sha256:00", ["ghcr.io/a/b:1@sha256:00", "ghcr.io/a/b:1"], id="with a digest"),
        pytest.param("localhost:5000/a", ["localhost:5000/a", "localhost:5000/a:latest"], id="a registry with a port"),
    ],
)
def test_an_image_is_known_by_its_usual_spellings(image: str, want: list[str]) -> None:
    assert list_names(image) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: [", "is not valid YAML", id="no YAML"),
        pytest.param("[]", "", id="an empty list is nothing"),
        pytest.param("- a", "must be a mapping", id="a list"),
        pytest.param("rule: []", "there is no field 'rule'", id="an unknown field"),
        pytest.param("strict: 3", "strict must be true or false", id="strict"),
        pytest.param("rules: {}", "", id="no rules"),
        pytest.param("rules: 3", "rules must be a list", id="rules"),
        pytest.param("rules: [{command: [a]}]", "rules[0] needs image", id="no image"),
        pytest.param(
            "rules: [{image: a, environment: x}]", "there is no environment 'x' (there are default)", id="name"
        ),
        pytest.param("rules: [{image: a, command: python}]", "rules[0].command must be a list of texts", id="command"),
        pytest.param("rules: [{image: a, env: {A: 1}}]", "rules[0].env must map names to texts", id="env"),
        pytest.param("environments: {a: {path: b}}", "environments.a.path must be an absolute path", id="path"),
        pytest.param("environments: {a: {}}", "environments.a must have a path or packages", id="empty environment"),
        pytest.param("environments: {default: {path: /a}}", "means the environment of", id="the default's name"),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, want: str) -> None:
    if not want:
        assert parse_table(text if text != "[]" else "{}").rules == ()
        return
    with pytest.raises(RulesError) as caught:
        parse_table(text)
    assert want in str(caught.value)


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(RulesError, match=r"strict must.*rules\[0\] needs image.*rules\[1\]\.packages"):
        parse_table("{strict: 1, rules: [{}, {image: a, packages: 1}]}")


def list_images() -> set[str]:
    found: set[str] = set()

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("image"), str):
                found.add(value["image"])
            for entry in value.values():
                walk(entry)
        elif isinstance(value, list):
            for entry in value:
                walk(entry)

    for _, text in list_manifests():
        walk(parse_manifest(text))
    return found


def test_every_image_of_the_shipped_runtimes_has_a_rule_with_a_command() -> None:
    images = list_images()
    assert len(images) > 5
    table = Table(SHIPPED)
    rules = {image: table.find(image) for image in images}
    assert [image for image, rule in rules.items() if rule is None or not (rule.command or rule.default_args)] == []


class Bench:
    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster, self.client, self.root = cluster, cluster.client, root
        self.images = Images(cluster.client, ImageSettings(root / "environments", sys.prefix, root / "gangs"))

    async def write(self, text: str) -> None:
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {KEY: text}}
        await self.client.create(CONFIG_MAPS, obj, NAMESPACE)

    async def find(self, image: str, annotations: dict[str, str] | None = None, **spec: Any) -> Environment:
        pod: Object = make_pod({"image": image}, **spec)
        pod["metadata"]["annotations"] = annotations or {}
        return await self.images.find(Pod(pod), pod["spec"]["containers"][0])


def run(tmp_path: Path, test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await test(Bench(cluster, tmp_path))

    run_virtual(main())


def test_without_a_table_every_image_is_the_environment_of_the_server(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        found = await bench.find("anything:1")
        assert found.prefix == sys.prefix
        assert found.programs[0] == f"{found.layer}/bin"
        assert found.layer.startswith(str(tmp_path / "environments"))
        assert found.note == f"image anything:1 is run as the Python environment {sys.prefix}"
        initializer = await bench.find("ghcr.io/kubeflow/trainer/dataset-initializer:v2.3.0")
        assert initializer.command[-1] == "dataset"
        assert "our own initializer" in initializer.note

    run(tmp_path, test)


def test_a_strict_table_refuses_what_it_does_not_know_and_edits_count_at_once(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.write("strict: true")
        with pytest.raises(ImageError, match=r'no rule maps image "mine:1".*kubeflow-system/image-rules'):
            await bench.find("mine:1")
        change = {"data": {KEY: "{strict: true, rules: [{image: 'mine:*', command: [a], env: {A: b}}]}"}}
        await bench.client.patch(CONFIG_MAPS, NAME, PatchType.MERGE, change, NAMESPACE)
        found = await bench.find("mine:1")
        assert (found.command, found.variables) == (("a",), {"A": "b"})
        assert (await bench.find("pytorch/pytorch:2")).prefix == sys.prefix, "the shipped rules stand behind it"
        await bench.client.patch(CONFIG_MAPS, NAME, PatchType.MERGE, {"data": {KEY: "x: 1"}}, NAMESPACE)
        with pytest.raises(ImageError, match=r"kubeflow-system/image-rules are wrong: .*there is no field 'x'"):
            await bench.find("mine:1")

    run(tmp_path, test)


def test_a_pod_may_name_an_environment_of_the_table_only(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        await bench.write(f"environments: {{mine: {{path: {sys.prefix}}}, gone: {{path: /no/such}}}}")
        assert (await bench.find("a", {"trainmaster.dev/environment": "mine"})).prefix == sys.prefix
        with pytest.raises(
            ImageError, match="there is no environment '/etc': the image rules know default, mine, gone"
        ):
            await bench.find("a", {"trainmaster.dev/environment": "/etc"})
        with pytest.raises(ImageError, match="/no/such is not a Python environment"):
            await bench.find("a", {"trainmaster.dev/environment": "gone"})
        with pytest.raises(ImageError, match="lists requirements, not options: --index-url=x"):
            await bench.find("a", {"trainmaster.dev/packages": "a, --index-url=x"})

    run(tmp_path, test)


def test_pods_of_mpi_jobs_get_remote_start_whatever_their_image(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        found = await bench.find("mine:1", volumes=[{"name": "mpi-ssh-auth", "secret": {"secretName": "x"}}])
        assert found.stand_ins["/usr/sbin/sshd"][-1] == "serve"
        assert found.variables["OMPI_MCA_plm_rsh_agent"].endswith("program.py start")
        assert Path(found.gang_directory).is_dir()
        assert (await bench.find("mine:1")).gang_directory == ""

    run(tmp_path, test)


def test_an_image_whose_program_we_replace_keeps_it_under_a_rule_for_all_images(tmp_path: Path) -> None:
    """With a rule for `*` without a command, the launcher of an MPIJob could not start: its init container has none."""

    async def test(bench: Bench) -> None:
        await bench.write("rules: [{image: '*', env: {TARGET: /mine, A: b}}, {image: x}]")
        for image in ("ghcr.io/kubeflow/training-v1/kubectl-delivery:latest", "kubectl-delivery"):
            found = await bench.find(image)
            assert found.command[-1].endswith("kubectl_exec.py") and found.command[-1] in found.shown
        found = await bench.find("ghcr.io/kubeflow/trainer/model-initializer:v2.3.0")
        assert found.command[-1] == "model" and found.variables == {"TARGET": "/mine", "A": "b"}
        assert (await bench.find("mine:1")).command == ()

    run(tmp_path, test)


def test_open_mpi_may_run_as_root_in_the_pods_of_an_mpijob_and_uses_all_processors(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        found = await bench.find("mine:1", volumes=[{"name": "mpi-job-config", "configMap": {"name": "x"}}])
        assert found.variables == {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_hwloc_base_binding_policy": "none",
        }
        assert found.gang_directory == "", "only a launcher has one"

    run(tmp_path, test)


def test_environments_are_known_by_what_was_asked_for() -> None:
    base = layers.read_base(sys.prefix)
    assert hash_packages(base, ["a", "b"]) == hash_packages(base, ["b", "a"])
    assert hash_packages(base, ["a"]) != hash_packages(base, ["a==1"])


def test_a_layer_is_made_once_and_lies_over_its_base(tmp_path: Path) -> None:
    base = layers.read_base(sys.prefix)
    layer = tmp_path / "layer"
    layers.make_layer(str(layer), base)
    before = (layer / "pyvenv.cfg").stat().st_mtime_ns
    layers.make_layer(str(layer), base)
    assert (layer / "pyvenv.cfg").stat().st_mtime_ns == before
    above = layers.read_base(str(layer))
    assert above.packages[0].startswith(str(layer))
    assert set(base.packages) <= set(above.packages)
    assert above.interpreter == base.interpreter
    assert above.list_prefixes() == [str(layer), *base.list_prefixes()], "programs come from all of them"


def test_a_layer_sees_what_its_base_takes_from_the_system(tmp_path: Path) -> None:
    """The base is a venv of `--system-site-packages`, the usual way to add to an image's own torch."""
    other = tmp_path / "other" / "lib" / "python3.11" / "site-packages"
    other.mkdir(parents=True)
    (tmp_path / "other" / "bin").mkdir()
    venv.create(tmp_path / "env", system_site_packages=True, symlinks=True)
    own = f"{tmp_path}/env/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    Path(own, "other.pth").write_text(f"{other}\n")
    base = layers.read_base(str(tmp_path / "env"))
    layer = layers.make_shared(tmp_path / "root", base)
    show = "import sys; print([place for place in sys.path if 'packages' in place])"
    expected, found = (
        ast.literal_eval(subprocess.check_output([f"{prefix}/bin/python3", "-I", "-c", show], text=True))
        for prefix in (tmp_path / "env", layer)
    )
    assert [place for place in found if not place.startswith(layer)] == expected
    assert layers.list_prefixes((*base.packages, str(other), "/src/tool"))[0] == str(tmp_path / "env")
    assert layers.list_prefixes((str(other), "/src/tool")) == [str(tmp_path / "other")]


def test_scripts_are_copied_without_the_name_of_their_interpreter(tmp_path: Path) -> None:
    programs = tmp_path / "env" / "bin"
    programs.mkdir(parents=True)
    (programs / "tool").write_text(f"#!{tmp_path}/env/bin/python3.11\nimport sys\n")
    long = f"#!/bin/sh\n'''exec' \"{tmp_path}/env/bin/python\" \"$0\" \"$@\"\n' '''\nimport sys\n"
    (programs / "long").write_text(long)
    (programs / "other").write_text("#!/bin/bash\necho hi\n")
    (programs / "python3").symlink_to(sys.executable)
    made = Path(layers.make_programs(tmp_path / "root", str(tmp_path / "env")))
    assert sorted(path.name for path in made.iterdir()) == ["long", "nslookup", "pip", "pip3", "tool"]
    assert (made / "tool").read_text() == "#!/usr/bin/env python3\nimport sys\n"
    assert (made / "long").read_text() == "#!/bin/sh\n'''exec' python3 \"$0\" \"$@\"\n' '''\nimport sys\n"
    assert layers.make_programs(tmp_path / "root", str(tmp_path / "env")) == str(made)


def test_an_environment_without_our_package_gets_what_training_programs_import(tmp_path: Path) -> None:
    place = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    place.mkdir(parents=True)
    (tmp_path / "env" / "bin").mkdir()
    (tmp_path / "env" / "bin" / "python3").symlink_to(sys.executable)
    lacking = Path(layers.make_shared(tmp_path / "root", layers.read_base(str(tmp_path / "env"))))
    ours = lacking / "library" / "trainmaster"
    for module in (checkpoint, progress):
        name = Path(str(module.__file__)).name
        assert (ours / name).read_bytes() == Path(str(module.__file__)).read_bytes()
    below = (lacking / "lib" / "python3.11" / "site-packages" / "_below.pth").read_text().splitlines()
    assert below[-1] == f"import site; site.addsitedir({str(ours.parent)!r})", "behind everything else"
    (place / "trainmaster-1.0.dist-info").mkdir()
    having = Path(layers.make_shared(tmp_path / "root", layers.read_base(str(tmp_path / "env"))))
    assert having != lacking
    assert not (having / "library").exists()


def test_a_python_that_only_its_owner_can_reach_is_shown_to_containers(tmp_path: Path) -> None:
    python = tmp_path / "python"
    (python / "bin").mkdir(parents=True)
    (python / "bin" / "python3.11").touch(0o755)
    tmp_path.chmod(0o700)
    base = replace(layers.read_base(sys.prefix), interpreter=str(python / "bin" / "python3.11"))
    assert list_interpreter_paths(base) == (str(python),)
    assert list_interpreter_paths(replace(base, interpreter="/usr/bin/env")) == ()
