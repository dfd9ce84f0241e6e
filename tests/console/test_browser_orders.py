"""What people do on the pages: each button, by keyboard alone, two at once, and what owners may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from programs import needs

pytest.importorskip("playwright", reason="not installed: playwright, of the extra dev")
pytest.importorskip("axe_playwright_python", reason="not installed: axe, of the extra dev")

from support.console_browser import Visitor, focused, press, sideways, tab_to, when
from support.console_world import BREAKS_OUT, SCRIPT, ConsoleWorld, console_world

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = needs("chromium")
Enter = Callable[..., Visitor]


@pytest.fixture
def world() -> Iterator[ConsoleWorld]:
    with console_world() as found:
        yield found


@pytest.fixture
def visit(chromium: Browser, world: ConsoleWorld) -> Iterator[Enter]:
    """Have somebody come to the console; with a token, or as the operator."""
    came: list[Visitor] = []

    def enter(token: str = "") -> Visitor:
        visitor = Visitor(chromium, world.url, token=token or world.token)
        came.append(visitor)
        visitor.enter()
        return visitor

    yield enter
    for visitor in came:
        assert visitor.complaints == []
        assert visitor.elsewhere == []
        visitor.close()


def said(page: Page) -> str:
    """What the page says was done."""
    return page.inner_text(".note[role=status]")


# By keyboard alone.


def test_by_keyboard_alone_a_person_finds_what_is_broken_and_mends_it(
    chromium: Browser, world: ConsoleWorld
) -> None:
    world.order("hosts/h3/fail")
    [event_id] = [e for e in world.maintain("h2") if e]
    visitor = Visitor(chromium, world.url, token=world.token)
    page = visitor.page
    visitor.open("/console/")
    assert focused(page) == "Token", "who is asked for a token can type it at once"
    page.keyboard.type(world.token)
    with page.expect_navigation(url=f"{world.url}/console/"):
        page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert focused(page) == "To the content"
    page.keyboard.press("Enter")
    press(page, "Look")  # the first thing that is broken
    assert page.inner_text("h1") == "h3"
    press(page, "Repair")
    page.keyboard.press("Tab")
    press(page, "See what it would do")
    press(page, "Say that it is well")
    assert said(page) == "Host h3 is well again."
    assert world.ask("hosts/h3")["health"] == "ok"

    press(page, "Fleet")
    press(page, "as a list")
    press(page, "h1")
    press(page, "Order maintenance")
    tab_to(page, "Reboot")
    page.keyboard.press("ArrowRight")
    assert focused(page) == "Freeze"
    press(page, "See what it would do")
    assert "Freeze of host h1: 2 VMs of 2 scopes are told" in page.inner_text(".effect")
    press(page, "Order the maintenance")
    assert said(page) == "Maintenance of host h1 is ordered."
    assert page.inner_text("h1") == "Freeze of host h1"

    visitor.open(f"/console/events/{event_id}")
    press(page, "Approve")
    tab_to(page, "Why, in one sentence")
    page.keyboard.type("the team said so")
    press(page, "Approve it")
    assert said(page) == "The event is approved."
    assert "the team said so" in page.inner_text(".steps")
    assert visitor.complaints == []
    visitor.close()


def test_what_has_the_focus_is_seen(world: ConsoleWorld, visit: Enter) -> None:
    page = visit().page
    for _ in range(12):
        page.keyboard.press("Tab")
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert style == "solid", focused(page)


# Each button.


def order_on(page: Page, words: str, confirm: str, **fields: str) -> None:
    """Press a button, fill in its form, look, confirm."""
    page.click(f".orders >> text={words}")
    for name, value in fields.items():
        if value in ("yes", "Freeze", "Reboot", "Redeploy", "viewer", "operator"):
            page.check(f"[name={name}][value={value}]")
        else:
            page.fill(f"[name={name}]", value)
    look = page.locator("button:has-text('See what it would do')")
    if look.count():
        look.click()
    page.click(f"button:has-text('{confirm}')")


def test_what_can_be_said_of_a_host_is_said_on_its_page(world: ConsoleWorld, visit: Enter) -> None:
    visitor = visit()
    page = visitor.page

    def host() -> tuple[str, bool, bool]:
        found = world.ask("hosts/h3")
        return found["health"], found["closed"], found["fenced"]

    visitor.open("/console/hosts/h3")
    order_on(page, "Close", "Close it")
    assert (said(page), host()) == ("Host h3 is closed to new VMs.", ("ok", True, False))
    order_on(page, "Open", "Open it")
    assert host() == ("ok", False, False)
    order_on(page, "Declare degraded", "Have its VMs moved", not_before="+30m")
    assert "VMs will be moved" in said(page)
    visitor.open("/console/hosts/h3")
    order_on(page, "Repair", "Say that it is well")
    visitor.open("/console/hosts/h3")
    order_on(page, "Declare failed", "Say that it has failed")
    assert host()[0] == "failed"
    visitor.open("/console/hosts/h3")
    order_on(page, "Is surely off", "Say that it has failed", fenced="yes")
    assert host() == ("failed", False, True)


def test_maintenance_is_previewed_ordered_and_canceled(world: ConsoleWorld, visit: Enter) -> None:
    visitor = visit()
    page = visitor.page
    visitor.open("/console/hosts/h1")
    page.click("text=Order maintenance")
    page.check("[value=Reboot]")
    page.click("summary")
    page.fill("[name=window_start]", "+2h")
    page.fill("[name=window_end]", "+5h")
    page.fill("[name=description]", "New firmware.")
    page.click("text=See what it would do")
    assert page.locator("section:has(#t-effect) tbody tr").count() == 2
    page.click("text=Order the maintenance")
    assert "New firmware." in page.inner_text("main")
    [operation] = world.ask("operations")["items"]
    assert operation["window"] is not None
    order_on(page, "Cancel", "Cancel it")
    assert world.ask("operations")["items"] == []


def test_an_override_asks_for_its_reason(world: ConsoleWorld, visit: Enter) -> None:
    visitor = visit()
    page = visitor.page
    [event_id] = [e for e in world.maintain("h2") if e]
    visitor.open(f"/console/events/{event_id}")
    page.click(".orders >> text=Approve")
    assert "ops has overridden the notice" in page.inner_text(".effect")
    page.click("button:has-text('Approve it')")
    assert page.locator("[name=reason]:invalid").count() == 1, "the browser asks for it"
    page.evaluate("document.querySelector('[name=reason]').required = false")
    page.click("button:has-text('Approve it')")
    assert "Something is missing: Why, in one sentence" in page.inner_text("[role=alert]")
    page.fill("[name=reason]", "the disk dies")
    page.click("button:has-text('Approve it')")
    event = world.ask(f"events/{event_id}")
    assert event["override_reason"] == "the disk dies"


def test_a_vm_is_restarted_redeployed_and_its_event_postponed_and_canceled(
    world: ConsoleWorld, visit: Enter
) -> None:
    visitor = visit()
    page = visitor.page
    visitor.open("/console/vms/lonely")
    order_on(page, "Restart", "Restart it")
    assert said(page) == "The restart of lonely is ordered."
    assert page.inner_text("h1") == "Reboot of lonely"
    order_on(page, "Cancel", "Cancel it")
    visitor.open("/console/vms/lonely")
    order_on(page, "Redeploy", "Redeploy it")
    assert page.inner_text("h1") == "Redeploy of lonely"
    assert page.locator(".orders >> text=Postpone").count() == 0, "an order of its own: not offered"
    [before] = world.maintain("h2", "Redeploy")
    visitor.open(f"/console/events/{before}")
    order_on(page, "Postpone", "Postpone it", until="+3h", reason="the quarter ends")
    assert "announced in its place" in said(page)
    assert before[:8] in page.inner_text("dl.facts")
    later = world.ask(f"events/{before}")["postponed_to"]
    assert later in page.url


def test_a_held_scope_is_looked_at_and_released(world: ConsoleWorld, visit: Enter) -> None:
    world.cloud.faults.add("action-fails", vm="lonely", count=1)
    event = world.order("vms/lonely/restart")["event_id"]
    world.order(f"events/{event}/approve", reason="a test")
    world.cloud.clock.advance(minutes=3)
    visitor = visit()
    page = visitor.page
    assert "Scope lonely is held" in page.inner_text("#b-broken")
    visitor.open("/console/inbox")
    page.click(".do >> text=Release")
    page.click("button:has-text('Release it')")
    assert said(page) == "Scope lonely is released."
    visitor.open("/console/")
    assert "Nothing is broken." in page.inner_text("#b-broken")


def test_tokens_are_made_rotated_and_revoked_on_the_access_page(
    world: ConsoleWorld, visit: Enter
) -> None:
    visitor = visit()
    page = visitor.page
    visitor.open("/console/access")
    order_on(page, "Make a token", "Make it", name="ci", role="operator", valid_days="30")
    first = page.inner_text("#secret")
    assert world.cloud.operator_token != first
    other = visit(first)
    assert "ci" in other.page.inner_text("header")
    visitor.open("/console/access")
    assert "fwt_" + first.split("_")[1] in page.inner_text("section:has(#t-tokens)")
    assert first not in page.content()
    page.click("text=Rotate")
    page.click("button:has-text('See what it would do')")
    page.click("button:has-text('Rotate it')")
    assert page.inner_text("#secret") != first
    page.click("text=I have it")
    page.click("text=Revoke")
    page.click("button:has-text('Revoke it')")
    assert "is revoked" in said(page)
    assert "revoked" in page.inner_text("section:has(#t-tokens)")
    assert page.locator("section:has(#t-sessions) tbody tr").count() == 1, "and its session is over"


def test_an_admin_ends_the_session_of_another_and_whoever_it_was_is_asked_again(
    world: ConsoleWorld, visit: Enter
) -> None:
    visitor, other = visit(), visit(world.token_for("viewer"))
    visitor.open("/console/access")
    visitor.page.click("form >> text=End")
    assert "is ended" in said(visitor.page)
    other.open("/console/fleet")
    assert "/console/login" in other.page.url
    visitor.page.click("text=Log out")
    visitor.page.wait_for_url("**/console/login")


def test_the_emulator_is_driven_from_its_page_and_its_bar(
    world: ConsoleWorld, visit: Enter
) -> None:
    visitor = visit()
    page = visitor.page
    world.order("vms/lonely/restart")
    visitor.open("/console/hosts")
    page.click(".bar >> text=+5m")
    assert page.url.endswith("/console/hosts"), "a button of the bar leads back to the page"
    assert "The clock is 5m ahead" in said(page)
    page.click(".bar >> text=Next")
    assert "lonely" in said(page)
    page.select_option("#speed", "x60")
    page.click(".bar >> text=Set")
    assert said(page) == "The clock runs: x60."
    page.select_option("#speed", "virtual")
    page.click(".bar >> text=Set")
    assert said(page) == "The clock stands."
    visitor.open("/console/emulator")
    page.fill("main [name=by]", "nonsense")
    page.click("main >> text=Advance")
    assert "nonsense" in said(page), "a refusal is said"
    page.fill("main [name=by]", "1h")
    page.click("main >> text=Advance")
    assert "The clock is 1h ahead" in said(page)
    page.select_option("main [name=name]", "canceled-maintenance")
    page.fill("[name=on]", "web-0")
    page.click("section:has(#t-scenarios) >> button:has-text('Run')")
    assert "Scenario canceled-maintenance runs" in said(page)
    page.click("section:has(#t-scenarios) >> button:has-text('Stop')")
    assert "takes no further step" in said(page)
    page.select_option("[name=kind]", "shuffle")
    page.fill("[name=count]", "3")
    page.click("section:has(#t-faults) >> button:has-text('Add')")
    assert "shuffle" in said(page)
    page.click("section:has(#t-faults) >> button:has-text('End')")
    assert said(page) == "1 ended."


# Two people, two presses, another site.


def test_a_double_click_is_one_order(world: ConsoleWorld, visit: Enter) -> None:
    visitor = visit()
    visitor.open("/console/orders/vm-restart/lonely?look=yes")
    visitor.page.dblclick("button:has-text('Restart it')")
    visitor.page.wait_for_url("**/console/events/*")
    assert len(world.ask("events?vm=lonely")["items"]) == 1


def test_a_confirmation_is_refused_if_another_was_faster_and_says_what_would_happen_now(
    world: ConsoleWorld, visit: Enter
) -> None:
    first, second = visit(), visit(world.token_for("operator"))
    path = "/console/orders/host-maintain/h1?event_type=Reboot&look=yes"
    first.open(path)
    second.open(path)
    second.page.click("button:has-text('Order the maintenance')")
    second.page.wait_for_url("**/console/operations/*")
    first.page.click("button:has-text('Order the maintenance')")
    assert first.page.locator("[role=alert]").count() == 1
    assert len(world.ask("operations")["items"]) == 1


def test_a_confirmation_is_refused_if_the_state_has_moved_and_can_be_given_anew(
    world: ConsoleWorld, visit: Enter
) -> None:
    visitor = visit()
    page = visitor.page
    visitor.open("/console/orders/host-close/h2")
    world.order("hosts/h2/close")
    page.click("button:has-text('Close it')")
    assert "Nothing was done. The fleet has changed since you looked" in page.inner_text(
        "[role=alert]"
    )
    assert "Nothing: it is so already." in page.inner_text(".effect")


def test_a_form_of_another_origin_orders_nothing(world: ConsoleWorld, visit: Enter) -> None:
    visitor = visit()
    visitor.open("/console/orders/host-close/h2")
    fields = visitor.page.evaluate(
        "Object.fromEntries(new FormData(document.querySelector('main form[method=post]')))"
    )
    inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    action = f"{world.url}/console/orders/host-close/h2"
    hostile = f'<form method="post" action="{action}">{inputs}<button>win</button></form>'

    def answer(route: Route) -> None:
        route.fulfill(body=hostile, content_type="text/html")

    # Another port of this machine is the same site: there the cookie is sent along.
    place = "http://127.0.0.1:9/"
    page = visitor.context.new_page()
    page.route(place, answer)
    page.goto(place)
    page.click("button")
    page.wait_for_url(action)
    assert "does not come from a page of the console" in page.inner_text("body")
    assert world.ask("hosts/h2")["closed"] is False


# Names and words that are an attack.


def test_script_in_names_and_words_is_shown_as_text(world: ConsoleWorld, visit: Enter) -> None:
    world.maintain("h1", description=SCRIPT, window={"start": "+1h", "end": "+3h"})
    [event_id] = world.maintain("h2", description=BREAKS_OUT)
    world.order(f"events/{event_id}/approve", reason=SCRIPT)
    world.token_for("viewer", name=BREAKS_OUT)
    world.token_for("owner", "web", name=SCRIPT[:60])
    visitor = visit()
    page = visitor.page
    [operation] = [o for o in world.ask("operations")["items"] if o["host"] == "h1"]
    paths = [
        "/console/",
        "/console/fleet?find=%3Cscript%3Ealert(1)%3C/script%3E",
        "/console/timeline?scope=%22%3E%3Csvg%20onload=alert(1)%3E",
        "/console/inbox",
        "/console/journal",
        "/console/access",
        "/console/vms/web-0",
        "/console/scopes/web",
        "/console/hosts/h1",
        f"/console/events/{event_id}",
        f"/console/events/{event_id}/receipt",
        f"/console/operations/{operation['operation_id']}",
        "/console/hosts/%3Cscript%3Edocument.title=1%3C%2Fscript%3E",
        "/console/orders/host-maintain/h3?event_type=Reboot&description=%3Cscript%3E&look=yes",
    ]
    for path in paths:
        visitor.open(path)
        assert "owned" not in page.title(), path
        assert page.locator("main script, main img, [onload], [onerror]").count() == 0, path
        assert page.locator("main b:text-is('bold')").count() == 0, path
        assert sideways(page) == 0, path
    visitor.open("/console/vms/web-0")
    assert SCRIPT in page.inner_text("main")
    visitor.open(f"/console/events/{event_id}")
    assert BREAKS_OUT in page.inner_text("main")
    assert SCRIPT in page.inner_text(".steps")
    visitor.open("/console/access")
    assert BREAKS_OUT in page.inner_text("section:has(#t-tokens)")


# Who may what.

READ = ("/console/", "/console/fleet", "/console/timeline", "/console/inbox", "/console/journal")


def buttons(page: Page) -> set[str]:
    return set(page.locator("main .button, main form[method=post] button").all_inner_texts())


def test_a_viewer_sees_everything_and_is_offered_no_order(
    world: ConsoleWorld, visit: Enter
) -> None:
    world.order("hosts/h3/fail")
    [event_id] = world.maintain("h2")
    visitor = visit(world.token_for("viewer"))
    page = visitor.page
    for path in (*READ, "/console/hosts/h1", "/console/vms/web-0", f"/console/events/{event_id}"):
        assert visitor.open(path) == 200
        assert page.locator("main a[href*='/console/orders/']").count() == 0, path
        assert page.locator("main form[method=post], .bar button").count() == 0, path
    assert visitor.open("/console/orders/host-close/h1") == 403
    assert "the role is viewer" in page.inner_text("main")
    visitor.open("/console/access")
    assert page.locator("#t-tokens").count() == 0


def test_an_owner_sees_own_scopes_only_and_gives_the_orders_of_an_owner(
    world: ConsoleWorld, visit: Enter
) -> None:
    ids = world.maintain("h1")
    mine, theirs = sorted(ids, key=lambda one: world.ask(f"events/{one}")["scope"] != "web")
    [operation] = world.ask("operations")["items"]
    visitor = visit(world.token_for("owner", "web"))
    page = visitor.page
    own = (
        *READ,
        "/console/scopes/web",
        "/console/vms/web-0",
        f"/console/events/{mine}",
        f"/console/events/{mine}/receipt",
        f"/console/operations/{operation['operation_id']}",
    )
    for path in own:
        assert visitor.open(path) == 200, path
        shown = page.content()
        assert ("db-0" in shown, "scopes/db" in shown, "lonely" in shown) == (False,) * 3, path
        assert page.locator("main a[href^='/console/hosts']").count() == 0, path
    for path in (
        f"/console/events/{theirs}",
        "/console/vms/db-0",
        "/console/vms/nosuch",
        "/console/scopes/db",
        "/console/hosts/h1",
        f"/console/orders/event-approve/{theirs}",
        f"/console/orders/event-cancel/{mine}",
        "/console/orders/host-maintain/h1",
        "/console/orders/token-make/new",
        "/console/emulator",
    ):
        assert visitor.open(path) == 403, path
    refusals = []
    for name in ("db-0", "nosuch"):
        visitor.open(f"/console/vms/{name}")
        refusals.append(page.inner_text("main").replace(name, "VM"))
    assert refusals[0] == refusals[1], "what is not theirs may as well not be there"
    visitor.open("/console/inbox")
    assert buttons(page) >= {"Approve", "Postpone"}
    page.click(".do >> text=Approve")
    page.click("button:has-text('Approve it')")
    assert said(page) == "The event is approved.", "without a reason: it is consent, no override"
    assert world.ask(f"events/{mine}")["override_reason"] == ""
    visitor.open("/console/vms/web-1")
    order_on(page, "Restart", "Restart it")
    assert "is ordered" in said(page)


def test_an_owner_is_told_what_others_hold_without_their_names(
    world: ConsoleWorld, visit: Enter
) -> None:
    ids = world.maintain("h1")
    for one in ids:
        if world.ask(f"events/{one}")["scope"] == "web":
            world.order(f"events/{one}/approve", reason="a test")
            mine = one
    visitor = visit(world.token_for("owner", "web"))
    visitor.open(f"/console/events/{mine}")
    shown = visitor.page.inner_text("main")
    assert "another scope on the host has not approved it" in shown
    assert "db" not in shown


def test_the_answer_to_an_order_is_kept_on_the_page_until_it_is_read(
    world: ConsoleWorld, visit: Enter
) -> None:
    visitor = visit()
    visitor.open("/console/orders/host-close/h3")
    visitor.page.click("button:has-text('Close it')")
    assert said(visitor.page) == "Host h3 is closed to new VMs."
    visitor.page.reload()
    assert visitor.page.locator(".note[role=status]").count() == 0
    when(visitor.page, lambda: bool(world.ask("hosts/h3")["closed"]), "it is closed")
