from __future__ import annotations

from datetime import date

from landfall.sample import sample_days


def test_yesterday_is_among_the_days_so_that_the_first_scheduled_run_finds_it() -> None:
    days = sample_days(2, date(2026, 3, 1))
    assert days[-2:] == [date(2026, 2, 27), date(2026, 2, 28)]
    assert date(2026, 2, 11) in days  # what the documents load by hand
