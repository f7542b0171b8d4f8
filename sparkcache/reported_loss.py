"""Losses that a query left out, as they are reported to a node and to the user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcache.model import Loss

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_LOSSES = 1000
"""How many losses a task lists, and how many a node keeps."""


@dataclass(frozen=True, slots=True)
class ReportedLoss:
    """A loss that a query left out because of `failOnDataLoss=false`.

    Attributes:
        topic: The topic's qualified name.
        loss: The lost entries, and the reason.
        time_s: When it was reported, in seconds since 1970.

    """

    topic: str
    loss: Loss
    time_s: float


@dataclass(slots=True)
class LossReport:
    """What a task reports to its node.

    Attributes:
        losses: At most MAX_LOSSES losses.
        not_listed: How many more there were.

    """

    losses: list[ReportedLoss] = field(default_factory=list)
    not_listed: int = 0

    def __bool__(self) -> bool:
        return bool(self.losses)

    def add(self, losses: Sequence[ReportedLoss], not_listed: int = 0) -> None:
        """Add losses, and a number of losses that are not listed."""
        room = MAX_LOSSES - len(self.losses)
        self.losses += losses[:room]
        self.not_listed += not_listed + max(0, len(losses) - room)


class LossLog:
    """The losses that were reported, each once, with the time of its first report.

    Args:
        max_losses: How many are kept; the others are counted.

    """

    def __init__(self, max_losses: int = MAX_LOSSES) -> None:
        self._max_losses = max_losses
        self._losses: dict[tuple[str, Loss], ReportedLoss] = {}
        self._not_kept = 0

    def __repr__(self) -> str:
        return f"LossLog({len(self._losses)} losses, {self._not_kept} not kept)"

    @property
    def not_kept(self) -> int:
        """How many reports came when there was no room; repeated ones count again."""
        return self._not_kept

    def add(self, reported: Iterable[ReportedLoss], not_kept: int = 0) -> None:
        """Record losses, and how many more the reporter had."""
        self._not_kept += not_kept
        for one in reported:
            key = one.topic, one.loss
            if key in self._losses:
                continue
            if len(self._losses) < self._max_losses:
                self._losses[key] = one
            else:
                self._not_kept += 1

    def records(self) -> tuple[ReportedLoss, ...]:
        """Return the losses in the order in which they were first reported."""
        return tuple(self._losses.values())
