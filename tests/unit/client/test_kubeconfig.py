"""kubeconfig files as kubectl reads them, and the files of a Pod."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainmaster.client.kubeconfig import ConfigError, choose_config, load_in_cluster, load_kubeconfig

pytestmark = pytest.mark.unit


def write(path: Path, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443", **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "there", "context": {"cluster": "c", "user": "u"}},
            {"name": "broken", "context": {"cluster": "nowhere", "user": "u"}},
        ],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_server_token_and_namespace_come_from_the_current_context(tmp_path: Path) -> None:
    config = load_kubeconfig([write(tmp_path / "config")])
    assert (config.server, config.read_token(), config.namespace) == ("https://127.0.0.1:6443", "t", "team")


def test_another_context_can_be_named(tmp_path: Path) -> None:
    assert load_kubeconfig([write(tmp_path / "config")], context="there").namespace == "default"


def test_inline_data_wins_and_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("from the file")
    (tmp_path / "cert").write_text("certificate")
    inline = base64.b64encode(b"inline").decode()
    user = {"client-certificate": "cert", "client-key-data": inline}
    path = write(tmp_path / "config", user, **{"certificate-authority": "ca.crt"})
    config = load_kubeconfig([path])
    assert (config.ca_pem, config.certificate_pem, config.key_pem) == ("from the file", "certificate", "inline")


def test_a_token_file_is_read_again_for_every_use(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    config = load_kubeconfig([write(tmp_path / "config", {"tokenFile": "token"})])
    assert config.read_token() == "one"
    (tmp_path / "token").write_text("two\n")
    assert config.read_token() == "two"


@pytest.mark.parametrize(
    ("user", "want"),
    [
        pytest.param({"exec": {"command": "aws"}}, "uses exec, which is not supported", id="exec"),
        pytest.param({"auth-provider": {"name": "gcp"}}, "uses auth-provider", id="auth-provider"),
        pytest.param({"username": "u", "password": "p"}, "uses username", id="basic"),
        pytest.param({"client-key-data": "%%%"}, "not valid base64", id="broken data"),
        pytest.param({"client-certificate": "missing"}, "cannot read", id="a missing file"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path, user: dict[str, Any], want: str) -> None:
    with pytest.raises(ConfigError, match=want):
        load_kubeconfig([write(tmp_path / "config", user)])


@pytest.mark.parametrize(("context", "want"), [("nothing", 'no context "nothing"'), ("broken", "does not exist")])
def test_contexts_that_lead_nowhere_say_so(tmp_path: Path, context: str, want: str) -> None:
    with pytest.raises(ConfigError, match=want):
        load_kubeconfig([write(tmp_path / "config")], context=context)


def test_the_first_file_to_set_something_wins(tmp_path: Path) -> None:
    first, second = write(tmp_path / "one"), write(tmp_path / "two", {"token": "other"})
    listed = {"KUBECONFIG": f"{first}:{second}:{tmp_path / 'missing'}"}
    assert choose_config(environ=listed, home=tmp_path).read_token() == "t"
    assert choose_config(path=str(second), environ=listed, home=tmp_path).read_token() == "other"


def test_a_pod_uses_its_mounted_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "ca.crt").write_text("ca")
    (tmp_path / "namespace").write_text("team")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    config = load_in_cluster(environ, tmp_path)
    assert (config.server, config.namespace, config.read_token()) == ("https://[fd00::1]:443", "team", "pod-token")


def test_without_anything_the_error_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no kubeconfig was found"):
        choose_config(environ={}, home=tmp_path)
