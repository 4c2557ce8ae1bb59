"""Settings: precedence, types, unknown keys, and where a value came from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainmaster.app.settings import Settings, SettingsError, list_settings, load

pytestmark = pytest.mark.unit


def write(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text)
    return path


def test_without_any_source_every_value_is_the_default() -> None:
    effective = load(None, {}, {})
    assert effective.settings == Settings()
    assert set(effective.sources.values()) == {"default"}
    assert set(effective.sources) == set(list_settings())


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, '[server]\nport = 1001\naddress = "::1"\n[log]\nlevel = "debug"\n')
    environ = {"TRAINMASTER_SERVER_PORT": "1002", "TRAINMASTER_LOG_LEVEL": "error"}
    effective = load(file, environ, {"server.port": ("--port", 1003)})
    assert effective.settings.server.port == 1003
    assert effective.settings.server.address == "::1"
    assert effective.settings.log.level == "error"
    assert effective.sources["server.port"] == "flag --port"
    assert effective.sources["server.address"] == f"file {file}"
    assert effective.sources["log.level"] == "environment TRAINMASTER_LOG_LEVEL"


def test_a_missing_default_file_is_fine_and_a_missing_named_file_is_an_error(tmp_path: Path) -> None:
    assert load(tmp_path / "none.toml", {}, {}).settings == Settings()
    with pytest.raises(SettingsError, match=r"none\.toml does not exist"):
        load(tmp_path / "none.toml", {}, {}, file_required=True)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("[sever]\nport = 1\n", "there is no group [sever]; did you mean server?", id="group"),
        pytest.param("[server]\nprot = 1\n", "there is no setting server.prot; did you mean server.port?", id="key"),
        pytest.param("port = 1\n", "there is no group [port]", id="a key outside of a group"),
        pytest.param("server = 1\n", "server is a group of settings: write [server]", id="a group with a value"),
        pytest.param("[server]\nport = '1'\n", "server.port must be a whole number, not '1'", id="text for a number"),
        pytest.param("[server]\nport = true\n", "server.port must be a whole number, not True", id="bool for a number"),
        pytest.param("[server]\nport = 70000\n", "server.port must be 0 to 65535, not 70000", id="port out of range"),
        pytest.param("[limits]\nbody_bytes = 0\n", "limits.body_bytes must be 1 or more, not 0", id="a limit of zero"),
        pytest.param("[node]\novercommit = 0.5\n", "node.overcommit must be 1 to 100, not 0.5", id="less than all"),
        pytest.param("[log]\nlevel = 'loud'\n", "must be one of debug, info, warning, error, not 'loud'", id="choice"),
        pytest.param("[server]\nnames = 'a'\n", "server.names must be a list of texts, not 'a'", id="text for a list"),
        pytest.param("[server\n", "is not valid TOML", id="broken file"),
    ],
)
def test_the_file_is_refused_with_a_sentence(tmp_path: Path, text: str, want: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(write(tmp_path, text), {}, {})
    assert want in str(caught.value)
    assert "config.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text", "want"),
    [
        pytest.param("TRAINMASTER_SERVER_PROT", "1", "did you mean TRAINMASTER_SERVER_PORT?", id="typing error"),
        pytest.param("TRAINMASTER_SEVER_PORT", "1", "did you mean TRAINMASTER_SERVER_PORT?", id="error in the group"),
        pytest.param("TRAINMASTER_SERVER_PORT", "many", "'many' is not a whole number", id="no number"),
        pytest.param("TRAINMASTER_AUDIT_ENABLED", "perhaps", "'perhaps' is not true or false", id="no bool"),
    ],
)
def test_the_environment_is_refused_with_a_sentence(variable: str, text: str, want: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(None, {variable: text}, {})
    assert variable in str(caught.value)
    assert want in str(caught.value)


def test_the_environment_gives_every_type() -> None:
    environ = {
        "TRAINMASTER_AUDIT_ENABLED": "no",
        "TRAINMASTER_PROCESS_STOP_SECONDS": "7",
        "TRAINMASTER_SERVER_NAMES": "train.example, 10.0.0.7",
        "TRAINMASTER_LOG_FORM": "json",
    }
    settings = load(None, environ, {}).settings
    assert settings.audit.enabled is False
    assert settings.process.stop_seconds == 7.0
    assert settings.server.names == ("train.example", "10.0.0.7")
    assert settings.log.form == "json"


def test_variables_that_are_not_settings_are_left_alone() -> None:
    environ = {"TRAINMASTER_HOME": "x", "TRAINMASTER_OUTPUT_DIR": "y", "TRAINMASTER_FAILPOINTS": "", "HOME": "z"}
    assert load(None, environ, {}).settings == Settings()


def test_every_setting_can_be_set_from_a_file_and_says_so(tmp_path: Path) -> None:
    lines: dict[str, list[str]] = {}
    for key, setting in list_settings().items():
        group, _, name = key.partition(".")
        default = list(setting.default) if isinstance(setting.default, tuple) else setting.default
        text = str(default).lower() if isinstance(default, bool) else repr(default)
        lines.setdefault(group, []).append(f"{name} = {text}")
    body = "\n".join(f"[{group}]\n" + "\n".join(pairs) for group, pairs in lines.items())
    effective = load(write(tmp_path, body), {}, {})
    assert effective.settings == Settings()
    assert {source.split()[0] for source in effective.sources.values()} == {"file"}


def test_what_is_said_to_have_no_limit_at_0_may_be_0() -> None:
    page = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    group, found = "", 0
    for line in page.splitlines():
        if line.startswith("## ["):
            group = line.strip("#[] ")
        elif re.search("0(:| is) no limit", line):
            found += 1
            variable = f"TRAINMASTER_{group}_{line.split('`')[1]}".upper()
            assert load(None, {variable: "0"}, {}).sources, variable
    assert found >= 4


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ({"AUDIENCE": "a"}, "say nothing without rest.oidc_issuer"),
        ({"ISSUER": "https://i"}, "needs rest.oidc_audience"),
        ({"ISSUER": "http://login.example.org", "AUDIENCE": "a"}, "rest.oidc_issuer must be an https address"),
        ({"ISSUER": "https://i", "AUDIENCE": "a", "JWKS": "http://x.example.org"}, "rest.oidc_jwks must be an https"),
        ({"ISSUER": "https://i", "AUDIENCE": "a", "JWKS": "/none/keys.json"}, "there is no file /none/keys.json"),
        ({"ISSUER": "https://i", "AUDIENCE": "a", "CA": "/none/ca.crt"}, "there is no file /none/ca.crt"),
        ({"ISSUER": "https://i", "AUDIENCE": "a", "USER_CLAIM": ""}, "rest.oidc_user_claim is empty"),
    ],
)
def test_an_identity_provider_that_cannot_be_trusted_is_refused(values: dict[str, str], want: str) -> None:
    environ = {f"TRAINMASTER_REST_OIDC_{name}": text for name, text in values.items()}
    with pytest.raises(SettingsError, match=re.escape(want)):
        load(None, environ, {})


def test_what_kubernetes_says_about_services_is_not_taken_for_settings() -> None:
    """In Pods of a namespace with the Services `trainmaster-operator` and `trainmaster-rest`."""
    environ: dict[str, str] = {}
    for name in ("OPERATOR", "REST"):
        prefix, port = f"TRAINMASTER_{name}", f"TRAINMASTER_{name}_PORT_10443_TCP"
        environ |= {f"{prefix}_SERVICE_HOST": "10.0.0.1", f"{prefix}_SERVICE_PORT": "10443"}
        environ |= {f"{prefix}_SERVICE_PORT_PROGRESS": "10443", f"{prefix}_PORT": "tcp://10.0.0.1:10443"}
        environ |= {port: "tcp://10.0.0.1:10443", f"{port}_PROTO": "tcp", f"{port}_PORT": "1", f"{port}_ADDR": "::1"}
    assert load(None, environ, {}).settings == Settings()
    environ["TRAINMASTER_OPERATOR_WORKERS"] = "3"
    assert load(None, environ, {}).settings.operator.workers == 3
    with pytest.raises(SettingsError, match="TRAINMASTER_OPERATOR_PORT"):
        load(None, {"TRAINMASTER_OPERATOR_PORT": "tcp://10.0.0.1:10443"}, {})
