"""The gateway is killed at every point of a run and started again; afterwards the books balance."""

import sqlite3
from contextlib import closing

import pytest

from bothy_hermes.local_agents import Fault
from bothy_hermes.local_rules import Refused
from tests.live.kit import pause

RESUMED = "The previous turn was interrupted"
"""How Hermes begins a turn that it continues by itself."""

NO_BREAKER = """
gateway:
  restart_loop_guard:
    max_restarts: 0
"""
"""Hermes continues nothing after three kills in a row, and this module kills more often."""

BALANCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def undisturbed(world):
    """No fault of a test outlives it."""
    yield
    world.server.fault = None


def dies_at(world, operation, *, acted=False):
    """Kill the gateway when it makes its next call of an operation, before or after the server acts."""

    def fault(name, _request):
        if name != operation:
            return None
        world.server.fault = None
        world.gateway.kill()
        return Fault.LOSE_AFTER if acted else Fault.LOSE_BEFORE

    world.server.fault = fault


def dead(world):
    """Wait until the gateway was killed."""
    _until(lambda: not world.gateway.alive, "the kill")


def come_back(world, thread_id):
    """Start the gateway again and wait until every run of the thread has ended and the books balance."""
    world.start()
    _until(lambda: all(run.state.ended for run in runs_of(world, thread_id)), "the ends")
    _until(lambda: unbalanced(world) == [], lambda: f"the books: {unbalanced(world)}")
    assert world.server.violations == []
    return runs_of(world, thread_id)


def runs_of(world, thread_id):
    """A thread's runs, oldest first."""
    return [view.run for view in world.server.instance.runs(_id(world, thread_id))]


def unbalanced(world):
    """What is still open on either side, once every run has ended."""
    events = world.server.instance.state.events.all()
    found = [f"the server waits for {one.type}" for one in events if one.settled_at is None]
    state = world.gateway.place.hermes_home / "bothy" / "state.sqlite3"
    with closing(sqlite3.connect(f"file:{state}?mode=ro", uri=True)) as disk:
        for table, where in (("outbox", ""), ("cards", ""), ("inbox", "state NOT IN ('settled', 'done')")):
            query = f"SELECT count(*) FROM {table}" + (f" WHERE {where}" if where else "")
            (count,) = disk.execute(query).fetchone()
            found += [f"{table} holds {count}"] * bool(count)
        taken = "SELECT run_id FROM inbox WHERE event_type = 'agent.invocation'"
        runs = [row[0] for row in disk.execute(taken)]
        found += ["a run was taken twice"] * (len(runs) - len(set(runs)))
    return found


def asked_about(world, text):
    """How many turns of the model began with a person's text."""
    return len([body for body in world.asked(text) if body["messages"][-1]["role"] == "user"])


def answers(world, thread_id):
    """What the agent answered in a thread, in order."""
    messages = world.person().thread(thread_id)["messages"]
    return [one["content"] for one in messages if one["role"] == "answer"]


def nothing_resumed(world):
    """Hermes has continued no turn by itself, so nobody paid for one."""
    return not any(RESUMED in str(body["messages"]) for body in world.model.requests)


def ends(runs):
    """State and reason of each run."""
    return [(str(run.state), run.reason) for run in runs]


LOST = [("failed", "adapter_restarted")]
DONE = [("completed", None)]


@pytest.fixture(scope="module")
def killed(world):
    """One kill for two threads: an answer was taken and its end was not, and a card is open."""
    answered, asking = world.new_thread(), world.new_thread()
    run_id = world.person().post(asking, "approve")
    world.wait_for(run_id, asking, states=("waiting_input",))
    dies_at(world, "finishRun")
    world.person().post(answered, "repeat before the end")
    dead(world)
    come_back(world, answered)
    return answered, asking


