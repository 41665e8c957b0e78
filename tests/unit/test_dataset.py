from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest
from pydantic import ValidationError

from landfall.dataset import Dataset
from landfall.dataset_files import read_dataset, read_datasets
from landfall.errors import ConfigError

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = sorted((REPOSITORY / "dags" / "datasets").glob("*.yaml"))


def text(name: str = "sales", *, source: str = "", load: str = "", more: str = "") -> str:
    """A dataset file; each argument is YAML that is added to its section."""

    def lines(section: str) -> str:
        return indent(dedent(section).strip(), "  ")

    return "\n".join(
        [
            f"dataset: {name}",
            "start_date: 2026-02-01",
            "source:",
            "  uri: s3://landing/sales",
            lines(source),
            "load:",
            lines(load or "destination: shop.main.sales"),
            dedent(more),
        ]
    )


def read(tmp_path: Path, content: str, name: str = "sales.yaml") -> Dataset:
    path = tmp_path / name
    path.write_text(content)
    return read_dataset(path).dataset


def refusal(tmp_path: Path, content: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, content)
    assert "sales.yaml" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_shipped_datasets_are_valid(path: Path) -> None:
    assert read_dataset(path).dataset.dataset == path.stem


def test_a_short_file_is_enough(tmp_path: Path) -> None:
    dataset = read(tmp_path, text())
    assert dataset.source.connection == "aws_default"
    assert dataset.load.ledger == "ingest_runs"
    assert dataset.schedule is None


def test_a_dataset_is_frozen(tmp_path: Path) -> None:
    dataset = read(tmp_path, text())
    with pytest.raises(ValidationError):
        dataset.load.destination = "other.main.sales"  # type: ignore[misc]


def test_a_misspelt_key_is_refused_with_the_right_one(tmp_path: Path) -> None:
    message = refusal(tmp_path, text(source="partitions: {date: '{{ ds }}'}"))
    assert "'source.partitions'" in message
    assert "Did you mean 'partition'?" in message


def test_a_misspelt_key_is_named_at_any_depth(tmp_path: Path) -> None:
    message = refusal(tmp_path, text(source="ready: {min_file: 2}"))
    assert "'source.ready.min_file'" in message
    assert "'min_files'" in message


def test_a_key_like_no_other_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    message = refusal(tmp_path, text(load="destination: a.b.c\nzzz: 1"))
    assert "'load.zzz'" in message
    assert "destination, mode, warehouse, ledger" in message


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    assert "'load.destination' is missing" in refusal(tmp_path, text(load="mode: replace"))


def test_every_problem_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    message = refusal(tmp_path, text(source="regoin: x", load="destination: a.b"))
    assert "regoin" in message
    assert "database.schema.table" in message


@pytest.mark.parametrize(
    "hostile",
    ["x; DROP TABLE y", 'a"b', "a b", "1a", "", "a-b", "sales\\nx", "é"],
)
def test_a_hostile_identifier_is_refused_wherever_it_stands(tmp_path: Path, hostile: str) -> None:
    assert "not an identifier" in refusal(
        tmp_path, text(name=f'"{hostile}"').replace('"a"b"', "'a\"b'")
    )
    quoted = hostile.replace('"', '\\"')
    for load in (
        f'destination: "shop.main.{quoted}"',
        f'destination: "{quoted}.main.sales"',
        f'destination: shop.main.sales\nledger: "{quoted}"',
    ):
        assert "not an identifier" in refusal(tmp_path, text(load=load))


def test_a_hostile_partition_key_is_refused(tmp_path: Path) -> None:
    source = """partition: {"date = 1; DROP TABLE x": "1"}"""
    assert "not an identifier" in refusal(tmp_path, text(source=source))


@pytest.mark.parametrize("uri", ["landing/x", "s3://b", "https://landing/x", "s3://land*/x"])
def test_a_landing_that_is_no_prefix_in_s3_is_refused(tmp_path: Path, uri: str) -> None:
    content = text().replace("s3://landing/sales", uri)
    assert "s3://bucket/prefix" in refusal(tmp_path, content)


