"""A string that must never be shown: tokens, keys, and what people wrote.

Layer: words. The value is reached by `reveal` only, so that a search for that word finds every
place where a secret leaves its wrapper.
"""

from __future__ import annotations

import logging
from typing import final


@final
class Secret:
    """A value without a readable `repr`, `str` or pickle.

    Args:
        value: What is to be kept out of logs and errors.

    Examples:
        >>> Secret("s3cr3t")
        Secret(…)
        >>> Secret("s3cr3t").reveal()
        's3cr3t'
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value, for the one call that has to send or compare it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not pickled")


def silent_logger() -> logging.Logger:
    """Make a logger that says nothing, for a library that would write tokens at its debug level."""
    return logging.Logger("silent", logging.CRITICAL + 1)  # noqa: LOG001  # nobody else's, whatever is configured
