"""Writing the live box: merged, in time, and never in the way."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from bothy_hermes import run_patches
from bothy_hermes.codec import parse
from bothy_hermes.errors import ConfigError, ProblemAnswer, RunEnded, TransportError, VersionConflict
from bothy_hermes.json_patch import apply_patch
from bothy_hermes.live_box import LiveBox
from bothy_hermes.run_patches import DRAFT_SECONDS, Patcher
from bothy_hermes.wire import RunDocument
from bothy_hermes.wire_words import MAX_PATCH_OPERATIONS, RunState
from tests.fakes.clock import FakeClock, settle

RUN = UUID("0192f4a0-7b1c-7000-8000-0000000000aa")
EMPTY = {"version": 1, "status_line": None, "steps": [], "last_text_excerpt": None}
INTERVAL = 1.0


class Server:
    """Keeps a document like the real one: versions, conflicts, refusals."""

    def __init__(self, clock):
        self.clock = clock
        self.document = dict(EMPTY)
        self.taken_at = []
        self.answers = []

    async def update_run(self, run_id, _auth, body):
        assert run_id == RUN
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        if body.base_version != self.document["version"]:
            raise VersionConflict("updateRun", 409, "version_conflict", extra={"document": self.document})
        self.document = apply_patch(self.document, body.patch) | {"version": body.base_version + 1}
        self.taken_at.append(self.clock.elapsed)
        return self.document["version"]

    async def get_run(self, _run_id, _auth):
        raise ProblemAnswer("getRun", 404, "not_found")


def scenario(steps):
    """Run `steps(clock, server, box, patcher)` while the patcher works."""

    async def run():
        clock = FakeClock()
        server = Server(clock)
        ids = iter(range(1000))
        box = LiveBox(clock.clock.now, lambda: f"s{next(ids)}")
        patcher = Patcher(
            server,
            RUN,
            None,
            box,
            parse(RunDocument, dict(EMPTY)),
            interval=lambda: INTERVAL,
            clock=clock.clock,
        )
        task = asyncio.ensure_future(patcher.run())
        try:
            await steps(clock, server, box, patcher)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled() or task.exception() is None
        return server, patcher

    return asyncio.run(run())


def test_the_first_change_is_written_at_once():
    async def steps(_clock, server, box, patcher):
        box.draft("Hello")
        patcher.poke()
        await settle()
        assert server.document["last_text_excerpt"] == "Hello"

    server, _ = scenario(steps)
    assert server.taken_at == [0.0]


def test_decision_7_a_draft_is_shown_when_it_is_a_moment_old():
    async def steps(clock, server, box, patcher):
        box.status("is running ls")
        patcher.poke()
        await clock.advance(100)
        for word in ("There", "There are", "There are two"):
            box.draft(word)
            patcher.poke_draft()
            await clock.advance(DRAFT_SECONDS / 3)
        await clock.advance(DRAFT_SECONDS)

    server, _ = scenario(steps)
    assert server.document["last_text_excerpt"] == "There are two"
    assert server.taken_at == [0.0, pytest.approx(100 + DRAFT_SECONDS)]


def test_a_draft_that_soon_becomes_the_answer_is_no_patch():
    """And there is none to take it away."""

    async def steps(clock, _server, box, patcher):
        box.draft("There are")
        patcher.poke_draft()
        await settle()
        box.answer()
        patcher.poke()
        await clock.advance(10)
        await patcher.flush()

    server, _ = scenario(steps)
    assert server.taken_at == []


def test_a_draft_is_shown_with_a_step_that_comes_meanwhile():
    async def steps(_clock, server, box, patcher):
        box.draft("There are")
        patcher.poke_draft()
        await settle()
        box.status("is running ls")
        patcher.poke()
        await settle()
        assert server.document["last_text_excerpt"] == "There are"

    server, _ = scenario(steps)
    assert server.taken_at == [0.0]


def test_decision_7_fast_changes_merge_into_one_patch_an_interval():
    """A thousand drafts in four seconds are at most six patches."""

    async def steps(clock, _server, box, patcher):
        for index in range(1000):
            box.draft(f"draft {index}")
            patcher.poke()
            await clock.advance(0.004)
        await clock.advance(INTERVAL)

    server, patcher = scenario(steps)
    assert server.document["last_text_excerpt"] == "draft 999"
    gaps = [later - earlier for earlier, later in zip(server.taken_at, server.taken_at[1:], strict=False)]
    assert min(gaps) >= INTERVAL
    assert patcher.patches <= 6


def test_the_end_does_not_wait_for_the_interval():
    async def steps(_clock, server, box, patcher):
        box.draft("one")
        patcher.poke()
        await settle()
        box.draft("two")
        patcher.poke()
        await patcher.flush()
        assert server.document["last_text_excerpt"] == "two"

    server, _ = scenario(steps)
    assert server.taken_at == [0.0, 0.0]


def test_the_end_waits_for_the_patch_that_is_under_way():
    """It is made of what the server has then, and not refused for being made of less."""

    async def steps(_clock, server, box, patcher):
        usual, asked, answering = server.update_run, [], asyncio.Event()

        async def slowly(run_id, auth, body):
            asked.append(body.base_version)
            await answering.wait()
            return await usual(run_id, auth, body)

        server.update_run = slowly
        box.draft("one")
        patcher.poke()
        await settle()
        box.draft("two")
        last = asyncio.ensure_future(patcher.flush())
        await settle()
        assert asked == [1]
        answering.set()
        await last
        assert asked == [1, 2]
        assert server.document["last_text_excerpt"] == "two"

    scenario(steps)


def test_no_patch_comes_between_an_early_one_and_the_call_that_allows_it():
    """The call may take its time on a bad network; the server counts a second patch as too early."""

    async def steps(clock, server, box, patcher):
        box.draft("one")
        patcher.poke()
        await settle()
        box.draft("two")
        await patcher.flush_for_call()
        for text in ("three", "four"):
            box.draft(text)
            patcher.poke()
            await clock.advance(INTERVAL)
        await patcher.flush()
        assert server.document["last_text_excerpt"] == "two"
        patcher.call_made()
        await clock.advance(INTERVAL)

    server, _ = scenario(steps)
    assert server.document["last_text_excerpt"] == "four"
    assert len(server.taken_at) == 3


def test_a_patch_that_met_an_early_one_waits_its_own_time():
    """It was on its way when the other was written: after that it is due an interval later."""

    async def steps(clock, server, box, patcher):
        asked, usual = [], server.update_run

        async def slowly(*call):
            asked.append(clock.elapsed)
            if len(asked) == 1:
                await clock.clock.sleep(INTERVAL / 2)
            return await usual(*call)

        server.update_run = slowly
        box.draft("one")
        flushing = asyncio.ensure_future(patcher.flush())
        await settle()
        box.draft("two")
        patcher.poke()
        await clock.advance(INTERVAL / 2)
        await flushing
        await settle()
        assert server.document["last_text_excerpt"] == "one"
        await clock.advance(INTERVAL)
        assert server.document["last_text_excerpt"] == "two"

    server, _ = scenario(steps)
    assert server.taken_at == [INTERVAL / 2, INTERVAL * 3 / 2]


def test_nothing_pending_costs_no_request():
    async def steps(_clock, server, box, patcher):
        box.draft("one")
        patcher.poke()
        await settle()
        await patcher.flush()
        patcher.poke()
        await settle()
        assert len(server.taken_at) == 1

    scenario(steps)


def test_a_conflict_is_computed_anew_from_the_servers_document():
    """What the server changed by itself survives, and the box wins where it speaks."""

    async def steps(_clock, server, box, patcher):
        server.document = EMPTY | {"version": 7, "last_text_excerpt": "theirs"}
        box.status("is running something")
        box.draft("ours")
        patcher.poke()
        await settle()
        assert server.document["version"] == 8
        assert server.document["last_text_excerpt"] == "ours"
        assert [step["title"] for step in server.document["steps"]] == ["is running something"]

    scenario(steps)


def test_a_server_that_finds_a_conflict_in_everything_is_asked_at_the_interval():
    """Three times at once, then as often as patches come anyway, until it is sane again."""
    conflict = VersionConflict("updateRun", 409, "version_conflict", extra={"document": dict(EMPTY)})

    async def steps(clock, server, box, patcher):
        server.answers = [conflict] * 9
        box.draft("one")
        patcher.poke()
        await settle()
        assert len(server.answers) == 6
        await clock.advance(INTERVAL)
        assert len(server.answers) == 3
        await patcher.flush()
        assert server.answers == []
        await clock.advance(INTERVAL)
        assert server.document["last_text_excerpt"] == "one"

    scenario(steps)


@pytest.mark.parametrize(
    "refusal",
    [RunEnded("updateRun", 409, "run_ended"), ProblemAnswer("updateRun", 422, "validation_failed")],
    ids=["run_ended", "refused_and_gone"],
)
def test_a_refusal_ends_the_box_and_nothing_else(refusal):
    async def steps(_clock, server, box, patcher):
        server.answers = [refusal]
        box.draft("one")
        patcher.poke()
        await settle()
        box.draft("two")
        patcher.poke()
        await patcher.flush()
        assert server.taken_at == []

    scenario(steps)


@pytest.mark.parametrize(("state", "taken"), [(RunState.RUNNING, [1, 5]), (RunState.FAILED, [1])])
def test_after_a_refusal_the_box_goes_on_from_what_the_server_has(state, taken):
    """Unless the run is over: then nobody needs a box any more."""
    asked = []

    async def steps(clock, server, box, patcher):
        usual = server.update_run

        async def update_run(run_id, auth, body):
            asked.append(body.base_version)
            return await usual(run_id, auth, body)

        async def get_run(_run_id, _auth):
            document = parse(RunDocument, server.document)
            return SimpleNamespace(document=document, run=SimpleNamespace(state=state))

        server.update_run, server.get_run = update_run, get_run
        server.document = EMPTY | {"version": 5}
        server.answers = [ProblemAnswer("updateRun", 422, "validation_failed")]
        for text in ("one", "two"):
            box.draft(text)
            patcher.poke()
            await clock.advance(INTERVAL)

    scenario(steps)
    assert asked == taken


def test_what_one_patch_cannot_hold_follows_in_the_next():
    """Without a change of the box that would tell it again."""

    async def steps(clock, server, box, patcher):
        for number in range(MAX_PATCH_OPERATIONS + 20):
            box.status(f"is running {number}")
        patcher.poke()
        await settle()
        assert len(server.document["steps"]) < MAX_PATCH_OPERATIONS
        await clock.advance(INTERVAL)
        assert len(server.document["steps"]) == MAX_PATCH_OPERATIONS + 20

    server, _ = scenario(steps)
    assert server.taken_at == [0.0, INTERVAL]


def test_a_mistake_in_the_box_does_not_reach_the_turn():
    async def steps(_clock, server, box, patcher):
        server.answers = [RuntimeError("a bug")]
        box.draft("one")
        patcher.poke()
        await settle()

    scenario(steps)  # the patcher's task ends without an exception


@pytest.mark.parametrize(
    "trouble",
    [RuntimeError("a bug"), TransportError("updateRun", "too_large", sent=True)],
    ids=["mistake", "answer"],
)
def test_a_mistake_in_the_last_patch_does_not_reach_the_end_of_the_run(trouble):
    async def steps(_clock, server, box, patcher):
        server.answers = [trouble]
        box.draft("one")
        await patcher.flush()

    scenario(steps)


@pytest.mark.parametrize(
    "trouble",
    [
        ProblemAnswer("renewRunToken", 401, "unauthorized"),
        ConfigError("hermes_adapter.token_file", "the file is empty"),
    ],
    ids=["token", "file"],
)
def test_what_an_operator_can_help_along_does_not_freeze_the_box(trouble):
    """A token that was replaced at the server and not here yet: what follows shows all that was missed."""

    async def steps(clock, server, box, patcher):
        server.answers = [trouble]
        box.status("is running ls")
        patcher.poke()
        await settle()
        assert server.document == EMPTY
        box.end(failed=False)
        await patcher.flush()
        assert [step["state"] for step in server.document["steps"]] == ["completed"]

    scenario(steps)


def test_a_server_that_never_answers_does_not_hold_the_end_up(monkeypatch):
    monkeypatch.setattr(run_patches, "FLUSH_SECONDS", 0.05)

    async def steps(_clock, server, box, patcher):
        async def never(*_args):
            await asyncio.get_running_loop().create_future()

        server.update_run = never
        box.draft("one")
        await asyncio.wait_for(patcher.flush(), 5)
        assert server.document == EMPTY

    scenario(steps)
