"""The live box: what each report of Hermes does to what people see."""

import itertools
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bothy_hermes.codec import dump, dump_json, parse
from bothy_hermes.live_box import MAX_RUNNING, LiveBox, diff
from bothy_hermes.runtime import ToolEnd
from bothy_hermes.wire import RunDocument
from bothy_hermes.wire_words import MAX_EXCERPT_CHARS, MAX_STATUS_CHARS, MAX_STEPS, StepKind, StepState
from tests.fakes.tiny_patch import apply_tiny

START = datetime(2026, 11, 30, 12, 0, 0, 123_456, tzinfo=UTC)
RUNNING, COMPLETED, FAILED = StepState.RUNNING, StepState.COMPLETED, StepState.FAILED


class Watch:
    """Wall time that goes on by one second with every look at it."""

    def __init__(self):
        self.seconds = itertools.count()

    def __call__(self):
        return START + timedelta(seconds=next(self.seconds))


def new_box():
    numbers = itertools.count(1)
    return LiveBox(Watch(), lambda: f"step-{next(numbers)}")


def done(title=None, *, failed=False):
    return ToolEnd(title, failed)


def states(box):
    return [(step.title, step.state) for step in box.content.steps]


def document(box, version=1):
    found = box.content
    return RunDocument(
        version=version,
        status_line=found.status_line,
        steps=found.steps,
        last_text_excerpt=found.last_text_excerpt,
    )


# Tools --------------------------------------------------------------------------------------------


def test_a_sentence_opens_a_step_and_its_clearing_closes_it():
    """Without any other report the cleared sentence is the tool's end."""
    box = new_box()
    box.status("is reading notes.txt")

    assert states(box) == [("is reading notes.txt", RUNNING)]
    assert box.content.steps[0].kind is StepKind.TOOL_CALL
    assert box.content.status_line == "is reading notes.txt"

    box.status(None)

    assert states(box) == [("is reading notes.txt", COMPLETED)]
    assert box.content.status_line is None
    assert box.content.steps[0].finished_at is not None


def test_decision_7_a_later_sentence_ends_no_earlier_tool():
    """A second sentence does not end the first tool, and the line falls back to what still runs."""
    box = new_box()
    box.status("is reading")
    box.status("is searching")

    assert states(box) == [("is reading", RUNNING), ("is searching", RUNNING)]
    assert box.content.status_line == "is searching"

    box.tool_end(done("is searching"))

    assert states(box) == [("is reading", RUNNING), ("is searching", COMPLETED)]
    assert box.content.status_line == "is reading"


def test_decision_7_clearings_close_first_in_first_out():
    """A cleared sentence does not say whose it was: the tool that started first is taken."""
    box = new_box()
    box.status("a")
    box.status("b")
    box.status(None)

    assert states(box) == [("a", COMPLETED), ("b", RUNNING)]


def test_decision_7_a_result_closes_its_own_step_and_says_whether_it_failed():
    """The second of two tools fails first; the first one runs on."""
    box = new_box()
    box.status("a")
    box.status("b")
    box.tool_end(done("b", failed=True))

    assert states(box) == [("a", RUNNING), ("b", FAILED)]


def test_the_clearing_after_a_result_closes_no_other_step():
    """Hermes reports the result and then clears the sentence: one end, told twice."""
    box = new_box()
    box.status("a")
    box.status("b")
    box.tool_end(done("a"))
    box.status(None)

    assert states(box) == [("a", COMPLETED), ("b", RUNNING)]

    box.status(None)

    assert states(box) == [("a", COMPLETED), ("b", COMPLETED)]


def test_both_results_before_both_clearings():
    """A batch whose results are collected first and whose sentences are cleared afterwards."""
    box = new_box()
    box.status("a")
    box.status("b")
    box.tool_end(done("b", failed=True))
    box.tool_end(done("a"))
    box.status("c")
    box.status(None)
    box.status(None)

    assert states(box) == [("a", COMPLETED), ("b", FAILED), ("c", RUNNING)]


def test_a_result_after_the_clearing_corrects_the_step():
    """The clearing came first: the result still says that the tool failed, and ends nothing else."""
    box = new_box()
    box.status("a")
    box.status("b")
    box.status(None)
    box.tool_end(done("a", failed=True))

    assert states(box) == [("a", FAILED), ("b", RUNNING)]


