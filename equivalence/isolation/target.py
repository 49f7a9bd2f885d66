"""A target that answers from a worker process, so that nothing it does can end this one."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

from equivalence.declaration import Declaration
from equivalence.dtypes import Array
from equivalence.errors import InvalidRequest
from equivalence.inputs import AttentionInputs
from equivalence.isolation import wire
from equivalence.isolation.spawning import DEFAULT_METHOD, Method, Worker, start_worker
from equivalence.isolation.supervise import Ended, Limits, Pace, exchange, tail_of
from equivalence.outcome import Outcome

REMEMBERED: Final = 64  # answers of supports()


class _Holder:
    """Holds the worker, apart from the target: it can be killed once the target is forgotten."""

    def __init__(self) -> None:
        self.worker: Worker | None = None

    def kill(self) -> None:
        """Kill the worker, if there is one."""
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.kill()


class IsolatedTarget:
    """A target that is imported by its text, and called, in a worker process.

    A worker that died, hung or took too much memory is replaced at the next call. Use from one
    thread at a time. Raises InvalidRequest when the target cannot be imported; when importing it
    ends the worker, ``trouble`` says how, and every call has that outcome.
    """

    note: Final = ""

    def __init__(
        self,
        text: str,
        *,
        facts: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        method: Method = DEFAULT_METHOD,
    ) -> None:
        self.name: Final = text
        self.limits: Final = limits or Limits()
        self.trouble = ""
        self.printed = ""
        self._facts = dict(facts or {})
        # A function cannot cross: one that was given here is asked here.
        self._supports: Callable[[Any], bool | str] | None = self._facts.pop("supports", None)
        self._method: Final[Method] = method
        self._pace = Pace(self.limits.seconds)
        self._held = _Holder()
        self._resident = 0
        self._excludes = False
        self._supported: dict[Any, bool | str] = {}
        self._declaration = Declaration()
        self._options: dict[str, str] = {}
        self.unknown_parameters: list[str] = []
        self._failure: Outcome | None = None
        weakref.finalize(self, self._held.kill)
        try:
            self._running()
        except Ended as end:
            self.trouble = f"importing it: {end.text}"
            self._failure = Outcome(status=end.status, text=self.trouble)
            self._declaration = Declaration().but(**self._facts)

    @property
    def declaration(self) -> Declaration:
        """What its author says of it; ``supports`` is asked through :meth:`supports`."""
        return self._declaration

    @property
    def options(self) -> Mapping[str, str]:
        """Contract options that its signature takes, each with the keyword that it uses."""
        return self._options

    @property
    def pid(self) -> int | None:
        """The process id of the worker, None while there is none."""
        return None if self._held.worker is None else self._held.worker.pid

    def call(self, inputs: AttentionInputs, *, output_gradient: Array | None = None) -> Outcome:
        """Call it once; a crash, a hang and running out of memory are outcomes too."""
        if self._failure is not None:
            return self._failure
        message = wire.call_of(inputs, output_gradient)
        try:
            self._running()
            start = time.monotonic()
            answer = self._exchanged(message, self._pace.seconds)
        except Ended as end:
            self._pace.hung |= end.status == "hung"
            return Outcome(status=end.status, text=end.text)
        self._pace.took(time.monotonic() - start)
        if not isinstance(answer, wire.Answer):
            raise InvalidRequest(_refusal(answer, self.name))
        outcome: Outcome = answer.outcome
        if outcome.status == "memory":  # what it still holds is not the next case's
            self.close()
        return outcome

    def supports(self, case: Any) -> bool | str:
        """True, or the reason why the author excludes ``case``; the laws of one case ask once.

        Raises InvalidRequest where the author's function fails.
        """
        if self._supports is not None:
            return self._supports(case)
        if not self._excludes or self._failure is not None:
            return True
        if case not in self._supported:
            if len(self._supported) >= REMEMBERED:
                self._supported.clear()
            self._supported[case] = self._asked(case)
        return self._supported[case]

    def _asked(self, case: Any) -> bool | str:
        try:
            self._running()
            answer = self._exchanged(wire.Ask(case=wire.packed(case)), self._pace.seconds)
        except Ended as end:
            raise InvalidRequest(
                f"{self.name}: the declared supports() fails on {case!r}: {end.text}"
            ) from None
        if not isinstance(answer, wire.Said):
            raise InvalidRequest(_refusal(answer, self.name))
        return answer.supports

    def close(self) -> None:
        """Kill the worker; a later call starts a new one."""
        worker = self._held.worker
        if worker is not None:
            self.printed = tail_of(worker)
        self._held.kill()

    def _running(self) -> None:
        """Make sure that a worker with the target imported is running."""
        if self._held.worker is not None:
            return
        torch = self._facts.get("arrays", "torch") == "torch"
        self._held.worker = start_worker(self._method, torch=torch)
        answer = self._exchanged(
            wire.Open(
                text=self.name,
                facts=wire.packed(self._facts),
                folder=os.getcwd(),
                path=sys.path,
                environment=dict(os.environ),
                threads=_threads(),
                memory=self.limits.memory,
            ),
            self.limits.import_seconds,
        )
        if not isinstance(answer, wire.Ready):
            self.close()
            raise InvalidRequest(_refusal(answer, self.name))
        self._declaration = answer.declaration
        self._options = answer.options
        self.unknown_parameters = answer.unknown_parameters
        self._excludes = answer.excludes
        self._resident = answer.resident

    def _exchanged(self, message: wire.Message, seconds: float) -> wire.Message:
        worker = self._held.worker
        assert worker is not None
        try:
            return exchange(
                worker,
                message,
                seconds=seconds,
                resident=self._resident,
                memory=self.limits.memory,
            )
        except Ended:
            self._held.worker = None
            raise
        except BaseException:  # interrupted: an answer that comes later would be taken for the next
            self._held.kill()
            raise


def _refusal(answer: wire.Message, name: str) -> str:
    if isinstance(answer, wire.Refuse):
        return answer.text
    return f"{name}: its worker process answered with {type(answer).__name__}"


def _threads() -> int:
    """As many threads as torch uses here, so that sums are split, and rounded, alike.

    One where torch is not loaded and nothing else is asked for: idle threads of a second process
    would spin between two calls.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    asked = os.environ.get("OMP_NUM_THREADS", "1")
    return int(asked) if asked.isdigit() and asked != "0" else 1
