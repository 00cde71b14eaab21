"""From the document that the server has to the one that people should see.

Layer: rules. Computes JSON Patch operations (RFC 6902) for the run document; steps are matched by
their IDs, so that another one's change never lands on the wrong step. It refuses to be exact at any
price: a patch holds at most `MAX_PATCH_OPERATIONS`, every prefix of it leaves a valid document, and
what is missing comes with the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .codec import dump
from .wire import RunDocument, Step
from .wire_words import MAX_PATCH_OPERATIONS

Operation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BoxContent:
    """What the document should hold, without its version.

    Attributes:
        status_line: One line about what happens now, None when there is nothing to say.
        steps: The steps, oldest first, at most `MAX_STEPS`.
        last_text_excerpt: The end of the text that the model is writing, None when it is not.
    """

    status_line: str | None = field(repr=False)
    steps: tuple[Step, ...] = field(repr=False)
    last_text_excerpt: str | None = field(repr=False)


def diff(have: RunDocument, want: BoxContent) -> list[Operation]:
    """Compute what brings a document to the wanted content.

    Args:
        have: The document as the server has it.
        want: What it should hold.

    Returns:
        At most `MAX_PATCH_OPERATIONS` operations, none when the document is as wanted. Applied and
        computed again, they end in the wanted content.
    """
    operations = _replaced_lines(have, want) + _step_operations(list(have.steps), want.steps)
    return operations[:MAX_PATCH_OPERATIONS]


def _replaced_lines(have: RunDocument, want: BoxContent) -> list[Operation]:
    return [
        {"op": "replace", "path": f"/{name}", "value": getattr(want, name)}
        for name in ("status_line", "last_text_excerpt")
        if getattr(have, name) != getattr(want, name)
    ]


def _step_operations(steps: list[Step], wanted: Sequence[Step]) -> list[Operation]:
    """Operations on `/steps`; `steps` is changed along with them, so that the indexes are right.

    Steps that go are removed first: the list never grows over the longer of both.
    """
    kept = {step.id for step in wanted}
    operations: list[Operation] = []
    for index in range(len(steps) - 1, -1, -1):
        if steps[index].id not in kept:
            del steps[index]
            operations.append({"op": "remove", "path": f"/steps/{index}"})
    for index, step in enumerate(wanted):
        operations += _placed(steps, index, step)
    for index in range(len(steps) - 1, len(wanted) - 1, -1):  # an ID that the document held twice
        operations.append({"op": "remove", "path": f"/steps/{index}"})
    return operations


def _placed(steps: list[Step], index: int, step: Step) -> list[Operation]:
    """Put a step at an index, behind steps that are already in their places."""
    operations: list[Operation] = []
    found = next((at for at in range(index, len(steps)) if steps[at].id == step.id), None)
    if found is None:
        steps.insert(index, step)
        return [{"op": "add", "path": f"/steps/{index}", "value": dump(step)}]
    if found != index:
        operations.append({"op": "move", "from": f"/steps/{found}", "path": f"/steps/{index}"})
        steps.insert(index, steps.pop(found))
    if steps[index] != step:
        operations.append({"op": "replace", "path": f"/steps/{index}", "value": dump(step)})
        steps[index] = step
    return operations
