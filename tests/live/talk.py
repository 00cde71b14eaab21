"""A thread in which people talk with the real Hermes, seen and driven in the embedded server itself."""

from uuid import UUID, uuid4

from bothy_hermes.clock import system_clock
from bothy_hermes.local_model_words import LABEL
from bothy_hermes.wire_words import MessageKind, MessageRole
from tests.live.kit import pause

SECONDS = 30.0
"""Until a test gives up waiting; what works takes a few of them."""


class Talk:
    """One thread."""

    def __init__(self, world, thread_id=None):
        self.world = world
        self.instance = world.server.instance
        self.people = [person.id for person in world.server.people]
        self.thread_id = thread_id or self.instance.create_thread(self.people[0]).id

    def say(self, text, who=0, **more):
        """Post a message; returns the run that it opened, None when it opened none."""
        return self.post(text, who, **more).run_id

    def post(self, text, who=0, **more):
        return self.instance.post_message(
            self.people[who], self.thread_id, text, client_msg_id=str(uuid4()), **more
        )

    def run(self, run_id):
        return self.instance.run(run_id)

    def runs(self):
        return [view.run.id for view in self.instance.runs(self.thread_id)]

    def until(self, condition, seconds=SECONDS):
        """Wait for a condition and return what it gave."""
        clock = system_clock()
        end = clock.monotonic() + seconds
        while not (found := condition()):
            assert clock.monotonic() < end, "it has not come about"
            assert self.world.gateway.alive, "the gateway ended by itself"
            pause(0.02)
        return found

    def in_state(self, run_id, *states):
        return self.until(lambda: self.run(run_id).run.state in states)

    def step(self, run_id, words=""):
        """Wait until a step of the run is at work; its title holds the words."""

        def found():
            steps = self.run(run_id).document.steps
            return next((one for one in steps if one.state == "running" and words in one.title), None)

        return self.until(found)

    def ended(self, run_id, seconds=SECONDS):
        """Wait for a run's end."""
        self.until(lambda: self.run(run_id).run.state.ended, seconds)
        return self.run(run_id).run

    def next_run(self, run_id):
        """Wait until the run behind another one is there."""
        place = self.runs().index(run_id) + 1
        self.until(lambda: len(self.runs()) > place)
        return self.runs()[place]

    def messages(self, run_id):
        return [one for one in self.instance.messages(self.thread_id) if one.run_id == run_id]

    def texts(self, run_id, role=MessageRole.ANSWER):
        """What the agent said in a run, without its label."""
        return [
            one.content.removeprefix(f"{LABEL} ")
            for one in self.messages(run_id)
            if one.role is role and one.kind is MessageKind.TEXT
        ]

    def cards(self, run_id, count=1):
        """Wait until a run waits on so many cards; returns them in their order."""
        self.until(lambda: len(self.run(run_id).open_cards) == count)
        return [one for one in self.messages(run_id) if one.kind is MessageKind.CARD and not one.closed]

    def card(self, card_id: UUID):
        return self.instance.message(card_id)

    def press(self, card, label, who=0, *, value=None):
        """Use the component with a label; returns what the person reads about it."""
        component = next(one for one in card.components if label in one.label)
        values = () if value is None else (value,)
        used = self.instance.use_component(self.people[who], card.id, component.id, values)
        return self.response(used.interaction.id)

    def response(self, interaction_id):
        record = self.until(
            lambda: (found := self.instance.interaction(interaction_id)).status is not None and found
        )
        return str(record.status), record.text

    def labels(self, card):
        return [one.label for one in card.components]
