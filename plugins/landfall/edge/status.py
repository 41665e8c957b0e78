"""What a buffer holds and how it goes, read beside a running writer."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from landfall.edge import home
from landfall.edge.journal import Journal


@dataclass(frozen=True)
class Amount:
    batches: int = 0
    records: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class OutputStatus:
    output: str
    waiting: int
    last_shipped_at: datetime | None
    last_error: str | None
    last_error_at: datetime | None


@dataclass(frozen=True)
class InputStatus:
    input: str
    position: int
    durable_to: int


@dataclass(frozen=True)
class EdgeStatus:
    """`shipped` counts everything ever shipped; `kept` is what of it is still in the buffer."""

    buffer: str
    writer: str | None
    running: int | None
    accepted: int
    dead_letters: int
    buffered: Amount
    shipped: Amount
    kept: Amount
    oldest_unshipped_at: datetime | None
    oldest_unshipped_seconds: float | None
    last_error: str | None
    last_error_at: datetime | None
    outputs: tuple[OutputStatus, ...]
    inputs: tuple[InputStatus, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_status(folder: Path, outputs: list[str]) -> EdgeStatus:
    """The state of the buffer in this folder; all zero where there is none yet."""
    writer = home.writer_of(folder)
    path = folder / home.JOURNAL_FILE
    if writer is None or not path.exists():
        return _empty(folder, writer)
    try:
        journal = Journal(path, read_only=True)
        try:
            if not journal.is_made:
                return _empty(folder, writer)
            return _read(journal, folder, writer, outputs)
        finally:
            journal.close()
    except sqlite3.Error as error:
        raise home.EdgeBufferError(
            f"{home.JOURNAL_FILE} cannot be read: {error}.", where=str(folder)
        ) from error


def _empty(folder: Path, writer: str | None) -> EdgeStatus:
    nothing = Amount()
    return EdgeStatus(
        str(folder), writer, home.holder_of(folder), 0, 0, nothing, nothing, nothing,
        None, None, None, None, (), (),
    )  # fmt: skip


def _read(journal: Journal, folder: Path, writer: str, names: list[str]) -> EdgeStatus:
    sums = journal.sums()
    oldest = journal.oldest_waiting()
    known = journal.outputs()
    outputs = tuple(
        OutputStatus(name, journal.waiting_number(name), *known.get(name, (None, None, None)))
        for name in dict.fromkeys([*names, *known])
    )
    failed = max((o for o in outputs if o.last_error_at), key=_when, default=None)
    inputs = journal.sources().values()
    return EdgeStatus(
        buffer=str(folder),
        writer=writer,
        running=home.holder_of(folder),
        accepted=journal.fact("accepted", 0),
        dead_letters=journal.fact("dead_letters", 0),
        buffered=Amount(*sums.get(False, (0, 0, 0))),
        shipped=Amount(
            *(journal.fact(f"shipped_{name}", 0) for name in ("batches", "records", "bytes"))
        ),
        kept=Amount(*sums.get(True, (0, 0, 0))),
        oldest_unshipped_at=oldest.created_at if oldest else None,
        oldest_unshipped_seconds=age(oldest.created_at) if oldest else None,
        last_error=failed.last_error if failed else None,
        last_error_at=failed.last_error_at if failed else None,
        outputs=outputs,
        inputs=tuple(
            InputStatus(i.label, i.position, min([low for low, _ in i.open], default=i.position))
            for i in inputs
        ),
    )


def _when(output: OutputStatus) -> datetime:
    assert output.last_error_at is not None
    return output.last_error_at


def age(since: datetime) -> float:
    """Seconds since then; not below zero, even when the clock has gone backward."""
    return max(0.0, (datetime.now(UTC) - since).total_seconds())
