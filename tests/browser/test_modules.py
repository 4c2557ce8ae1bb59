"""The page's modules that only compute, in the browser that runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.desk import Desk, People

pytestmark = pytest.mark.browser

Run = Callable[..., Any]
STREAM = (
    'retry: 1000\n\nid: 1\nevent: row\ndata: {"a":"한"}\n\n:\n\n'
    "id: 2\r\nevent: log\r\ndata: x\r\ndata: y\r\n\r\ndata: z\n\n"
)


@pytest.fixture
def run(people: People, desk: Desk) -> Run:
    """Runs the body of a function, in which `m` is a module and `v` a value; `html` and `render` are there as well."""
    page = people.open_stranger()
    page.goto(desk.page_url)
    tree = page.locator("script[type=module]").get_attribute("src")
    assert tree is not None
    folder = tree.removesuffix("main.js")

    def call(module: str, body: str, value: Any = None) -> Any:
        address, base = json.dumps(f"./{folder}{module}"), json.dumps(f"./{folder}html.js")
        load = f"const m = await import({address}); const {{ html, render }} = await import({base});"
        return page.evaluate(f"async (v) => {{ {load} {{ {body} }} }}", value)

    return call


def test_a_stream_may_be_cut_anywhere(run: Run) -> None:
    want = [["1", "row", '{"a":"한"}'], ["2", "log", "x\ny"], ["", "message", "z"]]
    body = """
      const cuts = [];
      for (let at = 0; at <= v.length; at += 1) {
        const reader = new m.EventReader();
        const found = [...reader.push(v.slice(0, at)), ...reader.push(v.slice(at))];
        cuts.push(JSON.stringify(found.map((one) => [one.id, one.event, one.data])));
      }
      return [...new Set(cuts)].map(JSON.parse);
    """
    assert run("lib/sse.js", body, STREAM) == [want]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a\x1b[1;31mb\x1b[0mc", [["a", ""], ["b", "bold ansi-red"], ["c", ""]], id="colours"),
        pytest.param("\x1b[38;5;196mx\x1b[39my", [["x", "ansi-red"], ["y", ""]], id="256 colours"),
        pytest.param("\x1b[38;2;20;200;30mx", [["x", "ansi-green"]], id="millions of colours"),
        pytest.param("\x1b[48;5;0m\x1b[30mx", [["x", "ansi-black"]], id="no ground of its own"),
        pytest.param("a\x1b[2Kb\x1b[1Ac", [["a", ""], ["b", ""], ["c", ""]], id="movements of the cursor"),
        pytest.param(
            "a\x00\x7f\u202e", [["a", ""], ["␀", "control"], ["␡", "control"], ["<U+202E>", "control"]], id="controls"
        ),
        pytest.param("\x1b]8;;x\x07", [["␛", "control"], ["]8;;x", ""], ["␇", "control"]], id="other sequences"),
        pytest.param("a\tb", [["a\tb", ""]], id="a tab"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_what_a_program_prints_becomes_pieces(run: Run, text: str, want: list[list[str]]) -> None:
    assert run("lib/log_text.js", "return m.parseLine(v).map((one) => [one.text, one.style]);", text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("10 %\r20 %\r30 %", "30 %", id="the last of many"),
        pytest.param("10 %\r20 %\r", "20 %", id="with a return at the end"),
        pytest.param("plain", "plain", id="none"),
        pytest.param("\r\r", "", id="nothing else"),
    ],
)
def test_a_line_that_is_written_again_shows_its_last_form(run: Run, text: str, want: str) -> None:
    assert run("lib/log_text.js", "return m.collapseReturns(v);", text) == want


def test_what_is_sought_is_marked_across_colours(run: Run) -> None:
    body = 'return m.markSought(m.parseLine(v), "error").map((one) => [one.text, one.style.trim()]);'
    want = [["an ", ""], ["Er", "ansi-red sought"], ["ror", "sought"], [", ", ""], ["error", "sought"]]
    assert run("lib/log_text.js", body, "an \x1b[31mEr\x1b[0mror, error") == want


def test_heights_say_where_a_row_is_and_which_row_is_there(run: Run) -> None:
    body = """
      const heights = new m.Heights();
      for (let index = 0; index < 2000; index += 1) heights.push(1 + (index % 7));
      heights.set(700, 1000);
      const gone = heights.dropFirst(300);
      const wrong = [];
      for (let index = 0; index < heights.count; index += 1) {
        const top = heights.findTop(index);
        const bottom = top + heights.get(index) - 1;
        if (heights.findIndex(top) !== index || heights.findIndex(bottom) !== index) wrong.push(index);
      }
      return { wrong, gone, total: heights.total, last: heights.findIndex(1e9), sum: heights.findTop(heights.count) };
    """
    found = run("lib/heights.js", body)
    assert found["wrong"] == []
    assert found["gone"] == sum(1 + index % 7 for index in range(300))
    assert found["total"] == found["sum"]
    assert found["last"] == 1699


LOG = """
  const line = (number, worker = 0, attempt = 0, same = 0) => {
    const time = `2026-11-15T20:00:00.${String(number).padStart(9, "0")}Z`;
    return { attempt, job: "node", worker, container: "node", time, same, text: `line ${number}` };
  };
  const range = (from, to) => Array.from({ length: to - from }, (_, index) => line(from + index));
  const name = (one) => one.kind === "line" ? one.text.slice(5) : one.kind + one.attempt;
  const show = (log) => log.entries.map(name).join(" ");
