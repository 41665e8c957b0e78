"""Datasets of every layout load by their YAML alone."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Chain, Run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ended(chain: Chain) -> dict[str, Run]:
    """One run of each dataset, in one go."""
    by_region = chain.prefix()
    for region in ("01", "1", "N/W"):
        folder = f"{by_region}/region={region.replace('/', '%2F')}"
        chain.put(f"{folder}/a.parquet", {"id": [1, 2], "said": [region, region]})
    chain.dataset(
        "by_region",
        by_region,
        source={"uri": by_region, "partition": {"region": "01"}, "types": {}},
    )
    chain.dataset(
        "by_list",
        by_region,
        source={"uri": by_region, "partition": {"region": ["1", "N/W"]}, "types": {}},
    )
    two_keys = chain.prefix()
    for year, month in ((2025, "09"), (2026, "09"), (2026, "10")):
        chain.put(f"{two_keys}/year={year}/month={month}/a.parquet", {"id": [year]})
    chain.dataset(
        "two_keys",
        two_keys,
        source={
            "uri": two_keys,
            "partition": {"year": "{{ ds[:4] }}", "month": "{{ ds[5:7] }}"},
            "types": {"year": "integer", "month": "string"},
        },
    )
    runs = chain.runs(
        ("by_region", "2026-01-01"),
        ("by_list", "2026-01-01"),
        ("two_keys", "2026-09-03"),
        ("two_keys", None, {"partition": {"year": 2026, "month": "10"}}),
    )
    return dict(zip(("region", "list", "two_keys", "conf"), runs, strict=True))


def test_by_region(chain: Chain, ended: dict[str, Run]) -> None:
    assert ended["region"].state == "success"
    rows = chain.query(
        "by_region", "SELECT id, said, region FROM by_region.main.by_region ORDER BY id"
    )
    assert rows == [(1, "01", "01"), (2, "01", "01")]


def test_by_a_list_of_regions(chain: Chain, ended: dict[str, Run]) -> None:
    assert ended["list"].state == "success"
    rows = chain.query(
        "by_list", "SELECT DISTINCT region FROM by_list.main.by_list ORDER BY region"
    )
    assert rows == [("1",), ("N/W",)]


def test_by_an_integer_year_and_a_month(chain: Chain, ended: dict[str, Run]) -> None:
    assert ended["two_keys"].state == "success"
    found = chain.query(
        "two_keys",
        "SELECT id, year, month, typeof(year) FROM two_keys.main.two_keys ORDER BY month",
    )
    assert found[0] == (2026, 2026, "09", "BIGINT")


def test_a_trigger_that_names_the_partition_needs_no_date(
    chain: Chain, ended: dict[str, Run]
) -> None:
    assert ended["conf"].state == "success"
    assert [row[1] for row in chain.ledger("two_keys")] == ["2026/09", "2026/10"]
    found = chain.query("two_keys", "SELECT month FROM two_keys.main.two_keys ORDER BY month")
    assert found == [("09",), ("10",)]
