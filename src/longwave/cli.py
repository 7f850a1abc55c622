"""The command line: `longwave VERB ...`. Bad input is one line and exit code 2, failed work one line and exit code 1.

A verb is a file of `commands`. Nothing is imported before it is needed: `longwave --help` waits for no torch.
"""

import importlib
import keyword
import os
import re
import sys
from collections.abc import Sequence

from longwave.allocator import tune_cpu
from longwave.errors import RunError, UserError, nearest
from longwave.flags import Helped, verbs

NO_MEMORY = ("there is not enough memory: a smaller model, --batch or --context needs less, so does --chunk; "
             "longwave estimate says how much")  # fmt: skip


def entry() -> None:
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run one command; the exit code."""
    debug = "--debug" in argv
    argv = [word for word in argv if word != "--debug"]
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        from longwave import __version__

        print(f"longwave {__version__}")
        return 0
    try:
        if argv[0] not in verbs():
            raise UserError(f"unknown command {argv[0]!r}: {nearest(argv[0], verbs())}")
        home = argv[0] + "_" * keyword.iskeyword(argv[0])
        command = importlib.import_module(f"longwave.commands.{home}")
        if not getattr(command, "OWN_ALLOCATOR", False):
            tune_cpu()
        code = command.run(argv[1:])
        sys.stdout.flush()
        return int(code or 0)
    except Helped:
        return 0
    except KeyboardInterrupt:
        return _fail("interrupted", 130, debug)
    except UserError as error:
        return _fail(error, 2, debug)
    except BrokenPipeError:  # the reader went away: `longwave list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (RunError, MemoryError) as error:
        return _fail(error, 1, debug)
    except Exception as error:
        if isinstance(error, RuntimeError) and re.search(
            "can't allocate memory|size calculation overflowed", str(error)
        ):
            return _fail(NO_MEMORY, 1, debug)
        return _fail(f"{type(error).__name__}: {error} (--debug shows where)", 1, debug)


def _fail(problem: object, code: int, debug: bool) -> int:
    if debug and sys.exc_info()[0] is not None:
        raise
    print("longwave: " + " ".join(str(problem).split()), file=sys.stderr)
    return code


def _usage() -> str:
    known = verbs()
    width = max(map(len, known))
    lines = "\n".join(f"  {verb:{width}s}  {what}" for verb, what in known.items())
    return (
        f"longwave: every sequence architecture under one law\n\nusage: longwave COMMAND [options]\n\n{lines}\n\n"
        "longwave COMMAND --help   the options of a command\n"
        "longwave --version        the version\n"
        "--debug                   anywhere: show the traceback of an error"
    )
