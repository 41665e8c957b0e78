from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from landfall.dataset import Dataset
from landfall.dataset_files import read_dataset

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "datasets.md"


def model_of(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Every dotted key, and whether it is a section."""
    for name, field in model.model_fields.items():
        section = model_of(field.annotation)
        yield prefix + name, section is not None
        if section is not None:
            yield from keys(section, f"{prefix}{name}.")


def documented() -> list[str]:
    return re.findall(r"^\| `([a-z_.]+)` \|", DOCUMENT.read_text(), re.MULTILINE)


def test_every_key_is_documented() -> None:
    assert {key for key, section in keys(Dataset) if not section} <= set(documented())


def test_no_documented_key_is_unknown_or_there_twice() -> None:
    assert set(documented()) <= {key for key, _ in keys(Dataset)}
    assert len(documented()) == len(set(documented()))


def test_the_example_is_valid(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    path = tmp_path / "example.yaml"
    path.write_text(found[1])
    assert read_dataset(path).dataset.dataset == "sales"
