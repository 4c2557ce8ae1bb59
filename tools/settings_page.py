"""Writes docs/settings.md from the docstrings of the settings, so that the page cannot drift from the code.

A test compares the two. Run `.venv/bin/python tools/settings_page.py` after changing a setting.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from pathlib import Path
from typing import Any

from trainmaster.app.settings import Settings, list_settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

_HEAD = """\
# Settings

Generated from `trainmaster/app/settings.py` by `tools/settings_page.py`; do not edit.

Values come from flags, the environment, the settings file or the default, in this order of precedence. The file is
`config.toml` in the home, or the file in `--config` or `TRAINMASTER_CONFIG`. `trainmaster config` prints every
effective value and its source. An unknown key is an error.

```toml
[server]
port = 6443
```

This is the same as `TRAINMASTER_SERVER_PORT=6443` and, for the few settings that have one, the flag (`--port 6443`).

Three variables are not settings: `TRAINMASTER_HOME` (the directory with all state), `TRAINMASTER_CONFIG` (the file) and
`TRAINMASTER_FAILPOINTS` (makes a server fail on purpose, for crash tests).
"""


def read_docs(cls: type) -> dict[str, str]:
    """Field -> its docstring, the text that stands below it; those of base classes first."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for base in cls.__bases__:
        if base is not object:
            found |= read_docs(base)
    for field, text in zip(body.body, body.body[1:], strict=False):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            assert isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[]" if not value else str(list(value))
    return str(value)


def build_page() -> str:
    parts = [_HEAD]
    settings = list_settings()
    for group in dataclasses.fields(Settings):
        cls = typing.get_type_hints(Settings)[group.name]
        docs = read_docs(cls)
        headline = " ".join((inspect.getdoc(cls) or "").split())
        if headline.startswith(f"{cls.__name__}("):  # dataclass's own text where the class has none
            headline = "Limits per client and per request (docs/limits.md)."
        parts.append(f"\n## [{group.name}]\n\n{headline}\n\n| key | default | meaning |\n|---|---|---|\n")
        for item in dataclasses.fields(cls):
            setting = settings[f"{group.name}.{item.name}"]
            choices = typing.get_args(setting.type) if typing.get_origin(setting.type) is typing.Literal else ()
            among = f" ({', '.join(choices)})" if choices else ""
            parts.append(f"| `{item.name}` | `{show(setting.default)}`{among} | {docs[item.name]} |\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(build_page())
