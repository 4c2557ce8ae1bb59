"""`trainmaster kubeconfig --merge`: into a person's own file, safely, again and again, and out of it."""

from __future__ import annotations

import io
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.main import main
from trainmaster.client.kubeconfig import load_kubeconfig

pytestmark = pytest.mark.unit

OWN = """\
apiVersion: v1
kind: Config
current-context: trainmaster
clusters:
- name: trainmaster
  cluster: {server: "https://127.0.0.1:PORT"}
users:
- name: owner
  user: {token: TOKEN}
contexts:
- name: trainmaster
  context: {cluster: trainmaster, user: owner, namespace: default}
"""
THEIRS = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "work",
    "preferences": {"colors": True},
    "clusters": [{"name": "work", "cluster": {"server": "https://work.example"}}],
    "users": [{"name": "me", "user": {"token": "secret"}}],
    "contexts": [{"name": "work", "context": {"cluster": "work", "user": "me"}}],
}


class Desk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "person" / ".kube" / "config"
        self.environ = {"HOME": str(root / "person")}
        self.out = self.err = ""
        self.make_home("home")

    def make_home(self, name: str, port: int = 1, token: str = "t") -> None:
        (self.root / name).mkdir(exist_ok=True)
        (self.root / name / "kubeconfig").write_text(OWN.replace("PORT", str(port)).replace("TOKEN", token))

    def __call__(self, *flags: str, home: str = "home") -> int:
        out, err = io.StringIO(), io.StringIO()
        code = main(("kubeconfig", "--home", str(self.root / home), *flags), CommandContext(self.environ, out, err))
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def write(self, config: Any) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(config if isinstance(config, str) else yaml.safe_dump(config))

    def read(self) -> Any:
        return yaml.safe_load(self.file.read_text())

    def list_files(self) -> list[str]:
        return sorted(path.name for path in self.file.parent.iterdir())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_first_kubeconfig_is_made_private_and_current(desk: Desk) -> None:
    assert desk("--merge") == exits.OK
    assert stat.S_IMODE(desk.file.stat().st_mode) == 0o600
    assert "try: kubectl get trainjobs" in desk.out
    assert load_kubeconfig([desk.file]).server == "https://127.0.0.1:1"
    assert desk.list_files() == ["config"], "no copy of nothing, no lock, no draft"


def test_what_was_there_is_kept_and_stays_current(desk: Desk) -> None:
    desk.write(THEIRS)
    assert desk("--merge") == exits.OK
    config = desk.read()
    assert config["current-context"] == "work" and config["preferences"] == {"colors": True}
    for section in ("clusters", "users", "contexts"):
        assert config[section][0] == THEIRS[section][0]  # type: ignore[index]
    assert "kubectl --context trainmaster get trainjobs" in desk.out
    assert load_kubeconfig([desk.file], context="trainmaster").token == "t"
    assert load_kubeconfig([desk.file]).token == "secret"
    (copy,) = (name for name in desk.list_files() if "backup" in name)
    assert yaml.safe_load((desk.file.parent / copy).read_text()) == THEIRS
    assert stat.S_IMODE((desk.file.parent / copy).stat().st_mode) == 0o600


def test_merging_again_changes_nothing_and_makes_no_copy(desk: Desk) -> None:
    desk.write(THEIRS)
    assert desk("--merge") == exits.OK
    before, files = desk.file.read_bytes(), desk.list_files()
    assert desk("--merge") == exits.OK
    assert "already" in desk.out
    assert (desk.file.read_bytes(), desk.list_files()) == (before, files)


def test_a_new_address_or_token_is_taken_over_and_a_chosen_namespace_kept(desk: Desk) -> None:
    desk("--merge")
    config = desk.read()
    config["contexts"][0]["context"]["namespace"] = "team"
    desk.write(config)
    desk.make_home("home", port=2, token="new")
    assert desk("--merge") == exits.OK
    found = load_kubeconfig([desk.file])
    assert (found.server, found.token, found.namespace) == ("https://127.0.0.1:2", "new", "team")
    assert len(desk.read()["contexts"]) == 1


def test_use_makes_it_current(desk: Desk) -> None:
    desk.write(THEIRS)
    assert desk("--merge", "--use") == exits.OK
    assert desk.read()["current-context"] == "trainmaster"


