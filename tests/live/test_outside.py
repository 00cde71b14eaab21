"""What Hermes sends from outside of a run's turn: refused where its sender sees it, and in no thread."""

import json
import subprocess

import pytest

from bothy_hermes.gateway_process import find_hermes
from bothy_hermes.hermes_threads import REFUSED
from tests.live.kit import pause
from tests.live.talk import Talk

WORDS = "the schedule speaks"
MAKE_JOB = """
import json, sys
from cron.jobs import create_job, trigger_job
job = create_job(**json.load(sys.stdin))
trigger_job(job["id"])
print(job["id"])
"""
"""Has Hermes make a job that is due at the next look, which a gateway takes when it starts."""


def in_hermes(world, program, said):
    """Run a program with Hermes' own Python, in the profile."""
    place, hermes = world.gateway.place, find_hermes()
    done = subprocess.run(
        [hermes.parent / "python", "-c", program],
        input=said,
        env=place.environment(hermes),
        cwd=place.workspace,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def scheduled(closed_world):
    """A world with a schedule that speaks into a thread: (the thread's talk, the job's ID)."""
    closed_world.open(toolsets=("terminal", "cronjob"))
    talk = Talk(closed_world)
    scripts = closed_world.gateway.place.hermes_home / "scripts"
    scripts.mkdir()
    (scripts / "say.sh").write_text(f"echo {WORDS}\n")
    job = {
        "prompt": None,
        "schedule": "every 2h",
        "no_agent": True,
        "script": "say.sh",
        "deliver": "origin",
        "origin": {"platform": "bothy", "chat_id": chat_of(talk), "thread_id": str(talk.thread_id)},
    }
    job_id = in_hermes(closed_world, MAKE_JOB, json.dumps(job))
    closed_world.start()
    return talk, job_id


@pytest.fixture
def talk(scheduled):
    return scheduled[0]


def chat_of(talk):
    return str(talk.instance.thread(talk.thread_id).channel_id)


def job_of(scheduled):
    """The job as Hermes keeps it."""
    talk, job_id = scheduled
    file = talk.world.gateway.place.hermes_home / "cron" / "jobs.json"
    return next(one for one in json.loads(file.read_text())["jobs"] if one["id"] == job_id)


def after(scheduled, last):
    """Wait until the job ran once more; returns what Hermes says about it."""
    scheduled[0].until(lambda: job_of(scheduled)["last_run_at"] not in (None, last))
    return job_of(scheduled)


def tool_results(world, word):
    """What the tools answered in the turns that a word began."""
    return [row["content"] for body in world.asked(word) for row in body["messages"] if row["role"] == "tool"]


def everything(talk):
    """All that the agent said in a thread."""
    return [one.content for one in talk.instance.messages(talk.thread_id) if one.role is not None]


def test_a_schedule_for_a_thread_is_told_that_nothing_was_delivered(scheduled, talk):
    """No run has asked for its words; nobody reads them, and Hermes does not count them as delivered."""
    job = after(scheduled, None)
    assert job["last_status"] == "delivery_failed"
    assert REFUSED in job["last_delivery_error"]
    assert not job["last_delivery_unverified"]
    assert everything(talk) == []


@pytest.mark.parametrize("here", [True, False])
def test_a_schedule_that_a_turn_sets_off_says_nothing_in_its_thread(scheduled, talk, script, here):
    """Neither in the run that set it off nor in another thread: the model is told that it was refused."""
    script("fire", "cronjob_manage", action="run", job_id=scheduled[1])
    before = job_of(scheduled)["last_run_at"]
    teller = talk if here else Talk(talk.world)
    run_id = teller.say("fire")
    assert teller.ended(run_id).state == "completed"
    job = after(scheduled, before)
    assert job["last_status"] == "delivery_failed"
    assert REFUSED in job["last_delivery_error"]
    assert not job["last_delivery_unverified"]
    assert WORDS not in " ".join([*everything(talk), *everything(teller)])
    assert "delivery_failed" in tool_results(talk.world, "fire")[-1]


def test_work_in_the_background_says_nothing_in_a_later_run(talk, script, tmp_path):
    """The model is told that it will not be notified; nothing comes when the work is done."""
    talk, done = Talk(talk.world), tmp_path / "done"
    command = f"sleep 1; echo the background speaks; touch {done}"
    script("behind", "terminal", command=command, background=True, notify=True)
    run_id = talk.say("behind")
    assert talk.ended(run_id).state == "completed"
    told = tool_results(talk.world, "behind")[-1]
    assert "notify_unsupported" in told
    later = talk.say("sleep 3")
    talk.until(done.exists)
    assert talk.ended(later).state == "completed"
    pause(1.0)
    assert talk.texts(later) == ["The tool said: slept 3 s"]
    assert "the background speaks" not in " ".join(everything(talk))
    assert talk.runs()[-1] == later


@pytest.mark.parametrize("here", [True, False])
def test_a_command_that_sends_into_a_thread_is_told_that_it_cannot(talk, script, here):
    """A turn's terminal is a process of its own, without the platform: the model reads the error."""
    target = f"bothy:{chat_of(talk)}:{talk.thread_id}"
    script("tell", "terminal", command=f"{find_hermes()} send --to {target} {WORDS}; echo status $?")
    teller = talk if here else Talk(talk.world)
    assert teller.ended(teller.say("tell")).state == "completed"
    result = tool_results(talk.world, "tell")[-1]
    assert "status 0" not in result
    assert "status" in result
    assert WORDS not in " ".join([*everything(talk), *everything(teller)])
