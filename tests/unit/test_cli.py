from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from landfall.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]
GOOD = """
dataset: {name}
start_date: 2026-02-01
source: {{uri: s3://landing/sales}}
load: {{destination: {destination}}}
"""


def write(folder: Path, name: str, destination: str = "shop.main.sales", more: str = "") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(GOOD.format(name=name, destination=destination) + more)
    return path


def test_a_good_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(write(tmp_path, "sales"))]) == 0
    assert capsys.readouterr().out == "✓ sales → shop.main.sales\n"


def test_a_misspelt_key_is_an_error_with_the_right_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(write(tmp_path, "sales", more="shedule: '@daily'"))]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("✗ sales.yaml: ")
    assert "Did you mean 'schedule'?" in shown


def test_a_hostile_identifier_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = write(tmp_path, "sales", destination='"shop.main.x; DROP TABLE y"')
    assert main(["check", str(hostile)]) == 1
    assert "'x; DROP TABLE y' is not an identifier" in capsys.readouterr().out


def test_a_clash_between_files_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(write(tmp_path, "a")), str(write(tmp_path, "b"))]) == 1
    shown = capsys.readouterr().out
    assert "✓ a → shop.main.sales" in shown
    assert "✗ b.yaml" in shown


def test_the_datasets_folder_is_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANDFALL_DATASETS", str(tmp_path))
    write(tmp_path, "sales")
    assert main(["check"]) == 0
    assert "✓ sales" in capsys.readouterr().out


def test_check_speaks_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = write(tmp_path, "a"), write(tmp_path, "b", more="x: 1")
    assert main(["check", "--json", str(good), str(bad)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(Path(one["file"]).name, one["valid"]) for one in found] == [
        ("a.yaml", True),
        ("b.yaml", False),
    ]
    assert "unknown key 'x'" in found[1]["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "none"], "there is no dataset 'none'"),
        (["history", "none"], "name one of these: pypi_downloads, retail_transactions, taxi_trips"),
        (["plan", "retail_transactions", "11.02.2026"], "not a date"),
        (["plan", "retail_transactions", "2026-02-11", "--conf", "{"], "not JSON"),
        (["plan", "retail_transactions", "2026-02-11", "--conf", "[]"], "not a JSON object"),
    ],
)
def test_an_error_is_one_message(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("landfall: ")
    assert said in output.err
    assert output.err.count("\n") == 1


def test_check_imports_nothing_heavy() -> None:
    code = (
        "import sys; from landfall.cli import main; assert main(['check']) == 0;"
        "print([m for m in ('airflow', 'boto3', 'duckdb', 'pyspark', 'pyarrow') "
        "if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY / "plugins",
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == "[]"
