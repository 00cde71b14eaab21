"""The platform as Hermes sees it."""

import asyncio
import inspect
import threading
from functools import partial
from types import SimpleNamespace
from typing import ClassVar
from uuid import UUID

import pytest

from bothy_hermes import hermes_contract
from bothy_hermes.defaults import CONTROL_SENDER
from bothy_hermes.errors import ConfigError, GatewayRefused, StateLocked
from bothy_hermes.hermes_contract import Need, Use
from bothy_hermes.hermes_control import Command
from bothy_hermes.hermes_threads import REFUSED
from bothy_hermes.runtime import BusyMode, TurnOutcome, TurnRequest
from tests.fakes import hermes
from tests.fakes.clock import settle
from tests.fakes.platform_kit import (
    CHANNEL,
    IDS,
    KEY,
    MESSAGE,
    METADATA,
    PAID,
    PERSON,
    REQUEST,
    RUN,
    THREAD,
    Loop,
    Stage,
    play,
)
from tests.fakes.turn_events import RecordedEvents


@pytest.fixture
def stage(monkeypatch, tmp_path):
    """Makes stages."""
    return partial(Stage, monkeypatch, tmp_path)


class TestLife:
    """Connect, serve, stop."""

    def test_connect_serves_and_disconnect_stops(self, stage):
        """The state lies in the profile's home, below the platform's key."""

        async def scene():
            made = stage()
            platform = await made.connected()
            loop = Loop.built[0]
            assert loop.running.is_set()
            assert str(loop.state_dir) == f"{hermes.HOME}/bothy"
            await platform.disconnect()
            assert loop.stopping.is_set()
            assert platform.states == ["connected", "disconnected"]
            assert made.state.locks == {}

        play(scene())

    def test_decision_13_the_adapter_is_told_whether_the_startup_restore_is_over(self, stage):
        """Messages that come earlier are swallowed and reported as processed."""

        async def scene():
            made = stage()
            platform = made.open()
            platform.gateway_runner._startup_restore_in_progress = True
            assert await platform.connect() is True
            assert Loop.built[0].opened() is False
            platform.gateway_runner._startup_restore_in_progress = False
            assert Loop.built[0].opened() is True
            del platform.gateway_runner._startup_restore_in_progress
            assert Loop.built[0].opened() is True
            await platform.disconnect()

        play(scene())

    def test_a_hermes_without_what_a_connection_needs_is_said_once_and_not_tried_again(self, stage):
        """There is nothing yet with which the server could be told."""

        async def scene():
            platform = stage(without=("gateway.status:acquire_scoped_lock",)).open()
            assert await platform.connect() is False
            kind, text, retry = platform.states[0]
            assert (kind, retry) == ("fatal", False)
            assert text == "this Hermes lacks gateway.status:acquire_scoped_lock"
            assert Loop.built == ()

        play(scene())

    def test_the_adapter_is_told_what_a_turn_lacks(self, stage, monkeypatch):
        """Looked for in the running gateway, beside the loop: what is looked into is imported for it."""
        uses = [
            Use(need, "a test", (place,))
            for need, place in (
                (Need.SERVE, "runner:session_store"),
                (Need.SERVE, "runner:_gone"),
                (Need.SERVE, "store:_gone_too"),
                (Need.SERVE, "platform:_active_sessions"),
                (Need.SERVE, "tools.clarify_gateway:clear_session"),
                (Need.NOTHING, "runner:_not_missed"),
            )
        ]

        async def scene():
            platform = await stage().connected()
            monkeypatch.setattr(hermes_contract, "USES", tuple(uses))
            threads, look = [], hermes_contract.lacking
            monkeypatch.setattr(
                hermes_contract,
                "lacking",
                lambda *what: threads.append(threading.current_thread()) or look(*what),
            )
            assert await Loop.built[0].lacking() == ("runner:_gone", "store:_gone_too")
            assert threads != [threading.main_thread()]
            await platform.disconnect()

        play(scene())

    @pytest.mark.parametrize("gone", ["build_source", "gateway_runner"])
    def test_a_busy_mode_that_cannot_be_asked_for_is_unknown(self, stage, monkeypatch, gone):
        """The heartbeat asks, and it has to tell the server what this Hermes lacks."""

        async def scene():
            platform = await stage().connected()
            monkeypatch.setattr(platform, gone, None)
            assert platform.busy_mode is None
            await platform.disconnect()

        play(scene())

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("hermes_adapter.server_url", "ftp://x"),
            ("hermes_adapter.token_file", "/no/such/file"),
            ("hermes_adapter.platform_key", "another"),
            ("hermes_adapter.no_such_key", "x"),
        ],
    )
    def test_a_wrong_configuration_is_said_once_and_not_tried_again(self, stage, key, value):
        """The text names the key, never the value."""

        async def scene():
            made = stage()
            made.extra[key] = value
            platform = made.open()
            assert await platform.connect() is False
            kind, text, retry = platform.states[0]
            assert (kind, retry) == ("fatal", False)
            assert key in text
            assert value not in text

        play(scene())

    def test_a_token_that_another_gateway_uses_is_tried_again(self, stage):
        """The other one may stop."""

        async def scene():
            made = stage()
            made.state.locks["bothy-agent-token", "agent-token-value"] = {"pid": 1, "metadata": {}}
            platform = made.open()
            assert await platform.connect() is False
            assert platform.states[0][2] is True
            assert Loop.built == ()

        play(scene())

    @pytest.mark.parametrize(
        ("error", "retry", "reported"),
        [
            (StateLocked("state", "held"), True, 1),
            (GatewayRefused("http", 403, "not allowed"), False, 0),
            (ConfigError("hermes_adapter.instance_id", "another instance"), False, 0),
            (ZeroDivisionError(), True, 1),
        ],
    )
    def test_an_end_of_the_adapter_is_said(self, stage, error, retry, reported):
        """Hermes tries again what a start can mend; reporting the rest would stop the whole gateway."""

        async def scene():
            made = stage()
            platform = made.open()
            await platform.connect()
            Loop.built[0].fails = error
            await settle()
            assert platform.states[-1][2] is retry
            assert platform.reported == reported

        play(scene())

    def test_a_fault_of_its_own_is_said_by_its_place_only(self, stage, caplog):
        """The text of a foreign error may hold what a person wrote; neither the log nor Hermes shows it."""

        async def scene():
            made = stage()
            platform = made.open()
            await platform.connect()
            Loop.built[0].fails = ValueError("what a person wrote")
            await settle()
            assert "ValueError" in caplog.text
            assert "what a person wrote" not in caplog.text + str(platform.states)

        play(scene())

    def test_an_adapter_that_does_not_stop_is_left(self, stage, monkeypatch):
        """Hermes gives the platform five seconds."""

        async def scene():
            made = stage()
            monkeypatch.setattr(made.module, "STOP_SECONDS", 0.05)
            platform = await made.connected()
            Loop.built[0].deaf = True
            await platform.disconnect()
            assert platform.states[-1] == "disconnected"

        play(scene())

    def test_the_bounds_of_a_stop_lie_within_hermes_own(self, stage):
        """Five seconds."""
        module = stage().module
        assert module.STOP_SECONDS + module.CANCEL_SECONDS < 5

    def test_what_hermes_reads_of_the_class(self, stage):
        """Each of these changes what Hermes does."""
        made = stage()
        platform = made.open()
        assert platform.supports_status_text is True
        assert platform.supports_async_delivery is False
        assert platform.enforces_own_access_policy is True
        assert platform.supports_draft_streaming(chat_type="dm", metadata=None, chat_id="c") is True
        assert platform.MAX_MESSAGE_LENGTH > 100 * 262_144
        assert asyncio.run(platform.get_chat_info("c"))["type"] == "dm"

    def test_calls_before_connect_are_nothing(self, stage):
        """Hermes may speak to a platform that failed to connect."""

        async def scene():
            platform = stage().open()
            assert (await platform.send("c", "x")).success is True
            assert (await platform.edit_message("c", "m", "x")).success is True
            assert (await platform.send_draft("c", 1, "x")).success is True
            platform.set_status_text("c", "x")
            platform.hear("pre_llm_call", {})
            await platform.on_processing_start(SimpleNamespace(message_id="m"))
            await platform.on_processing_complete(SimpleNamespace(message_id="m"), None)
            await platform.disconnect()

        play(scene())


