"""Patches of the live box: what they say, how much of it, and that they arrive."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothy_hermes.box_diff import BoxContent, diff
from bothy_hermes.codec import dump, dump_json, parse
from bothy_hermes.wire import RunDocument, Step
from bothy_hermes.wire_words import MAX_PATCH_OPERATIONS, MAX_STEPS, StepKind, StepState
from tests.fakes.tiny_patch import apply_tiny

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def step(name, *, title="is running", state=StepState.RUNNING, seconds=0):
    started_at = START + timedelta(seconds=seconds)
    finished_at = None if state is StepState.RUNNING else started_at
    return Step(
        id=name,
        kind=StepKind.TOOL_CALL,
        title=title,
        state=state,
        started_at=started_at,
        finished_at=finished_at,
    )


def document(*steps, status_line=None, excerpt=None, version=1):
    return RunDocument(
        version=version, status_line=status_line, steps=tuple(steps), last_text_excerpt=excerpt
    )


def content(*steps, status_line=None, excerpt=None):
    return BoxContent(status_line, tuple(steps), excerpt)


def applied(have, operations):
    """The document after a patch, read as strictly as a server reads it."""
    return parse(RunDocument, apply_tiny(dump(have), operations))


def content_of(found):
    return BoxContent(found.status_line, found.steps, found.last_text_excerpt)


names = st.lists(st.sampled_from("abcdefgh"), unique=True)
contents = st.builds(
    lambda order, states, line, excerpt: content(
        *(step(name, state=state) for name, state in zip(order, states, strict=False)),
        status_line=line,
        excerpt=excerpt,
    ),
    names,
    st.lists(st.sampled_from(list(StepState)), min_size=8, max_size=8),
    st.none() | st.just("is asking"),
    st.none() | st.just("Hello"),
)


@given(contents, contents)
def test_a_patch_ends_in_the_wanted_content(first, wanted):
    """Whatever was added, removed, reordered and changed, one small patch makes them equal."""
    have = document(*first.steps, status_line=first.status_line, excerpt=first.last_text_excerpt)

    operations = diff(have, wanted)

    assert content_of(applied(have, operations)) == wanted
    assert (operations == []) == (first == wanted)


@given(st.randoms(use_true_random=False), st.integers(0, MAX_STEPS))
@settings(max_examples=10)
def test_a_large_change_arrives_in_several_valid_patches(random, kept):
    """No patch is over the limit, each leaves a valid document, and repeating them arrives."""
    before, after = (random.sample(range(MAX_STEPS), MAX_STEPS) for _ in range(2))
    have = document(*(step(f"s{number}") for number in before))
    wanted = content(
        *(step(f"s{number}" if number < kept else f"new{number}") for number in after), status_line="x"
    )
    patches = 0
    while operations := diff(have, wanted):
        assert len(operations) <= MAX_PATCH_OPERATIONS
        have = applied(have, operations)
        patches += 1
    assert content_of(have) == wanted
    assert patches <= 1 + (2 * MAX_STEPS + 2) // MAX_PATCH_OPERATIONS


def test_the_smallest_change_is_one_operation():
    """A step that ended is one replacement at its place, and nothing else is sent."""
    have = document(step("a"), step("b"))
    wanted = content(step("a"), step("b", state=StepState.COMPLETED))

    assert diff(have, wanted) == [
        {"op": "replace", "path": "/steps/1", "value": dump(wanted.steps[1])},
    ]


def test_steps_are_matched_by_id_when_others_went(snapshot):
    """A summary that took the place of old steps leaves the youngest step untouched."""
    have = document(step("a"), step("b"), step("c"), status_line="is reading", excerpt="old")
    wanted = content(step("sum", title="2 earlier steps"), step("c"), excerpt="new")

    assert diff(have, wanted) == snapshot


def test_a_document_that_holds_an_id_twice_is_mended():
    """A server's mistake does not make every later patch fail."""
    have = document(step("a"), step("a"), step("b"))
    wanted = content(step("a"), step("b"))

    assert content_of(applied(have, diff(have, wanted))) == wanted


@pytest.mark.parametrize("count", [0, 1, MAX_STEPS])
def test_nothing_is_sent_when_nothing_changed(count):
    """An equal document costs no patch."""
    steps = [step(f"s{number}") for number in range(count)]

    assert diff(document(*steps, status_line="x"), content(*steps, status_line="x")) == []


def test_the_largest_patch_fits_a_request():
    """A hundred steps with the longest titles in the widest characters stay under the body limit."""
    wanted = content(*(step(f"s{number}", title="\U0001f600" * 200) for number in range(MAX_STEPS)))

    assert len(dump_json(diff(document(), wanted)).encode()) < 1_048_576