def test_equal_sentences_are_told_apart_by_order():
    """Two tools with the same sentence: cleared once and reported once is one end."""
    box = new_box()
    box.status("a")
    box.status("a")
    box.status(None)
    box.tool_end(done("a", failed=True))

    assert states(box) == [("a", FAILED), ("a", RUNNING)]


def test_a_result_with_another_title_closes_first_in_first_out():
    """Hermes knew only the tool's name: the tool that started first is taken."""
    box = new_box()
    box.status("is running ls")
    box.status("is reading")
    box.tool_end(done("terminal", failed=True))

    assert states(box) == [("is running ls", FAILED), ("is reading", RUNNING)]

    box.status(None)

    assert states(box) == [("is running ls", FAILED), ("is reading", RUNNING)]


@pytest.mark.parametrize("title", ["is running ls", "terminal"])
def test_a_step_that_had_its_own_result_is_not_corrected_again(title):
    """A second result is of another call that nobody announced."""
    box = new_box()
    box.status("is running ls")
    box.status(None)
    box.tool_end(done(title, failed=True))
    box.tool_end(done(title))

    assert states(box) == [("is running ls", FAILED), (title, COMPLETED)]


def test_a_wrong_guess_is_corrected_by_the_own_result():
    """What the name of another tool closed by mistake gets its own end when that comes."""
    box = new_box()
    box.status("is running ls")
    box.tool_end(done("unknown_tool", failed=True))
    box.tool_end(done("is running ls"))

    assert states(box) == [("is running ls", COMPLETED)]


def test_a_result_that_nobody_announced_is_a_step_that_has_ended():
    """With the sentences switched off the results alone tell what was done."""
    box = new_box()
    box.tool_end(done("terminal"))
    box.tool_end(done("terminal", failed=True))
    box.tool_end(done(None))

    assert states(box) == [("terminal", COMPLETED), ("terminal", FAILED)]


@pytest.mark.parametrize("text", [None, "", " \n\t"])
def test_a_clearing_without_a_step_changes_nothing(text):
    """Nothing was running: nothing is closed."""
    box = new_box()
    box.status(text)

    assert box.content == new_box().content


# Text ---------------------------------------------------------------------------------------------


def test_a_draft_is_shown_by_its_end():
    """What the model wrote last is what people want to see."""
    box = new_box()
    box.draft("x" * 10 + "y" * MAX_EXCERPT_CHARS)

    assert box.content.last_text_excerpt == "y" * MAX_EXCERPT_CHARS


def test_a_draft_ends_no_tool():
    """Drafts of the text before a tool call may arrive while the tool is running."""
    box = new_box()
    box.status("a")
    box.draft("I will read it.")

    assert states(box) == [("a", RUNNING)]


@pytest.mark.parametrize("become", [LiveBox.interim, LiveBox.answer])
def test_a_text_that_became_a_message_is_not_shown_twice(become):
    """The excerpt goes when the message comes."""
    box = new_box()
    box.draft("Hello")
    become(box)

    assert box.content.last_text_excerpt is None


def test_interim_text_ends_no_tool():
    """Text before a tool call is posted while the tool runs."""
    box = new_box()
    box.status("a")
    box.interim()

    assert states(box) == [("a", RUNNING)]


def test_the_answer_ends_what_was_left_running():
    """A model that answers waits for no tool; a result that comes late still counts."""
    box = new_box()
    box.status("a")
    box.status("b")
    box.answer()

    assert states(box) == [("a", COMPLETED), ("b", COMPLETED)]

    box.tool_end(done("b", failed=True))

    assert states(box) == [("a", COMPLETED), ("b", FAILED)]


def test_the_answer_forgets_clearings_that_never_came():
    """A later turn of the same run starts without old debts."""
    box = new_box()
    box.status("a")
    box.tool_end(done("a"))
    box.answer()
    box.status("b")
    box.status(None)

    assert states(box) == [("a", COMPLETED), ("b", COMPLETED)]


# Lines and the end --------------------------------------------------------------------------------


def test_a_prompt_is_a_step_that_failed():
    """What nobody can answer is shown as such."""
    box = new_box()
    box.prompt("Asked for an approval, which nobody can give here")

    assert states(box) == [("Asked for an approval, which nobody can give here", FAILED)]


