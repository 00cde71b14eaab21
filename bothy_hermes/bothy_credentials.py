"""Who this adapter is to the server: the files with its token and its key.

Layer: edges. The files are opened here and nowhere else. Each must be a regular file that belongs to
its user alone, since whoever reads it is the agent. Run tokens have a source of their own in the
flows; both kinds are presented through `TokenSource`.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path
from typing import Protocol

from .defaults import LOGGER_NAME
from .dpop import ProofSigner, load_private_key
from .errors import ConfigError
from .jose import PrivateKey
from .secret import Secret

TOKEN_KEY = "hermes_adapter.token_file"  # noqa: S105  # the name of a configuration key
DPOP_KEY = "hermes_adapter.dpop_key_file"

MAX_FILE_BYTES = 16_384
"""Far above any token or key; a wrong path to something large is not read into memory."""

TOKEN_TEXT = re.compile(r"[\x21-\x7e]+")
"""What a token may be written with, so that it fits into a header field."""

_log = logging.getLogger(LOGGER_NAME)


class TokenSource(Protocol):
    """Where a call gets its token from, attempt by attempt."""

    async def token(self) -> Secret:
        """Return the token to present now."""

    async def refused(self, token: Secret, code: str) -> bool:
        """Hear that the server refused a token with 401.

        Args:
            token: The token that was presented.
            code: The problem's code.

        Returns:
            Whether one more try makes sense, because `token` now returns another one.
        """


class AgentToken(TokenSource):
    """The agent's own token, from its file.

    Args:
        path: `hermes_adapter.token_file`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token: Secret | None = None

    async def token(self) -> Secret:
        """Return the token; the first call reads the file.

        Raises:
            ConfigError: The file cannot be used.
        """
        if self._token is None:
            self._token = load_agent_token(self._path)
        return self._token

    async def refused(self, token: Secret, code: str) -> bool:  # noqa: ARG002  # any refusal has the same cure
        """Read the file again; True when it now holds another token than the refused one."""
        self.reread()
        return self._token is not None and self._token != token

    def reread(self) -> None:
        """Read the file again and keep the token at hand when it cannot be read just now.

        A token is often replaced by hand: a file that is missing for a moment stops nothing.
        """
        try:
            self._token = load_agent_token(self._path)
        except ConfigError as error:
            if self._token is not None:
                _log.warning("%s; the last token stays in use", error)


def load_agent_token(path: Path) -> Secret:
    """Read the agent's token.

    Raises:
        ConfigError: Naming `hermes_adapter.token_file`.
    """
    return load_token(path, TOKEN_KEY)


def load_token(path: Path, key: str) -> Secret:
    """Read a token or an API key: one word in a private file.

    Args:
        path: The file.
        key: The configuration key that names it, for the error.

    Raises:
        ConfigError: The file cannot be used, is empty or holds something else.
    """
    text = read_private_file(path, key).decode("utf-8", "replace").strip()
    if not text:
        raise ConfigError(key, "the file is empty")
    if not TOKEN_TEXT.fullmatch(text):
        raise ConfigError(key, "the file holds something else than one word in ASCII")
    return Secret(text)


def load_dpop_key(path: Path) -> PrivateKey:
    """Read the DPoP key.

    Raises:
        ConfigError: Naming `hermes_adapter.dpop_key_file`.
    """
    data = read_private_file(path, DPOP_KEY)
    if not data.strip():
        raise ConfigError(DPOP_KEY, "the file is empty")
    try:
        return load_private_key(data)
    except ValueError as error:
        raise ConfigError(DPOP_KEY, f"the file is unusable: {error}") from None


def load_signer(path: Path | None) -> ProofSigner | None:
    """Make the signer of proofs, None without a DPoP key.

    Raises:
        ConfigError: Naming `hermes_adapter.dpop_key_file`.
    """
    return None if path is None else ProofSigner(load_dpop_key(path))


def read_private_file(path: Path, key: str) -> bytes:
    """Read a small file that only its owner can read or write.

    Args:
        path: The file.
        key: The configuration key that names it, for the error.

    Raises:
        ConfigError: It is missing, no regular file, open to group or others, or too large.
    """
    try:
        # Not blocking: a FIFO in the file's place would otherwise wait for a writer forever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            _check_private(os.fstat(descriptor), key)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError(key, f"the file cannot be read ({error.strerror})") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(key, "the file is too large")
    return data


def _check_private(status: os.stat_result, key: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(key, "is not a regular file")
    if status.st_mode & 0o077:
        raise ConfigError(key, "the file is open to group or others, set its mode to 0600")