class TestRefusals:
    """A text that somebody counts on was not delivered: Hermes is told so, and does not try again."""

    def test_a_text_without_a_run_has_failed_for_good(self, stage):
        """A schedule's; sent once more it would fail once more."""

        async def scene():
            platform = await stage().connected()
            sent = await platform.send(str(CHANNEL), "It is five.", None, METADATA)
            assert (sent.success, sent.error) == (False, REFUSED)
            assert platform._send_retry_is_final(sent)
            other = hermes.SendResult(success=False, error="the network is gone")
            assert not platform._send_retry_is_final(other)
            await platform.disconnect()

        play(scene())

    def test_what_hermes_says_to_its_home_channel_is_no_failure(self, stage):
        """The placeholder that the configuration names: nobody counts on it."""

        async def scene():
            made = stage()
            platform = await made.connected()
            platform.config.home_channel = SimpleNamespace(chat_id="bothy-home")
            assert (await platform.send("bothy-home", "Restarted.")).success
            assert not (await platform.send("elsewhere", "Restarted.")).success
            await platform.disconnect()

        play(scene())

    def test_a_turns_text_for_another_thread_has_failed(self, stage):
        """The thread of whoever speaks is known from Hermes' context alone."""

        async def scene():
            made = stage()
            platform = await made.connected()
            made.state.in_thread(UUID(int=99))
            sent = await platform.send(str(CHANNEL), "Five.", str(MESSAGE), {**METADATA, "notify": True})
            assert not sent.success
            made.state.in_thread(THREAD)
            sent = await platform.send(str(CHANNEL), "Five.", str(MESSAGE), {**METADATA, "notify": True})
            assert sent.success
            await platform.disconnect()

        play(scene())


