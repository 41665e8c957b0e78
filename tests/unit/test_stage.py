"""Which attempts of a partition may be removed once one of them is loaded."""

from __future__ import annotations

from landfall.stage import may_remove, new_attempt

OLD = "20200101T000000000000Z-01234567-89abcdef"


def test_attempts_are_ordered_by_the_time_they_began() -> None:
    names = [new_attempt("run") for _ in range(20)]
    assert names == sorted(names)
    assert len(set(names)) == 20


def test_an_attempt_of_another_run_stays_while_that_run_may_be_at_work() -> None:
    theirs, ours = new_attempt("theirs"), new_attempt("ours")
    assert not may_remove(theirs, loaded=ours, run_id="ours", superseded=())


def test_an_earlier_try_of_the_same_run_goes() -> None:
    failed, ours = new_attempt("ours"), new_attempt("ours")
    assert may_remove(failed, loaded=ours, run_id="ours", superseded=())


def test_what_was_loaded_before_and_what_was_abandoned_go() -> None:
    before, ours = new_attempt("before"), new_attempt("ours")
    assert may_remove(before, loaded=ours, run_id="ours", superseded=[before])
    assert may_remove(OLD, loaded=ours, run_id="ours", superseded=())


def test_the_loaded_attempt_and_newer_ones_stay() -> None:
    ours, newer = new_attempt("ours"), new_attempt("ours")
    assert not may_remove(ours, loaded=ours, run_id="ours", superseded=[ours])
    assert not may_remove(newer, loaded=ours, run_id="ours", superseded=())


def test_a_folder_that_landfall_did_not_name_stays() -> None:
    assert not may_remove("0-kept", loaded=new_attempt("ours"), run_id="ours", superseded=())
