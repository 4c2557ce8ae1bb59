"""The files of the dashboard: their hash, the start of the page, and how they are served."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.house.tree import ROOT
from tests.unit.rest.asgi import Answer
from tests.unit.rest.test_edge import ask, build_backend, check_problem
from trainmaster.rest.contract import PageRules
from trainmaster.rest.page_tree import build_tree, list_modules, load_tree
from trainmaster.rest.routes.table import PUBLIC
from trainmaster.rest.routes.ui import accepts_gzip

pytestmark = pytest.mark.unit

SMALL = {
    "index.html": b'<link href="{{tree}}/a.css">{{preload}}<script src="{{tree}}/main.js"></script>',
    "main.js": b'import { a } from "./lib/a.js";\nconst later = () => import("./lib/late.js");\n',
    "lib/a.js": b'import "../b.js";\nexport {\n  x,\n  y,\n} from "./c.js";\nimport z from "./gone.js";\n',
    "lib/c.js": b"export const x = 1, y = 2;\n",
    "lib/late.js": b"export const late = 1;\n",
    "b.js": b'import { a } from "./lib/a.js";\n',
}


def get(path: str, **headers: str) -> Answer:
    return ask("GET", path, token=None, headers=list(headers.items()))


def test_the_hash_is_over_names_and_contents() -> None:
    tree = build_tree(SMALL).hash
    assert build_tree(dict(reversed(SMALL.items()))).hash == tree
    changed: list[Mapping[str, bytes]] = [
        {**SMALL, "b.js": b""},
        {**SMALL, "new.js": b""},
        {**{name: content for name, content in SMALL.items() if name != "b.js"}, "bb.js": SMALL["b.js"]},
    ]
    assert len({tree, *(build_tree(contents).hash for contents in changed)}) == 4
    assert len(tree) == 16


def test_the_page_names_the_tree_and_preloads_what_its_start_needs() -> None:
    assert list_modules(SMALL) == ["main.js", "lib/a.js", "b.js", "lib/c.js"]
    tree = build_tree(SMALL)
    page = tree.index.content.decode()
    assert f'href="{tree.hash}/a.css"' in page and "{{" not in page
    assert page.count("modulepreload") == 4 and "late.js" not in page


def test_what_the_start_needs_is_small() -> None:
    """docs/performance.md has it as a browser counts it."""
    tree = load_tree()
    contents = {name: file.content for name, file in tree.files.items()}
    needed = [tree.files[name] for name in (*list_modules(contents), "style.css", "icon.svg")]
    assert len(tree.index.compressed) + sum(len(file.compressed) for file in needed) < 120_000


def test_every_file_of_the_page_is_served_for_ever_and_no_other() -> None:
    tree = load_tree()
    folder = ROOT / "trainmaster" / "rest" / "pages" / "ui"
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert set(tree.files) == names - {"index.html"}
    for name in tree.files:
        answer = get(f"/ui/{tree.hash}/{name}")
        assert answer.status == 200 and answer.body == (folder / name).read_bytes(), name
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"] != "application/octet-stream", f"{name}: add its type to page_tree.py"
    for path in (f"/ui/{tree.hash}/", f"/ui/{tree.hash}/../../x.py", "/ui/0123456789abcdef/main.js", "/ui/main.js"):
        check_problem(get(path), 401)
        check_problem(ask("GET", path), 404)


def test_files_are_compressed_for_whom_takes_that() -> None:
    path = f"/ui/{load_tree().hash}/main.js"
    packed, plain = get(path, **{"accept-encoding": "br, gzip;q=0.8"}), get(path)
    assert packed.headers["content-encoding"] == "gzip" and gzip.decompress(packed.body) == plain.body
    assert "content-encoding" not in plain.headers
    assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"
    assert packed.headers["content-type"] == "text/javascript; charset=utf-8"


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("*", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
    ],
)
def test_who_takes_gzip(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


def test_the_page_is_not_cached_and_has_the_policy() -> None:
    answer = get("/ui/")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; "
        "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types ui"
    )
    assert b"//" not in answer.body and b'="/' not in answer.body, "every address is relative"
    assert f"{load_tree().hash}/main.js".encode() in answer.body


def test_framing_is_opened_by_its_setting_alone() -> None:
    opened = replace(build_backend(), pages=PageRules(("https://portal.example.org", "self")))
    headers = ask("GET", "/ui/", token=None, backend=opened).headers
    assert "frame-ancestors https://portal.example.org 'self';" in headers["content-security-policy"]
    assert "x-frame-options" not in headers and get("/ui/").headers["x-frame-options"] == "DENY"
    assert ask("GET", "/docs", token=None, backend=opened).headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("path", ["/", "/ui"])
def test_the_root_leads_to_the_page_relative_to_any_prefix(path: str) -> None:
    answer = get(path)
    assert (answer.status, answer.headers["location"]) == (307, "ui/")


def test_public_paths_are_exact() -> None:
    assert {"/", "/ui", "/ui/", "/openapi.json"} <= PUBLIC
    assert not [path for path in PUBLIC if "{" in path]


@pytest.mark.parametrize(
    ("path", "status", "location"),
    [("/a/b/ui/", 200, None), ("/ui/", 200, None), ("/a/b", 307, "b/"), ("/a/b/", 307, "ui/"), ("/a/bc", 401, None)],
)
def test_a_prefix_that_a_proxy_keeps_is_removed(path: str, status: int, location: str | None) -> None:
    backend = replace(build_backend(), pages=PageRules(base_path="/a/b"))
    answer = ask("GET", path, token=None, backend=backend)
    assert (answer.status, answer.headers.get("location")) == (status, location)
