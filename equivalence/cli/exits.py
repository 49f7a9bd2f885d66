"""Exit codes, and the one place where an exception becomes a line and a code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import Final

from equivalence.errors import InvalidRequest

HELD: Final = 0
BROKEN: Final = 1
INVALID: Final = 2
CRASHED: Final = 3
INTERNAL: Final = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells report it
FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CLOSED_PIPE: Final = 141  # 128 + SIGPIPE

MEANING: Final = """\
Exit codes:

\b
  0    every law held
  1    a law broke, or nothing was exercised
  2    the request was wrong (one line says how)
  3    a target crashed, hung or ran out of memory
  70   an error in this program itself, never in a target
  130  interrupted; what was known until then is shown

When several apply, 2 goes before 3 and 3 before 1.
"""


def guarded(command: Callable[[], int]) -> int:
    """The exit code of ``command``; what it raises is told in one line, not as a traceback.

    Only an error of this program itself, which no user can mend, shows its traceback.
    """
    try:
        return command()
    except InvalidRequest as error:
        complain(" ".join(str(error).split()))
        return INVALID
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader left, as `head` does; leave nothing to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except OSError as error:
        if error.errno not in FULL:
            internal_error(error)
            return INTERNAL
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        complain(f"the output cannot be written: {(error.strerror or 'disk full').lower()}")
        return INVALID
    except Exception as error:  # the last door: whatever gets here is ours
        internal_error(error)
        return INTERNAL


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"equivalence: {text}", file=sys.stderr)


def internal_error(error: BaseException) -> None:
    """Say that the fault is ours, with what a report of it needs."""
    traceback.print_exception(error)
    complain(f"{INTERNAL_TEXT} ({type(error).__name__}); please report it with the lines above")


INTERNAL_TEXT: Final = "an error in attention-equivalence itself, not in the target"
