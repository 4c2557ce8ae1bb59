"""Tenants, as administrators manage them: at the plain door with links, over TLS with tokens, and read-only."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.desk import Desk, People

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

PATIENCE = 30_000
TOKEN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")


def confirm(page: Page, button: str) -> Locator:
    """Opens the dialog of an action and confirms it; what is shown then."""
    page.locator(".actions").get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=button, exact=True).click()
    return dialog


def close(page: Page) -> None:
    page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_tenant_from_its_first_day_to_its_last(people: People, desk: Desk) -> None:
    page = people.open("#/tenants")
    page.get_by_role("button", name="Add a tenant").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("no token may cross")
    dialog.get_by_label("Name").fill("KUBE")
    dialog.get_by_role("button", name="Add a tenant").click()
    expect(dialog.get_by_role("alert")).to_contain_text("lower-case letters", timeout=PATIENCE)
    dialog.get_by_label("Name").fill("dora")
    dialog.get_by_label("Jobs").fill("3")
    dialog.get_by_label("Also if this machine").check()
    dialog.get_by_role("button", name="Add a tenant").click()
    link = dialog.locator(".pass code")
    expect(link).to_contain_text("#/login?link=", timeout=PATIENCE)
    address = link.inner_text()
    close(page)

    dora = people.open_stranger()
    dora.goto(address)
    expect(dora.get_by_role("heading", name="Quota")).to_be_visible(timeout=PATIENCE)
    expect(dora.get_by_role("main")).to_contain_text("0 / 3")

    page.get_by_role("link", name="dora", exact=True).click()
    page.get_by_role("button", name="Change limits").click()
    dialog.get_by_label("Jobs").fill("none")
    dialog.get_by_role("button", name="Change limits").click()
    expect(dialog.get_by_role("alert")).to_contain_text("jobs", timeout=PATIENCE)
    dialog.get_by_label("Jobs").fill("5")
    dialog.get_by_role("button", name="Change limits").click()
    expect(page.get_by_role("main")).to_contain_text("0 / 5", timeout=PATIENCE)

    confirm(page, "Disable")
    expect(page.locator(".title")).to_contain_text("Disabled", timeout=PATIENCE)
    expect(dora.get_by_role("heading", name="With a link")).to_be_visible(timeout=PATIENCE)
    expect(confirm(page, "Enable").locator(".pass code")).to_contain_text("#/login?link=", timeout=PATIENCE)
    close(page)
    expect(page.locator(".title")).to_contain_text("Active", timeout=PATIENCE)

    page.get_by_role("button", name="Delete").click()
    expect(dialog).to_contain_text("Records of its jobs stay")
    delete = dialog.get_by_role("button", name="Delete")
    expect(delete).to_be_disabled()
    dialog.get_by_label("Type dora to confirm").fill("dora")
    delete.click()
    expect(page).to_have_url(re.compile(r"#/tenants$"), timeout=PATIENCE)


def test_over_tls_a_token_is_shown_once(people: People, desk: Desk) -> None:
    desk.add_tenant("finn")
    base = f"{desk.server.rest_url}/ui/"
    page = people.open_stranger(base=base, ignore_https_errors=True)
    page.goto(f"{base}#/tenants/finn")
    page.get_by_label("Token").fill(desk.tokens["owner"])
    page.get_by_role("button", name="Log in").click()
    shown = confirm(page, "New token").locator(".pass code")
    expect(shown).to_have_text(TOKEN, timeout=PATIENCE)
    token = shown.inner_text()
    desk.tokens["finn"] = token
    assert desk.connect("finn").get("/api/v1/me")["tenant"] == "finn"
    close(page)
    assert token not in page.content()
    assert token not in page.evaluate("JSON.stringify([localStorage, sessionStorage])")


def test_a_read_only_login_sees_tenants_and_changes_none(people: People) -> None:
    page = people.open("#/tenants", read_only=True)
    page.get_by_role("link", name="ann", exact=True).click()
    expect(page.get_by_role("heading", name="Quota")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    expect(page.get_by_role("button", name="Login link")).to_have_count(0)
