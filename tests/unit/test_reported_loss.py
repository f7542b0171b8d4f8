"""Losses that queries left out: what a task lists, and what a node keeps."""

from __future__ import annotations

from sparkcache.model import Loss
from sparkcache.reported_loss import MAX_LOSSES, LossLog, LossReport, ReportedLoss


def reported(number: int, time_s: float = 1.0, topic: str = "t") -> ReportedLoss:
    loss = Loss("mem://object", 0, 3, number, number, "an entry", "none", rows=1)
    return ReportedLoss(topic, loss, time_s)


def test_a_loss_is_kept_once_with_its_first_time() -> None:
    log = LossLog()
    log.add([reported(1, 5.0), reported(2, 5.0)])
    log.add([reported(1, 6.0), reported(1, 6.0, "other")])
    assert log.records() == (
        reported(1, 5.0),
        reported(2, 5.0),
        reported(1, 6.0, "other"),
    )
    assert log.not_kept == 0


def test_a_log_is_bounded_and_counts_what_it_does_not_keep() -> None:
    log = LossLog(max_losses=2)
    log.add([reported(number) for number in range(5)], not_kept=10)
    assert log.records() == (reported(0), reported(1))
    assert log.not_kept == 13
    log.add([reported(1)])
    assert log.not_kept == 13


def test_a_report_is_bounded_and_counts_what_it_does_not_list() -> None:
    report = LossReport()
    assert not report
    report.add([reported(number) for number in range(MAX_LOSSES - 1)])
    report.add([reported(number) for number in range(MAX_LOSSES - 1, MAX_LOSSES + 4)])
    report.add([], 3)
    assert report
    assert len(report.losses) == MAX_LOSSES
    assert report.losses[-1] == reported(MAX_LOSSES - 1)
    assert report.not_listed == 7
