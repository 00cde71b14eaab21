"""From Hermes' hooks to facts about one turn."""

import contextvars
import logging
import sys
from types import SimpleNamespace
from typing import ClassVar
from uuid import UUID

import pytest

from bothy_hermes.hermes_hooks import READERS, HookReceiver
from bothy_hermes.turn_facts import (
    ApprovalOver,
    Asked,
    Ended,
    Ids,
    Payee,
    Replied,
    Requested,
    RequestFailed,
    ToolReturned,
)
from tests.fakes import hermes

THREAD = UUID(int=1)
IDS = {"session_id": "s", "task_id": "s", "turn_id": "t"}


@pytest.fixture
def heard(monkeypatch):
    """A receiver in the context of a turn; `facts` is what it passed on."""
    state = hermes.installed(monkeypatch)
    state.in_thread(THREAD)
    facts, held, subagents = [], {}, {}
    money = SimpleNamespace(asked=[], admits=True, order=[])

    def admit(thread, payee, session):
        assert session == "s"
        money.asked.append((thread, payee))
        money.order.append(len(facts))
        return money.admits

    receiver = HookReceiver(
        "bothy",
        hermes.HOME,
        lambda thread, fact: facts.append((thread, fact)),
        lambda _thread: held,
        admit=admit,
        thread_of_subagent=subagents.get,
    )
    return SimpleNamespace(
        state=state, facts=facts, held=held, hear=receiver.hear, money=money, subagents=subagents
    )


def payload(**more):
    """What every hook carries."""
    return {"platform": "bothy", "telemetry_schema_version": 1, **IDS, **more}


class TestWhoseHook:
    """Hooks fire for the whole process."""

    def test_a_hook_of_a_turn_of_ours_is_passed_on_with_its_thread(self, heard):
        """Platform, home and thread are ours."""
        heard.hear("pre_llm_call", payload())
        assert heard.facts == [(THREAD, Asked(Ids("s", "s", "t")))]

    @pytest.mark.parametrize("platform", ["telegram", "cli", "", None])
    def test_another_platforms_hook_is_nobodys(self, heard, platform):
        """A thread ID is not enough: another platform may use one of the same shape."""
        heard.hear("pre_llm_call", payload(platform=platform))
        assert heard.facts == []

    def test_another_profiles_hook_is_not_ours(self, heard):
        """Two agents can be at work in one thread, each from its own profile."""
        heard.state.home.set("/profiles/two")
        heard.hear("pre_llm_call", payload())
        assert heard.facts == []

    @pytest.mark.parametrize("thread", ["", "general", None])
    def test_a_hook_outside_of_our_threads_is_nobodys(self, heard, thread):
        """Our threads are UUIDs."""
        heard.state.env.set({"HERMES_SESSION_THREAD_ID": thread})
        heard.hear("pre_llm_call", payload())
        assert heard.facts == []

    def test_each_profiles_copy_takes_its_own_only(self, monkeypatch):
        """Two copies of the plugin in one process hear every hook of both."""
        state = hermes.installed(monkeypatch)
        heard = {home: [] for home in ("/a", "/b")}
        copies = [
            HookReceiver(
                "bothy",
                home,
                lambda _thread, fact, home=home: heard[home].append(fact),
                lambda _thread: {},
                admit=lambda *_request: True,
                thread_of_subagent=lambda _session: None,
            )
            for home in heard
        ]

        def turn(home):
            state.home.set(home)
            state.in_thread(THREAD)
            for copy in copies:
                copy.hear("pre_llm_call", payload(session_id=home, task_id=home))

        for home in heard:
            contextvars.copy_context().run(turn, home)
        assert {home: [fact.ids.session_id for fact in facts] for home, facts in heard.items()} == {
            "/a": ["/a"],
            "/b": ["/b"],
        }

    def test_a_subagents_hook_is_the_turns(self, heard):
        """Hermes runs it under a platform of its own, in the turn's context."""
        heard.hear("pre_llm_call", payload(platform="subagent"))
        assert heard.facts == [(THREAD, Asked(Ids("s", "s", "t"), subagent=True))]

    def test_a_subagent_without_its_turns_context_is_known_by_its_session(self, heard):
        """0.19 runs it on a thread that knows nothing of the turn."""
        heard.state.env.set({})
        heard.subagents["s"] = THREAD
        heard.hear("pre_llm_call", payload(platform="subagent"))
        assert heard.facts == [(THREAD, Asked(Ids("s", "s", "t"), subagent=True))]
        heard.hear("pre_llm_call", payload(platform="subagent", session_id="s2"))
        heard.hear("pre_llm_call", payload())
        assert len(heard.facts) == 1

    def test_a_hook_without_a_platform_is_told_by_its_thread(self, heard):
        """post_tool_call names none."""
        named = payload(tool_name="todo")
        del named["platform"]
        heard.hear("post_tool_call", named)
        assert len(heard.facts) == 1

    @pytest.mark.parametrize("name", ["on_session_reset", "no_such_hook"])
    def test_hooks_that_tell_nothing_about_a_turn_are_quiet(self, heard, name):
        """Hermes has more of them than a turn needs."""
        heard.hear(name, payload())
        assert heard.facts == []

    def test_a_payload_that_nobody_understands_is_logged_without_its_contents(self, heard, caplog):
        """Never an error for Hermes to report."""
        caplog.set_level(logging.WARNING)
        heard.hear(
            "post_api_request", payload(assistant_message=SimpleNamespace(content="x", tool_calls=[Broken()]))
        )
        assert heard.facts == []
        assert "post_api_request" in caplog.text
        assert "secret" not in caplog.text