def test_a_note_is_shown_when_no_tool_has_more_to_say():
    """A tool's sentence covers the note for a while and does not replace it."""
    box = new_box()
    box.note("The event stream was lost.")
    box.status("is reading")

    assert box.content.status_line == "is reading"

    box.status(None)
    box.end(failed=True)

    assert box.content.status_line == "The event stream was lost."


def test_what_the_run_waits_for_goes_before_everything():
    """The line that awaitRunInput wrote is not taken away by a tool's sentence."""
    box = new_box()
    box.waiting("Which colour?")
    box.status("is asking")

    assert box.content.status_line == "Which colour?"

    box.waiting(None)

    assert box.content.status_line == "is asking"


@pytest.mark.parametrize(("failed", "state"), [(False, COMPLETED), (True, FAILED)])
def test_decision_7_the_end_takes_what_is_still_running_along(failed, state):
    """No step runs on after its run, and the line goes."""
    box = new_box()
    box.status("a")
    box.waiting("Which colour?")
    box.end(failed=failed)

    assert states(box) == [("a", state)]
    assert box.content.status_line is None


def test_after_the_end_reports_change_nothing():
    """Hermes' threads may talk on for a while; only a note of the adapter itself still counts."""
    box = new_box()
    box.draft("half an ans")
    box.end(failed=True)
    content = box.content
    for late in (
        lambda: box.status("b"),
        lambda: box.status(None),
        lambda: box.tool_end(done("b")),
        lambda: box.draft("more"),
        box.interim,
        lambda: box.prompt("c"),
        lambda: box.waiting("Which colour?"),
    ):
        late()

    assert box.content == content

    box.note("Interrupted.")

    assert box.content.status_line == "Interrupted."


# Limits -------------------------------------------------------------------------------------------


def test_the_oldest_finished_steps_are_folded_into_one():
    """Over the limit the list keeps its young steps, counts the old ones and keeps what runs."""
    box = new_box()
    box.status("runs all the time")
    for number in range(300):
        box.status(f"tool {number}")
        box.tool_end(done(f"tool {number}", failed=number % 10 == 0))
    found = box.content.steps

    assert len(found) == MAX_STEPS
    assert found[0].title == "102 earlier steps, 11 failed"
    assert found[0].state is COMPLETED
    assert (found[1].title, found[1].state) == ("runs all the time", RUNNING)
    assert [step.title for step in found[2:]] == [f"tool {number}" for number in range(102, 300)]
    assert found[0].started_at < found[0].finished_at < found[2].started_at

    box.tool_end(done("runs all the time"))
    box.tool_end(done("one more"))

    assert box.content.steps[0].title == "103 earlier steps, 11 failed"
    assert box.content.steps[0].started_at == found[1].started_at
    assert box.content.steps[0].finished_at > found[-1].started_at


def test_steps_whose_ends_nobody_reports_keep_to_the_limit():
    """When everything seems to run, the oldest are taken to have ended; their results still count."""
    box = new_box()
    for number in range(MAX_RUNNING + 2):
        box.status(f"tool {number}")

    assert states(box)[:3] == [("tool 0", COMPLETED), ("tool 1", COMPLETED), ("tool 2", RUNNING)]

    box.tool_end(done("tool 1", failed=True))

    assert states(box)[:3] == [("tool 0", COMPLETED), ("tool 1", FAILED), ("tool 2", RUNNING)]
    assert len([step for step in box.content.steps if step.state is RUNNING]) == MAX_RUNNING


HOSTILE = "is running \x00echo\r\n\u202egnp.exe\u2028\ud83d " + "é\u0301" * 300


def test_hostile_sentences_make_one_short_visible_line():
    """Line breaks, control and reordering characters and lone surrogates cannot harm the view."""
    box = new_box()
    box.status(HOSTILE)
    box.draft("\udc00" + HOSTILE)
    line = box.content.status_line

    assert line.startswith("is running ␀echo ⟨U+202E⟩gnp.exe \ufffd ")
    assert line.endswith("é\u0301…")
    assert len(line) <= MAX_STATUS_CHARS
    dump_json(dump(document(box)))


