"""Bad input ends in a message that helps, one ledger row, and a table as it was."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.e2e.conftest import Chain, Run, parquet

pytestmark = pytest.mark.slow

DAY = "2026-02-11"
GOOD = {"id": [1, 2], "amount": [1.5, 2.5]}

# Each: what lands, what the dataset file says, the task that ends the run, and what it says.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "broken_filter": (
        {"a": GOOD},
        {"transform": {"filter": "amount >>> ("}},
        "stage_partition",
        r"transform\.filter.*Fix: ",
    ),
    "missing_column": (
        {"a": GOOD},
        {"transform": {"filter": "amuont > 0"}},
        "stage_partition",
        r"transform\.filter.*amuont.*Fix: ",
    ),
    "missing_bucket": (
        {},
        {"source": {"uri": "s3://no-such-bucket/x"}},
        "wait_for_partition",
        r"s3://no-such-bucket: the bucket does not exist\. Fix: ",
    ),
    "wrong_credentials": (
        {"a": GOOD},
        {"source": {"connection": "aws_wrong"}},
        "wait_for_partition",
        r"refuses the credentials.*aws_wrong",
    ),
    "truncated": (
        {"a": GOOD, "b": parquet({"id": list(range(1000))})[:-300]},
        {},
        "stage_partition",
        r"b\.parquet.*Fix: ",
    ),
    "no_parquet": (
        {"a": GOOD, "b": b"id,amount\n1,2\n"},
        {},
        "stage_partition",
        r"b\.parquet.*Fix: ",
    ),
    "zero_rows": (
        {"a": {"id": [], "amount": []}},
        {},
        "load_partition",
        r"no row is left.*allow_empty",
    ),
    "incompatible_types": (
        {"a": GOOD, "b": {"id": ["one"], "amount": [1.0]}},
        {},
        "stage_partition",
        r"'id'.*a\.parquet.*b\.parquet|'id'.*b\.parquet.*a\.parquet",
    ),
    "other_types": ({"a": GOOD}, {}, "load_partition", r"amount.*DATE.*Fix: "),
}


@pytest.fixture(scope="module")
def ended(chain: Chain) -> dict[str, Run]:
    """One run of each case, in one go; each has a table of its own."""
    wrong = chain.server.connection_json().replace(chain.server.secret_key, "not-the-secret")
    chain.extra_env["AIRFLOW_CONN_AWS_WRONG"] = wrong
    for name, (files, sections, _, _) in CASES.items():
        uri = chain.prefix()
        for file, content in files.items():
            chain.put(f"{uri}/date={DAY}/{file}.parquet", content)
        source = {"uri": uri, "partition": {"date": "{{ ds }}"}, "types": {"date": "date"}}
        sections = {**sections, "source": {**source, **sections.get("source", {})}}
        chain.dataset(name, uri, **sections)
    destination_of(chain, "other_types").parent.mkdir(exist_ok=True)
    with duckdb.connect(str(destination_of(chain, "other_types"))) as con:
        con.execute("CREATE TABLE other_types (id BIGINT, amount DATE, date DATE)")
        con.execute("INSERT INTO other_types VALUES (7, '2026-01-01', '2026-02-11')")
    return {run.dag_id: run for run in chain.runs(*((name, DAY) for name in CASES))}


def destination_of(chain: Chain, database: str) -> Path:
    return chain.home / "warehouse" / f"{database}.duckdb"


@pytest.mark.parametrize("case", CASES)
def test_the_run_fails_with_one_ledger_row_that_says_why(
    chain: Chain, ended: dict[str, Run], case: str
) -> None:
    _, _, task, message = CASES[case]
    assert ended[case].state == "failed"
    assert ended[case].tasks[task] == "failed"
    ((status, partition, count, _, error),) = chain.ledger(case)
    assert (status, partition, count) == ("failed", DAY, 0)
    assert re.search(message, error, re.DOTALL), error


@pytest.mark.parametrize("case", CASES)
def test_the_table_is_as_it_was(chain: Chain, ended: dict[str, Run], case: str) -> None:
    if case == "other_types":
        assert chain.query(case, "SELECT id FROM other_types.main.other_types") == [(7,)]
    else:
        assert not chain.exists(case, case)
    assert chain.query(case, "SELECT * FROM main.ingest_partitions") == []
    assert chain.query(case, "SELECT * FROM main.ingest_files") == []


def test_nothing_landed_is_skipped_and_touches_no_table(chain: Chain) -> None:
    uri = chain.prefix()
    chain.put(f"{uri}/date=2026-02-10/a.parquet", GOOD)
    ready = {"timeout_minutes": 0.01, "poke_seconds": 0.2}
    partition = {"partition": {"date": "{{ ds }}"}, "types": {"date": "date"}}
    for name, deferrable in (("nothing", False), ("deferred", True)):
        source = {"uri": uri, **partition, "ready": {**ready, "deferrable": deferrable}}
        chain.dataset(name, uri, source=source)
    for run in chain.runs(("nothing", DAY), ("deferred", DAY)):
        assert set(run.tasks.values()) == {"skipped"}, chain.log[-9000:]
        ((status, _, _, _, error),) = chain.ledger(run.dag_id)
        assert status == "skipped"
        assert "Nothing landed" in error
        assert not chain.exists(run.dag_id, run.dag_id)


def test_a_conf_that_names_no_partition_is_refused(chain: Chain) -> None:
    uri = chain.prefix()
    chain.dataset("conf", uri)
    runs = chain.runs(
        ("conf", DAY, {"partition": {"day": DAY}}),
        ("conf", DAY, {"partition": {"date": "yesterday"}}),
        ("conf", None),
    )
    assert [run.tasks["wait_for_partition"] for run in runs] == ["failed"] * 3
    errors = [row[4] for row in chain.ledger("conf")]
    assert "'day' is no partition key of conf" in errors[0]
    assert "'yesterday'" in errors[1]
    assert "no logical date" in errors[2]
    assert all("Fix: " in error for error in errors)
