"""The page for new jobs, and what a job's page shows of its code, outputs and manifest, also when it is deleted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser import jobs
from tests.browser.desk import Desk, People

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

CODE = """\
import os, pathlib, sys
place = pathlib.Path(os.environ["TRAINMASTER_OUTPUT_DIR"])
(place / "loss.csv").write_text("step,loss\\n1,0.5\\n")
(place / "drawing.svg").write_text("<svg onload=alert(1)>")
print("arguments", sys.argv[1:], os.environ["EPOCHS"])
"""
JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: typed
  namespace: default
spec:
  runtimeRef:
    name: plain
  trainer:
    nodes: 1
    command: [python, -c, "print('typed')"]
"""
PATIENCE = 60_000


def check_is_good(page: Page) -> None:
    expect(page.locator("#findings")).to_contain_text("Nothing is wrong", timeout=PATIENCE)


def test_a_job_from_the_form_runs_and_its_page_keeps_its_code_and_outputs(people: People, desk: Desk) -> None:
    page = people.open("#/jobs")
    page.get_by_role("link", name="New job").last.click()
    page.get_by_label("Runtime").select_option(label="plain")
    page.get_by_label("Name", exact=True).fill("formed")
    page.get_by_label("Arguments").fill("--epochs '3 of 4'")
    page.get_by_label("Environment variables").fill("EPOCHS=3")
    page.get_by_role("textbox", name="Code").fill("print(\n")
    expect(page.locator(".drop .field-problem")).to_contain_text("line 1", timeout=PATIENCE)
    page.get_by_role("textbox", name="Code").fill(CODE)
    check_is_good(page)
    expect(page.locator(".same code").first).to_contain_text("trainmaster run --name formed --runtime plain")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator(".rehearsal")).to_contain_text("TrainJob formed: created", timeout=PATIENCE)
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="formed")).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".log")).to_contain_text("arguments ['--epochs', '3 of 4'] 3", timeout=PATIENCE)
    desk.wait_for("formed", lambda job: job["state"] == "Complete")
    desk.rest.delete("/api/v1/jobs/formed?namespace=default")
    expect(page.get_by_text("Record", exact=True)).to_be_visible(timeout=PATIENCE)
    page.get_by_role("link", name="Code").click()
    page.get_by_role("button", name="train.py", exact=True).click()
    expect(page.locator(".preview pre")).to_contain_text("TRAINMASTER_OUTPUT_DIR")
    page.get_by_role("link", name="Outputs").click()
    expect(page.get_by_role("button", name="drawing.svg", exact=True)).to_have_count(0)
    page.get_by_role("button", name="loss.csv", exact=True).click()
    expect(page.locator(".preview pre")).to_have_text("step,loss\n1,0.5\n")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download drawing.svg").click()
    assert Path(saved.value.path()).read_text() == "<svg onload=alert(1)>"
    page.get_by_role("link", name="Manifest").click()
    expect(page.locator(".preview pre")).to_contain_text("name: formed-script")
    page.get_by_role("main").get_by_role("link", name="Clone").first.click()
    expect(page.get_by_role("textbox", name="Manifests as YAML")).to_have_value(re.compile("name: formed-2\n"))
    check_is_good(page)


def test_what_is_typed_is_marked_at_its_line_and_survives_a_reload(people: People, desk: Desk) -> None:
    page = people.open("#/new")
    page.get_by_role("button", name="YAML").click()
    editor = page.get_by_role("textbox", name="Manifests as YAML")
    editor.fill(JOB)
    expect(page.locator("#findings")).to_contain_text('unknown field "spec.trainer.nodes"', timeout=PATIENCE)
    expect(page.locator(".editor-mark")).to_have_count(1)
    page.get_by_role("button", name="Line 10").click()
    expect(editor).to_be_focused()
    assert editor.evaluate("(box) => box.value.slice(0, box.selectionStart).split('\\n').length") == 10
    page.reload()
    expect(editor).to_have_value(JOB)
    editor.fill("a:\n\tb: 1\n")
    expect(page.get_by_role("button", name="Line 2")).to_be_visible(timeout=PATIENCE)
    editor.fill(JOB.replace("nodes: 1", "numNodes: 1"))
    check_is_good(page)
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="typed")).to_be_visible(timeout=PATIENCE)
    page.go_back()
    expect(page.get_by_label("Runtime")).to_have_value("")


def test_a_clone_does_not_replace_what_somebody_has_typed_without_asking(people: People, desk: Desk) -> None:
    page = people.open("#/new")
    page.get_by_role("button", name="YAML").click()
    editor = page.get_by_role("textbox", name="Manifests as YAML")
    editor.fill(JOB)
    waiting = desk.find_address(jobs.WAITING)

    def clone() -> None:
        page.goto(desk.page_url + waiting)
        page.get_by_role("main").get_by_role("link", name="Clone").click()

    clone()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    expect(editor).to_have_value(JOB)
    clone()
    page.get_by_role("dialog").get_by_role("button", name="Replace").click()
    expect(editor).to_have_value(re.compile(f"name: {jobs.WAITING}-2\n"))
    # Nobody has changed the clone.
    clone()
    expect(editor).to_have_value(re.compile(f"name: {jobs.WAITING}-2\n"))
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_change_that_would_start_a_job_is_applied_after_confirmation(people: People, desk: Desk) -> None:
    jobs.submit(desk.kube, "too-large", "print('small enough')", cpu="8000")
    desk.wait_for("too-large", lambda job: bool(job["reason"]))
    page = people.open(desk.find_address("too-large"))
    page.get_by_role("button", name="Apply").first.click(timeout=PATIENCE)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("numNodes" if "node instead" in dialog.inner_text() else "resourcesPerNode")
    dialog.get_by_role("button", name="Replace the job").click()
    expect(page.get_by_role("heading", name="too-large-2")).to_be_visible(timeout=PATIENCE)


def test_a_comparison_shows_only_what_differs(people: People, desk: Desk) -> None:
    lines = "".join(f"print({number})\n" for number in range(40))
    for name, code in (("before", lines), ("after", lines.replace("print(20)", "print('twenty')"))):
        files = {"train.py": code, "same.py": "x = 1\n"}
        desk.rest.create("/api/v1/jobs", {"namespace": "default", "runtime": "plain", "name": name, "files": files})
    page = people.open(desk.find_address("after") + "?tab=code")
    page.get_by_label("Compare with").fill("before")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("1 file differs from before.")).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".diff-removed")).to_have_text(["- print(20)"])
    expect(page.locator(".diff-added")).to_have_text(["+ print('twenty')"])


def test_a_read_only_login_creates_nothing(people: People) -> None:
    page = people.open("#/new", read_only=True)
    expect(page.get_by_text("change nothing")).to_be_visible()
    expect(page.get_by_role("button", name="Create", exact=True)).to_have_count(0)