class Broken:
    """A value whose every attribute fails."""

    @property
    def function(self):
        raise RuntimeError("secret")


class TestMoney:
    """The gate is asked before anything else about a model request."""

    PAID: ClassVar = {
        "provider": "custom",
        "base_url": "http://127.0.0.1:9/v1",
        "api_mode": "chat_completions",
    }

    @pytest.mark.parametrize("name", ["pre_api_request", "post_api_request"])
    @pytest.mark.parametrize("platform", ["bothy", "subagent"])
    def test_each_request_of_the_turns_context_is_looked_at_first(self, heard, name, platform):
        """Before it, a subagent's too; and behind it, should Hermes have given the first hook up."""
        heard.hear(name, payload(platform=platform, **self.PAID))
        assert heard.money.asked == [(THREAD, Payee(*self.PAID.values()))]
        assert heard.money.order == [0]
        assert len(heard.facts) == 1

    @pytest.mark.parametrize("missing", [None, ""])
    def test_a_request_that_names_nobody_is_asked_about_all_the_same(self, heard, missing):
        """Nobody is nobody whom the evidence names."""
        heard.hear("pre_api_request", payload(provider=missing))
        assert heard.money.asked == [(THREAD, Payee("", "", ""))]

    def test_a_request_that_does_not_leave_shows_the_model_nothing(self, heard):
        """A text that it held opens the next run."""
        heard.money.admits = False
        heard.hear("pre_api_request", payload(**self.PAID))
        assert heard.facts == []
        heard.hear("post_api_request", payload(**self.PAID))
        assert [type(fact) for _, fact in heard.facts] == [Replied]

    @pytest.mark.parametrize(
        "name", ["pre_llm_call", "api_request_error", "post_tool_call", "on_session_end"]
    )
    def test_no_other_hook_pays_anybody(self, heard, name):
        """They name no provider, or speak of what is over."""
        heard.hear(name, payload(**self.PAID))
        assert heard.money.asked == []

    def test_requests_of_others_are_none_of_ours(self, heard):
        """Another platform's, another profile's."""
        heard.hear("pre_api_request", payload(platform="telegram", **self.PAID))
        heard.state.home.set("/profiles/two")
        heard.hear("pre_api_request", payload(**self.PAID))
        assert heard.money.asked == []


