"""The dev stack of docker-compose.yaml on this machine, without containers."""

from __future__ import annotations
