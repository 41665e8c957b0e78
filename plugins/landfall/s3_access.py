"""How one bucket is reached; handed to Spark by its environment only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

SOURCE_ENV = "LANDFALL_SOURCE_S3"
STAGE_ENV = "LANDFALL_STAGE_S3"


@dataclass(frozen=True)
class S3Access:
    """Credentials and endpoint. Without an access key requests are not signed: a public bucket."""

    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    endpoint: str | None = None
    region: str = "us-east-1"

    @property
    def anonymous(self) -> bool:
        return self.access_key is None

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(s for s in (self.secret_key, self.session_token) if s)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> S3Access:
        return cls(**json.loads(text))