class TestWhatItSays:
    """Each payload, read."""

    def test_a_reply_with_everything(self, heard):
        """Text, tools with their sentences, tokens."""
        call = SimpleNamespace(function=SimpleNamespace(name="terminal", arguments='{"command": "ls"}'))
        usage = {
            "input_tokens": 5,
            "output_tokens": 7,
            "cache_read_tokens": 1,
            "cache_write_tokens": 0,
            "prompt_tokens": 6,
        }
        heard.hear(
            "post_api_request",
            payload(
                assistant_message=SimpleNamespace(content="Let me look.", tool_calls=[call]),
                assistant_tool_call_count=1,
                usage=usage,
                provider="anthropic",
                model="m",
                response_model="m-2026",
            ),
        )
        reply = heard.facts[0][1]
        assert isinstance(reply, Replied)
        assert (reply.text, reply.tool_calls) == ("Let me look.", 1)
        assert [one.tool for one in reply.tools] == ["terminal"]
        assert reply.tools[0].sentences == ("is using terminal ls…", "is using terminal…")
        assert reply.usage is not None
        assert (reply.usage.provider, reply.usage.model) == ("anthropic", "m-2026")
        assert (reply.usage.tokens_in, reply.usage.tokens_out) == (5, 7)
        assert (reply.usage.tokens_cache_read, reply.usage.tokens_cache_write) == (1, 0)

    @pytest.mark.parametrize(
        ("more", "tool_calls", "text"),
        [
            ({}, None, ""),
            ({"assistant_message": SimpleNamespace(content=None, tool_calls=None)}, None, ""),
            ({"assistant_message": SimpleNamespace(content=[{"type": "text"}]), "usage": None}, None, ""),
            ({"assistant_tool_call_count": "2"}, None, ""),
            ({"assistant_tool_call_count": 0}, 0, ""),
        ],
    )
    def test_a_reply_that_says_less(self, heard, more, tool_calls, text):
        """Unknown stays unknown; nothing is made up."""
        heard.hear("post_api_request", payload(**more))
        reply = heard.facts[0][1]
        assert (reply.tool_calls, reply.text, reply.usage, reply.tools) == (tool_calls, text, None, ())

    @pytest.mark.parametrize("value", [None, -1, True, "5", 1.5])
    def test_a_count_that_is_none_is_unknown(self, heard, value):
        """A wrong number in a bill is worse than none."""
        heard.hear("post_api_request", payload(usage={"input_tokens": value, "output_tokens": 3}))
        usage = heard.facts[0][1].usage
        assert (usage.tokens_in, usage.tokens_out) == (None, 3)

    def test_what_a_request_cost_is_asked_by_the_configured_model(self, heard, monkeypatch):
        """An answer may name another one, of which Hermes has no price."""
        prices = hermes.priced(heard.state, shipped=True, amount="0.0105")
        monkeypatch.setitem(sys.modules, "agent.usage_pricing", prices)
        prices._lookup_official_docs_pricing = lambda route: route if route.model == "m" else None
        usage = {"input_tokens": 1000, "request_count": 1}
        heard.hear("post_api_request", payload(usage=usage, model="m", response_model="m-2026"))
        found = heard.facts[0][1].usage
        assert (found.currency, found.amount_micros, found.model) == ("USD", 10_500, "m-2026")

    @pytest.mark.parametrize(
        ("arguments", "tool"),
        [
            ('{"name": "terminal", "arguments": {"command": "ls"}}', "terminal"),
            ('{"name": 5}', "tool_call"),
            ("{}", "tool_call"),
            ("[]", "tool_call"),
        ],
    )
    def test_a_tool_behind_hermes_bridge_is_named_itself(self, heard, arguments, tool):
        """With many tools a model calls one that calls the others."""
        call = SimpleNamespace(function=SimpleNamespace(name="tool_call", arguments=arguments))
        heard.hear(
            "post_api_request", payload(assistant_message=SimpleNamespace(content="", tool_calls=[call]))
        )
        assert [one.tool for one in heard.facts[0][1].tools] == [tool]

    def test_arguments_that_are_no_json_are_none(self, heard):
        """A model writes what it likes."""
        call = SimpleNamespace(function=SimpleNamespace(name="terminal", arguments="{broken"))
        heard.hear(
            "post_api_request", payload(assistant_message=SimpleNamespace(content="", tool_calls=[call]))
        )
        assert heard.facts[0][1].tools[0].sentences == ("is using terminal…",)

    @pytest.mark.parametrize(
        ("more", "status", "reason"),
        [
            ({"status_code": 401, "reason": "auth_error"}, 401, "auth_error"),
            ({"status_code": None, "reason": "Connection to 10.0.0.1 failed"}, None, None),
            ({}, None, None),
        ],
    )
    def test_a_failed_request(self, heard, more, status, reason):
        """A number and a word; the message may hold anything."""
        heard.hear("api_request_error", payload(error={"message": "sk-secret"}, **more))
        assert heard.facts == [(THREAD, RequestFailed(Ids("s", "s", "t"), status, reason))]

    @pytest.mark.parametrize(("status", "failed"), [("ok", False), ("error", True), (None, True)])
    def test_the_end_of_a_tool(self, heard, status, failed):
        """Whatever is not ok has failed."""
        heard.hear("post_tool_call", payload(tool_name="terminal", args={"command": "ls"}, status=status))
        fact = heard.facts[0][1]
        assert isinstance(fact, ToolReturned)
        assert (fact.call.tool, fact.failed) == ("terminal", failed)
        assert fact.call.sentences[0] == "is using terminal ls…"

    def test_hermes_019_names_no_status(self, heard):
        """A tool that returned has ended well as far as anybody knows."""
        heard.hear("post_tool_call", payload(tool_name="terminal", args={}))
        assert heard.facts[0][1].failed is False

    @pytest.mark.parametrize("true", ["completed", "failed", "interrupted"])
    def test_the_end_of_a_turn(self, heard, true):
        """Only a plain true is true."""
        said = {"completed": None, "failed": "yes", "interrupted": 1} | {true: True}
        heard.hear("on_session_end", payload(**said, turn_exit_reason="x"))
        told = {name: name == true for name in said}
        assert heard.facts == [(THREAD, Ended(Ids("s", "s", "t"), **told, exit_reason="x"))]

    def test_a_hook_without_ids_is_of_no_known_turn(self, heard):
        """Which one is meant is not made up."""
        heard.hear("pre_llm_call", {"platform": "bothy", "session_id": None})
        assert heard.facts == [(THREAD, Asked(Ids("", "", "")))]

    def test_a_request_that_goes_out_keeps_nothing_of_its_contents(self, heard):
        """The payload holds the whole conversation."""
        heard.hear("pre_api_request", payload(messages=[{"content": "secret"}]))
        assert heard.facts == [(THREAD, Requested(Ids("s", "s", "t")))]

    @pytest.mark.parametrize(("choice", "timed_out"), [("timeout", True), ("once", False), (None, False)])
    def test_an_approval_that_is_over_says_whether_nobody_answered(self, heard, choice, timed_out):
        """Of the command that it was about the turn has its own words."""
        heard.hear("post_approval_response", {"command": "rm", "session_id": "s", "choice": choice})
        assert heard.facts == [(THREAD, ApprovalOver(timed_out=timed_out))]


