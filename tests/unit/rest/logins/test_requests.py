"""What is refused before anybody is identified."""

from __future__ import annotations

import pytest

from trainmaster.rest.logins.requests import (
    check_origin,
    check_plain_door,
    find_path_problem,
    is_loopback_name,
    list_cookies,
    read_credentials,
    strip_prefix,
)
from trainmaster.rest.problems import Problem

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.9.9.9", "[::1]", "[::1]:80", "home.localhost:1"]
)
def test_loopback_names_are_served_with_any_port(host: str) -> None:
    assert is_loopback_name(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost", "10.0.0.1:80"),
        *("0.0.0.0", "[::]", "[::ffff:10.0.0.1]", "localhost@evil.example", "2130706433", "localhost.", ":80"),
    ],
)
def test_other_names_are_not(host: str) -> None:
    assert not is_loopback_name(host)
    with pytest.raises(Problem) as refused:
        check_plain_door({b"host": host.encode()})
    assert (refused.value.status, refused.value.kind) == (421, "foreign-host")


def test_tokens_are_refused_at_the_plain_door() -> None:
    with pytest.raises(Problem) as refused:
        check_plain_door({b"host": b"localhost", b"authorization": b"Bearer x"})
    assert (refused.value.status, refused.value.kind) == (400, "use-tls")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"sec-fetch-site": b"same-origin"},
        {b"sec-fetch-site": b"same-origin", b"origin": b"https://public.example", b"host": b"inner:1"},
        {b"origin": b"https://a.example:1", b"host": b"A.example:1"},
    ],
)
def test_writes_of_our_own_page_pass_also_behind_proxies(headers: dict[bytes, bytes]) -> None:
    check_origin(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {b"sec-fetch-site": b"cross-site"},
        {b"sec-fetch-site": b"same-site"},
        {b"sec-fetch-site": b"none"},
        {b"sec-fetch-site": b""},
        {b"sec-fetch-site": b"cross-site", b"origin": b"https://a.example", b"host": b"a.example"},
        {b"origin": b"https://evil.example", b"host": b"a.example"},
        {b"origin": b"http://127.0.0.1:9", b"host": b"127.0.0.1:8"},
        {b"origin": b"null", b"host": b"a.example"},
        {b"origin": b"", b"host": b""},
        {b"origin": b"https://a.example"},
    ],
)
def test_writes_of_other_pages_do_not(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(Problem) as refused:
        check_origin(headers)
    assert (refused.value.status, refused.value.kind) == (403, "foreign-origin")


def test_a_request_shows_a_token_or_a_login_and_not_both() -> None:
    assert read_credentials({b"authorization": b"bearer  x "}, is_plain=False).token == "x"
    shown = read_credentials({b"x-trainmaster-login": b" k ", b"cookie": b"a=b"}, is_plain=True)
    assert (shown.key, shown.cookies, shown.is_plain, shown.token) == ("k", b"a=b", True, "")
    with pytest.raises(Problem) as refused:
        read_credentials({b"authorization": b"Bearer x", b"x-trainmaster-login": b"k"}, is_plain=False)
    assert refused.value.status == 400
    for headers in ({}, {b"cookie": b"a=b"}, {b"x-trainmaster-login": b" "}):
        with pytest.raises(Problem) as refused:
            read_credentials(headers, is_plain=False)
        assert refused.value.status == 401


def test_all_cookies_of_a_name_are_tried_but_not_any_number() -> None:
    assert list_cookies(b"a=1; b=2;a=3; aa=4; a", "a") == ["1", "3", ""]
    assert len(list_cookies(b"a=1;" * 100, "a")) == 8


@pytest.mark.parametrize("path", ["/", "/a/", "/a/b-c_d.e~f%20/"])
def test_paths_of_cookies(path: str) -> None:
    assert not find_path_problem(path)


@pytest.mark.parametrize(
    "path", ["", "a/", "/a", "//", "/a//", "/a;b/", "/a\r\n/", "/ /", "/../", "/a/./", "/" + "a" * 300 + "/"]
)
def test_paths_that_could_break_a_cookie_are_refused(path: str) -> None:
    assert find_path_problem(path)


@pytest.mark.parametrize(
    ("path", "found"),
    [("/a/x", "/x"), ("/a/", "/"), ("/a", None), ("/ab", "/ab"), ("/x", "/x"), ("/a/a/x", "/a/x")],
)
def test_a_prefix_is_removed_once(path: str, found: str | None) -> None:
    assert strip_prefix(path, "/a") == found
    assert strip_prefix(path, "") == path
