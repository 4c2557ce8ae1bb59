"""How the pages look with fixed answers and a fixed clock: pictures, and the places of what is on them.

The answers were recorded from a real server (`python -m tools.dashboard_looks record`). A `fetch` of our own gives
them, because a stream has to stay open, which Playwright's routes cannot do. The pictures were made in the same way
(`renew`). They have 256 colours, so that they are small; a pixel differs if its colour is further away than that
explains. The browser decodes and compares the pictures.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, TimeoutError

FOLDER = Path(__file__).resolve().parent / "looks"
ANSWERS = FOLDER / "answers.json"
PLACES = FOLDER / "places.json"
RENEW = "python -m tools.dashboard_looks renew"
FAR = 40
"""So far from the kept colour, of 255, a pixel differs."""
MOST = 0.001
"""The share of pixels that may differ."""
TOLERANCE = 2
"""Pixels by which a box may be elsewhere in another version of Chromium."""
PATIENCE_MS = 20_000
HEIGHTS = {1440: 900, 360: 1300}

# Reads the recorded answers instead of asking the server; streams stay open.
_ANSWER = """
(answers) => {
  if (!location.protocol.startsWith("http")) return;
  localStorage.setItem("trainmaster.login", "recorded");
  const real = window.fetch.bind(window);
  window.fetch = async (input, init) => {
    const address = String(input);
    const at = address.indexOf("/api/v1/");
    if (at < 0) return real(input, init);
    const key = address.slice(at + 8);
    const answer = answers[key];
    if (!answer) {
      console.error("NOT RECORDED", key);
      return new Response("{}", { status: 404, headers: { "content-type": "application/json" } });
    }
    const bytes = new TextEncoder().encode(answer.body);
    const start = (controller) => {
      controller.enqueue(bytes);
      // A page that is left gives back its place for a stream.
      init.signal?.addEventListener("abort", () => controller.error(init.signal.reason));
    };
    const open = new ReadableStream({ start });
    const headers = { "content-type": answer.type };
    return new Response(key.startsWith("stream") ? open : bytes, { status: answer.status, headers });
  };
}
"""
_READ = """
const read = async (text) => {
  const blob = await (await fetch("data:image/png;base64," + text)).blob();
  const bitmap = await createImageBitmap(blob);
  const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  return context.getImageData(0, 0, bitmap.width, bitmap.height);
};
"""
_COMPARE = f"""
async ([kept, seen, far]) => {{
  {_READ}
  const [one, other] = [await read(kept), await read(seen)];
  if (one.width !== other.width || one.height !== other.height) return 1;
  let count = 0;
  for (let at = 0; at < one.data.length; at += 4) {{
    const isFar = (channel) => Math.abs(one.data[at + channel] - other.data[at + channel]) > far;
    if (isFar(0) || isFar(1) || isFar(2)) count += 1;
  }}
  return count / (one.width * one.height);
}}
"""
# The most frequent colours stay as they are, and some that are unlike them. Each of the others, which only edges of
# letters have, becomes the nearest of these 256.
_REDUCE = f"""
async (picture) => {{
  {_READ}
  const {{ width, height, data }} = await read(picture);
  const colours = new Uint32Array(width * height);
  const counts = new Map();
  for (let at = 0; at < colours.length; at += 1) {{
    colours[at] = data[4 * at] * 65536 + data[4 * at + 1] * 256 + data[4 * at + 2];
    counts.set(colours[at], (counts.get(colours[at]) ?? 0) + 1);
  }}
  const split = (colour) => [colour >> 16, (colour >> 8) & 255, colour & 255];
  const byCount = (one, other) => counts.get(other) - counts.get(one) || one - other;
  const parts = [];
  const measure = (colour) => {{
    const [r, g, b] = split(colour);
    return parts.map(([x, y, z]) => Math.max(Math.abs(r - x), Math.abs(g - y), Math.abs(b - z)));
  }};
  const palette = [];
  for (const colour of [...counts.keys()].sort(byCount)) {{
    if (palette.length === 256) break;
    if (palette.length >= 128 && Math.min(...measure(colour)) < 20) continue;
    palette.push(colour);
    parts.push(split(colour));
  }}
  const places = new Map();
  for (const colour of counts.keys()) {{
    const far = measure(colour);
    places.set(colour, far.indexOf(Math.min(...far)));
  }}
  let text = "";
  for (let at = 0; at < colours.length; at += 32768) {{
    text += String.fromCharCode(...Array.from(colours.subarray(at, at + 32768), (colour) => places.get(colour)));
  }}
  return {{ width, height, colours: palette, indexes: btoa(text) }};
}}
"""
_BOXES = """
() => [...document.querySelectorAll(
  "header.top, header.top nav a, main > *, main h1, main h2, main section, main th, main .tabs a, main .actions > *"
)].map((one) => {
  const { x, y, width, height } = one.getBoundingClientRect();
  return [one.tagName.toLowerCase() + "." + one.className, ...[x, y, width, height].map(Math.round)];
}).filter(([, , , width, height]) => width && height)
"""
_FONTS = """
() => {
  const context = new OffscreenCanvas(10, 10).getContext("2d");
  return ["system-ui, sans-serif", "ui-monospace, monospace", "sans-serif"].map((font) => {
    context.font = `40px ${font}`;
    return Math.round(10 * context.measureText("Trainmaster 0123 훈련 작업").width);
  });
}
"""
_TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass(frozen=True)
class Look:
    width: int
    theme: str
    locale: str

    def __str__(self) -> str:
        return f"{self.width}-{self.theme}-{self.locale[:2]}"


LOOKS = (
    Look(1440, "light", "en-US"),
    Look(1440, "dark", "ko-KR"),
    Look(360, "light", "ko-KR"),
    Look(360, "dark", "en-US"),
)
READY = {
    "overview": ".quota li",
    "jobs": "td.col-name a",
    "running": ".log-rows .line",
    "failed": ".log-rows .line",
    "waiting": ".because",
    "ranks": ".field a",
    "curves": ".chart canvas",
    "queue": ".gpu-map",
    "history": "tbody tr",
    "new": ".new-job",
}
"""The pages by their names, and what is there when they are complete."""


@dataclass(frozen=True)
class Recorded:
    clock: str
    """When the answers were recorded; RFC 3339."""
    addresses: dict[str, str]
    """Of each page: its fragment."""
    answers: dict[str, dict[str, Any]]


def read_recorded() -> Recorded:
    return Recorded(**json.loads(ANSWERS.read_text()))


class Studio:
    """Shows one page after the other as it was recorded, in one look."""

    def __init__(self, page: Page, url: str, recorded: Recorded, complaints: list[str]) -> None:
        self.page = page
        self._complaints = complaints
        self._url = url
        self._recorded = recorded

    def show(self, name: str) -> bytes:
        """A picture, when nothing moves any more."""
        # Another page between them: what is there afterwards belongs to this one.
        self.page.goto(f"{self._url}#/nothing")
        self.page.locator(READY[name]).first.wait_for(state="detached")
        self.page.goto(self._url + self._recorded.addresses[name])
        try:
            self.page.locator(READY[name]).first.wait_for(timeout=PATIENCE_MS)
        except TimeoutError as error:
            raise AssertionError(f"{name} is not complete: {READY[name]}, {self._complaints}") from error
        seen = b""
        for _ in range(20):
            self.page.evaluate(_TWO_FRAMES)
            before, seen = seen, self.page.screenshot(animations="disabled")
            if seen == before:
                return seen
        raise AssertionError(f"{name} does not come to rest")

    def list_boxes(self) -> list[list[Any]]:
        found: list[list[Any]] = self.page.evaluate(_BOXES)
        return found


@contextmanager
def open_studio(browser: Browser, url: str, look: Look, recorded: Recorded) -> Iterator[Studio]:
    context = browser.new_context(
        viewport={"width": look.width, "height": HEIGHTS[look.width]},
        device_scale_factor=1,
        locale=look.locale,
        timezone_id="Asia/Seoul",
        color_scheme="dark" if look.theme == "dark" else "light",
        reduced_motion="reduce",
    )
    complaints: list[str] = []
    try:
        context.add_init_script(f"({_ANSWER})({json.dumps(recorded.answers)})")
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.clock.set_fixed_time(recorded.clock)
        yield Studio(page, url, recorded, complaints)
    finally:
        context.close()
    assert complaints == []


class Darkroom:
    """A blank page that compares and reduces pictures."""

    def __init__(self, browser: Browser) -> None:
        self._page = browser.new_page()

    def compare(self, kept: bytes, seen: bytes) -> float:
        """The share of pixels that differ."""
        texts = [base64.b64encode(picture).decode() for picture in (kept, seen)]
        return float(self._page.evaluate(_COMPARE, [*texts, FAR]))

    def reduce(self, picture: bytes) -> bytes:
        found = self._page.evaluate(_REDUCE, base64.b64encode(picture).decode())
        return _write_png(found["width"], found["height"], found["colours"], base64.b64decode(found["indexes"]))

    def measure_fonts(self) -> list[int]:
        found: list[int] = self._page.evaluate(_FONTS)
        return found

    def close(self) -> None:
        self._page.close()


def _write_png(width: int, height: int, colours: list[int], indexes: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + indexes[at : at + width] for at in range(0, width * height, width))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    palette = b"".join(colour.to_bytes(3, "big") for colour in colours)
    parts = (
        chunk(b"IHDR", header),
        chunk(b"PLTE", palette),
        chunk(b"IDAT", zlib.compress(rows, 9)),
        chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def get_major(browser: Browser) -> str:
    return browser.version.split(".")[0]


def get_picture(name: str, look: Look) -> Path:
    return FOLDER / f"{name}-{look}.png"


def find_moved(kept: list[list[Any]], seen: list[list[Any]], *, by_place: bool) -> list[str]:
    """What is there in another order, or, with `by_place`, further away or of another size than the tolerance."""
    names = [[str(box[0]) for box in boxes] for boxes in (kept, seen)]
    if names[0] != names[1]:
        return [f"other elements: {', '.join(sorted(set(names[0]) ^ set(names[1]))) or 'in another order'}"]
    return [
        f"{before[0]} was at {before[1:]} and is at {after[1:]}"
        for before, after in zip(kept, seen, strict=True)
        if by_place and any(abs(one - other) > TOLERANCE for one, other in zip(before[1:], after[1:], strict=True))
    ]
