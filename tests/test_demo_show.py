"""What the demo prints of a run."""

import io
import json

import pytest

from bothy_hermes.demo_show import Show


def view(state="running", *, status=None, steps=(), excerpt=None, reason=None):
    document = {"version": 1, "status_line": status, "steps": list(steps), "last_text_excerpt": excerpt}
    return {"run": {"id": "r1", "state": state, "reason": reason}, "document": document, "open_cards": []}


def step(state, title="echo hello"):
    return {"id": "s1", "title": title, "state": state}


@pytest.fixture
def out():
    return io.StringIO()


def text_of(out, *views):
    show = Show(out, as_json=False)
    for one in views:
        show.run(one)
    return out.getvalue()


def test_a_run_is_shown_from_its_first_state_to_its_last(out, text_snapshot):
    assert (
        text_of(
            out,
            view("queued"),
            view(status="running echo"),
            view(status="running echo", steps=[step("running")]),
            view(steps=[step("completed")]),
            view(steps=[step("completed")], excerpt="The tool\nsaid hello"),
            view("completed", steps=[step("completed")], excerpt="The tool\nsaid hello"),
        )
        == text_snapshot
    )


def test_what_did_not_change_is_not_shown_again(out):
    assert text_of(out, view(status="thinking"), view(status="thinking")).count("thinking") == 1


def test_a_step_is_shown_again_when_its_state_changes(out):
    shown = text_of(out, view(steps=[step("running")]), view(steps=[step("failed")]))
    assert shown.count("echo hello") == 2
    assert "✗ echo hello" in shown


def test_a_failed_run_shows_its_reason(out):
    assert "run failed (runtime_error)" in text_of(out, view("failed", reason="runtime_error"))


def test_the_end_of_a_long_draft_is_shown(out):
    shown = text_of(out, view(excerpt="a" * 500 + " the end"))
    assert shown.endswith("the end\n")
    assert len(shown.splitlines()[-1]) < 120


def test_the_answer_comes_last(out):
    Show(out, as_json=False).result(view("completed"), "Fine.")
    assert out.getvalue() == "\nFine.\n"


def test_as_json_every_line_is_an_object_and_the_last_has_run_and_answer(out):
    show = Show(out, as_json=True)
    show.stage("Starting")
    show.run(view(status="thinking"))
    show.run(view(status="thinking"))
    show.result(view("completed"), "Schön und gut.")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [sorted(line) for line in lines] == [["stage"], ["box", "state"], ["answer", "run"]]
    assert lines[-1]["run"]["state"] == "completed"
    assert lines[-1]["answer"] == "Schön und gut."