def test_after_the_answer_and_before_the_end_it_is_answered_once(world, killed):
    """The answer was taken, the end was not: after the restart the end is sent, and nothing else."""
    thread_id, _ = killed
    assert ends(runs_of(world, thread_id)) == DONE
    assert answers(world, thread_id) == ["[script] before the end"]
    assert asked_about(world, "before the end") == 1
    assert nothing_resumed(world)


def test_while_a_follow_up_waits_it_becomes_the_next_run(world):
    """The turn is lost, the text is not: it is answered once, in a run of its own."""
    person = world.person()
    thread_id = world.new_thread()
    person.post(thread_id, "sleep 4 beside a text")
    _until(lambda: asked_about(world, "beside a text") == 1, "the turn")
    assert person.post(thread_id, "the text that waited") is None
    world.gateway.kill()
    assert ends(come_back(world, thread_id)) == LOST + DONE
    # Hermes shows its model the lost turn's text together with the new one, so the script sleeps again.
    assert len(answers(world, thread_id)) == 1
    assert asked_about(world, "the text that waited") == 1
    assert nothing_resumed(world)


def test_with_an_open_card_nothing_stays_usable(world, killed):
    """Nobody waits behind the card any more: it is closed, and a click is refused instead of believed."""
    instance = world.server.instance
    _, thread_id = killed
    assert ends(runs_of(world, thread_id)) == LOST
    (card,) = [one for one in instance.messages(_id(world, thread_id)) if one.kind == "card"]
    assert card.closed is not None
    ada = instance.people()[0]
    with pytest.raises(Refused):
        instance.use_component(ada.id, card.id, card.components[0].id)
    assert nothing_resumed(world)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "acted", "end", "turns"),
    [
        ("getRunContext", False, DONE, 1),
        ("startRun", False, DONE, 1),
        ("startRun", True, LOST, 0),
        ("createMessage", False, None, 1),
        ("createMessage", True, None, 1),
        ("finishRun", True, DONE, 1),
    ],
)
def test_killed_at_a_call_the_run_ends_once(world, operation, acted, end, turns):
    """Before the start it is done after the restart; from the start on it is never done twice."""
    thread_id = world.new_thread()
    text = f"repeat killed at {operation} {acted}"
    dies_at(world, operation, acted=acted)
    world.person().post(thread_id, text)
    dead(world)
    found = ends(come_back(world, thread_id))
    # Whether the end was stored before the kill is a matter of milliseconds; both are an end.
    assert found == end or (end is None and found in (DONE, LOST))
    assert asked_about(world, text) == turns
    assert answers(world, thread_id) == [f"[script] {text.removeprefix('repeat ')}"] * turns
    assert nothing_resumed(world)


@pytest.mark.slow
def test_a_turn_that_hermes_continues_by_itself_answers_nobody(world):
    """Where an operator lets it, none of its words reach a thread, and no run is done twice."""
    config = world.gateway.place.hermes_home / "config.yaml"
    before = config.read_text("utf-8")
    changed = before.replace("continue_freshness: 1", "continue_freshness: 3600")
    assert changed != before
    config.write_text(changed + NO_BREAKER, "utf-8")
    try:
        world.gateway.stop()
        world.start()
        thread_id = world.new_thread()
        world.person().post(thread_id, "sleep 4 to be continued")
        _until(lambda: asked_about(world, "to be continued") == 1, "the turn")
        world.gateway.kill()
        assert ends(come_back(world, thread_id)) == LOST
        _until(lambda: not nothing_resumed(world), "the turn that Hermes continues")
        pause(8)
        assert answers(world, thread_id) == []
        assert world.say("repeat once more").texts("answer") == ["[script] once more"]
    finally:
        world.gateway.stop()
        config.write_text(before, "utf-8")


def _id(world, thread_id):
    return next(one.id for one in world.server.instance.threads() if str(one.id) == thread_id)


def _until(condition, what):
    for _ in range(int(BALANCE_SECONDS / 0.05)):
        if condition():
            return
        pause(0.05)
    raise AssertionError(f"still waiting for {what() if callable(what) else what}")
