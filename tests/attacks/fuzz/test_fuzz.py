"""Twenty seconds of generated attacks, after everything that ever broke something: nothing dies, nothing is a 500."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.attacks.fuzz.attack import Attack, list_corpus, read_attack
from tests.attacks.fuzz.generators import make_attacks
from tests.attacks.fuzz.runner import fuzz
from tests.attacks.site import running_site

pytestmark = pytest.mark.attacks

SECONDS = 20.0


@pytest.mark.timeout(180)
def test_generated_attacks_break_nothing(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("tenants have walls only where the server runs as root")
    seed = int(os.environ.get("FUZZ_SEED") or secrets.randbits(32))
    with running_site(
        tmp_path / "home",
        environ={"TRAINMASTER_REST_REQUESTS_PER_SECOND": "0", "TRAINMASTER_LIMITS_REQUESTS_PER_SECOND": "0"},
    ) as site:
        outcome = fuzz(site, seed, SECONDS, list_corpus())
        told = [(attack.digest, why, attack.method, attack.target[:200]) for attack, why in outcome.broken[:5]]
        again = f"make fuzz SECONDS=60 SEED={seed}; {told}; {outcome.lost}\n{outcome.summarize()}"
        assert outcome.alive, again
        assert not outcome.lost, again
        assert not outcome.broken, again
        assert not outcome.livez.failed, again
        assert outcome.sent.total() > 100, again
        assert site.is_alive()
        assert "Traceback" not in site.server.log, f"{again}\n{site.server.log[-6000:]}"


def test_the_same_seed_makes_the_same_attacks(tmp_path: Path) -> None:
    first, second = make_attacks("7:0"), make_attacks("7:0")
    attacks = [next(first) for _ in range(200)]
    assert attacks == [next(second) for _ in range(200)]
    assert len({attack.kind for attack in attacks}) > 7
    file = tmp_path / "one.json"
    for attack in attacks[:20]:
        file.write_text(attack.to_json())
        assert read_attack(file) == attack
    assert isinstance(attacks[0], Attack)
