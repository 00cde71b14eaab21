"""Whatever an operator and other plugins have Hermes say, a thread gets the words of its turns."""

import pytest

from bothy_hermes.install_plan import Entry
from tests.live.kit import in_019
from tests.live.talk import Talk

DISPLAY = ("display", "platforms", "bothy")

LOUD = (
    Entry(("plugins", "enabled"), ["another", "bothy"]),
    Entry(("streaming", "enabled"), False),
    Entry(("display", "show_reasoning"), True),
    Entry(("display", "runtime_footer", "enabled"), True),
    Entry(("display", "busy_ack_enabled"), True),
    Entry(("display", "background_process_notifications"), "all"),
    Entry((*DISPLAY, "tool_progress"), "verbose"),
    Entry((*DISPLAY, "thinking_progress"), True),
    Entry((*DISPLAY, "long_running_notifications"), True),
    Entry((*DISPLAY, "busy_steer_ack_enabled"), True),
    Entry(("platforms", "bothy", "gateway_restart_notification"), True),
    Entry(("platforms", "bothy", "a_key_of_nobody"), "x"),
    Entry(("thread_sessions_per_user",), True),
    Entry(("session_reset", "mode"), "both"),
)
"""What has Hermes speak as much as it can; without streaming it sends most."""

MANIFEST = "name: another\nversion: 1.0.0\ndescription: Gets in the way.\nkind: standalone\n"

PLUGIN = '''
"""Raises in every hook, vetoes a message or makes a command of it, as the message says."""
HOOKS = (
    "pre_llm_call", "post_llm_call", "pre_api_request", "post_api_request", "post_tool_call",
    "on_session_start", "on_session_end", "transform_tool_result", "transform_llm_output",
)

def register(ctx):
    """Hermes calls this."""
    said = [""]

    def dispatch(event=None, **_more):
        said[0] = event.text
        fail()
        if "veto" in event.text:
            return {"action": "skip", "reason": "not today"}
        return {"action": "rewrite", "text": "/new repeat"} if "rewrite" in event.text else None

    def fail(**_more):
        if "raise" in said[0]:
            raise RuntimeError("raised by another plugin")

    ctx.register_hook("pre_gateway_dispatch", dispatch)
    for name in HOOKS:
        ctx.register_hook(name, fail)
'''


@pytest.fixture(scope="module")
def home(closed_world):
    """A thread that is Hermes' home channel, in a world that is as loud as it can be."""
    closed_world.open(toolsets=("terminal",), more=LOUD)
    talk = Talk(closed_world)
    place = closed_world.gateway.place.hermes_home
    config = (place / "config.yaml").read_text("utf-8")
    address = {
        "00000000-0000-0000-0000-000000000000": str(talk.instance.thread(talk.thread_id).channel_id),
        'name: "none"': f'name: "none"\n      thread_id: "{talk.thread_id}"',
    }
    for old, new in address.items():
        assert config.count(old) == 1
        config = config.replace(old, new)
    (place / "config.yaml").write_text(config, "utf-8")
    (place / "plugins" / "another").mkdir()
    (place / "plugins" / "another" / "plugin.yaml").write_text(MANIFEST, "utf-8")
    (place / "plugins" / "another" / "__init__.py").write_text(PLUGIN, "utf-8")
    closed_world.start()
    return talk


def said(talk):
    """All that stands in a thread beside what its person wrote: who is said to say it, and what."""
    messages = talk.instance.messages(talk.thread_id)
    sign = "💬 " if in_019() else ""  # before a text that it sends as a thought, once in a while
    return [
        (str(one.role), one.content.removeprefix(sign).removeprefix("[script] "))
        for one in messages
        if one.role
    ]


def run(talk, text):
    """Do one run; returns how it ended."""
    return talk.ended(talk.say(text)).state


def test_a_thread_gets_the_words_of_the_model_and_nothing_else(home):
    """No tool lines, no reasoning, no directory of the machine, no hint, in the home thread."""
    assert run(home, "note") == "completed"
    assert run(home, "/sethome repeat one") == "completed"
    follow = home.say("sleep 1")
    home.step(follow)
    home.post("repeat two")
    assert home.ended(follow).state == "completed"
    assert said(home) == [
        ("interim", "First I look at the machine."),
        ("answer", "The tool said: noted"),
        ("answer", "one"),
        ("answer", "The tool said: slept 1 s Meanwhile you said: repeat two"),
    ]


def test_another_plugin_that_raises_everywhere_changes_no_run(home):
    talk = Talk(home.world)
    assert run(talk, "tool and raise") == "completed"
    assert said(talk) == [("answer", "The tool said: hello from the terminal")]


def test_what_another_plugin_makes_of_a_message_is_no_command(home):
    """It may rewrite a person's words, and the model reads them; the session is the same."""
    talk = Talk(home.world)
    run(talk, "repeat before")
    session = talk.instance.thread(talk.thread_id).session_ref
    if in_019():  # it reads the command in the text itself, after the plugin wrote it; no turn comes of it
        assert run(talk, "rewrite this") == "failed"
        return
    assert run(talk, "rewrite this") == "completed"
    assert talk.instance.thread(talk.thread_id).session_ref == session
    assert "/new" in str(home.world.asked("/new")[-1]["messages"])


def test_what_another_plugin_vetoes_ends_its_run_and_not_the_next(home):
    talk = Talk(home.world)
    assert run(talk, "veto") == "failed"
    assert run(talk, "repeat all is well") == "completed"
    assert said(talk) == [("answer", "all is well")]


def test_a_restart_in_the_middle_of_a_turn_says_nothing_in_the_home_thread(home):
    before = said(home)
    run_id = home.say("sleep 20")
    home.step(run_id)
    home.world.gateway.stop()
    home.world.start()
    assert home.ended(run_id).state == "failed"
    assert run(home, "repeat back again") == "completed"
    assert said(home) == [*before, ("answer", "back again")]
