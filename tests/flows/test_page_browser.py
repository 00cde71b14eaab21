"""The page as people see it: the machine's Chromium against a running server and an agent."""

import pytest

from bothy_hermes.local_port import LocalServer
from tests.fakes.agent import button, select, step
from tests.fakes.browser import CHROMIUM, Browser
from tests.fakes.people import PersonClient

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def page(browser, server):
    """The page with Ada signed in; whatever it should not have done fails the test."""
    browser.trouble.clear()
    browser.open(server.people[0].login_url)
    browser.wait("document.querySelector('#link-words').textContent === 'Connected'")
    yield browser
    found = list(browser.trouble)
    browser.open("about:blank")  # or it would go on calling a server that is gone
    assert found == []


def write(page, text):
    page.evaluate("document.querySelector('#text').focus()")
    page.type(text)
    page.press("Enter")


def begin(page, text):
    page.evaluate("document.querySelector('#new').click()")
    write(page, text)


def button_named(name):
    return f"[...document.querySelectorAll('button')].find((one) => one.innerText === '{name}')"


def test_the_login_token_leaves_the_address_at_once(page, server):
    assert page.evaluate("location.href") == server.page_url
    assert page.evaluate("sessionStorage.getItem('bothy-token')") == server.people[0].token
    page.evaluate(f"{button_named('Sign out')}.click()")
    assert page.evaluate("sessionStorage.length") == 0


def test_what_is_hostile_is_shown_as_text(page, agent):
    hostile = (
        "<script>alert(1)</script><img src=x onerror=alert(2)> [a](javascript:alert(3))\n\n"
        "# <b>head</b>\n- **<i>bold</i>** and `<u>code</u>`\n\n| <s>a</s> |\n\n"
        "```\n</pre><script>alert(4)</script>\n```\n"
        "\u202egpj.exe"
    )
    begin(page, "Show me")
    run = agent.take()
    run.say(hostile)
    run.say("w" * 200_000)
    run.finish()
    page.wait("document.querySelectorAll('.message').length === 3")
    shown = page.text("#timeline")
    for part in ("<script>alert(1)</script><img src=x onerror=alert(2)>", "[a](javascript:alert(3))"):
        assert part in shown
    for part in ("<b>head</b>", "<i>bold</i>", "<u>code</u>", "<s>a</s>", "</pre><script>alert(4)</script>"):
        assert part in shown
    assert "U+202Egpj.exe" in shown.replace("\n", "")
    assert "\u202e" not in shown
    assert (
        page.evaluate("document.querySelectorAll('#timeline :is(script, img, b > b, i, u, s, a)').length")
        == 0
    )
    assert page.evaluate("document.scripts.length") == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert "Show all 200,000 characters" in shown


def test_a_link_is_what_it_says(page, agent):
    begin(page, "Where?")
    run = agent.take()
    run.say("See https://ci.example.com/builds/991. Not javascript:alert(1) nor data:text/html,x")
    run.finish()
    page.wait("document.querySelector('#timeline a')")
    link = "document.querySelector('#timeline a')"
    assert (
        page.evaluate(f"{link}.href")
        == page.evaluate(f"{link}.textContent")
        == "https://ci.example.com/builds/991"
    )
    assert page.evaluate(f"{link}.rel") == "noopener noreferrer nofollow"
    assert page.evaluate("document.querySelectorAll('#timeline a').length") == 1


def test_a_run_is_watched_and_cancelled(page, agent):
    begin(page, "Count")
    run = agent.take()
    run.show(
        status_line="Counting", steps=[step("terminal: seq", preview="1 2 3")], last_text_excerpt="One, two"
    )
    page.wait("document.querySelector('.draft').innerText === 'One, two'")
    shown = page.text(".run")
    assert all(part in shown for part in ("Working", "Counting", "terminal: seq", "1 2 3"))
    page.evaluate(f"{button_named('Cancel')}.click()")
    agent.event("run.ended")
    page.wait("document.querySelector('.run').innerText.includes('A person cancelled it.')")
    run.finish("cancelled")


def test_a_failed_run_says_why_in_words(page, agent):
    begin(page, "Try")
    agent.take().finish("failed", "tool_class_exceeded")
    page.wait("document.querySelector('.run.failed')")
    assert "stronger tools loaded than it may use here" in page.text(".run.failed")


