"""The end of a run's wait: with the evidence of this moment, or the run may not go on."""

import asyncio
import dataclasses
from types import SimpleNamespace
from uuid import UUID

import pytest

from bothy_hermes.actual_mode import determine
from bothy_hermes.errors import ConfigError, ProblemAnswer, RunEnded, TransportError
from bothy_hermes.proof import Proof
from bothy_hermes.run_outbox import MEND_SECONDS
from bothy_hermes.run_wait import RunWait
from bothy_hermes.runtime import ResolvedCredential
from bothy_hermes.wire_words import BillingMode, KeyType, ResumeCause, ToolClass
from tests.fakes.clock import FakeClock

RUN, MESSAGE, TEXT = UUID(int=1), UUID(int=2), UUID(int=3)


class Ground:
    """A wait whose server, disk and Hermes are in hand."""

    def __init__(self, *, key=KeyType.API_KEY, tools=ToolClass.CHAT, message=MESSAGE, error=None):
        self.taken, self.ended, self.error = [], [], error
        self.proof = Proof(determine(ResolvedCredential("anthropic", key)), tools)
        self.stored = SimpleNamespace(message_id=message) if message is not None else None
        self.fake = FakeClock()
        services = SimpleNamespace(store=self, api=self, prover=self, clock=self.fake.clock)
        run = SimpleNamespace(id=RUN, billing_mode=BillingMode.ORGANIZATION, tool_class=ToolClass.SCOPED)
        self.wait = RunWait(services, run, "token", self.ended.append)

    async def card(self, card_id):
        assert card_id == "card"
        return self.stored

    async def now(self):
        return self.proof

    async def resume_run(self, run_id, token, body):
        assert (run_id, token) == (RUN, "token")
        if self.error is not None:
            raise self.error
        self.taken.append(body)

    def end(self, cause=ResumeCause.INTERACTION, followup=None):
        return asyncio.run(self.wait.end("card", cause, followup))


def test_the_evidence_of_the_moment_goes_with_it():
    ground = Ground()
    assert ground.end(ResumeCause.FOLLOWUP, TEXT)
    (body,) = ground.taken
    assert (body.cause, body.message_id, body.followup_message_id) == ("followup", MESSAGE, TEXT)
    assert (body.billing_mode, body.tool_class) == ("organization", "chat")
    assert body.billing_evidence.key_type == "api_key"
    assert (ground.ended, ground.wait.over) == ([], False)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"key": KeyType.OAUTH}, "billing_mode_mismatch"),
        ({"key": KeyType.UNKNOWN}, "billing_mode_mismatch"),
        ({"tools": ToolClass.HOST}, "tool_class_exceeded"),
    ],
)
def test_decision_4_a_run_that_may_not_go_on_is_ended_and_the_server_not_asked(changed, reason):
    ground = Ground(**changed)
    assert not ground.end()
    assert (ground.taken, ground.ended, ground.wait.over) == ([], [reason], True)


@pytest.mark.parametrize(
    ("error", "ended", "over"),
    [
        (ProblemAnswer("resumeRun", 409, "billing_mode_mismatch"), ["billing_mode_mismatch"], True),
        (ProblemAnswer("resumeRun", 409, "tool_class_exceeded"), ["tool_class_exceeded"], True),
        (ProblemAnswer("resumeRun", 409, "run_not_waiting"), [], False),
        (RunEnded("resumeRun", 409, "run_ended"), [], True),
    ],
    ids=["mode", "class", "not waiting", "ended"],
)
def test_what_the_server_refuses_ends_the_run_only_for_its_evidence(error, ended, over):
    ground = Ground(error=error)
    assert not ground.end()
    assert (ground.ended, ground.wait.over) == (ended, over)


@pytest.mark.parametrize(
    "error",
    [
        ProblemAnswer("renewRunToken", 401, "unauthorized"),
        ConfigError("hermes_adapter.token_file", "the file is empty"),
        TransportError("resumeRun", "too_large", sent=True),
    ],
    ids=["token", "file", "answer"],
)
def test_a_wait_that_an_operator_can_help_along_is_ended_after_that(error):
    """A token that was replaced at the server and not here yet costs no answer; each try has new evidence."""
    ground = Ground(error=error)

    async def waiting():
        ending = asyncio.ensure_future(ground.wait.end("card", ResumeCause.INTERACTION))
        await ground.fake.advance(2 * MEND_SECONDS)
        assert not ending.done()
        ground.error, ground.proof = None, dataclasses.replace(ground.proof, tool_class=ToolClass.SCOPED)
        return await ground.fake.drive(ending)

    assert asyncio.run(waiting())
    assert [body.tool_class for body in ground.taken] == ["scoped"]
    assert (ground.ended, ground.wait.over) == ([], False)


def test_nobody_waits_on_a_card_that_people_never_had():
    for ground in (Ground(message=None), Ground()):
        ground.stored = None if ground.stored is None else SimpleNamespace(message_id=None)
        assert not ground.end()
        assert (ground.taken, ground.ended) == ([], [])
