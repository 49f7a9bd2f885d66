"""Markdown and annotations: within their limits, and nothing but text from what is shown."""

from __future__ import annotations

import re

from equivalence.report.annotations import error_commands
from equivalence.report.markdown import markdown
from equivalence.report.merging import merged
from equivalence.report.schema import AxisJson, DisagreementJson

from .conftest import HOSTILE, broken, report, target, timed


def test_the_summary_says_what_broke_and_how_to_replay_it(example):
    shown = markdown(merged([example]))
    assert "1 of 3 targets held" in shown
    assert "query head 1 reads kv head 1, expected 0" in shown
    assert "```text\nequivalence replay kernels.py:tiled 'AttentionCase(" in shown
    assert "| sound | (+ holds) | 2 | 0 | 0 |" in shown
    assert re.search(r"\nBreaks \S+ in \w+\.\n", shown)
    assert re.search(r"\| 0\.97 \| sound \|", shown)


def test_the_summary_fits_and_says_what_was_left_out():
    merge = merged([report(*(broken(f"t{n}", "long " * 400) for n in range(900)))])
    shown = markdown(merge)
    assert 900_000 < len(shown.encode()) <= 2**20
    last = shown.strip().splitlines()[-1]
    assert re.match(r"\*\d+ parts left out: a summary holds 1,024 KiB\.\*", last)
    assert "left out" not in markdown(merged([report(broken("one"))]))


def test_hostile_names_stay_text():
    name = HOSTILE + "\n# heading\n@someone"
    shown = markdown(merged([report(broken(name, HOSTILE), target(HOSTILE))]))
    outside = re.sub(r"^(`{3,})text\n.*?\n\1$", "", shown, flags=re.DOTALL | re.MULTILINE)
    assert "<" not in outside
    assert "@" not in outside
    assert not re.search(r"(?<!\\)\]\(", outside)
    assert "\n# heading" not in outside


def test_timings_and_meanings_are_told():
    axis = AxisJson(
        axis="causal corner", asks="which keys?", case="AttentionCase(kv_len=2)",
        answers={"one": "upper left", "other": "lower right", HOSTILE: "upper left"},
        refused={"onnx": "no causal"},
    )  # fmt: skip
    apart = DisagreementJson(
        first="one", second="other", questions=[1], case="AttentionCase(kv_len=2)"
    )
    run = report(axes=[axis], disagreements=[apart], timing=timed(HOSTILE))
    shown = markdown(merged([run, run]))
    answers = "lower right: other; refused \\(no causal\\): onnx; "
    assert f"| causal corner: which keys? | {answers}" in shown
    assert "| one | other | causal corner | AttentionCase\\(kv\\_len=2\\) |" in shown
    assert "### Timings: decode, float32, cpu, 1 thread\n\n- keep the saving: steady\n" in shown
    assert "| steady | 8 | 8 ms | 1e\\+03 |" in shown
    assert "<" not in shown
    bare = markdown(merged([report(target("it"))]))
    assert "Timings" not in bare
    assert "is meant" not in bare


def test_a_fence_is_longer_than_what_it_holds():
    shown = markdown(merged([report(broken("a```b"))]))
    assert "````text\nequivalence replay a```b" in shown


def test_annotations_stand_in_the_file_of_the_kernel(example):
    first, *_ = error_commands(merged([example]))
    assert first == (
        "::error file=kernels.py,line=1,title=tiled%3A head-mapping::"
        "query head 1 reads kv head 1, expected 0%0A"
        "equivalence replay kernels.py:tiled 'AttentionCase(num_kv_heads=2, group_size=2)'"
    )


def test_annotations_end_with_the_number_of_the_rest():
    found = list(error_commands(merged([report(*(broken(f"t{n}") for n in range(30)))])))
    assert len(found) == 10
    assert found[-1] == "::error title=attention equivalence::21 more faults: see the report"


def test_an_annotation_is_one_line_whatever_it_says():
    for line in error_commands(merged([report(broken("k.py:a\n::set-env name=X::1,y", HOSTILE))])):
        assert "\n" not in line
        assert line.startswith("::error ")