def test_a_card_is_answered_by_keyboard_and_shows_the_answer(page, agent):
    begin(page, "Deploy")
    run = agent.take()
    card = run.ask(
        "Deploy to production?", [button("yes", "Yes, deploy"), button("no", "No", style="danger")]
    )
    page.wait(button_named("Yes, deploy"))
    page.evaluate(f"{button_named('Yes, deploy')}.focus()")
    page.press("Enter")
    interaction = agent.event("interaction.created")["payload"]["interaction"]
    run.resume(card)
    run.respond(interaction, text="On its way")
    page.wait("document.querySelector('.card').innerText.includes('Ada: Yes, deploy \\u2013 On its way')")
    assert page.evaluate(f"{button_named('No')}.disabled")
    assert page.evaluate("document.querySelector('#timeline').contains(document.activeElement)")
    run.finish()


def test_a_select_sends_what_was_chosen(page, agent):
    begin(page, "Deploy")
    run = agent.take()
    card = run.ask("Where to?", [select("target", "Target", [("eu", "Europe"), ("us", "America")])])
    page.wait("document.querySelector('.card select')")
    assert page.evaluate(f"{button_named('Choose')}.disabled")
    page.evaluate(
        "(() => { const one = document.querySelector('.card select'); one.value = 'us';"
        " one.dispatchEvent(new Event('change')); })()"
    )
    page.evaluate(f"{button_named('Choose')}.click()")
    interaction = agent.event("interaction.created")["payload"]["interaction"]
    assert interaction["values"] == ["us"]
    run.resume(card)
    run.respond(interaction)
    run.finish()
    page.wait("document.querySelector('.card').innerText.includes('Ada: America')")


def test_whoever_may_not_answer_is_told_why(browser, server, owner, agent):
    owner.post(owner.thread(title="Ada's thread"), "Deploy")
    run = agent.take()
    run.ask(
        "Sure?", [button("yes", "Yes", restricted_to="run_starter", required_capability="approve_actions")]
    )
    browser.trouble.clear()
    browser.open(f"{server.people[1].login_url}&thread={run.thread_id}")
    browser.wait("document.querySelector('.card')")
    assert "Only the person who asked may answer." in browser.text(".card")
    assert browser.evaluate(f"{button_named('Yes')}.disabled")
    assert browser.trouble == []
    browser.open("about:blank")
    run.finish("cancelled")


def test_the_page_finds_back_to_a_restarted_server(page, server, tmp_path):
    begin(page, "Before")
    page.wait("document.querySelectorAll('.message').length === 1")
    port = int(server.page_url.rstrip("/").rpartition(":")[2])
    server.stop()
    page.wait(
        "document.querySelector('#notices').innerText.includes('The connection to the server is lost.')"
    )
    write(page, "While it was away")
    page.wait("document.querySelector('#timeline').innerText.includes('Not sent')")
    page.trouble.clear()  # the browser itself reports each failed request
    again = LocalServer.start(tmp_path / "server", port=port)
    try:
        page.wait("document.querySelector('#link-words').textContent === 'Connected'")
        page.evaluate(f"{button_named('Try again')}.click()")
        page.wait("!document.querySelector('#timeline').innerText.includes('Not sent')")
        written = PersonClient(again, again.people[0].token)
        (thread,) = written.get("/threads")["threads"]
        contents = [one["content"] for one in written.get(f"/threads/{thread['id']}")["messages"]]
        page.open("about:blank")
    finally:
        again.stop()
    assert contents == ["Before", "While it was away"]


CONTROLS = {"button", "textbox", "combobox", "checkbox", "link", "dialog", "region", "navigation"}


def nameless(page):
    """The controls that a screen reader cannot name, and how many have a name."""
    nodes = page.command("Accessibility.getFullAXTree")["nodes"]
    controls = [one for one in nodes if not one["ignored"] and one["role"]["value"] in CONTROLS]
    found = [one["role"]["value"] for one in controls if not one["name"]["value"].strip()]
    return found, len(controls) - len(found)


