from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from landfall.edge.journal import SourceState
from landfall.edge.sources import Origin, Source

STEP = 10


def origin(number: int) -> Origin:
    return Origin("till", number * STEP, (number + 1) * STEP)


@given(st.data())
def test_whenever_a_run_dies_every_record_becomes_durable_once(data: st.DataObject) -> None:
    """Records go to one of three batches, batches close in any order, and runs end anywhere."""
    total = data.draw(st.integers(1, 25))
    durable: list[int] = []
    committed = SourceState("till", 0)
    for last in (False, False, True):
        source = Source(committed)
        batches: dict[int, list[int]] = {0: [], 1: [], 2: []}
        end = total if last else data.draw(st.integers(0, total))
        for number in range(source.resume_at // STEP, end):
            if not source.needs(number * STEP):
                continue
            source.take(origin(number))
            batch = batches[data.draw(st.integers(0, 2))]
            batch.append(number)
            if data.draw(st.booleans()):
                committed = commit(source, batch, durable)
        if last:
            for batch in batches.values():
                committed = commit(source, batch, durable)
    assert sorted(durable) == list(range(total))
    assert committed == SourceState("till", total * STEP)


def commit(source: Source, batch: list[int], durable: list[int]) -> SourceState:
    starts = {number * STEP for number in batch}
    state = source.state(starts)
    source.settle(starts)
    durable += batch
    batch.clear()
    return state


def test_neighbours_are_one_range() -> None:
    source = Source(SourceState("till", 0))
    for number in range(5):
        source.take(origin(number))
    assert source.state({20}).open == ((0, 20), (30, 50))


def test_what_needs_no_keeping_is_passed() -> None:
    source = Source(SourceState("till", 0))
    source.skip(origin(0))
    assert source.resume_at == STEP
    assert source.state(set()) == SourceState("till", STEP)
