"""The sentences and tables that a person reads."""

from __future__ import annotations

import io
from dataclasses import replace

from syrupy.assertion import SnapshotAssertion

from equivalence.report.summary import sentence
from equivalence.report.tables import LETTER_MARKS, WORDS, backend_table, law_table, plain_table
from equivalence.report.terminal import Printer
from equivalence.report.text import closing_lines, target_lines
from equivalence.results import RunResult, TargetResult
from equivalence.verdict import LawResult, Trouble


def test_sentence_of_a_target_that_holds(holds: TargetResult) -> None:
    assert sentence(holds) == (
        "torch.repeat_kv holds: 2,311 checks of 2 laws, worst 0.83 of the bound (profile eager)"
    )


def test_sentence_of_a_target_that_does_not(broken: TargetResult) -> None:
    assert sentence(broken) == (
        "torch.sdpa_gqa does not hold: 1 fault (head-mapping) in 200 checks of 2 laws"
    )


def test_sentence_of_a_crash(broken: TargetResult) -> None:
    died = replace(broken.failures[0], trouble=Trouble(kind="crash", text="SIGABRT"))
    broken.failures = [died]
    assert sentence(broken).startswith("torch.sdpa_gqa crashes: 1 fault")


def test_refusing_every_grouped_case_is_in_the_first_line(holds: TargetResult) -> None:
    holds.refuses_grouped = True
    assert target_lines(holds)[0][1].endswith(", and it refuses every grouped case")


def test_sentences_of_targets_that_were_not_exercised() -> None:
    nothing = TargetResult(target="x", kind="attention", profile="f32")
    assert sentence(nothing) == "x was not exercised: no case was judged"
    nothing.laws = [LawResult(law="a", dtype="float32", vacuous=7)]
    assert sentence(nothing) == (
        "x was not exercised: all 7 checks were vacuous (the bound covers every value)"
    )
    nothing.laws = [
        LawResult(law="a", dtype="float32", refused=7, reasons={"head_dim 1": 6, "no": 1})
    ]
    assert sentence(nothing) == "x was not exercised: it refused all 7 cases (head_dim 1)"
    nothing.trouble = "the worker died at start"
    assert sentence(nothing) == "x could not be run: the worker died at start"
    nothing.interrupted = True
    assert sentence(nothing).endswith(" (interrupted: this is what was known)")


def test_the_sentence_names_the_profile_that_judged(holds: TargetResult) -> None:
    holds.laws = [replace(law, dtype="float32") for law in holds.laws]
    assert sentence(holds).endswith("(profile f32)")


def test_remarks_that_contradict_each_other_say_how_often(holds: TargetResult) -> None:
    holds.remarks = {"gradients agree": 57, "gradients disagree": 1, "NaN leaks": 3}
    lines = [text for _, text in closing_lines([holds]) if text.startswith("remark")]
    assert lines == [
        "remark: gradients agree (57 cases)",
        "remark: gradients disagree (1 case)",
        "remark: NaN leaks",
    ]


def test_plain_text_of_one_target(holds: TargetResult, snapshot: SnapshotAssertion) -> None:
    lines = [text for _, text in target_lines(holds)]
    lines += plain_table(law_table(holds, WORDS))
    lines += [text for _, text in closing_lines([holds], timings=True)]
    assert "\n".join(lines) == snapshot


def test_plain_text_of_several(run: RunResult, snapshot: SnapshotAssertion) -> None:
    lines = plain_table(backend_table(run.targets, LETTER_MARKS))
    lines += [text for _, text in closing_lines(run.targets)]
    assert "\n".join(lines) == snapshot


def test_tables_of_the_default_run_fit_80_columns() -> None:
    names = [f"a-law-with-quite-a-name-{i}" for i in range(20)]
    targets = [
        TargetResult(
            target="torch.repeat_interleave",
            kind="attention",
            profile="bf16_inside",
            laws=[LawResult(law=name, dtype="float32", examples=99_999) for name in names],
        )
    ] * 12
    lines = plain_table(backend_table(targets, LETTER_MARKS)) + plain_table(
        law_table(targets[0], WORDS)
    )
    assert max(map(len, lines)) <= 80


def test_a_pipe_gets_ascii_and_no_escapes(run: RunResult) -> None:
    pipe = io.StringIO()
    printer = Printer(pipe)
    for target in run.targets:
        printer.lines(target_lines(target))
    printer.table(backend_table(run.targets, printer.packed_marks))
    printer.table(law_table(run.targets[0], printer.single_marks))
    assert pipe.getvalue().isascii()
    assert "\x1b" not in pipe.getvalue()


def test_control_characters_of_an_error_text_are_spelled_out() -> None:
    pipe = io.StringIO()
    Printer(pipe).line("RuntimeError: \x1b[31mred\x07")
    assert pipe.getvalue() == "RuntimeError: \\x1b[31mred\\x07\n"
