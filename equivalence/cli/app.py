"""The command line as a whole: which commands there are, and how a wrong one is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial, wraps
from inspect import cleandoc
from typing import Annotated, Any

import typer

from equivalence.cli.audit import audit
from equivalence.cli.backends import backends
from equivalence.cli.campaign import campaign
from equivalence.cli.check import check
from equivalence.cli.compare import compare
from equivalence.cli.exits import INVALID, MEANING
from equivalence.cli.findings import findings
from equivalence.cli.gate import gate
from equivalence.cli.kvspec import kvspec
from equivalence.cli.laws import laws
from equivalence.cli.probe import probe
from equivalence.cli.quality import quality
from equivalence.cli.replay import replay
from equivalence.cli.report import report
from equivalence.cli.time import time
from equivalence.cli.tolerances import tolerances
from equivalence.errors import InvalidRequest

ABOUT = """\
Check, by generated cases, that ways of computing attention compute the same thing.

\b
  equivalence check                            every backend that is available
  equivalence check path/to/mine.py:attention  a function of your own
  equivalence check torch.nn.functional:scaled_dot_product_attention
  equivalence check mine.py:attention --dtype bfloat16 --like config.json
  equivalence replay mine.py:attention 'AttentionCase(num_kv_heads=2)'

"""

app = typer.Typer(
    name="equivalence",
    help=ABOUT + MEANING,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("attention-equivalence"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before the command."""


def _parsed_only(command: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    """``command`` bound to its arguments: typer parses, and what runs it is not typer.

    Inside typer, Ctrl-C and a closed pipe end in exit codes of its own.
    """

    @wraps(command)
    def bind(**arguments: Any) -> Callable[[], int]:
        return partial(command, **arguments)

    return bind


for command in (
    check,
    compare,
    replay,
    probe,
    laws,
    backends,
    tolerances,
    time,
    gate,
    report,
    campaign,
    kvspec,
    quality,
    audit,
    findings,
):
    about = cleandoc(command.__doc__ or "")
    judges = command in (check, compare, probe, replay)
    app.command(help=f"{about}\n\n{MEANING}" if judges else about)(_parsed_only(command))


@cache
def command_line() -> Any:
    """All commands with their options; typer alone would put them together again in every call."""
    return typer.main.get_command(app)


def call(arguments: list[str]) -> int:
    """Run ``arguments``; a wrong one raises InvalidRequest with one line.

    No argument at all shows the help, and is still a request without a command.
    """
    if not arguments:
        call(["--help"])
        return INVALID
    try:
        parsed: Any = command_line()(arguments, prog_name="equivalence", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        # typer's usage errors are told by this method, whichever click it is built on
        explain = getattr(error, "format_message", None)
        if explain is None:
            raise
        context = getattr(error, "ctx", None)
        path = getattr(context, "command_path", "equivalence")
        text = " ".join(explain().split()).rstrip(".")
        raise InvalidRequest(f"{text} (`{path} --help` tells more)") from None
    if callable(parsed):
        return int(parsed())
    return parsed if isinstance(parsed, int) else 0  # --help and the like
