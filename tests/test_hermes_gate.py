"""Whether a model request may leave, judged on Hermes' own thread."""

import asyncio
import logging
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from uuid import UUID

import pytest

from bothy_hermes.hermes_gate import GATE_SECONDS, RequestGate, gate_seconds
from bothy_hermes.hermes_questions import ProfileQuestions
from bothy_hermes.hermes_turn import ActiveTurn
from bothy_hermes.runtime import ResolvedCredential, Spending
from bothy_hermes.turn_facts import Payee
from bothy_hermes.wire_words import BillingMode, KeyType
from tests.fakes import hermes
from tests.fakes.clock import FakeClock

RUN = UUID(int=1)
MAIN = Payee("custom", "http://127.0.0.1:9/v1", "chat_completions")
OTHER = Payee("openrouter", "https://openrouter.ai/api/v1", "chat_completions")
SPENDS = Spending(BillingMode.ORGANIZATION, "custom", "http://127.0.0.1:9/v1")
KEY = ResolvedCredential("openrouter", KeyType.API_KEY)
LOGIN = ResolvedCredential("anthropic", KeyType.OAUTH)
NOTHING = ResolvedCredential(None, KeyType.UNKNOWN)


def told(answer):
    """A question that is answered: with a credential, or with an error."""
    future = Future()
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    elif answer is not None:
        future.set_result(answer)
    return future


def gate(answer=None, *, spends=SPENDS, seconds=GATE_SECONDS):
    """A gate; `asked` and `halted` say what it did. Without an answer nothing ever comes."""
    asked, halted = [], []

    def ask(payee):
        asked.append(payee)
        return told(answer)

    made = RequestGate(RUN, spends, ask, lambda: halted.append(None), seconds)
    return SimpleNamespace(admits=made.admits, covers=made.covers, asked=asked, halted=halted)


class TestJudging:
    """What leaves and what does not."""

    @pytest.mark.parametrize(
        "base_url", ["http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1/", "HTTP://127.0.0.1:9/v1"]
    )
    def test_decision_4_whom_the_evidence_names_is_paid_without_a_question(self, base_url):
        """The usual request costs a comparison."""
        made = gate(AssertionError("nobody is asked"))
        assert made.admits(Payee("custom", base_url, "chat_completions"))
        assert (made.asked, made.halted) == ([], [])

    def test_decision_4_somebody_else_in_the_same_mode_is_paid_and_asked_about_once(self):
        """A fallback that the organization pays as well."""
        made = gate(KEY)
        assert [made.admits(OTHER) for _ in range(3)] == [True] * 3
        assert (made.asked, made.halted) == ([OTHER], [])

    @pytest.mark.parametrize(
        "answer", [LOGIN, NOTHING, ResolvedCredential("openrouter", KeyType.OAUTH), OSError("no"), None]
    )
    def test_decision_4_a_request_that_is_not_proven_to_spend_in_the_runs_mode_is_stopped(self, answer):
        """Another mode, an unknown one, an error, no answer in time: the agent is interrupted by then."""
        made = gate(answer, seconds=0.01)
        assert not made.admits(OTHER)
        assert made.halted == [None]

    @pytest.mark.parametrize(
        ("mode", "held", "leaves"),
        [
            (BillingMode.PERSONAL, KeyType.OAUTH, True),
            (BillingMode.PERSONAL, KeyType.API_KEY, False),
            (BillingMode.PERSONAL, KeyType.UNKNOWN, False),
            (BillingMode.PERSONAL, None, True),
            (BillingMode.ORGANIZATION, KeyType.API_KEY, True),
            (BillingMode.ORGANIZATION, KeyType.OAUTH, False),
        ],
    )
    def test_decision_4_the_key_that_the_agent_holds_now_counts_as_well(self, mode, held, leaves):
        """Hermes changes to another key of the same provider when one is refused, in the middle of a turn."""
        made = gate(AssertionError("nobody is asked"), spends=Spending(mode, "anthropic"))
        assert made.admits(Payee("anthropic", key_type=held)) is leaves
        assert made.asked == []

    def test_a_key_that_fits_proves_nothing_of_who_is_paid_with_it(self):
        """It is judged as one of the provider that it goes to, and that one is asked about all the same."""
        assert not gate(NOTHING).admits(Payee("openrouter", key_type=KeyType.API_KEY))
        made = gate(LOGIN, spends=Spending(BillingMode.PERSONAL, "anthropic"))
        assert not made.admits(Payee("openrouter", key_type=KeyType.OAUTH))
        assert made.asked == []

    def test_a_persons_run_pays_no_organizations_key(self):
        """The rule holds in both directions."""
        made = gate(KEY, spends=Spending(BillingMode.PERSONAL, "anthropic"))
        assert made.admits(Payee("anthropic"))
        assert not made.admits(OTHER)

    def test_another_server_under_the_same_providers_name_is_somebody_else(self):
        """Every server of one's own goes by the same name."""
        made = gate(NOTHING)
        assert not made.admits(Payee("custom", "http://127.0.0.1:8/v1", "chat_completions"))

    def test_decision_4_without_evidence_nothing_leaves(self):
        """There is no run without it."""
        made = gate(KEY, spends=None)
        assert not made.admits(MAIN)
        assert made.asked == []

    def test_decision_4_a_gate_that_has_refused_stays_shut(self):
        """The turn is being interrupted; an answer that comes late changes nothing."""
        made = gate(NOTHING)
        assert not made.admits(OTHER)
        assert not made.admits(MAIN)
        assert made.halted == [None, None]

    def test_what_is_known_before_a_turn_interrupts_nobody(self):
        """A thread that is bound to other money has no agent yet."""
        made = gate(NOTHING)
        assert made.covers(MAIN)
        assert not made.covers(OTHER)
        assert made.halted == []

    def test_an_address_that_is_none_is_refused(self):
        """Whatever Hermes names."""
        assert not gate(KEY).admits(Payee("custom", "http://[", "chat_completions"))

    def test_an_agent_that_cannot_be_reached_is_said(self, caplog):
        """The request is refused all the same; who was paid stands in the log, what was said does not."""

        def halt():
            raise LookupError("secret")

        made = RequestGate(RUN, SPENDS, lambda _payee: told(NOTHING), halt)
        with caplog.at_level(logging.WARNING):
            assert not made.admits(OTHER)
        assert "a request to openrouter is stopped" in caplog.text
        assert "was not interrupted at once" in caplog.text
        assert "secret" not in caplog.text
        caplog.clear()
        assert not made.admits(OTHER)
        assert "not interrupted" not in caplog.text

    def test_requests_at_the_same_moment_share_a_question(self):
        """Subagents ask together; each waits for the one answer."""
        answer, begun, asked = Future(), threading.Barrier(4), []

        def ask(payee):
            asked.append(payee)
            threading.Event().wait(0.02)  # a second question that is possible comes meanwhile
            return answer

        made, found = RequestGate(RUN, SPENDS, ask, lambda: None), []

        def child():
            begun.wait()
            found.append(made.admits(OTHER))

        children = [threading.Thread(target=child) for _ in range(3)]
        for one in children:
            one.start()
        begun.wait()
        answer.set_result(KEY)
        for one in children:
            one.join()
        assert (found, asked) == ([True] * 3, [OTHER])

    def test_a_turn_without_a_gate_lets_nothing_out(self):
        """Nobody proved anything about it."""
        active = ActiveTurn(SimpleNamespace(run_id=RUN, message_id=UUID(int=2)), None, "")
        assert not active.admits(MAIN)
        assert not active.covers(MAIN)