"""


def test_answers_that_overlap_add_only_what_is_new(run: Run) -> None:
    body = f"""{LOG}
      const log = new m.LogLines();
      log.take("snapshot", {{ lines: range(0, 3) }});
      log.take("snapshot", {{ lines: range(1, 5) }});
      log.take("snapshot", {{ lines: range(3, 5) }});
      const before = show(log);
      log.take("snapshot", {{ lines: range(9, 11) }});
      return [before, show(log)];
    """
    assert run("lib/log_lines.js", body) == ["0 1 2 3 4", "9 10"]


def test_who_reads_keeps_what_is_shown_whatever_comes(run: Run) -> None:
    body = f"""{LOG}
      const log = new m.LogLines();
      log.take("log", {{ lines: range(0, 3) }});
      log.leave();
      log.take("log", {{ lines: range(3, 6) }});
      const left = [show(log), log.isFar, log.missed];
      await log.loadAfter();
      const again = [show(log), log.isFar, log.missed];
      log.leave();
      log.take("log", {{ lines: range(6, 7) }});
      log.goToEnd();
      return [left, again, [show(log), log.isFar, log.missed]];
    """
    assert run("lib/log_lines.js", body) == [
        ["0 1 2", True, 3],
        ["0 1 2 3 4 5", False, 0],
        ["0 1 2 3 4 5 6", False, 0],
    ]


WINDOWS = f"""{LOG}
  const all = v.flatMap((number) => [line(number), line(number, 1)]);
  const asked = [];
  globalThis.fetch = async (url) => {{
    const query = new URL(url).searchParams;
    const [before, after, at] = [Number(query.get("before")), Number(query.get("after")), query.get("at")];
    const exact = all.findIndex((one) => m.getLineKey(one) === at);
    const place = exact >= 0 ? exact : all.findIndex((one) => m.getPlaceAfter(one) === at) + 1;
    asked.push(at);
    const [from, to] = [Math.max(0, place - before), Math.min(all.length, place + after)];
    const part = {{ lines: all.slice(from, to), before: place - from, begin: "", end: "", bytes: 1,
      begin_share: from / all.length, end_share: to / all.length, is_first: from === 0, is_last: to === all.length }};
    return new Response(JSON.stringify(part));
  }};
  const page = document.querySelector("script[type=module]").src;
  const {{ LogLines }} = await import(new URL("lib/log_lines.js", page));
  const log = new LogLines();
  const numbers = () => log.entries.map((one) => `${{one.worker}}.${{one.text.slice(5)}}`);
  const isWhole = (found) => new Set(found).size === found.length;
