"""The commands: `python -m bothy_hermes`, or `python <directory of the installed plugin>`.

Layer: doors. It reads the command line and calls the room that does the work, which is imported only
then. An error that the package raises on purpose becomes one sentence and exit status 2.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

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
    from .errors import BothyError

    words = sys.argv[1:] if arguments is None else arguments
    options = _parser(words).parse_args(words)
    try:
        status: int = options.command(options)
    except BothyError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _nobody_reads()
    return status


def _nobody_reads() -> int:
    """End quietly; what is still to be written goes nowhere, or Python would complain of it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return EXIT_UNREAD


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"bothy_hermes: {sentence}\n")
    return EXIT_REFUSED


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
        "profile. Your own Hermes, its logins and its configuration are neither read nor changed."
    )
    parser.epilog = "The script acts on the first of these words in a message:\n\n" + "\n".join(
        f"  {name:<{width}}  {what}" for name, what in rows
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--once", metavar="TEXT", help="post TEXT, show the run and its answer, and end")
    parser.add_argument(
        "--answer",
        metavar="LABEL",
        action="append",
        default=[],
        help="answer the next card; may be repeated",
    )
    parser.add_argument(
        "--follow-up",
        metavar="TEXT[@SECONDS]",
        action="append",
        default=[],
        help="write TEXT while the run works, so many seconds after its first sign",
    )
    parser.add_argument("--cancel-after", metavar="SECONDS", type=float, help="cancel the run then")
    parser.add_argument("--json", action="store_true", help="one JSON object a line (with --once)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep everything in the new directory DIR")
    parser.set_defaults(command=_demo)


def _demo(options: argparse.Namespace) -> int:
    from .demo import run_demo
    from .demo_acts import Acts, read_follow_up

    acts = Acts(tuple(options.answer), tuple(map(read_follow_up, options.follow_up)), options.cancel_after)
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
