"""Where packages come from, and who may know the way in."""

from __future__ import annotations

import pytest

from trainmaster.node.images.index import (
    build_fetch_environ,
    build_sandbox_environ,
    has_credentials,
    list_local_places,
    list_secrets,
    pick_reason,
    redact,
)
from trainmaster.node.images.requirements import list_direct_paths, split_requirements

pytestmark = pytest.mark.unit

ENVIRON = {
    "PIP_INDEX_URL": "https://reader:s3cr%40t@index.example/simple",
    "PIP_EXTRA_INDEX_URL": "https://tok3n@a.example/s https://b.example/s",
    "PIP_FIND_LINKS": "/srv/wheels file:///srv/more https://u:pass@c.example/",
    "PIP_CERT": "/etc/ca.pem",
    "PIP_NO_BINARY": ":all:",
    "PIP_TARGET": "/etc",
    "PYTHONPATH": "/evil",
    "HOME": "/root",
}


def test_a_sandbox_gets_the_places_without_the_credentials() -> None:
    found = build_sandbox_environ(ENVIRON)
    assert found["PIP_INDEX_URL"] == "https://index.example/simple"
    assert found["PIP_EXTRA_INDEX_URL"] == "https://a.example/s https://b.example/s"
    assert found["PIP_FIND_LINKS"] == "/srv/wheels file:///srv/more https://c.example/"
    assert not any(secret in repr(found) for secret in ("s3cr", "tok3n", "pass"))
    assert has_credentials(ENVIRON)
    assert not has_credentials(found)
    assert list_local_places(ENVIRON) == ["/srv/wheels", "/srv/more", "/etc/ca.pem"]


def test_a_sandbox_reaches_the_index_as_the_server_does() -> None:
    environ = {"HTTPS_PROXY": "http://me:pw12@proxy:3128", "no_proxy": "localhost", "SSL_CERT_FILE": "/etc/ca.pem"}
    assert build_sandbox_environ(environ) == {**environ, "HTTPS_PROXY": "http://proxy:3128"}


def test_a_download_has_all_of_it_and_nothing_that_would_make_it_something_else() -> None:
    found = build_fetch_environ(ENVIRON)
    assert found["PIP_INDEX_URL"] == ENVIRON["PIP_INDEX_URL"]
    assert not {"PIP_NO_BINARY", "PIP_TARGET", "PYTHONPATH"} & set(found)


def test_the_words_of_uv_count_as_well() -> None:
    found = build_fetch_environ({"UV_DEFAULT_INDEX": "https://a/s", "UV_INDEX": "corp=https://u:pw12@b/s https://c/s"})
    assert (found["PIP_INDEX_URL"], found["PIP_EXTRA_INDEX_URL"]) == ("https://a/s", "https://u:pw12@b/s https://c/s")


def test_a_message_shows_no_secret_and_no_control_characters() -> None:
    secrets = list_secrets(ENVIRON)
    output = (
        "Looking in indexes: https://reader:s3cr%40t@index.example/simple\n"
        "WARNING: nothing\n"
        "ERROR: 401 for https://reader:s3cr%40t@index.example/x with s3cr@t and tok3n\x1b[31m\x07\n"
    )
    said = pick_reason(output, secrets)
    assert said == "401 for https://****@index.example/x with **** and ****"
    assert redact("https://a:b@c/ http://d@e/", ()) == "https://****@c/ http://****@e/"
    assert len(pick_reason("x" * 10_000, ())) == 1000


def test_an_index_that_cannot_be_reached_is_the_reason() -> None:
    output = (
        "Could not fetch URL https://a.example/x/: a problem with its certificate - skipping\n"
        "ERROR: Could not find a version\nERROR: No matching distribution found for x\n"
    )
    assert pick_reason(output, ()).startswith("Could not fetch URL https://a.example/x/: a problem")
    assert pick_reason(output, ()).endswith("No matching distribution found for x")


def test_places_on_this_machine_are_told_from_packages_of_the_index() -> None:
    asked = ["tqdm", "numpy>=1; python_version > '3'", "/srv/x[all]", "y @ file:///srv/y", "git+https://e.com/z"]
    parts = split_requirements(asked)
    assert parts.plain == ("tqdm", "numpy>=1; python_version > '3'")
    assert parts.direct == ("/srv/x[all]", "y @ file:///srv/y", "git+https://e.com/z")
    assert list_direct_paths([*parts.direct, "file:///a%20b/../c"]) == ["/srv/x", "/srv/y", "/c"]
    assert split_requirements(["./here"]).direct[0].startswith("/")


def test_a_list_of_all_versions_does_not_hide_the_reason() -> None:
    versions = ", ".join(f"1.{minor}" for minor in range(200))
    output = (
        "ERROR: Ignored the following versions that require a different python version: 1.21.2 Requires-Python >=3.7\n"
        f"ERROR: Could not find a version that satisfies the requirement numpy==99 (from versions: {versions})\n"
        "ERROR: No matching distribution found for numpy==99\n"
    )
    assert pick_reason(output, ()) == (
        "Could not find a version that satisfies the requirement numpy==99 (from versions: ..., 1.197, 1.198, 1.199) | "
        "No matching distribution found for numpy==99"
    )
    few = "ERROR: Could not find a version (from versions: 1.0, 2.0)"
    assert pick_reason(few, ()) == few.removeprefix("ERROR: ")
