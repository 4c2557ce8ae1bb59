"""The dashboard in front of a real cluster with upstream's Trainer: every page, for an administrator, a tenant and a
read-only login. `trainmaster rest` runs with the roles of `deploy/rest/`, and without an archive."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.desk import People, running_browser
from tests.house.tree import ROOT
from tests.kube.cluster import KubeCluster
from tests.seam.rest_site import RestSite, eventually, running_site

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

ANN, BOB = "page-ann", "page-bob"
CODE = "print('of ann')\n"
DONE, WAITING, OTHERS = "trained", "too-large", "secret-of-bob"
RUNTIME = "pytorch-simple"
SHOWN = ".empty:not([aria-live]), tbody tr, .problem, pre, .pairs, .counts, .queue li, .form-field"
"""What a page has when it has loaded."""


def create(site: RestSite, tenant: str, name: str, **more: object) -> None:
    body = {"framework": "pytorch", "code": CODE, "namespace": tenant, "name": name, **more}
    code, made = site.call("POST", "/api/v1/jobs", body, token=site.get_token(tenant))
    assert code == 201, made


def read_job(site: RestSite, tenant: str, name: str) -> dict[str, str]:
    code, job = site.call("GET", f"/api/v1/jobs/{name}?namespace={tenant}", token=site.get_token("owner"))
    assert code == 200, job
    found: dict[str, str] = job
    return found


def find_address(site: RestSite, tenant: str, name: str) -> str:
    return f"#/job/{tenant}/{name}/{read_job(site, tenant, name)['uid']}"


@pytest.fixture(scope="module")
def site(trainer_cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestSite]:
    trainer_cluster.apply((ROOT / "trainmaster/manifests/pytorch/runtime.yaml").read_text())
    with running_site(trainer_cluster, tmp_path_factory.mktemp("rest")) as site:
        for name in (ANN, BOB):
            site.add(name, "--jobs", "9")
        create(site, ANN, DONE)
        create(site, ANN, WAITING, config={"cpu_per_node": "9000"})
        create(site, BOB, OTHERS)
        eventually(lambda: read_job(site, ANN, DONE)["state"] == "Complete", "the job does not end")
        yield site
        for name in site.tokens:
            site.tenant("delete", name, "--yes")


@pytest.fixture(scope="module")
def browser(site: RestSite) -> Iterator[Browser]:
    with running_browser() as program:
        yield program


@pytest.fixture(scope="module")
def all_people(browser: Browser, site: RestSite) -> People:
    return People(browser, site)


@pytest.fixture
def people(all_people: People) -> Iterator[People]:
    """No page may write an error to the console, break its policy, or ask another server."""
    yield all_people
    assert all_people.close() == []


def go(page: Page, site: RestSite, address: str) -> str:
    """What the page shows there."""
    page.goto(site.page_url + address)
    expect(page.locator(SHOWN).first).to_be_visible()
    return page.get_by_role("main").inner_text()


def list_pages(page: Page) -> list[str]:
    return page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()


def test_an_administrator_has_every_page(people: People, site: RestSite) -> None:
    page = people.open("#/")
    expect(page.get_by_role("heading", name="Requested by jobs")).to_be_visible()
    names = ["Overview", "Jobs", "New job", "Queue", "Nodes", "Runtimes", "History", "Tenants", "Settings"]
    assert list_pages(page) == names
    page.goto(f"{site.page_url}#/jobs")
    for name in (DONE, WAITING, OTHERS):
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    expect(page.locator(".connection")).to_have_text("Live")
    page.goto(f"{site.page_url}#/queue")
    waiting = page.locator(".queue li").filter(has_text=WAITING)
    expect(waiting).to_contain_text("Insufficient cpu")
    expect(waiting).to_contain_text("9,000")
    page.goto(f"{site.page_url}#/nodes")
    expect(page.get_by_role("main")).to_contain_text("Ready: True")
    assert "Not on this cluster" in go(page, site, "#/history")
    assert ANN in go(page, site, "#/tenants")
    assert "Unix user" not in go(page, site, f"#/tenants/{ANN}")
    go(page, site, "#/settings")
    expect(page.get_by_role("region", name="Settings of the server")).to_contain_text("rest.base_path")
    expect(page.locator(".doctor-findings")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("cluster")


def test_a_runtime_shows_who_uses_it_to_each_caller(people: People, site: RestSite) -> None:
    for who, others in (("owner", 1), (ANN, 0)):
        page = people.open("#/runtimes", who=who)
        page.get_by_role("link", name=RUNTIME, exact=True).click()
        expect(page.locator("pre")).to_contain_text("kind: ClusterTrainingRuntime")
        expect(page.get_by_role("link", name=f"{ANN}/{DONE}")).to_be_visible()
        expect(page.get_by_role("link", name=f"{BOB}/{OTHERS}")).to_have_count(others)


def test_a_tenant_finds_nothing_of_others_on_any_page(people: People, site: RestSite) -> None:
    page = people.open("#/", who=ANN)
    expect(page.get_by_role("heading", name="Quota")).to_be_visible()
    assert not {"Tenants", "Settings"} & set(list_pages(page))
    uid = read_job(site, BOB, OTHERS)["uid"]
    own = ["#/", "#/jobs", "#/queue", "#/nodes", "#/runtimes", "#/history", "#/settings", "#/new"]
    others = [f"#/jobs?ns={BOB}", f"#/queue?ns={BOB}", "#/tenants", f"#/tenants/{BOB}", f"#/job/{BOB}/{OTHERS}/{uid}"]
    for address in (*own, *others):
        text = go(page, site, address)
        if OTHERS not in address:
            assert OTHERS not in text, address
    assert "may not see the nodes" in go(page, site, "#/nodes")
    assert WAITING in go(page, site, "#/queue")


@pytest.mark.parametrize("who", ["owner", ANN])
def test_a_jobs_page_says_what_a_cluster_does_not_have(people: People, site: RestSite, who: str) -> None:
    page = people.open(find_address(site, ANN, DONE), who=who)
    expect(page.locator(".state-Complete").first).to_be_visible()
    tabs = page.get_by_role("navigation", name="Parts of the job")
    main = page.get_by_role("main")
    tabs.get_by_role("link", name="Ranks").click()
    expect(page.get_by_role("row")).to_have_count(2)
    tabs.get_by_role("link", name="Curves").click()
    expect(main).to_contain_text("Not on this cluster: the server was started without an archive")
    expect(main).to_contain_text("Not on a cluster: past usage")
    tabs.get_by_role("link", name="Events").click()
    expect(page.get_by_role("row").nth(1)).to_be_visible()
    tabs.get_by_role("link", name="Outputs").click()
    expect(main).to_contain_text("not on a cluster: outputs are kept on the machine of a home")
    tabs.get_by_role("link", name="Code").click()
    page.get_by_role("button", name="train.py", exact=True).click()
    expect(page.locator(".preview pre")).to_have_text(CODE)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download train.py").click()
    assert Path(saved.value.path()).read_text() == CODE
    tabs.get_by_role("link", name="Manifest").click()
    expect(page.locator(".preview pre")).to_contain_text("kind: TrainJob")


def test_logs_that_cannot_be_read_are_explained(people: People, site: RestSite) -> None:
    """The fake node has none, and no address either, as the API server says."""
    page = people.open(find_address(site, ANN, DONE), who=ANN)
    expect(page.get_by_role("alert")).to_contain_text("no preferred addresses found")
    expect(page.get_by_role("main")).not_to_contain_text("Nothing has been printed")


def test_a_waiting_job_says_why(people: People, site: RestSite) -> None:
    page = people.open(find_address(site, ANN, WAITING), who=ANN)
    expect(page.get_by_role("region", name="Why")).to_contain_text("Insufficient cpu")


def test_a_tenant_creates_follows_and_deletes_a_job(people: People, site: RestSite) -> None:
    page = people.open("#/new", who=ANN)
    page.get_by_label("Runtime").select_option(label=RUNTIME)
    page.get_by_label("Name", exact=True).fill("formed")
    page.get_by_role("textbox", name="Code").fill(CODE)
    expect(page.locator("#findings")).to_contain_text("Nothing is wrong")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator(".rehearsal")).to_contain_text("TrainJob formed: created")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="formed")).to_be_visible()
    expect(page.locator(".title .state-Complete")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nothing of it is kept")
    dialog.get_by_role("button", name="Delete 1 job").click()
    expect(dialog).to_contain_text("1 of 1 done")
    page.keyboard.press("Escape")
    expect(page.get_by_role("main")).to_contain_text("nothing of it is left")


def test_a_read_only_login_is_offered_nothing_that_changes(people: People, site: RestSite) -> None:
    page = people.open("#/jobs", who=ANN, read_only=True)
    expect(page.get_by_text("Read-only")).to_be_visible()
    expect(page.get_by_role("link", name=DONE, exact=True)).to_be_visible()
    expect(page.get_by_role("checkbox")).to_have_count(0)
    assert "New job" not in list_pages(page)
    page.goto(site.page_url + find_address(site, ANN, DONE))
    expect(page.get_by_role("heading", name=DONE)).to_be_visible()
    expect(page.locator(".actions button")).to_have_count(0)
    for address in ("#/", "#/queue", "#/nodes", "#/runtimes", "#/history", "#/settings"):
        go(page, site, address)
    assert "change nothing" in go(page, site, "#/new")
    boss = people.open("#/tenants", read_only=True)
    expect(boss.get_by_role("link", name=ANN, exact=True)).to_be_visible()
    expect(boss.locator(".actions button")).to_have_count(0)


def test_a_tenant_is_managed(people: People, site: RestSite) -> None:
    page = people.open("#/tenants")
    page.get_by_role("button", name="Add a tenant").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Also if this machine")).to_have_count(0)
    dialog.get_by_label("Name").fill("page-dora")
    dialog.get_by_role("button", name="Add a tenant").click()
    expect(dialog.locator(".pass code")).to_have_text(re.compile(r"[\w-]+\.[\w-]+\.[\w-]+"))
    token = dialog.locator(".pass code").inner_text()
    dialog.get_by_role("button", name="Close").last.click()
    dora = people.open_stranger()
    dora.goto(site.page_url)
    dora.get_by_label("Token").fill(token)
    dora.get_by_role("button", name="Log in").click()
    expect(dora.get_by_role("heading", name="Quota")).to_be_visible()
    page.get_by_role("link", name="page-dora", exact=True).click()
    page.get_by_role("button", name="Disable").click()
    dialog.get_by_role("button", name="Disable").click()
    expect(page.locator(".title")).to_contain_text("Disabled")
    # Nobody touches her page.
    expect(dora.get_by_role("heading", name="With a link")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    expect(dialog).not_to_contain_text("Unix user")
    dialog.get_by_label("Type page-dora to confirm").fill("page-dora")
    dialog.get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile(r"#/tenants$"))


def test_the_command_that_the_login_page_names_opens_it(people: People, site: RestSite, tmp_path: Path) -> None:
    page = people.open_stranger()
    page.goto(site.page_url)
    named = page.locator(".command code").last.inner_text()
    assert named == f"trainmaster dashboard --server {site.url} --kubeconfig FILE"
    mine = tmp_path / "ann.yaml"
    mine.touch(mode=0o600)
    config = json.loads(site.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": site.get_token(ANN)}
    mine.write_text(json.dumps(config))
    arguments = named.replace("FILE", str(mine)).split()[1:]
    command = [sys.executable, "-m", "trainmaster", *arguments, "--ca", site.ca, "--no-open"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page.goto(done.stdout.strip())
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()


def test_logins_survive_a_restart(browser: Browser, trainer_cluster: KubeCluster, tmp_path: Path) -> None:
    with running_site(trainer_cluster, tmp_path) as site:
        before = People(browser, site)
        page = before.open("#/jobs")
        expect(page.locator(".connection")).to_have_text("Live")
        login = page.context.storage_state()
        assert before.close() == []
    with running_site(trainer_cluster, tmp_path) as site:
        after = People(browser, site)
        page = after.open_stranger(storage_state=login)
        page.goto(f"{site.url}/ui/#/jobs")
        expect(page.locator(".connection")).to_have_text("Live")
        assert after.close() == []
