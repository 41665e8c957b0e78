"""A health check: `python -m landfall.stack.probe URL [PART]`. Needs the standard library only.

Succeeds if the URL answers with 200 and, where a part is named, its JSON says that it is healthy.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Sequence

SECONDS = 5.0


def is_healthy(url: str, part: str | None = None) -> bool:
    if not url.startswith("http://"):
        raise ValueError(f"not an http URL: {url}")
    # The services of a stack are never behind a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=SECONDS) as answer:
            body = answer.read()
    except OSError:  # refused, timed out, or an HTTP error
        return False
    return part is None or json.loads(body)[part]["status"] == "healthy"


def main(argv: Sequence[str]) -> int:
    return 0 if is_healthy(*argv) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