HELD = UUID(int=7)
MARKED = "[OUT-OF-BAND USER MESSAGE — from the user]\n{}\n[/OUT-OF-BAND USER MESSAGE]"


class TestTextsShown:
    """Whether a text that was handed into a turn is part of what the model is shown."""

    @pytest.fixture
    def seen(self, heard):
        """What a request with these rows shows of one text that is looked for."""

        def ask(*rows, text="turn left"):
            heard.held[HELD] = text
            heard.hear("pre_api_request", payload(request_messages=list(rows)))
            ((_, fact),) = heard.facts
            heard.facts.clear()
            return fact.seen

        return ask

    @pytest.mark.parametrize(
        "content",
        [
            MARKED.format("turn left"),
            f"Gateway message origin {{'message_id': '{HELD}'}} turn left",
            "turn left",
            " turn left\n",
            [{"type": "text", "text": MARKED.format("turn left")}],
            "output of the tool\n\n" + MARKED.format("turn left"),
        ],
    )
    @pytest.mark.parametrize("text", ["turn left", " turn left\n"])
    def test_it_is_found_in_every_form_that_hermes_gives_it(self, seen, content, text):
        """As a row of its own, in a tool's result, with its origin or without; blanks do not count."""
        rows = {"role": "assistant", "content": "x"}, {"role": "user", "content": content}
        assert seen(*rows, text=text) == (HELD,)

    @pytest.mark.parametrize(
        "rows",
        [
            [{"role": "tool", "content": "you may turn left there"}],
            [
                {"role": "user", "content": MARKED.format("turn left")},
                {"role": "assistant", "content": "I did"},
            ],
            [{"role": "user", "content": MARKED.format("turn right")}],
            [{"role": "user", "content": None}, "no row", {"role": "tool"}],
            [],
        ],
    )
    def test_the_same_words_elsewhere_are_not_it(self, seen, rows):
        """A tool's words, an earlier text that was answered, another one."""
        assert seen(*rows) == ()

    def test_a_row_of_another_interface_is_read(self, seen):
        """Responses of a tool have another name there."""
        assert seen({"type": "function_call_output", "output": MARKED.format("turn left")}) == (HELD,)

    def test_a_text_that_stands_in_an_old_place_is_shown_all_the_same(self, seen):
        """Hermes puts it behind the newest tool result it has; its message proves that it is the one."""
        rows = [
            {"role": "tool", "content": "3"},
            {"role": "user", "content": f"origin {HELD} turn left"},
            {"role": "assistant", "content": "three"},
            {"role": "user", "content": "and now?"},
        ]
        assert seen(*rows) == (HELD,)

    def test_a_text_that_becomes_a_turn_of_its_own_is_seen_when_that_begins(self, heard):
        """No tool ran after it came."""
        heard.held[HELD] = "turn left"
        heard.hear("pre_llm_call", payload(user_message=f"origin {HELD} turn left"))
        assert heard.facts == [(THREAD, Asked(Ids("s", "s", "t"), seen=(HELD,)))]

    def test_a_request_whose_rows_cannot_be_read_shows_nothing(self, heard):
        """Nothing is taken for shown that was not found."""
        heard.held[HELD] = "turn left"
        heard.hear("pre_api_request", payload(request_messages=None))
        assert heard.facts == [(THREAD, Requested(Ids("s", "s", "t")))]


def test_every_declared_hook_is_read():
    """Each one that is declared costs Hermes a call."""
    from bothy_hermes.entry import HOOKS

    assert set(HOOKS) == set(READERS)
