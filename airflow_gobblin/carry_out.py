"""Carrying out commit steps: each is verified, or executed. It needs no journal, so it may run anywhere that sees the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from airflow_gobblin.errors import StepError
from airflow_gobblin.files.base import Files, each
from airflow_gobblin.steps import CommitStep, PublishStep, StepContext, StepStatus, file_error

THREADS = 8
"""How many steps of an author's own are carried out at once: they may wait for others."""


def carry_out_all(
    steps: Iterable[CommitStep], files: Files, carry_out_one: Callable[[CommitStep], bool]
) -> Iterator[bool]:
    """Carry out many steps, as many at once as pays. :return: of each whether it was done here, in no order."""
    own: list[CommitStep] = []
    yield from each(files, carry_out_one, _without(own, steps))
    if own:
        with ThreadPoolExecutor(THREADS) as pool:
            yield from pool.map(carry_out_one, own)


def _without(own: list[CommitStep], steps: Iterable[CommitStep]) -> Iterator[CommitStep]:
    """The steps that publish files; the others are set aside."""
    for step in steps:
        if isinstance(step, PublishStep):
            yield step
        else:
            own.append(step)


def carry_out(step: CommitStep, files: Files, urn: str, slot: int) -> bool:
    """Carry out a step, unless it is done. Safe at any time, by anyone, also at the same time.

    :param urn: the dataset of its sequence, and :param slot: its slot, for errors.
    :return: whether it was done here. :raises StepError: it can't be done.
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
    """Wait until what steps made is durable. :param folders: as the steps name them."""
    for folder in sorted({*folders}):
        files.sync_folder(folder)


def _verify(step: CommitStep, files: Files, urn: str, slot: int, first: Exception | None = None) -> StepStatus:
    """What a step finds. :param first: the error to tell, if it can't look either."""
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
