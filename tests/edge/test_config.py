from __future__ import annotations

import re
from pathlib import Path

import pytest

from landfall.edge.config import EdgeConfig, read_edge_config
from landfall.errors import ConfigError
from tests.unit.test_docs import keys

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "edge" / "retail.yaml"
OUT = "outputs: [{folder: out}]\n"


def read(tmp_path: Path, text: str) -> EdgeConfig:
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    return read_edge_config(path, tmp_path / "home")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bufer: {}", "unknown key 'bufer'. Did you mean 'buffer'?"),
        ("batch: {conut: 5}", "unknown key 'batch.conut'. Did you mean 'count'?"),
        ("buffer: {max_bytes: 10 apples}", "write it like 10 GB"),
        ("buffer: {retention: -1 days}", "write it like 10 s"),
        ("batch: {count: 0}", "batch.count: Input should be greater than or equal to 1"),
        ("date: today", "date: Input should be 'event' or 'clock'"),
        ("columns: {a: int33}", "columns.a: 'int33' is not a type"),
        ("columns: {a: 'decimal128(50, 2)'}", "1 to 38 digits"),
        ("columns: {a: string}", "columns lacks 'store_region', and path uses {store_region}"),
        (
            "columns: {store_region: string, event_at: string, date: date32}",
            "the column 'date' would be hidden by the path's date=",
        ),
        ("required: [x]\ncolumns: {store_region: string, event_at: string}", "required names it"),
        ("path: a/region={r}/b_{unix}.parquet", "the file name needs {count} and {writer}"),
        ("path: a/{region}/b_{count}_{writer}.parquet", "write the folder '{region}' as key="),
        ("path: a//b_{count}_{writer}.parquet", "a folder of the path is empty"),
        ("path: ../b_{count}_{writer}.parquet", "a folder of the path is empty, '.' or '..'"),
        ("path: a/b_{count}_{writer}_{till}.parquet", "{till} cannot stand in the file name"),
        ("path: a/b_{count}_{writer}", "must end with .parquet"),
    ],
)
def test_an_error_names_file_key_and_fix(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, OUT + text)
    assert str(caught.value).startswith(str(tmp_path / "shop.yaml"))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ("[]", "name at least one"),
        ("[{}]", "name one place"),
        ("[{folder: a, s3: 's3://b-c-d'}]", "name one place"),
        ("[{folder: a}, {folder: a}]", "one output stands here twice"),
        ("[{s3: bucket}]", "write it as s3://bucket/prefix"),
        ("[{s3: 's3://landing', endpoint: 'localhost:9000'}]", "write it as http://host:port"),
        ("[{s3: 's3://landing', endpoint: 'http://me:pw@host'}]", "no credentials in the endpoint"),
        ("[{s3: 's3://landing', secret_key: x}]", "unknown key 'outputs.0.secret_key'"),
    ],
)
def test_an_output_that_cannot_be_is_refused(tmp_path: Path, outputs: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        read(tmp_path, f"outputs: {outputs}")


def test_paths_start_at_the_config_file(tmp_path: Path) -> None:
    config = read(tmp_path, OUT + "input: {files: [in/*.jsonl]}\nbuffer: {folder: b}")
    assert config.input.files == (str(tmp_path / "in/*.jsonl"),)
    assert config.buffer.folder == tmp_path / "b"
    assert config.outputs[0].folder == tmp_path / "out"


def test_a_buffer_without_a_name_lies_in_the_home(tmp_path: Path) -> None:
    assert read(tmp_path, OUT).buffer.folder == tmp_path / "home" / "edge" / "shop"


def test_quantities_are_as_people_write_them(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        OUT + "batch: {age: 1.5 min, bytes: 2 MB}\nbuffer: {retention: 2 days, max_bytes: 1 GiB}",
    )
    assert (config.batch.age, config.batch.bytes) == (90, 2_000_000)
    assert (config.buffer.retention, config.buffer.max_bytes) == (172_800, 2**30)


def test_the_defaults_are_those_of_the_issue(tmp_path: Path) -> None:
    config = read(tmp_path, "outputs: [{s3: 's3://landing'}]")
    assert (config.batch.count, config.batch.age) == (1000, 10)
    assert config.outputs[0].max_in_flight == 4
    assert config.buffer.retention == 7 * 86400
    assert config.date == "event"


def test_the_example_is_valid_and_writes_sales(tmp_path: Path) -> None:
    from landfall import retail

    config = read_edge_config(EXAMPLE, tmp_path)
    assert config.columns == retail.COLUMNS
    assert config.path == EdgeConfig.model_fields["path"].default


def documented() -> list[str]:
    text = (REPOSITORY / "docs" / "edge.md").read_text()
    return re.findall(r"^\| `([a-z0-9_.]+)` \|", text, re.MULTILINE)


def test_every_key_is_documented_once() -> None:
    leaves = {key for key, section in keys(EdgeConfig) if not section}
    assert leaves == set(documented())
    assert len(documented()) == len(set(documented()))