def test_an_octal_looking_value_stays_text(tmp_path: Path) -> None:
    dataset = read(tmp_path, text(source="partition: {region: 01, n: 10, z: 0}"))
    assert dataset.source.partition == {"region": "01", "n": "10", "z": "0"}


def test_a_date_stays_as_it_was_written(tmp_path: Path) -> None:
    dataset = read(tmp_path, text(source="partition: {date: 2026-02-11}\ntypes: {date: date}"))
    assert dataset.source.partition == {"date": "2026-02-11"}


@pytest.mark.parametrize("value", ["NO", "yes", "on", "true"])
def test_a_word_that_yaml_reads_as_a_truth_value_must_be_quoted(tmp_path: Path, value: str) -> None:
    assert "put it in quotes" in refusal(tmp_path, text(source=f"partition: {{region: {value}}}"))
    dataset = read(tmp_path, text(source=f'partition: {{region: "{value}"}}'))
    assert dataset.source.partition == {"region": value}


def test_a_key_written_twice_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, text(source="region: a\nregion: b"))
    assert "'region' stands here twice" in message


@pytest.mark.parametrize("content", ["", "- a list", "just text", "a: [", "\x00"])
def test_a_file_that_holds_no_keys_is_refused(tmp_path: Path, content: str) -> None:
    refusal(tmp_path, content)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_dataset(tmp_path / "none.yaml")


def test_a_value_that_does_not_fit_its_type_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, text(source="partition: {year: NW}\ntypes: {year: integer}"))
    assert "not a valid integer" in message
    assert "source.types.year" in message


def test_an_unknown_type_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    message = refusal(tmp_path, text(source="partition: {d: '*'}\ntypes: {d: varchar}"))
    assert "source.types.d" in message
    assert "'string'" in message
    assert "'varchar'" in message


def test_a_type_of_no_key_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, text(source="partition: {date: '*'}\ntypes: {day: date}"))
    assert "'day'" in message


def test_a_star_in_a_list_is_refused(tmp_path: Path) -> None:
    assert '"*" alone' in refusal(tmp_path, text(source="partition: {r: ['*', NW]}"))
    assert "empty list" in refusal(tmp_path, text(source="partition: {r: []}"))


@pytest.mark.parametrize("schedule", ["30 6 * *", "daily", "@dayly", "61 6 * * *"])
def test_a_schedule_that_is_no_cron_is_refused(tmp_path: Path, schedule: str) -> None:
    message = refusal(tmp_path, text(more=f'schedule: "{schedule}"'))
    assert repr(schedule) in message


@pytest.mark.parametrize("key", ["spark.hadoop.fs.s3a.secret.key", "x.password", "my.TOKEN"])
def test_a_credential_in_spark_conf_is_refused(tmp_path: Path, key: str) -> None:
    message = refusal(tmp_path, text(more=f"spark: {{conf: {{{key}: x}}}}"))
    assert "Airflow connection" in message


def test_a_stage_inside_the_landing_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, text(more="stage: {uri: s3://landing/sales/stage}"))
    assert "inside source.uri" in message


def test_the_configuration_hash_sees_what_changes_rows_alone(tmp_path: Path) -> None:
    plain = read(tmp_path, text()).config_hash
    assert read(tmp_path, text(more="run: {retries: 9}")).config_hash == plain
    assert read(tmp_path, text(source="ready: {min_files: 2}")).config_hash == plain
    assert read(tmp_path, text(more="transform: {filter: a > 1}")).config_hash != plain


def two(tmp_path: Path, one: str, other: str) -> list[str]:
    (tmp_path / "a.yaml").write_text(one)
    (tmp_path / "b.yaml").write_text(other)
    good, bad = read_datasets(tmp_path)
    assert [file.path.name for file in good][:1] == ["a.yaml"]
    return [str(error) for _, error in bad]


def test_a_bad_file_does_not_take_a_good_one_down(tmp_path: Path) -> None:
    (problem,) = two(tmp_path, text("a"), "dataset: [")
    assert "b.yaml" in problem


def test_one_name_in_two_files_is_refused(tmp_path: Path) -> None:
    (problem,) = two(tmp_path, text("a"), text("a", load="destination: x.main.other"))
    assert "declared in a.yaml already" in problem