def test_two_homes_need_two_names(desk: Desk) -> None:
    desk.make_home("other", port=9)
    desk("--merge")
    assert desk("--merge", home="other") == exits.FAILED
    assert f"belongs to the home {desk.root / 'home'}: choose another name with --name" in desk.err
    assert desk("--merge", "--name", "second", home="other") == exits.OK
    assert load_kubeconfig([desk.file], context="second").server == "https://127.0.0.1:9"
    assert desk("--remove", home="other") == exits.OK
    assert [one["name"] for one in desk.read()["contexts"]] == ["trainmaster"]


def test_an_entry_of_somebody_else_with_our_name_is_never_overwritten(desk: Desk) -> None:
    theirs = {**THEIRS, "users": [{"name": "trainmaster", "user": {"token": "theirs"}}]}
    desk.write(theirs)
    assert desk("--merge") == exits.FAILED
    assert 'the entry "trainmaster" in users is not ours' in desk.err
    assert desk.read() == theirs


def test_removal_leaves_the_rest_and_works_when_the_home_is_gone(desk: Desk) -> None:
    desk.write(THEIRS)
    desk("--merge", "--use")
    (desk.root / "home" / "kubeconfig").unlink()
    assert desk("--remove") == exits.OK
    assert desk.read() == {**THEIRS, "current-context": ""}
    assert desk("--remove") == exits.OK
    assert "has nothing of" in desk.out


def test_removal_without_a_file_makes_none(desk: Desk) -> None:
    assert desk("--remove") == exits.OK
    assert not desk.file.exists()


def test_the_first_file_of_kubeconfig_and_a_named_one_go_before_the_usual_place(desk: Desk) -> None:
    desk.environ["KUBECONFIG"] = f"{desk.root}/a:{desk.root}/b"
    assert desk("--merge") == exits.OK
    assert desk("--merge", "--to", str(desk.root / "c")) == exits.OK
    assert (desk.root / "a").exists() and (desk.root / "c").exists()
    assert not (desk.root / "b").exists() and not desk.file.exists()


def test_a_link_is_followed_and_stays_a_link(desk: Desk) -> None:
    desk.write(THEIRS)
    real = desk.root / "elsewhere"
    desk.file.rename(real)
    desk.file.symlink_to(real)
    assert desk("--merge") == exits.OK
    assert desk.file.is_symlink()
    assert len(yaml.safe_load(real.read_text())["contexts"]) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is no kubeconfig, nothing was changed"),
        ("- 1\n", "must be lists"),
        ("clusters: {a: 1}\n", "must be lists"),
        ("users: [7]\n", "must be lists"),
    ],
)
def test_what_is_no_kubeconfig_is_left_alone(desk: Desk, text: str, words: str) -> None:
    desk.write(text)
    assert desk("--merge") == exits.FAILED
    assert words in desk.err
    assert desk.file.read_text() == text
    assert desk.list_files() == ["config"]


def test_a_lock_of_another_program_is_respected(desk: Desk) -> None:
    desk.write(THEIRS)
    (desk.file.parent / "config.lock").touch()
    assert desk("--merge") == exits.FAILED
    assert "another program is changing" in desk.err
    assert desk.read() == THEIRS


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--merge", "--name", "no spaces"), exits.USAGE, "is no name for a context"),
        (("--merge", "--name", ""), exits.USAGE, "is no name for a context"),
    ],
)
def test_bad_names_are_refused(desk: Desk, flags: tuple[str, ...], code: int, words: str) -> None:
    assert desk(*flags) == code
    assert words in desk.err


def test_its_own_kubeconfig_is_no_target(desk: Desk) -> None:
    assert desk("--merge", "--to", str(desk.root / "home" / "kubeconfig")) == exits.USAGE
    assert "nothing to merge" in desk.err


def test_a_place_that_cannot_be_written_is_told(desk: Desk) -> None:
    assert desk("--merge", "--to", "/proc/nothing") == exits.FAILED
    assert "cannot be changed" in desk.err
    assert desk("--merge", "--to", str(desk.root)) == exits.USAGE
    assert "is a directory" in desk.err


def test_without_a_home_there_is_nothing_to_merge(desk: Desk) -> None:
    assert desk("--merge", home="none") == exits.NOT_RUNNING
    assert "`trainmaster up` writes it" in desk.err
