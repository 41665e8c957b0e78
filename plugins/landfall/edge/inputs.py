"""Where `edge run` takes its records from: standard input, or files that grow."""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import select
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from landfall.edge.lines import parse
from landfall.edge.sources import Origin
from landfall.edge.writer import EdgeWriter

log = logging.getLogger("landfall.edge")

_CHUNK = 1_000_000
_HEAD = 1024
_WAKE_SECONDS = 0.5
_FORGET_SECONDS = 3600.0
_ENDINGS = (".jsonl", ".ndjson", ".json")
_PREFIX = "file:"


def read_stream(descriptor: int, writer: EdgeWriter, max_line: int) -> None:
    """Takes every line until the stream ends or the writer is stopping."""
    rest = b""
    while not writer.stopping.is_set():
        if not select.select([descriptor], [], [], _WAKE_SECONDS)[0]:
            continue
        chunk = os.read(descriptor, _CHUNK)
        *lines, rest = (rest + chunk).split(b"\n")
        if not chunk:
            lines = [rest]
        for line in lines:
            record = parse(line, max_line)
            if record is not None:
                writer.take(record, None)
        if not chunk:
            return
        rest = rest[: max_line + 1]  # of a line that is too long, the end is not kept


class FileInput:
    """Files, patterns and folders. A file is known by its first line, whatever its name is."""

    def __init__(self, places: Sequence[str], writer: EdgeWriter, max_line: int) -> None:
        self._places = places
        self._writer = writer
        self._max_line = max_line
        self._positions: dict[str, int] = {}
        self._at_rest: dict[Path, tuple[tuple[int, int, int], str]] = {}
        """Files that were read to their end: what they looked like then, and their source."""
        self._warned: set[str] = set()
        self._forgot = time.monotonic()

    def read_some(self) -> bool:
        """Takes a part of each file that has grown; whether there was anything new."""
        moved = False
        present: set[str] = set()
        paths = self._paths()
        for path, look in paths.items():
            if self._writer.stopping.is_set():
                return False
            if path in self._at_rest and self._at_rest[path][0] == look:
                present.add(self._at_rest[path][1])
                continue
            try:
                with path.open("rb") as handle:
                    source = _identity(handle.read(_HEAD), look[0], self._max_line)
                    if source is None:
                        continue
                    present.add(source)
                    grown = self._read_from(handle, source, path, look[1])
            except OSError as error:
                self._warn(str(path), f"{path} cannot be read: {error.strerror}")
                continue
            moved |= grown
            if not grown:
                self._at_rest[path] = (look, source)
        self._tidy(present, paths)
        return moved

    def _paths(self) -> dict[Path, tuple[int, int, int]]:
        """All files with inode, size and time of change; the least recently changed first."""
        found: dict[Path, tuple[int, int, int]] = {}
        for place in self._places:
            folder = Path(place)
            inside = folder.iterdir() if folder.is_dir() else map(Path, glob.glob(place))  # noqa: PTH207
            for path in inside:
                if folder.is_dir() and path.suffix not in _ENDINGS:
                    continue
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue  # renamed or removed since it was listed
                if path.is_file():
                    found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return dict(sorted(found.items(), key=lambda item: (item[1][2], item[0])))

    def _read_from(self, handle: BinaryIO, source: str, path: Path, size: int) -> bool:
        """Takes what stands behind the last position; whether that has moved."""
        if source not in self._positions:
            self._positions[source] = self._writer.resume_at(source)
        start = self._positions[source]
        if size < start:
            self._warn(source, f"{path} is shorter than what was read of it; it is left alone")
            return False
        handle.seek(start)
        data = handle.read(max(_CHUNK, self._max_line + 1))
        *lines, tail = data.split(b"\n")
        for line in lines:
            self._take(line, source, path, self._positions[source] + len(line) + 1)
        if not tail:
            return bool(lines)
        if not lines and len(tail) > self._max_line:
            return self._pass_long(handle, tail, source, path)
        if isinstance(parse(tail, self._max_line), dict):  # no part of an object is an object
            self._take(tail, source, path, self._positions[source] + len(tail))
            return True
        return bool(lines)

    def _pass_long(self, handle: BinaryIO, begun: bytes, source: str, path: Path) -> bool:
        """A line that is too long is a dead letter once its end is there."""
        end = self._positions[source] + len(begun)
        while chunk := handle.read(_CHUNK):
            at = chunk.find(b"\n")
            if at >= 0:
                self._take(begun, source, path, end + at + 1)
                return True
            end += len(chunk)
        return False

    def _take(self, line: bytes, source: str, path: Path, end: int) -> None:
        origin = Origin(source, self._positions[source], end)
        record = parse(line, self._max_line)
        if record is None:
            self._writer.skip(origin, label=str(path))
        else:
            self._writer.take(record, origin, label=str(path))
        self._positions[source] = end

    def _tidy(self, present: set[str], paths: dict[Path, tuple[int, int, int]]) -> None:
        self._at_rest = {path: rest for path, rest in self._at_rest.items() if path in paths}
        for source, label in self._writer.unfinished(_PREFIX).items():
            if source not in present:
                self._warn(source, f"{label} is gone, and its last records were not durable yet")
        if time.monotonic() - self._forgot >= _FORGET_SECONDS:
            self._forgot = time.monotonic()
            for source in self._writer.forget_all_but(present, _PREFIX):
                self._positions.pop(source, None)

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            log.error("%s", text)


def _identity(head: bytes, inode: int, max_line: int) -> str | None:
    """The name of a file's source; None while its first line is still being written."""
    line, newline, _ = head.partition(b"\n")
    line = line.rstrip(b"\r")
    if not newline and len(head) < _HEAD and not isinstance(parse(line, max_line), dict):
        return None
    return f"{_PREFIX}{inode}:{hashlib.sha256(line).hexdigest()[:16]}"