"""


def test_what_is_before_is_loaded_once_in_whatever_order_workers_printed(run: Run) -> None:
    """Live, the lines of workers come in another order than in an answer."""
    body = (
        WINDOWS
        + """
      log.take("log", { lines: [line(700, 1), line(701, 1), line(699), line(702, 1), line(700)] });
      await log.loadBefore();
      await log.loadBefore();
      await log.loadBefore();
      const found = numbers();
      return [isWhole(found), found.length, found[0], found.slice(-6), log.start];
    """
    )
    found = run("lib/log_run.js", body, list(range(703)))
    assert found == [True, 1404, "0.0", ["1.699", "1.700", "1.701", "0.699", "1.702", "0.700"], -1399]


def test_another_part_is_shown_until_it_has_reached_the_end_again(run: Run) -> None:
    body = (
        WINDOWS
        + """
      log.take("log", { lines: all.slice(-100) });
      const index = await log.jump(m.getLineKey(line(100)));
      const jumped = [numbers()[index], log.isFar];
      for (let turn = 0; turn < 10 && log.isFar; turn += 1) await log.loadAfter();
      const found = numbers();
      return [jumped, log.isFar, isWhole(found), found.at(-1), asked.length];
    """
    )
    found = run("lib/log_run.js", body, list(range(2000)))
    assert found == [["0.100", True], False, True, "1.1999", 8]


def test_earlier_lines_stand_before_what_is_there(run: Run) -> None:
    body = f"""{LOG}
      const log = new m.LogRun();
      log.append([...range(5, 8), line(8, 0, 1)]);
      log.prepend(log.selectEarlier(range(2, 8)));
      log.prepend([line(1, 0, 0)]);
      return [show(log), log.start];
    """
    assert run("lib/log_run.js", body) == ["1 2 3 4 5 6 7 attempt1 8", -4]


def test_each_attempt_is_marked_once(run: Run) -> None:
    body = f"""{LOG}
      const log = new m.LogRun();
      log.append([line(1), line(2, 0, 1)]);
      log.mark({{ kind: "attempt", attempt: 2, text: "attempt 2" }});
      log.mark({{ kind: "attempt", attempt: 2, text: "attempt 2" }});
      log.append([line(3, 0, 2), line(4, 0, 1), line(5, 0, 2)]);
      return show(log);
    """
    assert run("lib/log_run.js", body) == "1 attempt1 2 attempt2 3 4 5"


ROWS = """
  const columns = ["namespace", "name", "uid", "state", "created_at", "labels", "deleting"];
  const row = (number) =>
    ["ns", `job-${number}`, `u${number}`, "Running", `2026-11-15T20:00:0${number}Z`, { team: "a" }, false];
  const rows = new m.JobRows();
  const show = () => m.sortRows(rows.list(), "name").map((one) => one.name.slice(4)).join(" ");
