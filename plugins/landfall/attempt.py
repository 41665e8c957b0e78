"""One run's way into the warehouse: tried again where that helps, and in the ledger at its end."""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from uuid import uuid4

from landfall import ledger
from landfall.errors import TransientError
from landfall.ledger import LedgerRow, RunStatus
from landfall.sql import Destination
from landfall.warehouse.base import Locked, Warehouse

log = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass
class Attempt(ABC, Generic[Result]):
    """Its tries share the run's id and what the last try was about to commit."""

    warehouse: Warehouse
    destination: Destination
    ledger: str
    run_id: str = field(default_factory=lambda: str(uuid4()), kw_only=True)
    pending: Result | None = field(default=None, kw_only=True)

    @abstractmethod
    def refuse(self) -> None:
        """Raises what is known to be wrong before the warehouse is asked."""

    @abstractmethod
    def once(self) -> Result:
        """One try, on a connection of its own. Sets `pending` right before the COMMIT."""

    @abstractmethod
    def row(self, status: RunStatus, error: str | None) -> LedgerRow:
        """The run's row in the ledger."""

    def to_its_end(self, retries: int, sleep: Callable[[float], None]) -> Result:
        """The result, or a LandfallError after its `failed` row was written to the ledger."""
        try:
            self.refuse()
            return self._retried(retries, sleep)
        except Exception as error:
            failure = self.warehouse.classify(error)
            if self._committed():
                assert self.pending is not None
                return self.pending
            if isinstance(failure, Locked):
                log.error("the ledger has no row for this failure, since the database is locked")
            elif not failure.recorded:
                row = self.row(RunStatus.FAILED, str(failure))
                failure.recorded = record_end(self.warehouse, self.destination, self.ledger, row)
            if failure is error:
                raise
            raise failure from error

    def _retried(self, retries: int, sleep: Callable[[float], None]) -> Result:
        for number in range(1, retries + 2):
            try:
                return self.once()
            except Exception as error:
                failure = self.warehouse.classify(error)
                again = isinstance(failure, TransientError) and not isinstance(failure, Locked)
                if not again or number > retries:
                    raise
                # Jitter, so that two writers that met once do not meet again.
                pause = min(30.0, 0.2 * 2**number) * random.uniform(0.5, 1.0)  # noqa: S311
                log.warning(
                    "try %d of %d: %s; again in %.1f s", number, retries + 1, failure, pause
                )
                sleep(pause)
        raise AssertionError("unreachable")

    def _committed(self) -> bool:
        """Whether a COMMIT whose answer was lost had succeeded after all."""
        if self.pending is None:
            return False
        try:
            with self.warehouse.connect(self.destination.database) as con:
                found = ledger.find_run(con, self.destination, self.ledger, self.run_id)
                return found is not None
        except Exception as error:
            log.error("whether run %s was committed is not known: %s", self.run_id, error)
            return False


def record_end(warehouse: Warehouse, destination: Destination, name: str, row: LedgerRow) -> bool:
    """Writes how a run ended, in a transaction of its own. Says whether it could; never raises."""
    try:
        with warehouse.connect(destination.database) as con, warehouse.turn(con, destination):
            warehouse.ensure_destination(con, destination)
            ledger.ensure(warehouse, con, destination, name)
            with warehouse.transaction(con):
                # A COMMIT whose answer was lost may have written the run's row already.
                if row.run_id is None or not ledger.find_run(con, destination, name, row.run_id):
                    ledger.record(con, destination, name, row)
        return True
    except Exception as error:
        log.error("the ledger row (%s) was not written: %s", row.status, warehouse.classify(error))
        return False