@pytest.mark.parametrize("destination", ["shop.main.sales", "SHOP.main.Sales"])
def test_two_datasets_that_would_delete_each_others_rows_are_refused(
    tmp_path: Path, destination: str
) -> None:
    (problem,) = two(tmp_path, text("a"), text("b", load=f"destination: {destination}"))
    assert "delete the other's rows" in problem
    assert "a.yaml" in problem


def test_two_datasets_with_disjoint_values_may_share_a_table(tmp_path: Path) -> None:
    nw = "partition: {region: NW, date: '{{ ds }}'}"
    others = "partition: {region: [SW, SE], date: '{{ ds }}'}"
    assert two(tmp_path, text("a", source=nw), text("b", source=others)) == []


def test_two_spellings_of_one_value_are_not_disjoint(tmp_path: Path) -> None:
    one, other = (f"partition: {{m: '{m}'}}\ntypes: {{m: integer}}" for m in ("9", "09"))
    assert two(tmp_path, text("a", source=one), text("b", source=other)) != []


def test_a_table_in_another_warehouse_is_another_table(tmp_path: Path) -> None:
    elsewhere = "destination: shop.main.sales\nwarehouse: other"
    assert two(tmp_path, text("a"), text("b", load=elsewhere)) == []


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    good, bad = read_datasets(tmp_path / "none")
    assert good == []
    assert "is not a folder" in str(bad[0][1])


UPSERT = """
    destination: shop.main.sales
    mode: upsert
    key: [id]
    watermark: {column: at, overlap: "15 minutes", start: 1970-01-01, until: 2022-11-02 01:00:00}
"""


def test_a_watermark_is_kept_as_the_text_that_was_written(tmp_path: Path) -> None:
    mark = read(tmp_path, text(load=UPSERT)).upsert
    assert mark is not None
    assert (mark.start, mark.until) == ("1970-01-01", "2022-11-02 01:00:00")
    assert (mark.on_null, mark.late, mark.ahead) == ("fail", "load", "1 day")


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ("destination: a.b.c\nmode: upsert", "needs key and watermark"),
        ("destination: a.b.c\nmode: upsert\nwatermark: {column: at}", "needs key"),
        ("destination: a.b.c\nkey: [id]", "key: only with mode: upsert"),
        ("destination: a.b.c\ndeleted: op = 'D'", "deleted: only with mode: upsert"),
        (UPSERT.replace("[id]", "[id, ID]"), "names a column twice"),
        (UPSERT.replace("15 minutes", "15 parsecs"), "load.watermark.overlap: '15 parsecs' is not"),
        (UPSERT.replace("column: at", "late: skip, column: at"), "load.watermark.late"),
        (UPSERT.replace("1970-01-01", "true"), "load.watermark.start"),
    ],
)
def test_an_upsert_that_lacks_or_mistakes_a_key_is_refused(
    tmp_path: Path, load: str, said: str
) -> None:
    assert said in refusal(tmp_path, text(load=load))


def test_upsert_deduplicates_by_itself(tmp_path: Path) -> None:
    more = "transform: {deduplicate: {key: [id]}}"
    assert "remove it" in refusal(tmp_path, text(load=UPSERT, more=more))


@pytest.mark.parametrize("select", ["{id: id}", "{at: at}"])
def test_select_must_give_key_and_watermark(tmp_path: Path, select: str) -> None:
    message = refusal(tmp_path, text(load=UPSERT, more=f"transform: {{select: {select}}}"))
    assert "which transform.select does not give" in message


def test_a_partition_key_may_be_part_of_the_key(tmp_path: Path) -> None:
    load = UPSERT.replace("[id]", "[id, region]")
    more = "transform: {select: {id: id, at: at}}"
    assert read(tmp_path, text(source="partition: {region: '*'}", load=load, more=more)).upsert


def test_a_glob_goes_without_partition_keys(tmp_path: Path) -> None:
    content = text().replace("s3://landing/sales", "s3://landing/*/x")
    assert read(tmp_path, content).source.uri == "s3://landing/*/x"
    keyed = text(source="partition: {date: '*'}").replace("s3://landing/sales", "s3://landing/*/x")
    assert "goes without partition keys" in refusal(tmp_path, keyed)
