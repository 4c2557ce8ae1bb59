"""The short forms of `trainmaster run`: what each means, and what is said about one that cannot be understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.cli.launch import run_options
from trainmaster.cli.launch.run_options import RunOptionError
from trainmaster.jobs.compose.request import RequestedMount, SecretVariable

pytestmark = pytest.mark.unit


def test_a_variable_without_a_value_is_taken_from_the_callers_environment() -> None:
    assert run_options.parse_env(["A=1=2", "B=", "C"], {"C": "mine"}) == {"A": "1=2", "B": "", "C": "mine"}


def test_a_variable_that_is_set_nowhere_is_refused_with_the_form_that_works() -> None:
    with pytest.raises(RunOptionError, match="not set here; write --env KEY=VALUE"):
        run_options.parse_env(["KEY"], {})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("data:/data", RequestedMount("claim", "data", "/data"), id="a name is a claim"),
        pytest.param("data:/data:ro", RequestedMount("claim", "data", "/data", True), id="read-only"),
        pytest.param("data:/data:rw", RequestedMount("claim", "data", "/data"), id="writable, said aloud"),
    ],
)
def test_volumes_of_claims(text: str, want: RequestedMount, tmp_path: Path) -> None:
    assert run_options.parse_volume(text, tmp_path) == want


def test_a_path_is_made_absolute_from_where_the_person_stands(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    want = RequestedMount("host", str((tmp_path / "data").resolve()), "/data", True)
    assert run_options.parse_volume("./data:/data:ro", tmp_path) == want


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data", "write --volume ./data, ./data:/data or CLAIM:/data"),
        (":/data", "write --volume ./data"),
        ("./nothing", "does not exist"),
        ("./nothing:/data", "does not exist"),
        ("data:relative", "absolute path"),
        ("data:/../etc", "absolute path"),
        ("Data:/data", "no name of a claim"),
    ],
)
def test_a_volume_that_cannot_be_is_refused_in_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(RunOptionError, match=words):
        run_options.parse_volume(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("../data", "/workspace/data", id="beside the code"),
        pytest.param("../data/", "/workspace/data", id="with a slash"),
        pytest.param("../data/small:ro", "/workspace/data/small", id="further down, read-only"),
        pytest.param("./raw", "/workspace/code/raw", id="in the code, where an ignore file leaves it out"),
        pytest.param("../../shared", "/shared", id="above, as far as the root of the job"),
    ],
)
def test_a_path_alone_is_found_by_the_program_where_it_is_here(text: str, want: str, tmp_path: Path) -> None:
    project = tmp_path / "work" / "project"
    for name in ("project/raw", "data/small", "../shared"):
        (project.parent / name).mkdir(parents=True)
    found = run_options.parse_volume(text, project, project)
    assert (found.path, found.read_only) == (want, text.endswith(":ro"))
    assert found.source == str((project / text.removesuffix(":ro")).resolve())


def test_an_absolute_path_alone_stays_what_it_is_and_links_are_followed_only_for_the_source(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "data").symlink_to("disk")
    project = tmp_path / "project"
    absolute = run_options.parse_volume(str(tmp_path / "data"), project, project)
    assert (absolute.source, absolute.path) == (str(tmp_path / "disk"), str(tmp_path / "data"))
    relative = run_options.parse_volume("../data", project, project)
    assert (relative.source, relative.path) == (str(tmp_path / "disk"), "/workspace/data")


def test_the_place_is_relative_to_the_code_also_when_the_person_stands_elsewhere(tmp_path: Path) -> None:
    for name in ("project/src", "data"):
        (tmp_path / name).mkdir(parents=True)
    found = run_options.parse_volume("../../data", tmp_path / "project" / "src", tmp_path / "project")
    assert found.path == "/workspace/data"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (".", "contains the code"),
        ("..", "contains the code"),
        ("../..", "contains the code"),
        ("../../etc", "would replace /etc of this machine; choose a path inside the job: --volume ../../etc:/data"),
    ],
)
def test_a_path_alone_replaces_neither_the_code_nor_the_machine(text: str, words: str, tmp_path: Path) -> None:
    project = tmp_path / "work" / "project"
    project.mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    with pytest.raises(RunOptionError, match=words):
        run_options.parse_volume(text, project, project)


def test_without_code_a_relative_path_needs_a_place(tmp_path: Path) -> None:
    with pytest.raises(RunOptionError, match=r"without code .* --volume \.:/data"):
        run_options.parse_volume(".", tmp_path, None)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("keys", "keys", id="all of it as variables"),
        pytest.param("keys:/run/keys", RequestedMount("secret", "keys", "/run/keys", True), id="as files"),
        pytest.param("keys/token", SecretVariable("keys", "token", "token"), id="one key"),
        pytest.param("keys/token=HF_TOKEN", SecretVariable("keys", "token", "HF_TOKEN"), id="under another name"),
    ],
)
def test_secrets(text: str, want: object) -> None:
    assert run_options.parse_secret(text) == want


@pytest.mark.parametrize("text", ["Keys", "keys/", "keys:run", "keys/a=1 2"])
def test_a_secret_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(RunOptionError):
        run_options.parse_secret(text)


def test_amounts_per_node() -> None:
    assert run_options.parse_resources("2", "500m", "4Gi") == {"cpu": "500m", "memory": "4Gi", "nvidia.com/gpu": "2"}
    assert run_options.parse_resources("amd.com/gpu=1", "", "") == {"amd.com/gpu": "1"}
    assert run_options.parse_resources("0", "", "") == {}


@pytest.mark.parametrize("amounts", [("two", "", ""), ("gpu=1", "", ""), ("", "-1", ""), ("", "", "4 GB")])
def test_amounts_that_are_none_are_refused(amounts: tuple[str, str, str]) -> None:
    with pytest.raises(RunOptionError):
        run_options.parse_resources(*amounts)


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("train.py", "train-x"),
        ("src/My_Model.v2.py", "my-model-x"),
        ("/usr/bin/nvidia-smi", "nvidia-smi-x"),
        ("2.py", "job-x"),
        ("ünïcode.py", "n-code-x"),
        ("a" * 80, "a" * 24 + "-x"),
    ],
)
def test_a_job_without_a_name_is_called_after_what_it_runs(word: str, want: str) -> None:
    assert run_options.check_name(run_options.build_name(word, "x"), 1) == want


@pytest.mark.parametrize("name", ["", "Train", "1train", "a" * 49, "a_b", "-a"])
def test_names_that_no_job_can_have_are_refused(name: str) -> None:
    with pytest.raises(RunOptionError, match="--name"):
        run_options.check_name(name, 1)


def test_labels_and_processes_are_checked() -> None:
    assert run_options.parse_labels(["team=ml", "example.com/tier="]) == {"team": "ml", "example.com/tier": ""}
    for bad in ("team", "a b=c", "team=a/b"):
        with pytest.raises(RunOptionError, match="--label"):
            run_options.parse_labels([bad])
    assert [run_options.parse_processes(text) for text in ("", "4", "auto", "gpu")] == ["", "4", "auto", "gpu"]
    for bad in ("0", "-1", "many"):
        with pytest.raises(RunOptionError, match="--nproc"):
            run_options.parse_processes(bad)


def test_packages_are_requirements_and_paths_are_those_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "w.whl").touch()
    (tmp_path / "lib").mkdir()
    url = "git+https://example.com/x"
    for text, want in [
        ("tqdm", ["tqdm"]),
        ("numpy>=1,<2, tqdm", ["numpy>=1,<2", "tqdm"]),
        ("tqdm; python_version > '3'", ["tqdm; python_version > '3'"]),
        (url, [url]),
        ("w.whl", [f"{tmp_path}/w.whl"]),
        ("./lib[fast]", [f"{tmp_path}/lib[fast]"]),
    ]:
        assert run_options.parse_package(text, tmp_path) == want
    for bad, why in [("./nothing.whl", "there is no"), ("numpy>>1", "is no requirement"), ("-e .", "is an option")]:
        with pytest.raises(RunOptionError, match=f"--package {bad}: .*{why}"):
            run_options.parse_package(bad, tmp_path)