"""


def test_rows_that_do_not_come_again_are_forgotten_when_all_have_come(run: Run) -> None:
    body = f"""{ROWS}
      rows.take("rows", {{ columns, rows: [row(1), row(2), row(3)] }});
      rows.take("synced", {{ count: 3 }});
      rows.take("gone", {{ uid: "u2" }});
      rows.take("row", {{ row: row(4) }});
      const first = show();
      rows.take("reset", {{}});
      rows.take("rows", {{ columns, rows: [row(4), row(5)] }});
      const between = show();
      rows.take("synced", {{ count: 2 }});
      return [first, between, show()];
    """
    assert run("lib/job_rows.js", body) == ["1 3 4", "1 3 4 5", "4 5"]


def test_ten_thousand_jobs_are_searched_and_sorted(run: Run) -> None:
    body = """
      const all = Array.from({ length: 10000 }, (_, n) => ({
        namespace: "ns", name: `job-${n}`, kind: "TrainJob", uid: `u${n}`, user: n % 2 ? "ann" : "bob",
        runtime: "plain", state: ["Running", "Failed"][n % 2], created_at: new Date(n * 1000).toISOString(),
        labels: { "__proto__": "x", team: String(n % 3) } }));
      const filter = { q: "JOB-99 ann", states: ["Failed"], labels: ["team=0"] };
      return m.filterRows(m.sortRows(all, "-created"), filter, Date.now()).map((row) => row.name);
    """
    want = [f"job-{n}" for n in (99, *range(990, 1000), *range(9900, 10000)) if n % 2 and n % 3 == 0]
    assert run("lib/job_rows.js", body) == list(reversed(want))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("500m", 0.5, id="thousandths"),
        pytest.param("2Gi", 2**31, id="powers of two"),
        pytest.param("1e3", 1000, id="exponents"),
        pytest.param("64", 64, id="plain"),
        pytest.param("much", None, id="no amount"),
    ],
)
def test_amounts_of_kubernetes_are_read(run: Run, text: str, want: float | None) -> None:
    body = "const found = m.parseQuantity(v); return Number.isNaN(found) ? null : found;"
    assert run("lib/quantity.js", body, text) == want


def test_addresses_are_read_as_they_are_built(run: Run) -> None:
    body = """
      const address = m.buildAddress(["job", "ns", "a/b c", "<x>"], { q: "ü&=", state: ["A", "B"], none: null });
      const { path, query } = m.parseRoute(address);
      return [path, query.get("q"), query.getAll("state"), query.has("none")];
    """
    assert run("lib/router.js", body) == [["job", "ns", "a/b c", "<x>"], "ü&=", ["A", "B"], False]


def test_preferences_of_another_version_do_no_harm(run: Run) -> None:
    body = "return v.map((text) => m.parsePreferences(text));"
    found = run("lib/preferences.js", body, [None, "[]", "{", '{"theme":"pink","zone":"utc","hidden":[1]}'])
    assert [one["theme"] for one in found] == ["system"] * 4
    assert [one["zone"] for one in found] == ["local"] * 3 + ["utc"]
    assert found[3]["hidden"] == []


def test_smoothing_follows_values_and_knows_gaps_and_attempts(run: Run) -> None:
    body = "return m.smooth(v.values, v.attempts, 0.5).map((one) => one === null ? null : Math.round(one * 100) / 100);"
    value = {"values": [4, 4, None, 0, 8, 8], "attempts": [0, 0, 0, 0, 1, 1]}
    assert run("lib/curves.js", body, value) == [4, 4, None, 1.71, 8, 8]


@pytest.mark.parametrize(
    ("values", "is_log", "want"),
    [
        pytest.param([0.5, None, 2], False, [[0.5, None, 2], "0.5"], id="usual"),
        pytest.param([1e308, -1e308], False, [[1, -1], "1e308"], id="huge"),
        pytest.param([2e-9, 0], False, [[2, 0], "2e-9"], id="tiny"),
        pytest.param([100, 0, -1, None], True, [[2, None, None, None], "100"], id="logarithms"),
        pytest.param([1e308], True, [[308], "1e308"], id="logarithm of a huge one"),
        pytest.param([0, 0], False, [[0, 0], "0"], id="nothing but 0"),
    ],
)
def test_values_of_any_size_are_drawn(run: Run, values: list[float | None], is_log: bool, want: list[Any]) -> None:
    body = """
      const { values, name } = m.tame(v[0], v[1]);
      const [from, to] = m.findRange([values]);
      if (!(from < to) || !Number.isFinite(to - from)) throw new Error(`${from} ${to}`);
      const round = (one) => one === null ? null : Math.round(one * 1e6) / 1e6;
      return [values.map(round), name(values[0])];
    """
    assert run("lib/curves.js", body, [values, is_log]) == want


def test_a_logarithmic_axis_has_a_few_round_lines(run: Run) -> None:
    body = "return v.map(([from, to]) => m.listPowers(from, to).map((power) => Number((10 ** power).toPrecision(3))));"
    found = run("lib/curves.js", body, [[0, 1], [-2.2, 0.1], [0, 12], [0.1, 0.2]])
    assert found[0] == [1, 2, 5, 10]
    assert found[1] == [0.01, 0.03, 0.1, 0.3, 1]
    assert found[2] == [1, 100, 1e4, 1e6, 1e8, 1e10, 1e12]
    assert len(found[3]) == 4


def test_steps_that_go_back_are_a_line_of_the_next_attempt(run: Run) -> None:
    body = """
      const { xs, lines } = m.alignSteps(v.steps, v.attempts, v.values);
      const name = (one) => one === undefined ? "-" : one;
      return [xs, lines.map((line) => [...line].map(name)), m.listRestarts(v.steps, v.attempts)];
    """
    value = {"steps": [1, 2, 3, 2, 4, None], "attempts": [0, 0, 0, 1, 1, 1], "values": [9, 8, None, 7, 6, 5]}
    want = [[1, 2, 3, 4], [[9, 8, None, "-"], ["-", 7, "-", 6]], [{"x": 2, "attempt": 1}]]
    assert run("lib/curves.js", body, value) == want


def test_what_is_reported_later_extends_the_curves(run: Run) -> None:
    body = """
      const series = (times, metrics) => ({ times, attempts: times.map(() => 0), steps: times, percents: times,
        metrics: Object.entries(metrics).map(([name, values]) => ({ name, values })) });
      const known = series([1, 2], { loss: [9, 8] });
      const found = m.extendSeries(known, series([2, 3], { loss: [8, 7], ["__proto__"]: [5, 6] }));
      return [found.times, found.metrics, m.extendSeries(known, series([2], { loss: [1] })) === known];
    """
    metrics = [{"name": "loss", "values": [9, 8, 7]}, {"name": "__proto__", "values": [None, None, 6]}]
    assert run("lib/curves.js", body, None) == [[1, 2, 3], metrics, True]


def test_usage_goes_on_with_what_is_measured_now(run: Run) -> None:
    body = """
      const rank = (worker, cpu, gpus = []) => ({ job: "node", worker, cpu, memory: 1024, gpus });
      const gpu = { index: 0, id: "a", percent: 50, memory_mib: 2 };
      const known = { job: "node", worker: 0, cpu: [1], memory: [2], gpu: [], gpu_memory: [] };
      let usage = { times: [100], attempts: [0], ranks: [known] };
      const same = m.extendUsage(usage, { at: 105, attempt: 0, now: [rank(0, 2)] }, "hour") === usage;
      usage = m.extendUsage(usage, { at: 110, attempt: 1, now: [rank(0, 2), rank(1, 3, [gpu])] }, "hour");
      const later = m.extendUsage(usage, { at: 3705, attempt: 1, now: [] }, "hour");
      const show = (one) => [one.times, one.ranks.map((rank) => [rank.cpu, rank.gpu])];
      return [same, show(usage), show(later)];
    """
    want = [
        True,
        [[100, 110], [[[1, 2], []], [[None, 3], [None, 50]]]],
        [[110, 3705], [[[2, None], []], [[3, None], [50, None]]]],
    ]
    assert run("lib/usage.js", body, None) == want


@pytest.mark.parametrize(
    ("value", "want"),
    [(0, "0"), (0.04123, "0.04123"), (123456, "123500"), (1.5e20, "1.5e20"), (1e308, "1e308"), (2e-7, "2e-7")],
)
def test_numbers_have_four_digits(run: Run, value: float, want: str) -> None:
    assert run("lib/quantity.js", "return m.formatValue(v);", value) == want


@pytest.mark.parametrize(
    ("value", "want"),
    [(0, "0 B"), (1536, "1.5 KiB"), (3 << 20, "3 MiB"), (1 << 40, "1 TiB"), (333 * 2**20 + 1, "333 MiB")],
)
def test_bytes_have_a_unit_that_suits_them(run: Run, value: int, want: str) -> None:
    assert run("lib/quantity.js", "return m.formatBytes(v);", value) == want


def test_a_day_begins_in_the_zone_of_the_person(run: Run) -> None:
    body = 'return [m.findDay("2026-11-19", 0, "local"), m.findDay("2026-11-30", 1, "utc"), m.findDay("x", 0, "utc")];'
    assert run("lib/time.js", body) == ["2026-11-18T15:00:00Z", "2026-12-01T00:00:00Z", None]


def test_a_part_that_cannot_be_loaded_offers_to_load_the_page_again(run: Run) -> None:
    body = """
      const tree = document.querySelector("script[type=module]").src;
      const { html, render } = await import(new URL("html.js", tree));
      const box = document.body.appendChild(document.createElement("div"));
      const Lost = m.lazy(() => Promise.reject(new TypeError("gone")));
      const Found = m.lazy(async () => ({ text }) => html`<b>${text}</b>`);
      render(html`<div><${Lost} /><${Found} text="here" /></div>`, box);
      const find = (name) => box.querySelector(name)?.textContent;
      while (!find("button") || !find("b")) await new Promise((done) => setTimeout(done, 10));
      return [find("button"), find("b")];
    """
    assert run("lib/lazy.js", body) == ["Reload", "here"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("--epochs 3", ["--epochs", "3"]),
        ('a \'b c\' "d \\"e"  f\\ g', ["a", "b c", 'd "e', "f g"]),
        ("''", [""]),
        ("  ", []),
        ("'open", ["open"]),
    ],
)
def test_arguments_are_split_as_a_shell_does(run: Run, text: str, want: list[str]) -> None:
    assert run("lib/new_job.js", "return m.splitWords(v);", text) == want
    again = "return m.splitWords(v.map(m.quoteWord).join(' '));"
    assert run("lib/new_job.js", again, want) == want


def test_a_form_becomes_the_request_that_it_says(run: Run) -> None:
    draft = {
        "namespace": "ann", "runtime": "TrainingRuntime/ours", "nodes": "2", "gpus": "many",
        "env": "A=1\nB==\n__proto__=x", "ttl": "7d", "arguments": "--x 'y z'", "code": "print(1)", "source": "code",
    }  # fmt: skip
    found = run("lib/new_job.js", "return JSON.stringify(m.buildRequest(m.parseDraft(v)));", draft)
    assert json.loads(found) == {
        "namespace": "ann",
        "runtime": "ours",
        "runtime_kind": "TrainingRuntime",
        "config": {"num_nodes": 2, "gpu_per_node": "many"},
        "code": "print(1)",
        "arguments": ["--x", "y z"],
        "env": {"A": "1", "B": "=", "__proto__": "x"},
        "ttl_seconds": 7 * 86400,
    }


def test_drafts_of_another_version_do_no_harm(run: Run) -> None:
    stored: list[Any] = [None, 7, "x", [], {"mode": "cards", "nodes": 3, "files": None, "yaml": "kind: A", "more": 1}]
    found = run("lib/new_job.js", "return v.map((one) => m.parseDraft(one));", stored)
    assert [(one["mode"], one["nodes"], one["files"]) for one in found] == [("form", "1", {})] * 5
    assert found[4]["yaml"] == "kind: A" and "more" not in found[4]


@pytest.mark.parametrize(
    ("name", "want"), [("job", "job-2"), ("job-9", "job-10"), ("x" * 60, "x" * 42 + "-2"), ("job-", "job--2")]
)
def test_a_copy_gets_the_next_name(run: Run, name: str, want: str) -> None:
    assert run("lib/new_job.js", "return m.proposeName(v);", name) == want.replace("job--2", "job-2")


DIFF = """
  const undo = (before, lines) => {
    const left = before.split("\\n"), found = [];
    let at = 0;
    for (const line of lines) {
      if (line.kind === "gap") continue;
      const number = line.kind === "added" ? null : line.left;
      while (number !== null && at < number - 1) found.push(left[at++]);
      if (line.kind !== "removed") found.push(line.text);
      if (line.kind !== "added") at += 1;
    }
    return [...found, ...left.slice(at)].join("\\n");
  };
