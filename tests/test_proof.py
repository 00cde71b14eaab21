"""Whose money and which tools: asked once at a time, never remembered, and unproven when in doubt."""

import asyncio
import logging

import pytest

from bothy_hermes.proof import Proof, Prover
from bothy_hermes.runtime import ResolvedCredential
from bothy_hermes.wire_words import BillingMode, EvidenceMethod, KeyType, Reason
from tests.fakes.runtime import FakeRuntime

ORGANIZATION, PERSONAL = BillingMode.ORGANIZATION, BillingMode.PERSONAL
KEY = ResolvedCredential("anthropic", KeyType.API_KEY)
LOGIN = ResolvedCredential("anthropic", KeyType.OAUTH)


def prove(runtime):
    return asyncio.run(Prover(runtime).now())


def runtime_with(credential=KEY, toolsets=("todo",)):
    runtime = FakeRuntime()
    runtime.credential = credential
    runtime.toolsets = None if toolsets is None else frozenset(toolsets)
    return runtime


@pytest.mark.parametrize(
    ("credential", "mode", "spends"),
    [
        (KEY, ORGANIZATION, True),
        (KEY, PERSONAL, False),
        (LOGIN, PERSONAL, True),
        (LOGIN, ORGANIZATION, False),
        (ResolvedCredential(None, KeyType.UNKNOWN), ORGANIZATION, False),
        (ResolvedCredential(None, KeyType.UNKNOWN), PERSONAL, False),
    ],
)
def test_a_turn_spends_only_in_the_mode_that_is_proven(credential, mode, spends):
    """What nobody can prove equals no mode that a run may ask for."""
    assert prove(runtime_with(credential)).spends(mode) is spends


@pytest.mark.parametrize(
    ("toolsets", "granted", "within"),
    [
        (["todo"], "chat", True),
        (["terminal"], "chat", False),
        (["terminal"], "host", True),
        (None, "scoped", False),
        (None, "host", True),
        (["terminal"], "a class of another version", False),
    ],
)
def test_tools_that_cannot_be_told_count_as_the_strongest(toolsets, granted, within):
    assert prove(runtime_with(toolsets=toolsets)).stays_within(granted) is within


def test_money_is_the_first_reason_to_refuse():
    """A run that fails both questions ends for the one that is asked first."""
    proof = prove(runtime_with(LOGIN, ["terminal"]))
    assert proof.refusal(ORGANIZATION, "chat") is Reason.BILLING_MODE_MISMATCH
    assert proof.refusal(PERSONAL, "chat") is Reason.TOOL_CLASS_EXCEEDED
    assert proof.refusal(PERSONAL, "host") is None


def test_the_evidence_names_kinds_and_nothing_else():
    start = prove(runtime_with(toolsets=["terminal"])).start(ORGANIZATION)
    assert (start.billing_mode, start.tool_class) == (ORGANIZATION, "host")
    evidence = start.billing_evidence
    assert (evidence.provider, evidence.key_type) == ("anthropic", KeyType.API_KEY)
    assert evidence.method is EvidenceMethod.RESOLVED_CREDENTIALS


def test_everybody_who_asks_at_once_shares_one_question():
    runtime = runtime_with()

    async def ask():
        prover = Prover(runtime)
        return await asyncio.gather(*(prover.now() for _ in range(20)))

    proofs = asyncio.run(ask())
    assert runtime.questions == 1
    assert set(proofs) == {proofs[0]}


def test_an_answer_is_never_kept():
    """A credential that changes between two turns is found at the second one."""
    runtime = runtime_with(KEY)

    async def ask():
        prover = Prover(runtime)
        first = await prover.now()
        runtime.credential = LOGIN
        return first, await prover.now()

    first, second = asyncio.run(ask())
    assert first.spends(ORGANIZATION)
    assert second.spends(PERSONAL)
    assert runtime.questions == 2


def test_who_gives_up_waiting_takes_the_answer_from_nobody():
    runtime = runtime_with()

    async def ask():
        prover = Prover(runtime)
        impatient = asyncio.ensure_future(prover.now())
        patient = asyncio.ensure_future(prover.now())
        await asyncio.sleep(0)
        impatient.cancel()
        return await patient

    assert asyncio.run(ask()).spends(ORGANIZATION)


@pytest.mark.parametrize("question", ["resolved_credential", "loaded_toolsets"])
def test_a_question_that_breaks_proves_nothing(question, caplog):
    """An adapter that cannot ask neither spends nor dies; the log repeats no foreign text."""
    runtime = runtime_with(toolsets=["todo"])

    async def broken():
        raise RuntimeError("the key is sk-ant-xyzzy")

    setattr(runtime, question, broken)
    with caplog.at_level(logging.ERROR):
        proof = prove(runtime)
    if question == "resolved_credential":
        assert not proof.spends(ORGANIZATION)
        assert proof.actual.key_type is KeyType.UNKNOWN
    else:
        assert not proof.stays_within("scoped")
    assert "RuntimeError" in caplog.text
    assert "xyzzy" not in caplog.text


def test_the_next_question_after_a_broken_one_is_asked():
    runtime = runtime_with()
    asked = runtime.resolved_credential

    async def broken():
        raise RuntimeError

    async def ask():
        prover = Prover(runtime)
        runtime.resolved_credential = broken
        first = await prover.now()
        runtime.resolved_credential = asked
        return first, await prover.now()

    first, second = asyncio.run(ask())
    assert isinstance(first, Proof)
    assert not first.spends(ORGANIZATION)
    assert second.spends(ORGANIZATION)
