"""A kind is declared once: what reads declarations, the server and its access control do not know kinds by name.

What differs between kinds stands in `api.declaring.kinds.Kind`; who means one collection takes its address from
`api.resources`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT, list_python, parse
from trainmaster.api.declaring import catalogue

pytestmark = pytest.mark.unit

FOLDERS = ("api/declaring/", "apiserver/", "auth/")
ALLOWED = {
    "api/declaring/crd.py": "what it builds is a CustomResourceDefinition",
    "apiserver/admission/gang_sizes.py": "`pods` is the name of a resource in a quota",
    "apiserver/http/routes.py": "`namespaces` is a part of every path",
    "apiserver/admission/limit_ranges.py": "`Pod` is a type of limit",
    "apiserver/verbs/pod_actions.py": "bindings and evictions of Pods, in upstream's words",
    "auth/rbac.py": "the kinds that RBAC is made of",
    "auth/roles.py": "the kinds that RBAC is made of",
    "auth/service_accounts.py": "the kinds that a token can be bound to",
}
"""By file, why it names kinds."""


def find_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts that are the name of a kind or of its collection, alone or with a subresource; not those in docstrings."""
    names = {name for kind in catalogue.build().kinds for name in (kind.kind, kind.plural, kind.collection)}
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            text = node.value
            if text in names or text.partition("/")[0] in names:
                yield node.lineno, text


def list_server_files() -> list[tuple[Path, str]]:
    """(file, as `ALLOWED` calls it)"""
    files = [(name, name.relative_to("trainmaster").as_posix()) for name in list_python("trainmaster")]
    return [(name, short) for name, short in files if short.startswith(FOLDERS)]


def test_the_server_knows_no_kinds_by_name() -> None:
    found = [
        f"{name}:{line}: {text}"
        for name, short in list_server_files()
        if short not in ALLOWED
        for line, text in find_names(parse(name))
    ]
    assert not found, "declare it in the Kind, or take the address from api.resources"


def test_exceptions_are_needed() -> None:
    needed = {short for name, short in list_server_files() if any(find_names(parse(name)))}
    assert set(ALLOWED) <= needed


def test_names_are_seen() -> None:
    tree = ast.parse(
        '"""pods"""\nA = ("pods", "x")\nB = GVR("", "v1", "jobs/status")\nC = "batch/jobs"\nD = f"{x} pods"'
    )
    assert sorted(find_names(tree)) == [(2, "pods"), (3, "jobs/status"), (4, "batch/jobs")]


def test_the_page_names_every_kind_with_its_version() -> None:
    page = (ROOT / "docs" / "kinds.md").read_text()
    kinds = catalogue.build().kinds
    assert [kind.kind for kind in kinds if not re.search(rf"\b{kind.kind}\b", page)] == []
    assert {kind.api_version for kind in kinds if f"`{kind.api_version}`" not in page} == set()
