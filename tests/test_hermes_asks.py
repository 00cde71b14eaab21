"""What Hermes asks people: shown in the run whose turn asks, refused where there is none."""

from functools import partial
from types import SimpleNamespace

import pytest

from bothy_hermes.runtime import PromptKind
from tests.fakes import hermes
from tests.fakes.platform_kit import CHANNEL, KEY, METADATA, Stage, at_work, play


@pytest.fixture
def stage(monkeypatch, tmp_path):
    """Makes stages."""
    return partial(Stage, monkeypatch, tmp_path)


class TestPrompts:
    """Shown in the run whose turn asks, refused where there is none."""

    def test_a_question_without_a_run_is_answered_with_nothing(self, stage):
        """Nobody can be asked."""

        async def scene():
            made = stage()
            platform = await made.connected()
            made.state.clarifies = [SimpleNamespace(clarify_id="c-1", session_key=KEY)]
            assert (await platform.send_clarify("c", "Which?", ["a"], "c-1", KEY, None)).success is True
            assert made.state.resolved == [("clarify", "c-1", "")]
            await platform.disconnect()

        play(scene())

    def test_a_question_of_a_turn_is_a_card(self, stage):
        """By Hermes' own ID; nothing is answered yet."""

        async def scene():
            made = stage()
            async with at_work(made) as (platform, told):
                sent = await platform.send_clarify(str(CHANNEL), "Which?", ["a"], "c-1", KEY, METADATA)
                assert sent.success is True
                prompt = told.of("card")[0]
                assert (prompt.kind, prompt.hermes_id) == (PromptKind.CLARIFY, "c-1")
                assert made.state.resolved == []

        play(scene())

    def test_a_question_that_cannot_be_stored_is_refused_and_shown(self, stage):
        """A turn never hangs on a card that nobody sees."""

        async def scene():
            made = stage()
            async with at_work(made) as (platform, told):
                told.failing = True
                made.state.clarifies = [SimpleNamespace(clarify_id="c-1", session_key=KEY)]
                sent = await platform.send_clarify(str(CHANNEL), "Which?", None, "c-1", KEY, METADATA)
                assert sent.success is True
                assert made.state.resolved == [("clarify", "c-1", "")]
                assert len(told.of("prompt")) == 1

        play(scene())

    @pytest.mark.parametrize("old", [False, True])
    def test_leave_for_a_command_without_a_run_is_denied(self, stage, old):
        """Hermes asks with a prompt object from 0.21 on, before that with arguments, never in both ways."""

        async def scene():
            made = stage(base=hermes.OldBasePlatformAdapter) if old else stage()
            platform = await made.connected()
            made.state.approvals = [
                {"session_key": KEY, "request_id": "r", "command": "rm", "description": "d"}
            ]
            assert hasattr(platform, "send_exec_approval") is old
            if old:
                await platform.send_exec_approval("c", "rm", KEY, description="d", allow_session=True)
            else:
                prompt = SimpleNamespace(
                    session_key=KEY,
                    command="rm",
                    description="d",
                    chat_id="c",
                    metadata=None,
                    actions=[("Allow", "once", ""), ("Deny", "deny", "")],
                )
                await platform._send_exec_approval_prompt(prompt)
            assert made.state.resolved == [("approval", "r", "deny")]
            await platform.disconnect()

        play(scene())

    def test_a_confirmation_without_a_run_is_cancelled(self, stage):
        """The command does not run."""

        async def scene():
            made = stage()
            platform = await made.connected()
            made.state.confirms = {KEY: "3"}
            assert (await platform.send_slash_confirm("c", "New", "Sure?", KEY, "3", None)).success is True
            assert made.state.resolved == [("confirm", "3", "cancel")]
            await platform.disconnect()

        play(scene())
