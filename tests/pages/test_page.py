"""The page as a document: complete, self-contained, and deaf to what it shows."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from equivalence.report.merging import merged
from equivalence.report.page import page
from equivalence.report.schema import AxisJson, DisagreementJson
from tests.commands import Run

from .conftest import HOSTILE, broken, report, target, text, timed

VOID = {"br", "meta", "rect", "line", "circle", "polyline", "input", "img", "link"}


class Document(HTMLParser):
    """What a page holds, and whether its tags are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.said.append(data)


def test_every_link_leads_somewhere_and_every_tag_is_closed(example):
    document = Document(page(merged([example])))
    assert document.open == []
    places = [facts["id"] for _, facts in document.tags if "id" in facts]
    assert len(places) == len(set(places))
    links = [facts["href"] for tag, facts in document.tags if tag == "a"]
    assert len(links) > 10
    assert {link.removeprefix("#") for link in links} <= set(places)


def test_it_shows_what_was_found(example):
    said = " ".join(" ".join(Document(page(merged([example]))).said).split())
    for wanted in (
        "1 of 3 targets held in 400 checks; 1 broke a law; 1 judged by nothing;",
        "1 pair compared, 1 apart.",
        "query head 1 reads kv head 1, expected 0",
        "equivalence replay kernels.py:tiled 'AttentionCase(num_kv_heads=2, group_size=2)'",
        "attention, bfloat16",
        "0.97 of the bound: sound, agrees-with-float64, bfloat16",
        "25% 7.5",
        "not exercised: softcap: it takes no option of that name",
        "6.170",
    ):
        assert wanted in said, wanted


def test_nothing_is_loaded_from_anywhere(example):
    shown = page(merged([example]))
    document = Document(shown)
    loading = {"src", "srcset", "data", "action", "formaction", "poster", "background", "style"}
    for tag, facts in document.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not loading & set(facts)
        assert not any(name.startswith("on") for name in facts)
    assert not re.search(r"url\(|@import|https?://", shown)
    (policy,) = [f["content"] for _, f in document.tags if "http-equiv" in f]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_hostile_text_stays_text():
    hostile = target(HOSTILE, not_exercised={HOSTILE: HOSTILE}, card=[HOSTILE], trouble=HOSTILE)
    run = report(hostile, broken(HOSTILE, HOSTILE), complaints=[HOSTILE])
    run.environment[HOSTILE] = {HOSTILE: HOSTILE}
    document = Document(page(merged([run])))
    assert [tag for tag, _ in document.tags].count("script") == 1
    assert "img" not in [tag for tag, _ in document.tags]
    assert any(HOSTILE in part for part in document.said)


def test_sections_without_anything_to_say_are_left_out():
    shown = page(merged([report(target("it"))]))
    for section in ("disagreements", "audits", "timings"):
        assert f'id="{section}"' not in shown
    assert "These files hold no target, no pair and no graph." in page(merged([]))


def test_an_audit_is_shown_before_and_after(run: Run, tmp_path: Path):
    (tmp_path / "audit.json").write_text(AUDIT)
    (tmp_path / "run.json").write_text(text(report(target("it"))))
    finished = run("report", "run.json", "audit.json", "--html", "page.html")
    assert (finished.code, finished.err) == (0, "")
    said = " ".join(" ".join(Document((tmp_path / "page.html").read_text()).said).split())
    assert "From repeat_kv to q_fold_decode" in said
    assert "bytes written 4,096 1,024" in said
    assert "1 graph audited, over their budget in 1 way" in said
    assert "q_fold_decode: max_tiles is 2, allowed 0" in said
    summary = run("report", "audit.json", "--markdown", "-").out
    assert "## Attention equivalence (X does not hold)" in summary
    assert "- q\\_fold\\_decode: max\\_tiles 2, allowed 0" in summary
    assert "| bytes written | 4096 | 1024 |" in summary


def test_timings_are_drawn_and_told():
    shown = page(merged([report(target("steady"), timing=timed(HOSTILE))] * 2))
    document = Document(shown)
    assert document.open == []
    lines = [facts["points"] for tag, facts in document.tags if tag == "polyline"]
    assert len(lines) == 3  # two formulations and the floor
    assert all(len(points.split()) == 3 for points in lines if points)
    said = " ".join(" ".join(document.said).split())
    assert "steady 8 8 ms 1e+03" in said
    assert "keep the saving: steady" in said
    assert HOSTILE in " ".join(document.said)


