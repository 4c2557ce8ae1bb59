"""Honoured fields of a Pod name the tests that prove it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.unit.api.declaring.proofs import PROOFS
from trainmaster.api.declaring import fidelity_tables
from trainmaster.api.declaring.kinds import Fidelity, FidelityTable

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[4]
TABLES: Mapping[str, FidelityTable] = {
    "Container": fidelity_tables.CONTAINER,
    "Volume": fidelity_tables.VOLUME,
    "SecurityContext": fidelity_tables.SECURITY_CONTEXT,
    "PodSecurityContext": fidelity_tables.POD_SECURITY,
    "PodSpec": fidelity_tables.POD_SPEC,
}


def list_honoured(table: FidelityTable, path: str) -> Iterator[str]:
    for name, rule in table.items():
        where = f"{path}.{name}" if name else path
        if isinstance(rule, Mapping):
            if not any(rule is shared for shared in TABLES.values()):
                yield from list_honoured(rule, where)
        elif (rule[0] if isinstance(rule, tuple) else rule) is Fidelity.HONOURED:
            yield where


def test_every_honoured_field_and_no_other_names_its_test() -> None:
    honoured = [path for name, table in TABLES.items() for path in list_honoured(table, name)]
    assert len(honoured) > 40
    assert sorted(PROOFS) == sorted(honoured)


@pytest.mark.parametrize("proof", sorted(set(PROOFS.values())))
def test_the_named_test_exists(proof: str) -> None:
    file, _, name = proof.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text()
