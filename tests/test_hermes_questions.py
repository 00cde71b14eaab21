"""What Hermes is asked about the next turn: whose money it spends and which tools it has."""

import asyncio
import contextlib
import contextvars
import threading

import pytest

from bothy_hermes import hermes_credential
from bothy_hermes.hermes_questions import ANSWER_SECONDS
from bothy_hermes.runtime import (
    ResolvedCredential,
)
from bothy_hermes.wire_words import KeyType
from tests.fakes import hermes
from tests.fakes.clock import settle
from tests.fakes.runtime_kit import scenes


@pytest.fixture
def play(monkeypatch):
    """Run a scene with a gateway of its own."""
    return scenes(monkeypatch)


class TestQuestions:
    """What Hermes is asked on a thread, in the profile's own context."""

    def test_decision_4_the_question_is_asked_in_the_context_of_connect(self, play, monkeypatch):
        """The home is a context variable; another one proves somebody else's credential."""
        profile = contextvars.ContextVar("profile", default="default")
        seen = []

        async def scene(monkeypatch_gateway):
            gateway = monkeypatch_gateway

            def ask():
                seen.append((profile.get(), threading.current_thread() is threading.main_thread()))
                return hermes_credential.Finding(ResolvedCredential("anthropic", KeyType.API_KEY))

            monkeypatch.setattr(hermes_credential, "resolve_credential", ask)
            profile.set("somebody else")
            assert (await gateway.runtime.resolved_credential()).provider == "anthropic"

        profile.set("mine")
        play(scene)
        assert seen == [("mine", False)]

    def test_decision_4_with_several_profiles_each_question_reads_the_profiles_variables_anew(self, play):
        """Hermes refuses secrets outside of a profile's scope, and a scope is a copy of its moment."""
        entered = []

        @contextlib.contextmanager
        def scope(home):
            entered.append(str(home))
            yield

        async def scene(gateway):
            gateway.state.modules["agent.secret_scope"].is_multiplex_active = lambda: True
            gateway.state.modules["gateway.run"]._profile_runtime_scope = scope
            await gateway.runtime.loaded_toolsets()
            await gateway.runtime.resolved_credential()
            assert entered == [hermes.HOME, hermes.HOME]

        play(scene)

    def test_one_question_serves_all_who_ask_at_the_moment(self, play, monkeypatch):
        """Asking writes to the home."""
        release = threading.Event()
        asked = []

        async def scene(gateway):
            def ask():
                asked.append(1)
                release.wait(5)
                return hermes_credential.Finding(ResolvedCredential("anthropic", KeyType.API_KEY))

            monkeypatch.setattr(hermes_credential, "resolve_credential", ask)
            waiting = [asyncio.ensure_future(gateway.runtime.resolved_credential()) for _ in range(3)]
            await settle()
            release.set()
            found = [await one for one in waiting]
            assert [one.key_type for one in found] == [KeyType.API_KEY] * 3
            assert len(asked) == 1
            await gateway.runtime.resolved_credential()
            assert len(asked) == 2

        play(scene)

    def test_decision_4_a_late_answer_is_unknown(self, play, monkeypatch):
        """The deadline passes; the question goes on and nobody waits for it."""
        release = threading.Event()

        async def scene(gateway):
            def ask():
                release.wait(5)
                return hermes_credential.Finding(ResolvedCredential("anthropic", KeyType.API_KEY))

            monkeypatch.setattr(hermes_credential, "resolve_credential", ask)
            asking = asyncio.ensure_future(gateway.runtime.resolved_credential())
            await gateway.fake.advance(ANSWER_SECONDS + 0.1)
            assert await asking == hermes_credential.UNKNOWN_CREDENTIAL
            release.set()

        play(scene)

    def test_an_error_is_unknown_and_named_once(self, play, monkeypatch, caplog):
        """At every heartbeat the same; the log says it when it begins and when it changes."""

        async def scene(gateway):
            def ask():
                raise LookupError("sk-secret")

            monkeypatch.setattr(hermes_credential, "resolve_credential", ask)
            for _ in range(3):
                found = await gateway.runtime.resolved_credential()
                assert found == hermes_credential.UNKNOWN_CREDENTIAL

        play(scene)
        assert caplog.text.count("LookupError") == 1
        assert "sk-secret" not in caplog.text

    def test_a_problem_is_named(self, play, monkeypatch, caplog):
        """Which key of the configuration makes the mode unknown."""

        async def scene(gateway):
            finding = hermes_credential.Finding(
                hermes_credential.UNKNOWN_CREDENTIAL, "fallback_model: spends elsewhere"
            )
            monkeypatch.setattr(hermes_credential, "resolve_credential", lambda: finding)
            for _ in range(2):
                await gateway.runtime.resolved_credential()

        play(scene)
        assert caplog.text.count("fallback_model: spends elsewhere") == 1

    def test_decision_5_toolsets_that_cannot_be_told_are_none(self, play):
        """Which classifies as host."""

        async def scene(gateway):
            assert await gateway.runtime.loaded_toolsets() == {"todo"}
            gateway.state.toolsets = LookupError("broken")
            assert await gateway.runtime.loaded_toolsets() is None

        play(scene)
