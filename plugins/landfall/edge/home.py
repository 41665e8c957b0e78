"""The folder of a buffer: its version, its writer's id, and the lock that keeps a second one out.

format.json   version and writer id
lock          held by the one writer
journal.db    batches, positions, totals
batches/      one Parquet file for each batch that is waiting or kept
dead_letters/ records that did not fit, with the reason
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from pathlib import Path
from typing import IO

from landfall.edge.files import PART, remove_parts, write_durably
from landfall.errors import TerminalError

VERSION = 1
FORMAT = "landfall-edge-buffer"
FORMAT_FILE = "format.json"
LOCK_FILE = "lock"
JOURNAL_FILE = "journal.db"
_WRITER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,39}")
# `edge status` holds the lock for an instant, to see whether a writer does.
_LOCK_SECONDS = 1.0


class EdgeBufferError(TerminalError):
    """The buffer cannot be used as it is."""


def lock(folder: Path) -> IO[str]:
    """Makes the folder and locks it, for as long as the returned handle is open."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / LOCK_FILE).open("a+")
    except OSError as error:
        raise unwritable(folder, error) from error
    deadline = time.monotonic() + _LOCK_SECONDS
    while not _try_lock(handle, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            holder = holder_of(folder)
            handle.close()
            raise EdgeBufferError(
                f"another writer{f' (process {holder})' if holder else ''} uses this buffer.",
                where=str(folder),
                fix="stop that one, or give this one a buffer.folder of its own.",
            )
        time.sleep(0.02)
    try:
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
    except OSError as error:
        handle.close()
        raise unwritable(folder, error) from error
    return handle


def unwritable(folder: Path, error: OSError) -> EdgeBufferError:
    return EdgeBufferError(
        f"the buffer cannot be written: {error.strerror}.",
        where=str(folder),
        fix="make room on its disk, correct its rights, or choose another buffer.folder.",
    )


def _try_lock(handle: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def holder_of(folder: Path) -> int | None:
    """The process that writes to this buffer now."""
    try:
        with (folder / LOCK_FILE).open("r") as handle:
            if _try_lock(handle, fcntl.LOCK_SH):
                return None
            text = handle.read()
            return int(text) if text.isdigit() else None
    except FileNotFoundError:
        return None


def writer_of(folder: Path) -> str | None:
    """The id of the buffer's writer; None where there is no buffer yet."""
    try:
        document = json.loads((folder / FORMAT_FILE).read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise ValueError(document["format"])
        version, writer = document["version"], str(document["writer"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EdgeBufferError(
            f"{FORMAT_FILE} is not that of a buffer ({error}).",
            where=str(folder),
            fix="choose an empty folder as buffer.folder.",
        ) from None
    if version != VERSION:
        raise EdgeBufferError(
            f"this buffer has version {version}, and this writer knows version {VERSION}.",
            where=str(folder),
            fix="let the Landfall that made it ship what is in it (edge replay), "
            "or choose another buffer.folder. Nothing was touched.",
        )
    return writer


def open_folder(folder: Path, writer: str | None) -> str:
    """Makes an empty folder a buffer, or checks that it is one; the id of its writer.

    The id is made once, so that names never collide, and lives as long as the buffer. `writer`
    sets it, for writers whose names must be the same each time.
    """
    known = writer_of(folder)
    if known is not None:
        if writer not in (None, known):
            raise EdgeBufferError(
                f"this is the buffer of writer {known!r}, not of {writer!r}.", where=str(folder)
            )
    else:
        _refuse_foreign(folder)
        known = writer or secrets.token_hex(6)
        if not _WRITER.fullmatch(known):
            raise EdgeBufferError(f"{known!r} is no writer id: use letters, digits and hyphens.")
        document = {"format": FORMAT, "version": VERSION, "writer": known}
        write_durably(folder / FORMAT_FILE, json.dumps(document).encode())
    for name in ("batches", "dead_letters"):
        (folder / name).mkdir(exist_ok=True)
        remove_parts(folder / name)
    return known


def _refuse_foreign(folder: Path) -> None:
    """Cleaning up removes files: never in a folder that is something else."""
    found = [entry.name for entry in folder.iterdir() if not entry.name.endswith(PART)]
    if foreign := sorted(set(found) - {LOCK_FILE}):
        raise EdgeBufferError(
            f"the folder is not a buffer: it holds {foreign[0]!r}.",
            where=str(folder),
            fix="choose an empty folder as buffer.folder.",
        )
