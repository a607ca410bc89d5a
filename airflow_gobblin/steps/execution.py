"""Execution of commit steps: each is verified, or executed. It needs no journal, so it can run wherever the target is visible."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from airflow_gobblin.errors import (
    Remedy,
    StepConflictError,
    StepDamagedError,
    StepError,
    StepFencedError,
    StepLostError,
)
from airflow_gobblin.steps.base import CommitStep, FenceResult, StepContext, StepStatus, publishes_files, weight_of
from airflow_gobblin.storage.files.base import Files, each

THREADS = 8
"""The number of steps without files carried out at once: they may wait for others."""


def carry_out_all(
    steps: Iterable[CommitStep], files: Files, carry_out_one: Callable[[CommitStep], bool]
) -> Iterator[bool]:
    """Carry out many steps, as many at once as is worthwhile.

    :return: for each step, whether it was done here; in no order.
    """
    others: list[CommitStep] = []
    yield from each(files, carry_out_one, _with_files(steps, others), weight_of)
    if others:
        with ThreadPoolExecutor(THREADS) as pool:
            yield from pool.map(carry_out_one, others)


def _with_files(steps: Iterable[CommitStep], others: list[CommitStep]) -> Iterator[CommitStep]:
    """Yield the steps that publish files, and collect the others.

    :param others: the list that they are added to.
    """
    for step in steps:
        if publishes_files(step):
            yield step
        else:
            others.append(step)


def carry_out(step: CommitStep, context: StepContext, urn: str, slot: int) -> bool:
    """Carry out a step, unless it is done. Safe at any time and for any process, even concurrently.

    :param urn: the dataset of its sequence, for errors.
    :param slot: the slot of its sequence, for errors.
    :return: whether it was done here.
    :raises StepError: it can't be done. The error shows no secret of the connections that the step used.
    """
    with context.connections.redactor.guarding("publish", f"{step.subject} of dataset {urn!r}", StepError):
        return _carry_out(step, context, urn, slot)


def _carry_out(step: CommitStep, context: StepContext, urn: str, slot: int) -> bool:
    failure: Exception | None = None
    status = StepStatus.TODO if publishes_files(step) else _verify(step, context, urn, slot)
    if status is StepStatus.TODO:
        try:
            step.execute(context)
            return True
        except StepDamagedError:
            raise  # it is done, but must not pass in silence
        except Exception as error:  # an author's step may raise anything
            failure = error
        status = _verify(step, context, urn, slot, failure)
    if status is StepStatus.DONE:
        return failure is not None and not isinstance(failure, FileExistsError | FileNotFoundError)
    raise step_error(step, status, urn, slot, failure)


def fence(step: CommitStep, context: StepContext, urn: str, slot: int) -> FenceResult:
    """Shut a step out of a slot that is to be abandoned. Safe at any time and for any process, even concurrently.

    :param urn: as for `carry_out`, and so is `slot`.
    :raises StepError: it isn't certain that the step is shut out.
    """
    if step.fence is None:
        return FenceResult.HOLDS  # `undo` takes it back, whenever it is done
    subject = f"{step.subject} in slot {slot} of dataset {urn!r}"
    with context.connections.redactor.guarding("shut out", subject, StepError):
        try:
            return step.fence(context)
        except Exception as error:  # an author's step may raise anything
            raise StepError(
                operation="shut out",
                subject=subject,
                cause=error,
                hint="The slot stays pending. Abandon it again once the cause is fixed, or let the next run finish it.",
            ) from error


def sync(files: Files, folders: Iterable[str]) -> None:
    """Wait until the results of steps are durable.

    :param folders: the folders named by the steps. One that was emptied and removed since is gone durably with its name in the
        folder above it.
    """
    for folder in sorted({*folders}):
        _sync(files, folder)


def _sync(files: Files, folder: str) -> None:
    while True:
        try:
            files.sync_folder(folder)
            return
        except FileNotFoundError:
            if folder == ".":
                raise
            folder = posixpath.dirname(folder) or "."


def _verify(step: CommitStep, context: StepContext, urn: str, slot: int, first: Exception | None = None) -> StepStatus:
    """Return the status of a step.

    :param first: the error to report if the status can't be determined either.
    """
    try:
        return step.verify(context)
    except Exception as error:
        raise step_error(step, StepStatus.TODO, urn, slot, first or error) from error


def step_error(
    step: CommitStep, status: StepStatus, urn: str, slot: int, failure: Exception | None = None
) -> StepError:
    """Return the error for a step that can't be done.

    :param urn: the dataset of its sequence.
    :param slot: the slot of its sequence.
    :param failure: the error that `execute` raised.
    """
    subject = f"{step.subject} of dataset {urn!r}"
    if status is StepStatus.CONFLICT:
        error: StepError = StepConflictError(
            operation="publish",
            subject=subject,
            cause=step.conflict,
            hint="Move it away, or abandon the slot.",
            remedy=Remedy.CARRY_OUT,
        )
    elif status is StepStatus.LOST:
        error = StepLostError(
            operation="publish",
            subject=subject,
            cause=step.lost,
            hint="Restore one of them, or abandon the slot: its range is then extracted anew.",
        )
    elif status is StepStatus.FENCED:
        error = StepFencedError(
            operation="publish",
            subject=subject,
            cause="it is shut out, for its slot is being abandoned",
            remedy=Remedy.PLAN,
        )
    else:
        error = StepError(
            operation="publish",
            subject=f"{step.subject} in slot {slot} of dataset {urn!r}",
            cause=failure,
            hint="Nothing is lost: fix the cause, or abandon the slot.",
            remedy=Remedy.CARRY_OUT,
        )
    error.__cause__ = failure
    return error
