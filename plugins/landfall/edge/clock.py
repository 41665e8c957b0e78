"""Time as a writer sees it. Ages come from `monotonic`, which no change of the clock moves."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta


class Clock:
    """The machine's."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class FastClock(Clock):
    """Starts at a moment and runs `speed` times as fast as the machine's."""

    def __init__(self, start: datetime, speed: float) -> None:
        self._start = start
        self._speed = speed
        self._begun = time.monotonic()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return (time.monotonic() - self._begun) * self._speed

    def jump_to(self, moment: datetime) -> None:
        """Leaves out the time until then."""
        self._start += moment - self.now()

    def seconds_until(self, moment: datetime) -> float:
        """How long that is on the machine's clock; negative when it has passed."""
        return (moment - self.now()).total_seconds() / self._speed


class SetClock(Clock):
    """Stands still until it is set."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment
        self.elapsed = 0.0

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.elapsed

    def advance_to(self, moment: datetime) -> None:
        self.elapsed += max(0.0, (moment - self.moment).total_seconds())
        self.moment = moment
