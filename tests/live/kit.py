"""What live tests work with: a demo world with the real Hermes, and a person who writes to the agent."""

import compileall
import dataclasses
import os
import shutil
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import yaml

import bothy_hermes
from bothy_hermes.clock import system_clock
from bothy_hermes.demo_person import answer_text
from bothy_hermes.demo_world import DemoWorld
from bothy_hermes.hermes_versions import hermes_version
from bothy_hermes.local_options import ServerOptions

PACKAGE = Path(bothy_hermes.__file__).parent
ENDED = ("completed", "failed", "cancelled")
RUN_SECONDS = 60.0


def in_019():
    """Whether these tests ask Hermes 0.19; docs/versions.md says where it differs."""
    return (hermes_version() or "").startswith("0.19.")


@dataclass
class Said:
    """What became of one message: its run as it changed, and the messages of the run at its end."""

    thread_id: str
    run_id: str
    views: list = field(default_factory=list)
    messages: list = field(default_factory=list)

    @property
    def run(self):
        return self.views[-1]["run"]

    @property
    def state(self):
        return self.run["state"]

    @property
    def document(self):
        return self.views[-1]["document"]

    @property
    def steps(self):
        return self.document["steps"]

    @property
    def answer(self):
        return answer_text(self.messages)

    def texts(self, role):
        return [one["content"] for one in self.messages if one["role"] == role]

    def drafts(self):
        """Every excerpt that was seen, in order."""
        return [
            view["document"]["last_text_excerpt"]
            for view in self.views
            if view["document"]["last_text_excerpt"]
        ]


class LiveWorld(DemoWorld):
    """A demo world with what tests ask of it."""

    def __init__(self, root, environment=None, *, dpop=False):
        super().__init__(root, system_clock(), environment)
        self.told = []
        self.dpop = dpop

    def open(self, options=None, **more):
        options = dataclasses.replace(options or ServerOptions(), dpop=self.dpop)
        super().open(options=options, **more)
        share_byte_code(self.gateway.place.hermes_home / "plugins" / "bothy")

    def start(self):
        self.start_gateway(self.told.append)

    def new_thread(self):
        return self.person().open_thread()

    def say(self, text, thread_id=None, *, seconds=RUN_SECONDS):
        """Post a message and wait for the end of its run."""
        person = self.person()
        with closing(person.watch()) as feed:
            thread_id = thread_id or person.open_thread()
            run_id = person.post(thread_id, text)
            assert run_id is not None, "the message started no run"
            said = Said(thread_id, run_id)
            self._follow(person, feed, said, seconds)
        return said

    def wait_for(self, run_id, thread_id, *, states=ENDED, seconds=RUN_SECONDS):
        """Wait until a run is in one of the states and return what became of it."""
        person = self.person()
        said = Said(thread_id, run_id)
        with closing(person.watch()) as feed:
            said.views = [view for view in person.runs(thread_id) if view["run"]["id"] == run_id]
            if not said.views or said.state not in states:
                self._follow(person, feed, said, seconds, states)
            said.messages = run_messages(person, thread_id, run_id)
        return said

    def all_at_once(self, *texts):
        """Post each text in a thread of its own at the same time; what became of them, in order."""
        with ThreadPoolExecutor(len(texts)) as pool:
            return list(pool.map(self.say, texts))

    def _follow(self, person, feed, said, seconds, states=ENDED):
        clock = system_clock()
        end = clock.monotonic() + seconds
        while not said.views or said.state not in states:
            assert clock.monotonic() < end, f"the run is still {said.state if said.views else 'unseen'}"
            assert self.gateway.alive, "the gateway ended by itself"
            change = feed.next(0.5)
            if change and change[0] == "run" and change[1]["run"]["id"] == said.run_id:
                said.views.append(change[1])
        said.messages = run_messages(person, said.thread_id, said.run_id)

    def asked(self, text):
        """The chat requests that the model got about a person's text, oldest first."""
        return [body for body in self.model.requests if body.get("tools") and text in last_user_text(body)]

    def faults_of_home(self):
        """What is wrong with the profile's files after the gateway was stopped."""
        home = self.gateway.place.hermes_home
        faults = [fault for path in sorted(home.rglob("*.db")) if (fault := _database_fault(path))]
        state = home / "bothy"
        faults += [fault for path in sorted(state.glob("*.sqlite3")) if (fault := _database_fault(path))]
        faults += [f"{path.name} holds a token" for path in state.rglob("*") if _holds(path, b"eyJ")]
        yaml.safe_load((home / "config.yaml").read_text("utf-8"))
        return faults


def run_messages(person, thread_id, run_id):
    return [one for one in person.thread(thread_id)["messages"] if one["run_id"] == run_id]


def last_user_text(body):
    texts = [one["content"] for one in body["messages"] if one["role"] == "user"]
    return texts[-1] if texts and isinstance(texts[-1], str) else str(texts[-1:])


def share_byte_code(plugin):
    """Give a copied plugin the byte code of the package, compiled once: a start then compiles nothing."""
    compileall.compile_dir(PACKAGE, quiet=2, maxlevels=0)
    cache = plugin / "__pycache__"
    cache.mkdir(exist_ok=True)
    for source in plugin.glob("*.py"):
        times = (PACKAGE / source.name).stat()
        os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
        for compiled in (PACKAGE / "__pycache__").glob(f"{source.stem}.*.pyc"):
            shutil.copy2(compiled, cache / compiled.name)


def coverage_environment(root):
    """What has the gateway measure its coverage when the tests are measured, for `coverage combine`."""
    if "coverage" not in sys.modules or (measured := sys.modules["coverage"].Coverage.current()) is None:
        return {}
    settings = {
        "branch": "true",
        "parallel": "true",
        "patch": "_exit",
        "include": "*/plugins/bothy/*",
        "data_file": Path(measured.get_option("run:data_file")).absolute(),
    }
    file = root / "coveragerc"
    file.write_text("[run]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    return {"COVERAGE_PROCESS_START": str(file)}


def pause(seconds):
    """Wait for real: a live test has Hermes' time, not its own."""
    threading.Event().wait(seconds)


def _database_fault(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        try:
            answer = database.execute("PRAGMA integrity_check").fetchone()[0]
        except sqlite3.DatabaseError as error:
            answer = str(error)
    return None if answer == "ok" else f"{path.name}: {answer}"


def _holds(path, needle):
    return path.is_file() and needle in path.read_bytes()