"""


def test_differences_lead_from_one_text_to_the_other(run: Run) -> None:
    body = f"""{DIFF}
      const wrong = [];
      let seed = 7;
      const next = (most) => (seed = (seed * 48271) % 2147483647) % most;
      for (let round = 0; round < 300; round += 1) {{
        const before = Array.from({{ length: next(30) + 1 }}, () => "abcd"[next(4)]);
        const after = before.filter(() => next(4)).flatMap((one) => (next(5) ? [one] : [one, "x" + next(3)]));
        const lines = m.diffTexts(before.join("\\n") + "\\n", after.join("\\n") + "\\n");
        if (undo(before.join("\\n"), lines) !== after.join("\\n")) wrong.push([before.join(""), after.join("")]);
      }}
      return wrong;
    """
    assert run("lib/diff.js", body) == []


def test_only_what_differs_is_shown_with_its_surroundings(run: Run) -> None:
    body = """
      const lines = Array.from({ length: 50 }, (_, at) => `line ${at}`);
      const other = [...lines];
      other[20] = "changed";
      const show = (found) => found.map((one) => `${one.kind[0]}${one.left || one.right || ""}`).join(" ");
      const many = Array.from({ length: 3000 }, (_, at) => `a${at}`).join("\\n");
      return [
        show(m.diffTexts(lines.join("\\n"), other.join("\\n"))),
        m.diffTexts("same\\n", "same"),
        m.diffTexts("", "one\\n").map((one) => one.kind),
        m.diffTexts(many, many.replaceAll("a", "b")).length,
      ];
    """
    shown, same, first, many = run("lib/diff.js", body)
    assert shown == "g s18 s19 s20 r21 a21 s22 s23 s24 g"
    assert (same, first, many) == ([], ["added"], 6000)


GPU = {
    "index": 0,
    "id": "GPU-a",
    "product": "NVIDIA H200",
    "memory_mib": 1,
    "state": "free",
    "reason": None,
    "job": None,
}
NODE = {
    "name": "local",
    "resources": [{"name": "cpu", "capacity": 16, "allocatable": 16, "taken": 2}],
    "jobs": [{"namespace": "ann", "name": "mnist", "kind": "TrainJob", "uid": "u", "pods": 1, "requests": {}}],
    "gpus": [
        GPU,
        {**GPU, "index": 1, "id": "GPU-b", "state": "leased", "job": "ann/mnist"},
        {**GPU, "index": 2, "id": "GPU-c", "state": "held", "reason": "used by process 7 (<b>python</b>)"},
        {**GPU, "index": 3, "id": "GPU-d", "state": "unhealthy", "reason": "XID 79"},
        {**GPU, "index": 4, "id": "GPU-e", "state": "unknown", "job": None},
    ],
}


@pytest.mark.parametrize("count", [1, 9])
def test_the_map_of_gpus_says_of_each_who_has_it_or_what_is_wrong(run: Run, count: int) -> None:
    """Few GPUs have room for words; of many only what is wrong has."""
    body = """
      const place = document.createElement("div");
      render(html`<${m.GpuMap} nodes=${v} isNamed=${true} />`, place);
      const one = place.querySelector(".gpus");
      const titles = [...one.querySelectorAll(".gpu")].map((gpu) => gpu.title);
      return [one.textContent, one.querySelector("a.gpu").getAttribute("href"), titles];
    """
    nodes = [{**NODE, "name": f"local{number}"} for number in range(count)]
    text, address, titles = run("parts/machine.js", body, nodes)
    assert "used by process 7 (<b>python</b>)" in text and "XID 79" in text and "1 of 5 leased" in text
    assert address == "#/job/ann/mnist/u"
    assert [title.split(", ")[1] for title in titles] == [
        "free", "leased", "in use without a lease", "unhealthy", "not known",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "value", "want"),
    [
        pytest.param("cpu", 0.5, "0.5", id="a part of a core"),
        pytest.param("memory", 64 * 2**30, "64 GiB", id="memory"),
        pytest.param("trainmaster.dev/object-bytes", 1536, "1.5 KiB", id="a quota of bytes"),
        pytest.param("nvidia.com/gpu", 8, "8", id="pieces"),
        pytest.param("memory", 0, "0 B", id="nothing"),
    ],
)
def test_amounts_are_written_for_people(run: Run, resource: str, value: float, want: str) -> None:
    assert run("lib/quantity.js", "return m.formatAmount(...v);", [resource, value]) == want


def test_of_typed_limits_only_those_are_sent_that_differ(run: Run) -> None:
    before = {"jobs": "100", "cpu": "8", "memory": "", "gpus": "2"}
    typed = {**before, "jobs": " 5 ", "cpu": "", "memory": "64Gi", "pids": "x"}
    want = {"jobs": 5, "cpu": None, "memory": "64Gi", "pids": "x"}
    assert run("lib/tenants.js", "return m.compareLimits(...v);", [typed, before]) == want
