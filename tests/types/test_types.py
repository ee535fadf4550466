"""The DSL's types say what a lambda gets and what a step returns: mypy checks `family.py`, strictly."""

from pathlib import Path

from mypy import api

HERE = Path(__file__).parent


def test_mypy_infers_what_the_file_asserts(tmp_path: Path) -> None:
    out, errors, status = api.run(
        ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path}", str(HERE / "family.py")]
    )
    assert (status, errors) == (0, ""), out
