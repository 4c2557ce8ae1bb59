"""What a run of the fuzzer found, the bounds that the server must keep, and the verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.attacks.fuzz.attack import Attack

MOST_RSS_MIB = 300
MOST_STALL_SECONDS = 0.25


@dataclass
class Livez:
    """What another connection saw of `/livez` all the while."""

    asked: int = 0
    failed: list[str] = field(default_factory=list)
    """What came in place of 200, for each time."""
    worst: float = 0.0
    stall: float = 0.0
    """The worst without the time in which the machine gave the server no processor."""
    p99: float = 0.0


@dataclass
class Outcome:
    sent: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[Attack, str]] = field(default_factory=list)
    slowest: list[tuple[float, Attack]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Threads of the fuzzer itself that died or hung, and why: from then on less was tried than was asked for."""
    livez: Livez = field(default_factory=Livez)
    rss_mib: float = 0.0
    alive: bool = True

    def summarize(self) -> str:
        livez = self.livez
        return "\n".join(
            (
                f"attacks  {self.sent.total()}: {_list_counts(self.sent)}",
                f"answers  {_list_counts(self.codes)}",
                f"broken   {len(self.broken)}",
                f"memory   {self.rss_mib:.0f} MiB at most ({MOST_RSS_MIB} allowed)",
                f"/livez   asked {livez.asked} times, {len(livez.failed)} failed; stalled {_to_ms(livez.stall)} at most "
                f"({_to_ms(MOST_STALL_SECONDS)} allowed), {_to_ms(livez.worst)} with the wait for a processor, "
                f"p99 {_to_ms(livez.p99)}",
            )
        )

    def list_faults(self, log: str) -> list[str]:
        """Why the run has failed; `log` is the server's."""
        livez = self.livez
        checks = (
            (not self.alive, "the server died"),
            (bool(self.broken), f"{len(self.broken)} attacks were answered with an error of the server, or not at all"),
            ("Traceback" in log, "the log has a traceback"),
            (self.rss_mib > MOST_RSS_MIB, f"it took {self.rss_mib:.0f} MiB, more than {MOST_RSS_MIB}"),
            (livez.stall > MOST_STALL_SECONDS, f"others waited {_to_ms(livez.stall)}"),
            (bool(livez.failed), f"/livez did not answer 200: {', '.join(sorted(set(livez.failed)))}"),
            (not livez.asked, "nobody has watched /livez: what was measured means nothing"),
            (not self.sent, "nothing was sent"),
        )
        return [text for is_fault, text in checks if is_fault] + [f"the fuzzer itself: {text}" for text in self.lost]


def _list_counts(counts: Counter[str]) -> str:
    return " ".join(f"{name}:{count}" for name, count in sorted(counts.items()))


def _to_ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
