"""Generated attacks against a server of its own, for as long as asked; what broke it goes into the corpus.

    python tools/fuzz.py --seconds 1200              what `make fuzz MINUTES=20` runs
    python tools/fuzz.py --seed 4711                 the same attacks again
    python tools/fuzz.py --replay FILE.json ...      some attacks of the corpus, one after the other

The bounds are judged here: the server's memory and what another connection waits for `/livez` meanwhile. The stall is
that time without the share in which the machine gave the server no processor: a busy machine is not the server's fault.
Needs root, as tenants do.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.attacks.fuzz.attack import Attack, list_corpus, read_attack
from tests.attacks.fuzz.runner import MOST_RSS_MIB, MOST_STALL_SECONDS, Outcome, fuzz
from tests.attacks.site import running_site

ENVIRON = {"TRAINMASTER_REST_REQUESTS_PER_SECOND": "0"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--replay", nargs="*", type=Path, default=None)
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    first: list[Attack] = list_corpus() if options.replay is None else [read_attack(path) for path in options.replay]
    print(f"seed {seed}, {options.seconds:.0f} s, {len(first)} from the corpus first", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as folder,
        running_site(Path(folder) / "home", environ=ENVIRON) as site,
    ):
        outcome = fuzz(site, seed, options.seconds, first)
        log = site.server.log
        faults = list_faults(outcome, log)
    print(outcome.summarize())
    for seconds, attack in outcome.slowest:
        print(f"  slow: {seconds:.2f} s {attack.kind} {attack.method} {attack.target[:100]} {len(attack.body)} bytes")
    for attack, why in {attack.digest: (attack, why) for attack, why in outcome.broken}.values():
        print(f"  broken: {why} {attack.save(why)}")
    if "Traceback" in log:
        print(log[log.index("Traceback") - 500 : log.index("Traceback") + 6000])
    for fault in faults:
        print(f"fault: {fault}")
    return 1 if faults else 0


def list_faults(outcome: Outcome, log: str) -> list[str]:
    checks = (
        (not outcome.alive, "the server died"),
        (
            bool(outcome.broken),
            f"{len(outcome.broken)} attacks were answered with an error of the server, or not at all",
        ),
        ("Traceback" in log, "the log has a traceback"),
        (outcome.rss_mib > MOST_RSS_MIB, f"it took {outcome.rss_mib:.0f} MiB, more than {MOST_RSS_MIB}"),
        (outcome.worst_stall > MOST_STALL_SECONDS, f"others waited {outcome.worst_stall * 1000:.0f} ms"),
    )
    return [text for is_fault, text in checks if is_fault]


if __name__ == "__main__":
    sys.exit(main())
