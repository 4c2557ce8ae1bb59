"""Generated attacks against a server of its own, for as long as asked; what broke it goes into the corpus.

    python tools/fuzz.py --seconds 1200              what `make fuzz MINUTES=20` runs
    python tools/fuzz.py --seed 4711                 the same attacks again
    python tools/fuzz.py --replay FILE.json ...      some attacks of the corpus, one after the other

The bounds are judged here: the server's memory and what another connection waits for `/livez` meanwhile. The stall is
that time without the share in which the machine gave the server no processor: a busy machine is not the server's fault.
A run in which one of the fuzzer's own threads dies or hangs, or in which nobody watched `/livez`, has failed as well.
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
from tests.attacks.fuzz.runner import fuzz
from tests.attacks.site import running_site

ENVIRON = {"TRAINMASTER_REST_REQUESTS_PER_SECOND": "0", "TRAINMASTER_LIMITS_REQUESTS_PER_SECOND": "0"}


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
        faults = outcome.list_faults(log)
    for seconds, attack in outcome.slowest:
        print(f"  slow: {seconds:.2f} s {attack.kind} {attack.method} {attack.target[:100]!a} {len(attack.body)} bytes")
    for attack, why in {attack.digest: (attack, why) for attack, why in outcome.broken}.values():
        print(f"  broken: {why} {attack.save(why)}")
    if "Traceback" in log:
        print(log[log.index("Traceback") - 500 : log.index("Traceback") + 6000])
    print(outcome.summarize())
    for fault in faults:
        print(f"fault    {fault}")
    print(f"verdict  {f'{len(faults)} faults' if faults else 'it held'}; again with: make fuzz SEED={seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
