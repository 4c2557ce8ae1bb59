"""Requirements in one text come apart where one ends and the next begins."""

from __future__ import annotations

import pytest

from trainmaster.api.packages import join, split

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", []),
        ("tqdm", ["tqdm"]),
        ("a, b,c", ["a", "b", "c"]),
        ("a\nb, c\n", ["a", "b", "c"]),
        ("numpy>=1,<2", ["numpy>=1,<2"]),
        ("numpy>=1, <2, tqdm", ["numpy>=1, <2", "tqdm"]),
        ("torch[a,b]==2,tqdm", ["torch[a,b]==2", "tqdm"]),
        ("a~=1.0,!=1.3,==1.*", ["a~=1.0,!=1.3,==1.*"]),
        ("a, --index-url=x", ["a", "--index-url=x"]),
        ("a ; python_version in '3.8, 3.9'", ["a ; python_version in '3.8, 3.9'"]),
        ("tool @ git+https://example.com/t@v1", ["tool @ git+https://example.com/t@v1"]),
    ],
)
def test_a_comma_ends_a_requirement_only_where_another_begins(text: str, want: list[str]) -> None:
    assert split(text) == want
    assert split(join(want)) == want
