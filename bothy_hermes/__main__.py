"""The commands: `python -m bothy_hermes`, or `python <directory of the installed plugin>`.

Layer: doors. It reads the command line and calls the room that does the work, which is imported only
then. An error that the package raises on purpose becomes one sentence and exit status 2, and so does
what the system refuses: a full disk, a directory that cannot be written.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

EXIT_LOST = 1
"""Exit status when what was started did not come to its end."""

EXIT_REFUSED = 2
"""Exit status when nothing could be started: wrong options, a missing program, a locked directory."""

EXIT_INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells count it."""

EXIT_UNREAD = 141
"""Exit status when whoever read the output went away, as shells count SIGPIPE."""

PACKAGE_NAME = "bothy_hermes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after the program's name; None takes those of the process.

    Returns:
        The exit status.
    """
    if sys.platform == "win32":
        return _refuse("bothy_hermes runs on Linux and macOS; on Windows, use it inside WSL")
    _mend_streams()
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return _carry_out(_parser(words).parse_args(words))
    finally:
        _drop_unwritten()


def _carry_out(options: argparse.Namespace) -> int:
    from .errors import BothyError, WatchLost

    try:
        status: int = options.command(options)
    except WatchLost as error:
        return _refuse(str(error), EXIT_LOST)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_UNREAD
    except (BothyError, ModuleNotFoundError, OSError) as error:
        return _refuse(_sentence(error))
    return status


def _sentence(error: Exception) -> str:
    """Say what an error means to whoever started the command; a room of ours that is missing is a bug."""
    if isinstance(error, OSError):
        where = error.filename2 or error.filename
        what = error.strerror or str(error) or type(error).__name__
        return f"{where}: {what}" if where else what
    if isinstance(error, ModuleNotFoundError):
        if (error.name or "").startswith(PACKAGE_NAME):
            raise error
        return f"the library {error.name} is missing; run the Python that this package is installed in"
    return str(error)


def _mend_streams() -> None:
    """Have something stand where a standard stream is closed, and let no character end a command.

    A file that is opened later would otherwise get the stream's number, and what is printed.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # it lives as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _drop_unwritten() -> None:
    """Let what nobody takes go nowhere, or Python would complain of it at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _refuse(sentence: str, status: int = EXIT_REFUSED) -> int:
    with suppress(OSError):  # whoever read it may be gone
        sys.stderr.write(f"bothy_hermes: {sentence}\n")
    return status


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Make the parser; only the command that the words name gets its options, and loads its room."""
    from .defaults import VERSION

    parser = argparse.ArgumentParser(prog=PACKAGE_NAME, description="Work with a Hermes agent inside Bothy.")
    parser.add_argument("--version", action="version", version=f"bothy-hermes {VERSION}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    named = next((word for word in words if not word.startswith("-")), None)
    for name, (what, fill) in _offered().items():
        command = commands.add_parser(name, help=what)
        if name == named:
            fill(command)
    return parser


def _offered() -> dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]]:
    """The commands, each with a line about it and what gives it its options."""
    commands = {"protocol": ("print the agent protocol as an OpenAPI document", _fill_protocol)}
    # An installed plugin has no embedded server, so it does not offer what needs one. The file decides: the
    # finder of an editable installation would lend a missing module from the checkout.
    if Path(__file__).with_name("local_model.py").is_file():
        commands["demo"] = ("a server, a scripted model and Hermes, in one command", _fill_demo)
        commands["local-server"] = ("only the embedded server", _fill_local_server)
    return dict(sorted(commands.items()))


# The commands -------------------------------------------------------------------------------------


def _fill_demo(parser: argparse.ArgumentParser) -> None:
    from .demo_profile import TOOLSETS
    from .local_model_words import words_table

    rows = words_table(TOOLSETS)
    width = max(len(name) for name, _ in rows)
    parser.description = (
        "Starts a Bothy server, a scripted model and the real Hermes gateway in a throwaway\n"
        "profile. Your own Hermes, its logins and its configuration are neither read nor changed.\n"
        "Without --once it prints the address of a page to write on, until Ctrl-C."
    )
    parser.epilog = "The script acts on the first of these words in a message:\n\n" + "\n".join(
        f"  {name:<{width}}  {what}" for name, what in rows
    )
    parser.epilog += (
        "\n\nExit status: 0 the run completed, 1 it did not, 2 nothing could be started, 130 Ctrl-C."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--once", metavar="TEXT", help="post TEXT, show the run and its answer, and end")
    parser.add_argument(
        "--answer",
        metavar="LABEL",
        action="append",
        default=[],
        help="answer the next card with the choice LABEL, or one that holds it; may be repeated",
    )
    parser.add_argument(
        "--follow-up",
        metavar="TEXT[@SECONDS]",
        action="append",
        default=[],
        help="write TEXT while the run works, so many seconds (1) after its first sign",
    )
    parser.add_argument(
        "--cancel-after",
        metavar="SECONDS",
        type=float,
        help="cancel the run so many seconds after its first sign",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line (with --once)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep everything in the new directory DIR")
    parser.set_defaults(command=_demo)


def _demo(options: argparse.Namespace) -> int:
    from .demo import run_demo
    from .demo_acts import read_acts

    acts = read_acts(options.once, options.answer, options.follow_up, options.cancel_after)
    return run_demo(options.once, as_json=options.json, keep=options.keep, out=sys.stdout, acts=acts)


def _fill_local_server(parser: argparse.ArgumentParser) -> None:
    from .local_server import add_arguments, serve

    add_arguments(parser)
    parser.set_defaults(command=serve)


def _fill_protocol(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", action="store_true", help="the gateway's frames and events instead")
    parser.set_defaults(command=_protocol)


def _protocol(options: argparse.Namespace) -> int:
    from .wire_schema import frames_document, openapi_document

    document = frames_document() if options.frames else openapi_document()
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()
    return 0


# Running as a directory ---------------------------------------------------------------------------


def _become_a_package() -> None:
    """Give this file a package when Python was pointed at the directory instead of at a module.

    The directory's own path goes: its modules would hide others of the same name.
    """
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = importlib.util.spec_from_file_location(
        PACKAGE_NAME, here / "__init__.py", submodule_search_locations=[str(here)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE_NAME] = package
    spec.loader.exec_module(package)
    globals().update(__package__=PACKAGE_NAME, __spec__=None)


if __name__ == "__main__":
    if not __package__:
        _become_a_package()
    sys.exit(main())