class TestWaiting:
    """The gate gives its verdict before Hermes gives the hook up."""

    def test_decision_4_it_waits_as_long_as_it_was_told_and_no_longer(self):
        """Not for as long as it might wait elsewhere."""
        waited = []

        class Late(Future):
            def result(self, timeout=None):
                waited.append(timeout)
                raise TimeoutError

        assert not RequestGate(RUN, SPENDS, lambda _payee: Late(), lambda: None, 0.25).admits(OTHER)
        assert waited == [0.25]

    @pytest.mark.parametrize(
        ("patience", "seconds"), [(30.0, GATE_SECONDS), (2.0, 1.0), (0.0, GATE_SECONDS), (None, GATE_SECONDS)]
    )
    def test_decision_4_it_waits_well_below_the_time_of_a_hook(self, monkeypatch, patience, seconds):
        """Hermes abandons a hook that takes longer, and sends."""
        state = hermes.installed(monkeypatch)
        if patience is not None:
            hermes.hook_patience(state, monkeypatch, patience)
        assert gate_seconds() == seconds


class TestAsking:
    """The question about one payee, on a thread of its own and in the profile."""

    def ask(self, state, runtime):
        state.runtime = runtime

        async def connect():
            state.home.set("/profiles/two")
            return ProfileQuestions("bothy", "/profiles/two", FakeClock().clock)

        return asyncio.run(connect()).credential_of(OTHER)

    def test_it_is_answered_by_what_hermes_resolves(self, monkeypatch):
        """Asked from a thread without any of our context, in that of `connect`."""
        state, homes = hermes.installed(monkeypatch), []

        def resolve(**_asked):
            homes.append(state.home.get())
            return {"provider": "openrouter", "api_key": "sk-or-v1-abc"}

        assert self.ask(state, resolve).result(5).key_type is KeyType.API_KEY
        assert (homes, state.home.get()) == (["/profiles/two"], hermes.HOME)

    def test_what_hermes_raises_is_the_answer(self, monkeypatch):
        """Whoever waits is told at once."""
        asked = self.ask(hermes.installed(monkeypatch), RuntimeError("no such provider"))
        with pytest.raises(RuntimeError):
            asked.result(5)
