"""When a partition counts as landed."""

from __future__ import annotations

from datetime import datetime, timedelta

from landfall.dataset import Ready
from landfall.listing import Listing


def not_ready(listing: Listing, ready: Ready, now: datetime) -> str | None:
    """What is still missing, in words; None when the partition can be read."""
    if not listing.files:
        return "no source file is there"
    if len(listing.files) < ready.min_files:
        return f"{len(listing.files)} of at least {ready.min_files} files are there"
    if ready.marker is not None:
        there = {other.key for other in (*listing.others, *listing.files)}
        without = [f for f in listing.folders if f"{f}{ready.marker}" not in there]
        if without:
            return f"the marker {ready.marker} is missing in {without[0]}"
    quiet_since = now - timedelta(minutes=ready.quiet_minutes)
    young = [f for f in listing.files if f.modified is not None and f.modified > quiet_since]
    if ready.quiet_minutes and young:
        return f"{young[0].key} is younger than {ready.quiet_minutes:g} minutes"
    return None
