"""A watermark of an author's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_gobblin.model.watermark import Json, percent, register_watermark


@register_watermark
@dataclass(frozen=True, order=True)
class Mark:
    """How many letters."""

    kind: ClassVar[str] = "test.mark"
    letters: int

    def to_json(self) -> Json:
        return "x" * self.letters

    @classmethod
    def from_json(cls, value: Any) -> Mark:
        return cls(len(value))

    def progress(self, low: Mark, high: Mark) -> float:
        return percent(self.letters - low.letters, high.letters - low.letters)
