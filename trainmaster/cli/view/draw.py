"""Draws a `Screen` as a few lines of styled text that fit the terminal. Pure.

    train-x7k2p   Running · 2 nodes · torch-distributed                                             1m 23s
    ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╸──────────────────────────────────  42 %   1m 52s left
    loss 0.5321 ▇▆▅▄▄▃▃▂▂▁   lr 0.001 ▄▄▄▄▄▄▄▄▄▄
    RANK   STATE     TIME     LAST LINE
    0      running   1m 20s   step 420 loss 0.5321
    1      running   1m 20s   step 420 loss 0.5399

Lines consist of `Span`s (text and a style of `cli.terminal`); the caller turns styles into colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from trainmaster.cli.terminal import BAD, BOLD, DIM, GOOD, WAIT, clean, measure, shorten
from trainmaster.cli.view import model
from trainmaster.cli.view.lines import strip_controls
from trainmaster.cli.view.model import Screen, get_elapsed, name_rank, show
from trainmaster.cli.view.ranks import DONE, FAILED, RUNNING, STARTING, STOPPED, STOPPING, WAITING, Rank
from trainmaster.kit.clock import parse_time


class Span(NamedTuple):
    text: str
    style: str = ""


Line = list[Span]

_STATES = {
    model.RUNNING: GOOD,
    model.COMPLETE: GOOD,
    model.FAILED: BAD,
    model.DELETED: BAD,
    model.RESTARTING: WAIT,
    model.WAITING: WAIT,
    model.SUSPENDED: WAIT,
}
_RANKS = {RUNNING: GOOD, DONE: GOOD, FAILED: BAD, STOPPED: DIM}
_BLOCKS = "▁▂▃▄▅▆▇█"
_URGENT = (FAILED, WAITING, STARTING, STOPPING, RUNNING, STOPPED, DONE)
_CURVE = 24
_WIDE = 120


def draw(
    screen: Screen, now: datetime, width: int, height: int, last: dict[int, str] | None = None, footer: str = ""
) -> list[Line]:
    """The panel. `last` is the newest line of each rank; `footer` explains the keys or asks a question."""
    width = max(8, width - 1)  # some terminals wrap after a full row
    ending = [[Span(footer, BOLD if "?" in footer else DIM)]] if footer and height > 1 else []
    lines = [_draw_title(screen, now, width), *_draw_reason(screen, now, width)]
    lines += [*_draw_progress(screen, width), *_draw_metrics(screen, width)]
    rule: list[Line] = [[Span("─" * width, DIM)]] if height > 4 else []
    room = height - len(rule) - len(ending)
    lines = lines[:room]
    lines += _draw_ranks(screen, now, width, room - len(lines), last or {})
    return [_cut(line, width) for line in (*rule, *lines, *ending)]


def _cut(line: Line, width: int) -> Line:
    kept: Line = []
    for span in line:
        room = width - sum(measure(entry.text) for entry in kept)
        if room <= 0:
            break
        kept.append(Span(shorten(span.text, room), span.style))
    return kept


def _draw_title(screen: Screen, now: datetime, width: int) -> Line:
    state = "Running, all ranks are done" if _all_done(screen) else screen.state
    facts = []
    if screen.nodes:
        facts.append(f"{screen.nodes} node{'s' * (screen.nodes != 1)}")
    if screen.processes not in ("", "auto", "1"):
        facts.append(f"{screen.processes} per node")
    if screen.restarts:
        facts.append(f"{screen.restarts} restart{'s' * (screen.restarts != 1)}")
    if screen.runtime and width >= 70:
        facts.append(screen.runtime)
    left: Line = [
        Span(screen.name, BOLD),
        Span("  "),
        Span(state, _STATES.get(screen.state, "")),
        Span("".join(f" · {fact}" for fact in facts), DIM),
    ]
    right = show_span(get_elapsed(screen, now))
    space = width - sum(measure(span.text) for span in left) - measure(right)
    return [*left, Span(" " * max(1, space)), Span(right)]


def _all_done(screen: Screen) -> bool:
    ranks = [rank for rank in screen.ranks if rank.job == "node"]
    return screen.state == model.RUNNING and bool(ranks) and all(rank.state == DONE for rank in ranks)


def _draw_reason(screen: Screen, now: datetime, width: int) -> list[Line]:
    if screen.offline:
        return [[Span(shorten(clean(screen.offline), width), WAIT)]]
    if not screen.message or screen.state in (model.COMPLETE, model.FAILED):
        return []
    text = f"{screen.reason}: {screen.message}" if screen.reason else screen.message
    if screen.until:
        left = (parse_time(screen.until) - now).total_seconds()
        if left > 0:
            text += f" (again in {show_span(left)})"
    rows = _wrap(clean(text), width)
    return [[Span(row, WAIT)] for row in rows[:3]]


def _wrap(text: str, width: int) -> list[str]:
    rows, row = [], ""
    for word in text.split():
        if row and measure(row) + 1 + measure(word) > width:
            rows.append(row)
            row = word
        else:
            row = f"{row} {word}" if row else word
    return [*rows, row] if row else rows


def _draw_progress(screen: Screen, width: int) -> list[Line]:
    if screen.progress is None:
        return [[Span(f"step {screen.step}")]] if screen.step else []
    share = min(100.0, max(0.0, screen.progress)) / 100
    text = f" {screen.progress:3.0f} %"
    if screen.step:
        text += f"   step {screen.step}"
    if screen.remaining is not None and not screen.is_over:
        text += f"   {show_span(screen.remaining)} left"
    room = max(8, min(width, _WIDE) - measure(text) - 1)
    full = int(share * room * 2)
    bar = "━" * (full // 2) + ("╸" if full % 2 else "")
    return [[Span(bar, GOOD), Span("─" * (room - len(bar)), DIM), Span(text)]]


def _draw_metrics(screen: Screen, width: int) -> list[Line]:
    """As many small curves as fit on two lines."""
    lines: list[Line] = []
    used = width + 1
    for name, values in screen.metrics.items():
        label, curve = f"{clean(name)} {show(values[-1])} ", draw_curve(values, _CURVE)
        size = measure(label) + measure(curve) + 3
        if used + size > width:
            if len(lines) == 2:
                lines[-1].append(Span(" …", DIM))
                break
            lines.append([])
            used = 0
        lines[-1] += [Span(label), Span(curve, GOOD), Span("   ")]
        used += size
    return lines


def draw_curve(values: Sequence[float], width: int) -> str:
    """The newest values as a curve of block characters, scaled between their minimum and maximum."""
    shown = _thin(values, width)
    low, high = min(shown), max(shown)
    if high <= low:
        return _BLOCKS[3] * len(shown)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((value - low) / (high - low) * top)] for value in shown)


def _thin(values: Sequence[float], width: int) -> list[float]:
    """Reduces the values to at most `width`: the mean of each interval, and the last value unchanged."""
    if len(values) <= width:
        return list(values)
    edges = [round(number * len(values) / width) for number in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    return [*means[:-1], values[-1]]


def _draw_ranks(screen: Screen, now: datetime, width: int, room: int, last: dict[int, str]) -> list[Line]:
    ranks = screen.ranks
    if not ranks or room < 2:
        return []
    shown = list(ranks)
    if len(ranks) > room - 1:
        # Ranks that need attention come first; the rest are only counted.
        shown = sorted(ranks, key=lambda rank: (_URGENT.index(rank.state), rank.key))[: max(1, room - 2)]
        shown.sort(key=lambda rank: rank.key)
    # With several processes per node, ranks are processes, but a Pod is a node.
    word = "RANK" if screen.processes in ("", "1") else "NODE"
    rows = [(word, "STATE", "TIME", "POD" if width >= _WIDE else "", "LAST LINE")]
    rows += [_tell(rank, now, last, wide=width >= _WIDE) for rank in shown]
    widths = [max(measure(row[column]) for row in rows) for column in range(4)]
    lines: list[Line] = []
    for number, row in enumerate(rows):
        spans: Line = []
        for column, cell in enumerate(row[:4]):
            if widths[column]:
                style = DIM if number == 0 else _RANKS.get(shown[number - 1].state, WAIT) if column == 1 else ""
                spans.append(Span(cell + " " * (widths[column] - measure(cell) + 3), style))
        failed = number and shown[number - 1].detail
        spans.append(Span(row[4], DIM if number == 0 else WAIT if failed else ""))
        lines.append(spans)
    hidden = [rank for rank in ranks if rank not in shown]
    if hidden:
        counts = {state: sum(rank.state == state for rank in hidden) for state in _URGENT}
        text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        lines.append([Span(f"and {len(hidden)} more: {text}", DIM)])
    return lines[:room]


def _tell(rank: Rank, now: datetime, last: dict[int, str], *, wide: bool) -> tuple[str, str, str, str, str]:
    name = str(rank.index) if rank.job == "node" else name_rank(rank)
    end = parse_time(rank.finished) if rank.finished else now
    time = show_span((end - parse_time(rank.started)).total_seconds()) if rank.started else ""
    said = clean(rank.detail) or (strip_controls(last.get(rank.index, "")) if rank.job == "node" else "")
    return name, rank.state, time, rank.pod if wide else "", said


def show_span(seconds: float) -> str:
    """12s, 1m 20s, 3h 5m, 2d 4h."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    for size, unit, small, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size}{unit} {rest}{small_unit}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def to_text(lines: Iterable[Line]) -> list[str]:
    """The lines as plain text."""
    return ["".join(span.text for span in line).rstrip() for line in lines]
