"""README.md gives exactly two commands, and each does all its own set-up."""

import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SHELL_FENCE = re.compile(r"^```(?:sh|bash|shell|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKED_FENCE = re.compile(
    r"^<!-- command: (\w+) -->\n```(?:sh|bash|shell|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


def commands() -> dict[str, str]:
    return dict(MARKED_FENCE.findall(README))


def test_readme_has_two_commands_and_no_other_shell() -> None:
    assert [name for name, _ in MARKED_FENCE.findall(README)] == ["check", "test"]
    assert len(SHELL_FENCE.findall(README)) == 2
    assert README.count("<!-- command:") == 2


def test_each_command_is_one_line_that_sets_itself_up() -> None:
    for name, command in commands().items():
        assert command.count("\n") == 1, f"the {name} command is not one line"
        make, install, use = command.strip().split(" && ")
        assert make == "python3 -m venv .venv"
        assert install.startswith(".venv/bin/pip install -q -c constraints.txt -e ")
        assert use.startswith(".venv/bin/")


def test_commands_check_and_test() -> None:
    check, test = commands().values()
    assert " && .venv/bin/equivalence check" in check
    assert "-e '.[test]' && .venv/bin/pytest -n auto" in test
