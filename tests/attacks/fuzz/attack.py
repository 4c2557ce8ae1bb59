"""One attack as data: what is sent, to which port, by whom. Kept in the corpus as JSON, so that it can be sent again."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Attack:
    kind: str
    """What it is a case of, such as `yaml`; figures are told by it."""
    port: str
    """`kube` or `rest`."""
    caller: str
    """`owner`, `ann` or `stranger`. `{ns}` in the target is the caller's namespace."""
    body: bytes = b""
    """For kind `bytes` and `junk` everything that is sent, in place of a request."""
    method: str = ""
    target: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    undo: bool = False
    """Delete what it made."""

    @property
    def is_raw(self) -> bool:
        return not self.method

    def to_json(self) -> str:
        fields = asdict(self)
        fields["body"] = base64.b64encode(self.body).decode()
        return json.dumps(fields, indent=1)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def save(self, why: str) -> Path:
        """Into the corpus, where it is tried first from now on."""
        CORPUS.mkdir(exist_ok=True)
        path = CORPUS / f"{self.kind}-{why}-{self.digest}.json"
        path.write_text(self.to_json() + "\n")
        return path


def read_attack(path: Path) -> Attack:
    fields: dict[str, Any] = json.loads(path.read_text())
    fields["body"] = base64.b64decode(fields["body"])
    fields["headers"] = tuple((name, value) for name, value in fields["headers"])
    return Attack(**fields)


def list_corpus() -> list[Attack]:
    return [read_attack(path) for path in sorted(CORPUS.glob("*.json"))]
