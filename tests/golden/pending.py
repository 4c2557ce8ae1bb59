"""What does not match upstream yet. The lists only get shorter: an entry that matches fails its test.

CASES: recorded cases, VERSION/NAME. ANSWERS: refused manifests and changes, VERSION/NAME. LINES: lines of the table
"where upstream is not the model", by the name of their test.
"""

from __future__ import annotations

CASES: frozenset[str] = frozenset(
    {
        "2.1/b1-override-all",
        "2.1/b2-two-overrides",
        "2.1/b3-scheduling-gate",
        "2.1/b4-missing-service-account",
        "2.1/b5-unschedulable",
        "2.1/m2-mlx",
        "2.1/s2-suspended-while-running",
        "2.1/s5-running-suspended-resumed",
        "2.3/b-torch-gpu-patch",
        "2.3/f-torchtune-initializers",
    }
)
ANSWERS: frozenset[str] = frozenset(
    {
        "2.1/runtime-elastic-numnodes",
    }
)
LINES: frozenset[str] = frozenset(
    {
        "a missing service account is said on the trainjob",
        "pods that no node takes are said on the trainjob with what would match",
    }
)
