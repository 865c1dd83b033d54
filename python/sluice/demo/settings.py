"""The settings that the demo hands to its ranks. A value."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Settings:
    width: int = 256
    layers: int = 8
    batch: int = 16
    bucket_mb: float = 25.0  # DDP's default
    rounds: int = 3
    steps: int = 6  # of each way in a round
    # Bytes per second that each connection may send; 0 where the link itself is shaped.
    pace: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        return Settings(**json.loads(text))
