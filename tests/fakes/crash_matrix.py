"""Every durable step of a run, and what must become of the run when the adapter dies before or after it.

One table for the tests (`tests/flows/test_kill.py`) and for the page about them (`docs/crash-matrix.md`).
The points are those of `tests/fakes/kill_adapter.py`.
"""

from dataclasses import dataclass

DONE, RESTARTED, REFUSED, CANCELLED = "completed", "adapter_restarted", "not_allowed", "cancelled"
STORED = "completed if its end was stored, else adapter_restarted"
"""Sending goes on beside the turn: how far that is at the point differs from time to time."""


@dataclass(frozen=True)
class Row:
    """One death, or several one after the other.

    Attributes:
        scenario: What happens (`plain`, `refused`, `card`, `together`, `long`).
        point: Where the first process dies.
        when: Before or after the point.
        end: How the run ends.
        nth: At which time of reaching the point.
        again: Where the second process dies, as (point, when).
        quick: Whether it is part of the quick tests.
    """

    scenario: str
    point: str
    when: str
    end: str
    nth: int = 1
    again: tuple[str, str] | None = None
    quick: bool = False

    @property
    def name(self):
        """A readable name."""
        count = f" {self.nth}." if self.nth > 1 else ""
        later = f", then {self.again[1]} {self.again[0]}" if self.again else ""
        return f"{self.scenario}: {self.when}{count} {self.point}{later}"


def both(scenario, point, before, after, *, nth=1, quick=False):
    """The two rows of a step."""
    return (
        Row(scenario, point, "before", before, nth, quick=quick),
        Row(scenario, point, "after", after, nth, quick=quick),
    )


TAKE, MOVE, PUT, SENT = "store.take_event:", "store.move_entry:", "store.record:", "store.call_done:"

ROWS = (
    # A message that becomes a turn and an answer.
    *both("plain", TAKE + "agent.invocation accepted", DONE, DONE, quick=True),
    *both("plain", "ack", DONE, DONE, quick=True),
    *both("plain", "http.getRunContext", DONE, DONE),
    *both("plain", "http.getServedChannelConfig", DONE, DONE),
    *both("plain", MOVE + "starting", DONE, DONE, quick=True),
    *both("plain", "http.startRun", DONE, RESTARTED, quick=True),
    Row("plain", "start_turn", "before", RESTARTED),
    Row("plain", "turn", "before", RESTARTED),
    *both("plain", PUT + "createMessage", RESTARTED, RESTARTED),
    *both("plain", PUT + "createMessage", RESTARTED, RESTARTED, nth=2, quick=True),
    *both("plain", "http.createMessage", STORED, STORED),
    *both("plain", SENT + "createMessage", STORED, STORED),
    *both("plain", MOVE + "finishing", RESTARTED, DONE, quick=True),
    *both("plain", "http.reportAgentSession", DONE, DONE),
    *both("plain", SENT + "reportAgentSession", DONE, DONE),
    *both("plain", "http.setThreadTitle", DONE, DONE),
    *both("plain", SENT + "setThreadTitle", DONE, DONE),
    *both("plain", "http.finishRun", DONE, DONE, quick=True),
    *both("plain", SENT + "finishRun", DONE, DONE),
    # A person who may not.
    *both("refused", TAKE + "agent.invocation finishing", REFUSED, REFUSED, quick=True),
    *both("refused", "ack", REFUSED, REFUSED),
    *both("refused", "http.finishRun", REFUSED, REFUSED),
    *both("refused", SENT + "finishRun", REFUSED, REFUSED),
    # A card that a person answers.
    *both("card", PUT + "createMessage", RESTARTED, RESTARTED),
    *both("card", "http.createMessage", RESTARTED, RESTARTED),
    *both("card", SENT + "createMessage", RESTARTED, RESTARTED),
    *both("card", "http.awaitRunInput", RESTARTED, RESTARTED),
    *both("card", SENT + "awaitRunInput", RESTARTED, RESTARTED),
    *both("card", TAKE + "interaction.created accepted", RESTARTED, RESTARTED, quick=True),
    *both("card", "ack", RESTARTED, RESTARTED, nth=2),
    *both("card", "store.claim:card", RESTARTED, RESTARTED),
    *both("card", "http.resumeRun", RESTARTED, RESTARTED),
    *both("card", "answer_prompt", RESTARTED, RESTARTED, quick=True),
    *both("card", PUT + "respondToInteraction", RESTARTED, RESTARTED),
    *both("card", "http.respondToInteraction", STORED, STORED),
    *both("card", SENT + "respondToInteraction", STORED, STORED),
    # A text that comes while a turn runs, and is steered into it.
    *both("together", TAKE + "agent.followup settled", RESTARTED, RESTARTED),
    *both("together", "ack", RESTARTED, RESTARTED, nth=2),
    *both("together", "http.getRunContext", RESTARTED, RESTARTED, nth=2),
    *both("together", "steer", RESTARTED, RESTARTED, quick=True),
    *both("together", PUT + "reportFollowup", STORED, STORED),
    *both("together", "http.reportFollowup", STORED, STORED),
    *both("together", MOVE + "finishing", RESTARTED, DONE),
    *both("together", PUT + "createMessage", RESTARTED, RESTARTED, quick=True),
    *both("together", "http.reportFollowup", STORED, STORED, nth=2),
    *both("together", SENT + "reportFollowup", STORED, STORED, nth=2),
    # A run that a person cancels.
    *both("long", TAKE + "run.ended settled", CANCELLED, CANCELLED),
    *both("long", "ack", CANCELLED, CANCELLED, nth=2),
    Row("long", "interrupt", "before", CANCELLED),
    *both("long", MOVE + "finishing", CANCELLED, CANCELLED),
    *both("long", "http.finishRun", CANCELLED, CANCELLED),
    *both("long", SENT + "finishRun", CANCELLED, CANCELLED),
    # A second death, while the first one is being cleared up.
    *(
        Row("plain", "http.startRun", "after", RESTARTED, again=(point, when), quick=point == "http.listRuns")
        for point in ("http.listRuns", MOVE + "finishing", "http.finishRun", SENT + "finishRun")
        for when in ("before", "after")
    ),
    *(
        Row("plain", "ack", "after", end, again=(point, when))
        for point, when, end in (
            ("http.listRuns", "before", DONE),
            ("http.listRuns", "after", DONE),
            (MOVE + "starting", "after", DONE),
            ("http.startRun", "before", DONE),
            ("http.startRun", "after", RESTARTED),
        )
    ),
    *(
        Row("plain", MOVE + "finishing", "after", DONE, again=(point, when))
        for point in ("http.reportAgentSession", "http.finishRun", SENT + "finishRun")
        for when in ("before", "after")
    ),
    *(
        Row("card", "answer_prompt", "after", RESTARTED, again=(point, when))
        for point in ("http.respondToInteraction", SENT + "respondToInteraction", MOVE + "finishing")
        for when in ("before", "after")
    ),
)
"""What dies where, and how the run ends."""