def test_the_map_of_meanings_is_shown():
    axis = AxisJson(
        axis="causal corner", asks="which keys does query 0 see?", case="AttentionCase(kv_len=2)",
        answers={"torch.sdpa": "upper left", HOSTILE: "lower right"}, refused={"onnx": "no causal"},
    )  # fmt: skip
    apart = DisagreementJson(
        first="torch.sdpa", second=HOSTILE, questions=[1, 99, -5], case="AttentionCase(kv_len=2)"
    )
    run = report(target("it"), axes=[axis], disagreements=[apart])
    shown = page(merged([run, report(seed=3), run]))
    document = Document(shown)
    assert document.open == []
    said = " ".join(" ".join(document.said).split())
    assert "causal corner which keys does query 0 see? AttentionCase(kv_len=2)" in said
    assert "lower right no causal upper left" in said
    assert "1 pair differs" in said
    assert 'id="meanings"' not in page(merged([report(target("it"))]))


def test_one_name_of_two_kinds_is_two_targets():
    merge = merged([report(target("it"), target("it", kind="decode"))])
    assert sorted(merge.targets) == [("it", "attention"), ("it", "decode")]


AUDIT = """{"schema": 1, "label": "logical bytes", "exceeded": [{"graph": "q_fold_decode",
"limit": "max_tiles", "allowed": 0, "found": 2}], "graphs": [{"name": "q_fold_decode",
"operations": {"total": 20}, "repeated_heads": {"count": 0, "bytes_written": 0},
"bytes": {"written": 1024, "read": 2048}, "macs": {"total": 5}}], "against": {
"before": "repeat_kv", "after": "q_fold_decode", "text": "the change is owed to the formulation",
"quantities": {"bytes written": {"before": 4096, "after": 1024, "change": -3072}}}}"""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "run.json is not a report: Input data was truncated"),
        ("[" * 100_000, "run.json is not a report: "),
        ('{"schema": 2, "targets": [], "environment": {}}', "run.json has schema 2, which a newer"),
        ('{"schema": 1e999, "targets": [], "environment": {}}', "run.json is not a"),
        (
            '{"schema": 1' + "0" * 5000 + ', "targets": [], "environment": {}}',
            "run.json ",
        ),
        (
            '{"schema": 1, "targets": [], "environment": {"seed": 1' + "0" * 5000 + "}}",
            "run.json is not a report of `equivalence check`: Integer value out of range",
        ),
        (
            '{"schema": 1, "targets": [], "environment": {"seed": -1}}',
            "run.json: its seed or examples is no whole number",
        ),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(run: Run, tmp_path: Path, content: str, said: str):
    (tmp_path / "run.json").write_text(content)
    finished = run("report", "run.json", "--html", "page.html")
    assert finished.code == 2
    assert finished.err.startswith(f"equivalence: {said}"), finished.err
    assert finished.err.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_hostile_numbers_in_the_environment_are_shown_as_far_as_that_goes(run: Run, tmp_path: Path):
    deep = '{"a":' * 50 + "1" + "}" * 50
    content = '{"schema": 1, "targets": [], "environment": {"cpus": 1%s, "deep": %s}}'
    (tmp_path / "run.json").write_text(content % ("0" * 400, deep))
    finished = run("report", "run.json", "--html", "page.html")
    assert (finished.code, finished.err) == (0, "")
    shown = (tmp_path / "page.html").read_text()
    assert "a huge number" in shown
    assert "nested too deeply" in shown


def test_check_writes_the_page_that_its_json_makes(run: Run, tmp_path: Path):
    asked = ("--law", "causality", "--dtype", "float32", "--examples", "5")
    finished = run("check", "torch.repeat_kv", *asked, "--json", "run.json", "--html", "one.html")
    assert (finished.code, finished.err) == (0, "")
    assert run("report", "run.json", "--html", "two.html").code == 0
    one, two = ((tmp_path / name).read_text() for name in ("one.html", "two.html"))
    assert one == two
    assert "torch.repeat_kv" in one
    refused = run("check", "torch.repeat_kv", *asked, "--html", "no/folder.html")
    assert refused.code == 2
    assert refused.err == "equivalence: --html no/folder.html: there is no folder no\n"


def test_a_full_disk_is_told_in_one_line(run: Run, tmp_path: Path):
    (tmp_path / "run.json").write_text(text(report(target("it"))))
    for option in ("--html", "--markdown"):
        finished = run("report", "run.json", option, "/dev/full")
        assert finished.code == 2
        assert finished.err == (
            f"equivalence: {option} /dev/full cannot be written: no space left on device\n"
        )