class TestTurn:
    """What Hermes is given, and where its words go."""

    def test_a_turn_goes_in_as_a_direct_message_without_control(self, stage):
        """The person's text stays as it is; the context is for this turn only."""

        async def scene():
            platform = await stage().connected()
            event = platform.turn_event(REQUEST)
            assert event.text == "/new what time is it?"
            assert event.allow_gateway_control is False
            assert event.channel_prompt == "In a channel."
            assert event.message_id == str(MESSAGE)
            source = event.source
            assert (source.chat_id, source.chat_type, source.thread_id) == (str(CHANNEL), "dm", str(THREAD))
            assert (source.user_id, source.user_name) == (str(PERSON), "Ada")
            await platform.disconnect()

        play(scene())

    def test_a_whole_turn(self, stage):
        """Hooks, a sentence, a draft, an answer, an edit."""

        async def scene():
            made = stage()
            platform = await made.connected()
            told = RecordedEvents()

            async def hermes_turn(event):
                made.state.in_thread(THREAD)
                metadata = METADATA
                await platform.on_processing_start(event)
                platform.hear("pre_llm_call", IDS)
                platform.set_status_text(str(CHANNEL), "is running ls…")
                platform.hear(
                    "post_api_request",
                    {
                        **IDS,
                        **PAID,
                        "assistant_tool_call_count": 0,
                        "assistant_message": SimpleNamespace(content="Five."),
                    },
                )
                platform.hear(
                    "on_session_end",
                    {**IDS, "completed": True, "turn_exit_reason": "text_response(finish_reason=stop)"},
                )
                await settle()
                await platform.send_draft(str(CHANNEL), 1, "Fi", metadata)
                sent = await platform.send(str(CHANNEL), "Five.", str(MESSAGE), {**metadata, "notify": True})
                assert sent.success is True
                await platform.edit_message(
                    str(CHANNEL), sent.message_id, "Half past.", finalize=True, metadata=metadata
                )
                await platform.on_processing_complete(event, hermes.ProcessingOutcome.SUCCESS)

            platform.on_handle = hermes_turn
            end = await platform._bothy.start_turn(REQUEST, told)
            assert end.outcome is TurnOutcome.COMPLETED
            assert told.heard == [
                ("session", "s"),
                ("status", "is running ls…"),
                ("draft", "Fi"),
                ("answer", "Five."),
                ("edit", (UUID(int=1), "Half past.")),
            ]
            await platform.disconnect()

        play(scene())

    def test_a_cancelled_processing_is_a_cancelled_turn(self, stage):
        """The outcome's only word that counts."""

        async def scene():
            platform = await stage().connected()

            async def hermes_turn(event):
                await platform.on_processing_start(event)
                await platform.on_processing_complete(event, hermes.ProcessingOutcome.CANCELLED)

            platform.on_handle = hermes_turn
            end = await platform._bothy.start_turn(REQUEST, RecordedEvents())
            assert end.outcome is TurnOutcome.CANCELLED
            await platform.disconnect()

        play(scene())

    @pytest.mark.parametrize(
        ("command", "reference", "text"),
        [
            (Command.STOP, None, "/stop"),
            (Command.NEW, None, "/new"),
            (Command.RESUME, "20261130_1", "/resume 20261130_1 --all"),
        ],
    )
    def test_a_command_of_ours_goes_into_the_turns_thread(self, stage, command, reference, text):
        """Internal, from the control sender, known by its message."""

        async def scene():
            platform = await stage().connected()
            await platform.command(REQUEST, command, "m-9", reference)
            event = platform.handled[0]
            assert (event.text, event.internal, event.message_id) == (text, True, "m-9")
            assert (event.source.user_id, event.source.thread_id) == (CONTROL_SENDER, str(THREAD))
            await platform.disconnect()

        play(scene())

    def test_what_a_turn_waits_for_is_released_by_the_sessions_key(self, stage):
        """The key is Hermes' own."""

        async def scene():
            made = stage()
            platform = await made.connected()
            made.state.clarifies = [SimpleNamespace(clarify_id="c-1", session_key=KEY)]
            platform.release_prompts(REQUEST)
            assert made.state.resolved == [("clarify", "c-1", "")]
            await platform.disconnect()

        play(scene())

    @pytest.mark.parametrize("base", [hermes.BasePlatformAdapter, hermes.OldBasePlatformAdapter])
    def test_whether_a_thread_is_busy(self, stage, base):
        """Hermes' own guard, by the key it derives itself."""

        async def scene():
            platform = await stage(base=base).connected()
            assert not platform.is_busy(REQUEST)
            platform._active_sessions[KEY] = object()
            assert platform.is_busy(REQUEST)
            await platform.disconnect()

        play(scene())

    def test_the_busy_mode_is_read_from_the_gateway(self, stage):
        """At the moment it is asked for."""

        async def scene():
            platform = await stage().connected()
            assert platform.busy_mode is BusyMode.STEER
            platform.gateway_runner._busy_input_mode = "interrupt"
            assert platform.busy_mode is BusyMode.INTERRUPT
            await platform.disconnect()

        play(scene())

    def test_decision_8_no_text_of_a_person_reaches_hermes_with_control(self, stage):
        """A text that starts with a slash must not get past the server's own checks."""

        async def scene():
            platform = await stage().connected()
            for text in ("/new", "/approve", "yes", "  /stop"):
                event = platform.turn_event(
                    TurnRequest(RUN, THREAD, CHANNEL, PERSON, "Ada", MESSAGE, text, "")
                )
                assert (event.text, event.allow_gateway_control, event.internal) == (text, False, False)
            await platform.disconnect()

        play(scene())


