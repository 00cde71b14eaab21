"""Every durable step of a run, and what must become of the run when the adapter dies before or after it.

One table for the tests (`tests/flows/test_kill.py`) and for the page about them (`docs/crash-matrix.md`).
The points are those of `tests/fakes/kill_adapter.py`; `python -m tests.pages` writes the page anew.
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


TITLES = {
    "plain": "A message becomes a turn and an answer",
    "refused": "A person who may not addresses the agent",
    "card": "Hermes asks, a person answers with a button",
    "together": "A person writes while a turn runs, and the text is steered into it",
    "long": "A person cancels a running turn",
}

WORDS = {
    TAKE + "agent.invocation accepted": "the invocation is written down as accepted, with its token's ID",
    TAKE + "agent.invocation finishing": "the refusal is written down, with the run's end in the same commit",
    TAKE + "interaction.created accepted": "the click is written down as accepted",
    TAKE + "agent.followup settled": "the follow-up is written down as decided",
    TAKE + "run.ended settled": "the end that the server tells is written down",
    "ack": "the event is acked",
    "http.getRunContext": "the context is fetched",
    "http.getServedChannelConfig": "the channel's configuration is fetched",
    MOVE + "starting": "the entry says that the start is being made",
    "http.startRun": "the server starts the run",
    "start_turn": "Hermes gets the turn",
    "turn": "Hermes is in the middle of the turn",
    PUT + "createMessage": "a message (or card) is stored",
    "http.createMessage": "the server takes a message (or card)",
    SENT + "createMessage": "the message's row is removed",
    MOVE + "finishing": "the end is stored, with every report that comes before it",
    "http.reportAgentSession": "the session is reported",
    SENT + "reportAgentSession": "the report's row is removed",
    "http.setThreadTitle": "the title is set",
    SENT + "setThreadTitle": "the title's row is removed",
    "http.finishRun": "the server takes the end",
    SENT + "finishRun": "the end's row is removed and the entry closed, in one commit",
    "http.awaitRunInput": "the run waits at the server",
    SENT + "awaitRunInput": "the wait's row is removed",
    "store.claim:card": "the card is claimed for this click",
    "http.resumeRun": "the run goes on at the server, with evidence",
    "answer_prompt": "Hermes gets the answer",
    PUT + "respondToInteraction": "the answer to the click is stored, and its entry closed",
    "http.respondToInteraction": "the server takes the answer to the click",
    SENT + "respondToInteraction": "the answer's row is removed",
    "steer": "Hermes takes the text into the turn",
    PUT + "reportFollowup": "the report that it was delivered is stored",
    "http.reportFollowup": "the server takes a report about the text",
    SENT + "reportFollowup": "the report's row is removed",
    "interrupt": "Hermes is told to stop",
    "http.listRuns": "the new process asks which runs are open",
}
"""What each point is, in words."""

_SHORT = {
    DONE: "done",
    RESTARTED: "failed, adapter_restarted",
    REFUSED: "failed, not_allowed",
    CANCELLED: "cancelled",
    STORED: "as it was stored",
}


def tables():
    """The tables of the page: for each scenario its steps, and then the second deaths."""
    lines = []
    for scenario, title in TITLES.items():
        lines += [f"### {title}", "", "| step | dies before it | dies after it |", "|---|---|---|"]
        steps = dict.fromkeys(
            (row.point, row.nth) for row in ROWS if row.scenario == scenario and not row.again
        )
        for point, nth in steps:
            ends = {
                row.when: _SHORT[row.end]
                for row in ROWS
                if (row.scenario, row.point, row.nth, row.again) == (scenario, point, nth, None)
            }
            count = f" (time {nth})" if nth > 1 else ""
            lines.append(f"| {WORDS[point]}{count} | {ends.get('before', '-')} | {ends.get('after', '-')} |")
        lines.append("")
    lines += [
        "### The next process dies as well, while it clears up",
        "",
        "| first death | second death | the run is |",
        "|---|---|---|",
    ]
    lines += [
        f"| {row.when}: {WORDS[row.point]} | {row.again[1]}: {WORDS[row.again[0]]} | {_SHORT[row.end]} |"
        for row in ROWS
        if row.again
    ]
    return "\n".join(lines) + "\n"
