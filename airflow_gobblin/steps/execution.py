"""Execution of commit steps: each is verified, or executed. It needs no journal, so it can run wherever the target is visible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from airflow_gobblin.errors import StepError
from airflow_gobblin.steps.publishing import CommitStep, PublishStep, StepContext, StepStatus, file_error
from airflow_gobblin.storage.files.base import Files, each

THREADS = 8
"""The number of an author's own steps carried out at once: they may wait for others."""


def carry_out_all(
    steps: Iterable[CommitStep], files: Files, carry_out_one: Callable[[CommitStep], bool]
) -> Iterator[bool]:
    """Carry out many steps, as many at once as is worthwhile.

    :return: for each step, whether it was done here; in no order.
    """
    own: list[CommitStep] = []
    yield from each(files, carry_out_one, _without(own, steps))
    if own:
        with ThreadPoolExecutor(THREADS) as pool:
            yield from pool.map(carry_out_one, own)


def _without(own: list[CommitStep], steps: Iterable[CommitStep]) -> Iterator[CommitStep]:
    """Yield the steps that publish files, and collect the others.

    :param own: the list that they are added to.
    """
    for step in steps:
        if isinstance(step, PublishStep):
            yield step
        else:
            own.append(step)


def carry_out(step: CommitStep, files: Files, urn: str, slot: int) -> bool:
    """Carry out a step, unless it is done. Safe at any time, for any process, also concurrently.

    :param urn: the dataset of its sequence, for errors.
    :param slot: the slot of its sequence, for errors.
    :return: whether it was done here.
    :raises StepError: it can't be done.
    """
    failure: Exception | None = None
    status = StepStatus.TODO if isinstance(step, PublishStep) else _verify(step, files, urn, slot)
    if status is StepStatus.TODO:
        try:
            step.execute(StepContext(files))
            return True
        except Exception as error:  # an author's step may raise anything
            failure = error
        status = _verify(step, files, urn, slot, failure)
    if status is StepStatus.DONE:
        return failure is not None and not isinstance(failure, FileExistsError)
    raise _step_error(step, status, urn, slot, failure)


def sync(files: Files, folders: Iterable[str]) -> None:
    """Wait until the results of steps are durable.

    :param folders: the folders named by the steps.
    """
    for folder in sorted({*folders}):
        files.sync_folder(folder)


def _verify(step: CommitStep, files: Files, urn: str, slot: int, first: Exception | None = None) -> StepStatus:
    """Return the status of a step.

    :param first: the error to report if the status can't be determined either.
    """
    try:
        return step.verify(StepContext(files))
    except Exception as error:
        raise _step_error(step, StepStatus.TODO, urn, slot, first or error) from error


def _step_error(step: CommitStep, status: StepStatus, urn: str, slot: int, failure: Exception | None) -> StepError:
    if isinstance(step, PublishStep) and status is not StepStatus.TODO:
        error: StepError = file_error(step, status, urn)
    else:
        error = StepError(
            operation=f"carry out a {type(step).__name__} of",
            subject=f"slot {slot} of dataset {urn!r}",
            cause=failure or f"its state is {status.value}",
            hint="Nothing is lost: clear execute_commit_steps once the cause is mended, or abandon the slot.",
        )
    error.__cause__ = failure
    return error