def test_every_control_has_a_name(page, agent):
    """First with a thread, a card and the options open, then with the managing side in front of them."""
    begin(page, "Deploy")
    run = agent.take()
    run.ask("Where to?", [select("target", "Target", [("eu", "Europe")]), button("no", "Nowhere")])
    page.wait("document.querySelector('.card select')")
    page.evaluate(f"{button_named('Options')}.click()")
    assert nameless(page)[0] == []
    assert nameless(page)[1] > 15
    page.evaluate(f"{button_named('Manage')}.click()")
    page.wait("document.querySelector('dialog[open] form')")
    assert nameless(page)[0] == []
    assert nameless(page)[1] > 20
    run.finish("cancelled")


@pytest.fixture(params=[320, 780], ids=["phone", "window"])
def narrow(page, request):
    """The page in a window of that many pixels."""
    page.command(
        "Emulation.setDeviceMetricsOverride",
        width=request.param,
        height=640,
        deviceScaleFactor=1,
        mobile=False,
    )
    yield page
    page.command("Emulation.clearDeviceMetricsOverride")


def beyond_the_window(page):
    """What reaches past the window's right edge, where nobody can scroll to.

    Code may, it scrolls by itself, and so may what ends in an ellipsis.
    """
    return page.evaluate(
        "[...document.querySelectorAll('body *')]"
        ".filter((one) => one.checkVisibility() && !one.closest('pre, #title, #threads .name'))"
        ".filter((one) => one.getBoundingClientRect().right > innerWidth + 1)"
        ".map((one) => `${one.tagName} ${one.id} ${one.className}`)"
    )


def test_nothing_long_pushes_anything_out_of_the_window(narrow, server, agent):
    """A title, a word, a command, a choice: whatever a person or an agent writes."""
    server.instance.add_person("N" * 80, "member", approve_actions=False, run_kinds=())
    begin(narrow, f"{'Deploy ' * 20}{'w' * 300}")
    run = agent.take()
    run.show(status_line="s" * 200, steps=[step("t" * 200)], last_text_excerpt="d" * 1000)
    run.ask(
        f"```\n{'rm -rf ' * 50}\n```\n{'q' * 300}",
        [button("yes", "Y" * 80), select("target", "T" * 80, [("eu", "E" * 80)])],
    )
    narrow.wait("document.querySelector('.card select')")
    narrow.evaluate(f"{button_named('Options')}.click()")
    assert beyond_the_window(narrow) == []
    narrow.evaluate("document.querySelector('#manage').click()")
    narrow.wait("document.querySelector('dialog[open] form')")
    assert beyond_the_window(narrow) == []
    run.finish("cancelled")


def test_blanks_around_a_name_are_no_part_of_it(page, server):
    page.evaluate("document.querySelector('#manage').click()")
    page.wait("document.querySelector('dialog[open] form')")
    page.evaluate("document.querySelector('[aria-label=\"Name of the new person\"]').focus()")
    page.type(" Bob  ")
    page.press("Enter")
    page.wait("document.querySelector('dialog').innerText.includes('anybody is Bob:')")
    assert [one.name for one in server.people][2:] == ["Bob"]


def choose_file(page, size, name):
    page.evaluate(
        "(() => { const given = new DataTransfer();"
        f" given.items.add(new File([new Uint8Array({size})], {name}));"
        " document.querySelector('#file').files = given.files; })()"
    )


def test_a_refused_file_does_not_take_the_text_along(page, server):
    """The thread is begun by then, and the field was emptied for it."""
    page.evaluate("document.querySelector('#new').click()")
    page.evaluate(f"{button_named('Options')}.click()")
    choose_file(page, 1, "'n'.repeat(300)")
    write(page, "Look at this")
    page.wait("document.querySelector('#problem').innerText.includes('name: has 300 characters')")
    assert page.evaluate("document.querySelector('#text').value") == "Look at this"
    page.trouble.clear()  # the browser itself reports the refused request


def test_a_file_that_the_server_would_not_take_is_refused_before_anything_is_sent(page, server):
    """Its thread would else be begun, and the server, which hangs up, seem to be gone."""
    page.evaluate("document.querySelector('#new').click()")
    page.evaluate(f"{button_named('Options')}.click()")
    choose_file(page, 16_777_217, "'large.bin'")
    write(page, "Look at this")
    page.wait("document.querySelector('#problem').innerText.includes('at most 16 MiB')")
    assert PersonClient(server, server.people[0].token).get("/threads")["threads"] == []
