"""Files that are whole or not there, whenever the power goes."""

from __future__ import annotations

import os
from pathlib import Path

PART = ".part"


def write_durably(path: Path, body: bytes) -> None:
    """Replaces the file; when this returns, it outlives a crash."""
    part = _write_part(path, body)
    part.replace(path)
    sync_folder(path.parent)


def create_durably(path: Path, body: bytes) -> None:
    """The same, but raises FileExistsError, with nothing changed, where the file exists."""
    part = _write_part(path, body)
    try:
        os.link(part, path)
    finally:
        part.unlink()
    sync_folder(path.parent)


def _write_part(path: Path, body: bytes) -> Path:
    part = path.with_name(f".{path.name}{PART}")
    try:
        with part.open("wb") as handle:
            handle.write(body)
            handle.flush()
            os.fsync(handle.fileno())
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return part


def append_durably(path: Path, body: bytes) -> int:
    """Adds to the end of the file, all or nothing; how long the file is then."""
    new = not path.exists()
    # Unbuffered: what could not be written must not be tried once more when the file is closed.
    with path.open("ab", buffering=0) as handle:
        before = handle.tell()
        try:
            left = memoryview(body)
            while left:
                left = left[handle.write(left) :]
            os.fsync(handle.fileno())
        except BaseException:
            os.truncate(path, before)
            raise
    if new:
        sync_folder(path.parent)
    return before + len(body)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_parts(folder: Path) -> int:
    """Removes what a crash left half-written; how many files there were."""
    parts = list(folder.glob(f".*{PART}"))
    for part in parts:
        part.unlink()
    return len(parts)