def test_a_secret_in_a_sentence_is_not_shown():
    """A step that names a command shows it without the token in it, and is still found by its result."""
    box = new_box()
    box.status("is running API_TOKEN=abc ls")

    assert box.content.status_line == "is running API_TOKEN=[redacted] ls"

    box.tool_end(done("is running API_TOKEN=abc ls", failed=True))

    assert states(box) == [("is running API_TOKEN=[redacted] ls", FAILED)]


def test_times_are_whole_milliseconds():
    """A server that stores no finer times returns the document that was sent."""
    box = new_box()
    box.status("a")
    box.status(None)
    found = box.content.steps[0]

    assert (found.started_at.microsecond, found.finished_at.microsecond) == (123_000, 123_000)


def test_content_stays_out_of_repr():
    """What Hermes said is in no log line that shows a content or a step."""
    box = new_box()
    box.status("is reading secret.txt")
    box.draft("the secret")

    assert "secret" not in repr(box.content) + repr(box._steps) + repr(box)


# Properties ---------------------------------------------------------------------------------------


class Turns(RuleBasedStateMachine):
    """Any order of reports: the box stays within its limits, and patches follow it."""

    def __init__(self):
        super().__init__()
        self.box = new_box()
        self.have = document(self.box)
        self.ended = False

    titles = st.sampled_from(["a", "b", "terminal", "x" * 300])

    @rule(text=titles | st.none() | st.text(max_size=5))
    def status(self, text):
        self.box.status(text)

    @rule(title=titles | st.none(), failed=st.booleans())
    def tool_end(self, title, failed):
        self.box.tool_end(ToolEnd(title, failed))

    @rule(count=st.sampled_from([90, 150]), announced=st.booleans())
    def many(self, count, announced):
        for number in range(count):
            self.box.status("y") if announced else self.box.tool_end(ToolEnd("y", failed=number % 2 == 0))

    @rule(text=st.text())
    def draft(self, text):
        self.box.draft(text)

    @rule(line=st.text(max_size=5))
    def note(self, line):
        self.box.note(line)

    @rule(line=st.none() | st.text(max_size=5))
    def waiting(self, line):
        self.box.waiting(line)

    @rule()
    def interim(self):
        self.box.interim()

    @rule()
    def answer(self):
        self.box.answer()

    @rule(failed=st.booleans())
    def end(self, failed):
        self.box.end(failed=failed)
        self.ended = True

    @invariant()
    def nothing_runs_after_the_end(self):
        if self.ended:
            assert all(step.state is not RUNNING for step in self.box.content.steps)

    @invariant()
    def patches_follow(self):
        while operations := diff(self.have, self.box.content):
            self.have = parse(RunDocument, apply_tiny(dump(self.have), operations))
        assert self.have == document(self.box)


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=15, stateful_step_count=15)


@given(st.lists(st.booleans(), max_size=30), st.data())
def test_as_many_ends_as_starts_leave_nothing_running(order, data):
    """Each tool ends once by a result and once by a clearing, in any order after its start."""
    box = new_box()
    left = []
    for number, by_result in enumerate(order):
        box.status(f"tool {number}")
        left += [number] if by_result else []
    ends = data.draw(st.permutations([*left, *([None] * len(order))]))
    for end in ends:
        box.status(None) if end is None else box.tool_end(done(f"tool {end}", failed=True))

    assert all(step.state is not RUNNING for step in box.content.steps)


# Speed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "count", "budget"),
    [
        (
            lambda box, number: box.status(f"is running echo hello {number}" if number % 2 else None),
            100_000,
            20e-6,
        ),
        (lambda box, number: box.draft(f"{number}" * 3000), 100_000, 20e-6),
        (lambda box, number: box.status(f"is running {number}"), 20_000, 40e-6),  # two steps change each time
    ],
    ids=["start-and-end", "draft", "starts-without-ends"],
)
def test_an_update_takes_microseconds(update, count, budget):
    """Reports of one turn cost under 20 µs each, also when there are a hundred thousand of them."""
    box = new_box()
    batches = []
    for start in range(0, count, count // 10):
        started = time.process_time()
        for number in range(start, start + count // 10):
            update(box, number)
        batches.append((time.process_time() - started) / (count // 10))

    assert min(batches[-5:]) < budget
    assert len(box.content.steps) <= MAX_STEPS
