"""The loop inside a worker process: import the target, then answer calls until the end."""

from __future__ import annotations

import gc
import os
import re
import sys
from dataclasses import replace
from typing import Any, Final

import psutil

from equivalence import isolation
from equivalence.calling import timed
from equivalence.errors import InvalidRequest
from equivalence.isolation import settling, wire
from equivalence.isolation.channel import CUT_OFF, Channel
from equivalence.loading import load
from equivalence.outcome import Outcome, Target
from equivalence.resolve import resolve

OUT_OF_MEMORY: Final = re.compile(
    r"MemoryError|can't allocate memory|not enough memory|out of memory|bad_alloc"
    r"|Cannot allocate memory|Unable to allocate",
    re.IGNORECASE,
)


def serve(channel: Channel, output: int) -> None:
    """Answer the messages of ``channel``; returns when its other end is closed."""
    isolation.inside_worker = True
    settling.redirect(output)
    settling.leave_traces(output)
    process = os.getpid()
    target: Target | None = None
    while True:
        try:
            message = wire.decode(channel.receive())
        except (EOFError, OSError):
            return
        settling.keep_short(output)
        try:
            answer: wire.Message
            match message:
                case wire.Open():
                    target = _open(message)
                    answer = _ready(target)
                    if target.declaration.device == "cpu":  # CUDA reserves far more than it uses
                        settling.limit_memory(message.memory)
                case wire.Call() if target is not None:
                    answer = wire.Answer(outcome=_packed(_called(target, message)))
                case wire.Ask() if target is not None:
                    answer = _asked(target, message)
                case _:
                    answer = wire.Refuse(text=f"a worker cannot answer {type(message).__name__}")
        except InvalidRequest as refusal:
            answer = wire.Refuse(text=str(refusal))
        if os.getpid() != process:  # the target forked, and this is the copy
            os._exit(0)
        try:
            channel.send(_encoded(answer))
        except OSError:
            os._exit(CUT_OFF)


def _encoded(answer: wire.Message) -> bytes:
    try:
        return wire.encode(answer)
    except InvalidRequest as refusal:
        return wire.encode(wire.Refuse(text=str(refusal)))


def _open(message: wire.Open) -> Target:
    os.chdir(message.folder)
    os.environ.clear()
    os.environ.update(message.environment)
    sys.path[:] = message.path
    torch = sys.modules.get("torch")
    if message.threads is not None and torch is not None:
        torch.set_num_threads(message.threads)
    resolved = resolve(message.text, facts={k: wire.frozen(v) for k, v in message.facts.items()})
    if resolved.form != "registered":
        # For good, so that an import inside the function finds its neighbours too.
        folder = os.path.dirname(resolved.place) if resolved.form == "file" else message.folder
        sys.path.insert(0, folder)
    target = timed(load(resolved))
    gc.freeze()
    return target


def _ready(target: Target) -> wire.Ready:
    return wire.Ready(
        declaration=wire.packed(replace(target.declaration, supports=None)),
        options=dict(target.options),
        excludes=target.declaration.supports is not None,
        resident=psutil.Process().memory_info().rss,
        unknown_parameters=getattr(target, "unknown_parameters", []),
    )


def _called(target: Target, call: wire.Call) -> Outcome:
    try:
        outcome = target.call(call.inputs, output_gradient=call.output_gradient)
    except BaseException as error:  # SystemExit and the like, which no loop here may follow
        return Outcome(status="raised", text=_said(error))
    if outcome.status == "raised" and OUT_OF_MEMORY.search(outcome.text):
        return replace(outcome, status="memory")
    return outcome


def _packed(outcome: Outcome) -> Any:
    try:
        return wire.packed(outcome)
    except InvalidRequest as refusal:
        text = f"returned what is not an array of numbers: {refusal}"
        return wire.packed(Outcome(status="returned", text=text))


def _asked(target: Target, ask: wire.Ask) -> wire.Message:
    try:
        answer = target.supports(ask.case)
    except InvalidRequest:
        raise
    except BaseException as error:
        return wire.Refuse(text=f"the declared supports() fails on {ask.case!r}: {_said(error)}")
    return wire.Said(supports=answer if isinstance(answer, str) else bool(answer))


def _said(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception whose own text fails
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
