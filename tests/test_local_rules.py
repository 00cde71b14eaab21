"""The referee's tables and small decisions, without a server around them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.codec import parse
from bothy_hermes.errors import IllegalMove
from bothy_hermes.local_records import CardState, FollowupMark, Person, Role
from bothy_hermes.local_rules import (
    CARD_MOVES,
    FOLLOWUP_MOVES,
    Refused,
    Violation,
    check_card_move,
    check_part,
    check_run_move,
    exceeds,
    may_use,
    next_groups,
    session_mode,
)
from bothy_hermes.secret import Secret
from bothy_hermes.wire import Component, Part
from bothy_hermes.wire_words import RUN_MOVES, ProblemCode, RunState, SessionMode
from tests.fakes.clock import FakeClock


@given(st.sampled_from(RunState), st.sampled_from(RunState))
def test_runs_move_by_their_table(source, target):
    if target in RUN_MOVES[source]:
        check_run_move(source, target)
    else:
        with pytest.raises(IllegalMove, match="run"):
            check_run_move(source, target)


CARD_TABLE = {
    "posted": {"open", "closed"},
    "open": {"answered", "closed"},
    "answered": {"posted", "closed"},
    "closed": set(),
}
"""Section 10."""


@given(st.sampled_from(CardState), st.sampled_from(CardState))
def test_cards_move_by_their_table(source, target):
    if target in CARD_TABLE[source]:
        check_card_move(source, target)
    else:
        with pytest.raises(IllegalMove, match="card"):
            check_card_move(source, target)


def test_the_tables_know_every_state():
    assert {str(state): set(CARD_MOVES[state]) for state in CardState} == CARD_TABLE
    assert {str(mark): set(FOLLOWUP_MOVES[mark]) for mark in FollowupMark} == {
        "waiting": {"delivered", "absorbed"},
        "delivered": {"absorbed"},
        "absorbed": set(),
    }


@pytest.mark.parametrize(
    ("actual", "granted", "too_strong"),
    [
        ("chat", "chat", False),
        ("scoped", "chat", True),
        ("chat", "host", False),
        ("host", "scoped", True),
        ("root", "host", True),
        ("chat", "paper", True),
    ],
)
def test_tool_classes_are_ordered(actual, granted, too_strong):
    """An unknown one is above every class as what is, and below every class as what is granted."""
    assert exceeds(actual, granted) is too_strong


@pytest.mark.parametrize(
    ("asked", "first", "mode"),
    [
        ([], True, SessionMode.NEW),
        ([None], False, SessionMode.RESUME),
        (["bind", None], True, SessionMode.BIND),
        (["bind", "new"], False, SessionMode.NEW),
    ],
)
def test_the_last_wish_for_a_session_counts(asked, first, mode):
    assert session_mode(asked, first=first) is mode


class _Letter:
    def __init__(self, author):
        self.message = type("M", (), {"author": type("A", (), {"id": author})})


@given(st.lists(st.sampled_from("abc")))
def test_leftovers_are_grouped_by_consecutive_authors(authors):
    """Nothing is lost or moved, no group mixes authors, neighbours differ."""
    left = [_Letter(author) for author in authors]
    groups = next_groups(left)
    assert [one for group in groups for one in group] == left
    found = [{one.message.author.id for one in group} for group in groups]
    assert all(len(names) == 1 for names in found)
    assert all(before != after for before, after in itertools.pairwise(found))


IDS = [FakeClock(seed=number).clock.new_id() for number in range(4)]


@pytest.mark.parametrize(
    ("restricted_to", "capability", "person", "capable", "allowed"),
    [
        ("anyone", None, 2, False, True),
        ("run_starter", None, 0, False, True),
        ("run_starter", None, 1, True, False),
        ("owner", None, 1, False, True),
        ("owner", None, 0, False, False),
        ("anyone", "approve_actions", 2, True, True),
        ("anyone", "approve_actions", 0, False, False),
        ("run_starter", "approve_actions", 0, False, False),
        ("run_starter", "approve_actions", 2, True, False),
    ],
)
def test_restriction_and_capability_both_count(restricted_to, capability, person, capable, allowed):
    """Person 0 started the run, person 1 owns the agent, person 2 is somebody else."""
    component = parse(
        Component,
        {
            "id": str(IDS[3]),
            "custom_id": "x",
            "kind": "button",
            "label": "x",
            "single_use": True,
            "restricted_to": restricted_to,
            "required_capability": capability,
        },
    )
    someone = Person(id=IDS[person], name="x", role=Role.MEMBER, approve_actions=capable, token=Secret("x"))
    assert may_use(component, someone, IDS[0], IDS[1]) is allowed


@pytest.mark.parametrize(
    ("before", "part", "fits"),
    [
        (None, None, True),
        (None, (0, False), True),
        (None, (1, True), False),
        ((0, False), (1, True), True),
        ((0, False), (2, True), False),
        ((1, True), (2, True), False),
        ((1, True), (0, False), True),
    ],
)
def test_parts_of_an_answer_follow_each_other(before, part, fits):
    def made(pair):
        return None if pair is None else Part(index=pair[0], last=pair[1])

    if fits:
        check_part(made(part), made(before))
    else:
        with pytest.raises(Refused):
            check_part(made(part), made(before))


def test_texts_of_refusals_and_violations():
    assert str(Violation("startRun", "why")) == "startRun: why"
    assert str(Refused(409, ProblemCode.RUN_ENDED, "why")) == "409 run_ended: why"