def test_a_method_that_hermes_may_pass_metadata_to_takes_it(stage):
    """Hermes looks at the signature."""
    platform = stage().open()
    for name in ("send", "edit_message", "send_draft", "send_clarify", "send_slash_confirm"):
        assert "metadata" in inspect.signature(getattr(platform, name)).parameters, name


class TestMoney:
    """Whom a turn pays is settled before anything of it is sent."""

    FOREIGN: ClassVar = {
        "provider": "nous",
        "base_url": "https://nous.example/v1",
        "api_mode": "chat_completions",
    }

    async def turn(self, made, *, before=lambda _platform: None, during):
        """A turn in which Hermes does something on a thread of its own; returns its end and who was told."""
        platform = await made.connected()
        told, stops = RecordedEvents(), []
        agent = hermes.Agent()
        agent.session_id, agent._disable_streaming, agent._active_children = "s", True, []
        agent.interrupt = lambda: stops.append("interrupt")
        platform.gateway_runner.works(KEY, agent, str(MESSAGE))
        before(platform)

        async def hermes_turn(event):
            made.state.in_thread(THREAD)
            await platform.on_processing_start(event)
            platform.hear("pre_llm_call", IDS)
            await asyncio.to_thread(during, platform, stops)
            platform.hear("on_session_end", {**IDS, "interrupted": bool(stops)})
            await settle()
            await platform.on_processing_complete(event, hermes.ProcessingOutcome.SUCCESS)

        platform.on_handle = hermes_turn
        end = await platform._bothy.start_turn(REQUEST, told)
        await platform.disconnect()
        return end, told, stops

    def test_decision_4_the_agent_is_interrupted_before_the_hook_of_a_foreign_request_returns(self, stage):
        """What comes through the loop could come too late."""
        made, seen = stage(), []

        def ask_a_stranger(platform, stops):
            platform.hear("pre_api_request", {**IDS, **self.FOREIGN})
            seen.append((list(stops), platform.agent(REQUEST)._disable_streaming))

        async def scene():
            end, told, _ = await self.turn(made, during=ask_a_stranger)
            assert seen == [(["interrupt"], False)]
            assert told.of("money_refused") == [None]
            assert end.outcome is TurnOutcome.CANCELLED

        play(scene())

    def test_a_request_of_the_evidences_provider_asks_and_interrupts_nobody(self, stage):
        """Nor one that a subagent makes, wherever Hermes runs it."""
        made = stage()
        made.state.runtime = AssertionError("nobody is asked")

        def ask(platform, _stops):
            for more in ({}, {"platform": "subagent", "session_id": "c"}):
                platform.hear("pre_api_request", {**IDS, **PAID, **more})

        async def scene():
            _, told, stops = await self.turn(made, during=ask)
            assert (stops, told.of("money_refused")) == ([], [])

        play(scene())

    @pytest.mark.parametrize(
        ("key", "stopped"), [("some-key", False), ("sk-ant-oat01-abcdef", True), ("", False)]
    )
    def test_a_key_of_another_kind_under_the_same_provider_is_noticed(self, stage, key, stopped):
        """The agent's own is looked at: Hermes may have changed it since the turn began."""
        made = stage()

        def ask(platform, _stops):
            platform.agent(REQUEST).api_key = key
            platform.hear("pre_api_request", {**IDS, **PAID})

        async def scene():
            _, told, stops = await self.turn(made, during=ask)
            assert (stops, told.of("money_refused")) == ((["interrupt"], [None]) if stopped else ([], []))

        play(scene())

    def test_an_agent_that_cannot_be_looked_at_sends_nothing(self, stage):
        """What nobody understands proves nothing."""
        made = stage()

        def ask(platform, stops):
            def broken(*_asked):
                raise AttributeError("api_key")

            platform.key_type = broken
            platform.hear("pre_api_request", {**IDS, **PAID})
            assert stops == ["interrupt"]

        async def scene():
            _, told, _ = await self.turn(made, during=ask)
            assert told.of("money_refused") == [None]

        play(scene())

    def test_a_subagent_without_context_is_held_to_its_turns_evidence(self, stage):
        """0.19 runs it on a thread that knows nothing of the turn."""
        made = stage()

        def delegate(platform, stops):
            agent = platform.agent(REQUEST)
            agent._active_children = [SimpleNamespace(session_id="c", _active_children=[])]
            made.state.env.set({})
            for session in ("stranger", "c"):
                paid = {**IDS, **self.FOREIGN, "platform": "subagent", "session_id": session}
                platform.hear("pre_api_request", paid)
                assert stops == (["interrupt"] if session == "c" else [])

        async def scene():
            _, told, _ = await self.turn(made, during=delegate)
            assert told.of("money_refused") == [None]

        play(scene())

    def test_decision_4_a_thread_that_is_bound_to_other_money_gets_no_turn(self, stage):
        """Not even what Hermes asks beside a first request is asked."""
        made = stage()

        def lock(platform):
            platform.gateway_runner._session_model_overrides = {KEY: {"provider": "nous"}}

        async def scene():
            end, told, stops = await self.turn(made, before=lock, during=lambda *_: None)
            assert (end.outcome, end.detail) == (TurnOutcome.CANCELLED, "other_money")
            assert (told.heard, stops) == ([("money_refused", None)], [])
            assert made.platform.handled == []

        play(scene())

    def test_a_request_without_an_agent_in_sight_is_refused_and_said(self, stage, caplog):
        """The run ends all the same, by the loop's own interrupt."""
        made = stage()

        def vanish(platform, _stops):
            platform.gateway_runner.turns.clear()
            platform.hear("pre_api_request", {**IDS, **self.FOREIGN})

        async def scene():
            _, told, _ = await self.turn(made, during=vanish)
            assert told.of("money_refused") == [None]
            assert "was not interrupted at once" in caplog.text

        play(scene())
