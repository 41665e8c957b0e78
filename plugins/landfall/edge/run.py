"""`edge run` and `edge replay`: a writer with signals, a line of progress a minute, and an end."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from landfall.edge.config import EdgeConfig
from landfall.edge.inputs import FileInput, read_stream
from landfall.edge.status import age
from landfall.edge.writer import DRAIN_SECONDS, EdgeWriter, Stopping

log = logging.getLogger("landfall.edge")

_PROGRESS_SECONDS = 60.0


def log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("landfall.edge")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def run(config: EdgeConfig, *, once: bool = False) -> int:
    """Takes the config's input until it ends, or until SIGTERM or Ctrl-C."""
    writer = EdgeWriter(config)
    log.info("writer %s, buffer %s", writer.buffer.writer, config.buffer.folder)
    with stopped_by_signals(writer.stopping), reporting(writer):
        try:
            _take_all(config, writer, once=once)
        except Stopping:
            log.warning("stopped while no input could be taken")
        finished = not writer.stopping.is_set()
        return _end(writer, wait=finished)


def _take_all(config: EdgeConfig, writer: EdgeWriter, *, once: bool) -> None:
    if not config.input.files:
        read_stream(sys.stdin.fileno(), writer, config.input.max_line)
        return
    files = FileInput(config.input.files, writer, config.input.max_line)
    while not writer.stopping.is_set():
        if files.read_some():
            continue
        if once:
            return
        writer.stopping.wait(config.input.poll)


def _end(writer: EdgeWriter, *, wait: bool) -> int:
    """At the end of the input it waits for the outputs; when stopped, only a moment."""
    try:
        writer.flush()
        if wait:
            writer.wait_while_shipping()
        shipped = writer.close(drain_seconds=0.0 if wait else DRAIN_SECONDS)
    except Stopping:
        log.error("the buffer cannot be written: what was taken last is not accepted")
        return 1
    log.info("ended: %s", "all is shipped" if shipped else "the rest waits in the buffer")
    return 0


def replay(config: EdgeConfig, *, shipped: bool) -> int:
    """Ships what is in the buffer; with `shipped`, also what is kept, where it is missing now."""
    writer = EdgeWriter(config, ticking=False)
    if shipped:
        again = writer.buffer.ship_again()
        log.info("%d shipped batches are offered again", again)
    with stopped_by_signals(writer.stopping), reporting(writer):
        writer.wait_while_shipping()
        done = writer.close(drain_seconds=0.0)
    log.info("replay ended: %s", "all is shipped" if done else "the rest waits in the buffer")
    return 0 if done else 1


@contextmanager
def stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """SIGTERM and Ctrl-C ask for an end; nothing is interrupted."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stopping.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def reporting(writer: EdgeWriter) -> Iterator[None]:
    """A line of progress a minute."""
    done = threading.Event()

    def report() -> None:
        while not done.wait(_PROGRESS_SECONDS):
            log.info("%s", progress(writer))

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def progress(writer: EdgeWriter) -> str:
    journal = writer.buffer.journal
    waiting, _, size = journal.sums().get(False, (0, 0, 0))
    oldest = journal.oldest_waiting()
    text = (
        f"accepted {journal.fact('accepted', 0)} records, "
        f"shipped {journal.fact('shipped_batches', 0)} batches, "
        f"dead letters {journal.fact('dead_letters', 0)}, waiting {waiting} batches ({size} bytes)"
    )
    return f"{text}, the oldest for {age(oldest.created_at):.0f} s" if oldest else text
