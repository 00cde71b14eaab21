"""What the person of `demo --once` does after the message: answers cards, writes on, cancels.

Layer: doors. The acts come from the command line; here they are read, and done when their time has
come or their card is there. The person acts through the people's interface, as anybody would.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .demo_person import Person
from .demo_show import Show
from .errors import ConfigError, ProblemAnswer
from .plain_text import repair
from .wire_words import ProblemCode

POLL_SECONDS = 0.2
"""How often it is looked whether an act is due."""

TOO_LATE = frozenset({ProblemCode.RUN_ENDED, ProblemCode.CARD_CLOSED})
"""What the server answers to somebody who was not quick enough."""


@dataclass(frozen=True, slots=True)
class Acts:
    """What the person is to do.

    Attributes:
        answers: Labels to choose, or texts for open questions; one for each card, in their order.
        follow_ups: Texts, each with the seconds after the run's start.
        cancel_after: Seconds after the run's start, None to let it end.
    """

    answers: tuple[str, ...] = ()
    follow_ups: tuple[tuple[str, float], ...] = ()
    cancel_after: float | None = None


_TIMED = re.compile(r"(.+)@([0-9]+(?:\.[0-9]+)?)", re.DOTALL)


def read_acts(
    once: str | None, answers: Sequence[str], follow_ups: Sequence[str], cancel_after: float | None
) -> Acts:
    """Read the options of the command line.

    Args:
        once: The message, None without one.
        answers: Each `--answer`.
        follow_ups: Each `--follow-up`.
        cancel_after: The seconds of `--cancel-after`, None without it.

    Raises:
        ConfigError: An option that could not be carried out, before anything is started for it.
    """
    given = {"--answer": answers, "--follow-up": follow_ups}
    if once is None:
        lonely = [name for name, texts in given.items() if texts]
        lonely += ["--cancel-after"] if cancel_after is not None else []
        if lonely:
            raise ConfigError(lonely[0], "goes with --once; without it, people act on the page")
        return Acts()
    for name, texts in {"--once": (once,), **given}.items():
        _check_texts(name, texts)
    if cancel_after is not None and not (math.isfinite(cancel_after) and cancel_after >= 0):
        raise ConfigError("--cancel-after", "expected seconds, 0 or more")
    return Acts(tuple(answers), tuple(map(read_follow_up, follow_ups)), cancel_after)


def _check_texts(name: str, texts: Iterable[str]) -> None:
    for text in texts:
        if not text:
            raise ConfigError(name, "expected a text")
        if repair(text) != text:
            raise ConfigError(name, "expected a text in the encoding of this terminal")


def read_follow_up(option: str) -> tuple[str, float]:
    """Read `TEXT` or `TEXT@SECONDS`; without a time it is written one second after the start.

    Examples:
        >>> read_follow_up("and this@2.5")
        ('and this', 2.5)
        >>> read_follow_up("ada@example.org")
        ('ada@example.org', 1.0)
    """
    timed = _TIMED.fullmatch(option)
    return (timed[1], float(timed[2])) if timed else (option, 1.0)


class Actor:
    """Does the acts in one run.

    Args:
        person: Who acts.
        show: Told what is done.
        thread_id: The thread.
        run_id: The run.
        acts: What to do.
    """

    def __init__(self, person: Person, show: Show, thread_id: str, run_id: str, acts: Acts) -> None:
        self._person = person
        self._show = show
        self._thread_id = thread_id
        self._run_id = run_id
        self._answers = list(acts.answers)
        self._timed = sorted(acts.follow_ups, key=lambda one: one[1])
        self._cancel_after = acts.cancel_after
        self._cards: set[str] = set()

    @property
    def out_of_answers(self) -> bool:
        """Whether a further card would stay without an answer."""
        return not self._answers

    def due(self, seconds: float) -> None:
        """Do what is due so many seconds after the run's start."""
        while self._timed and self._timed[0][1] <= seconds:
            text, _ = self._timed.pop(0)
            self._show.stage(f"Writing: {text}")
            self._person.post(self._thread_id, text)
        if self._cancel_after is not None and self._cancel_after <= seconds:
            self._cancel_after = None
            self._show.stage("Cancelling the run")
            self._in_time(lambda: self._person.cancel(self._run_id))

    def message(self, message: Mapping[str, Any]) -> None:
        """Show a card of the run, and answer it when there is an answer left."""
        open_card = message["kind"] == "card" and not message["closed"]
        if message["run_id"] != self._run_id or not open_card or message["id"] in self._cards:
            return
        self._cards.add(message["id"])
        self._show.card(message)
        if self._answers:
            answer = self._answers.pop(0)
            self._show.stage(f"Answering: {answer}")
            self._answer(message, answer)

    def _answer(self, message: Mapping[str, Any], answer: str) -> None:
        if not message["components"]:
            self._person.post(self._thread_id, answer)
            return
        choices = list(_choices(message["components"]))
        fitting = [one for one in choices if answer in one[0]]
        if not fitting:
            raise ConfigError("--answer", "a card has no such choice")
        _, component_id, values = next((one for one in fitting if one[0] == answer), fitting[0])
        self._in_time(lambda: self._person.use(message["id"], component_id, values))

    def _in_time(self, act: Callable[[], Any]) -> None:
        """Do an act that may come too late: a run can end, and a card close, at any moment."""
        try:
            act()
        except ProblemAnswer as error:
            if error.code not in TOO_LATE:
                raise
            self._show.stage(f"That was too late ({error.code})")

    def tell_undone(self) -> None:
        """Tell which acts the run left no time for."""
        undone = [f"--follow-up {text}" for text, _ in self._timed]
        undone += [f"--answer {answer}" for answer in self._answers]
        undone += ["--cancel-after"] if self._cancel_after is not None else []
        for act in undone:
            self._show.stage(f"The run ended before its turn came: {act}")


def _choices(components: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, list[str]]]:
    """What a card offers: each label with its component and the values that it stands for."""
    for component in components:
        for option in component["options"] or ():
            yield option["label"], component["id"], [option["value"]]
        if not component["options"]:
            yield component["label"], component["id"], []
