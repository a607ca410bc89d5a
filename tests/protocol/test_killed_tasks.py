"""Tasks of all six kinds are killed and stopped, on local, SQL and S3 stores. `tasks` describes how."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.proofs import Proved, chosen_by, expect_none_broken, fresh_seed, some_and_whole
from tests.protocol import tasks
from tests.protocol.tasks import STAGES, URNS, Site
from tests.services.s3 import S3Server


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("kills", "zombies", "share", "floor"), some_and_whole((2, 1, 6, (6, 3)), (17, 6, 1, (300, 100)))
)
def test_tasks_are_killed_and_stopped(
    kills: int,
    zombies: int,
    share: int,
    floor: tuple[int, int],
    tmp_path: Path,
    postgres_database: str,
    versitygw: S3Server,
    bucket: str,
    proved: Proved,
) -> None:
    """:param kills: of each kind of task at each site, and
    :param zombies: likewise.
    :param floor: of both, in all.
    :param share: one in so many of them is played at each site.
    """
    seed = fresh_seed()
    sites = [  # the slowest in the middle, where the servers share it
        Site("local", f"{tmp_path}/{{name}}/journal", f"{tmp_path}/{{name}}/target", URNS),
        Site(
            "s3",
            versitygw.access.url(f"{bucket}/{{name}}/journal"),
            versitygw.access.url(f"{bucket}/{{name}}/target"),
            environment=versitygw.access.environment,
        ),
        Site("sql", "journal", f"{tmp_path}/{{name}}/target", URNS, {"AIRFLOW_CONN_JOURNAL": postgres_database}),
    ]
    tally = tasks.play_together(tmp_path, sites, seed, kills, zombies, share)
    kinds = Counter(kind for (_, _, kind), number in tally.cases.items() for _ in range(number))
    proved(
        "real processes of tasks",
        f"{kinds['SIGKILL']} SIGKILLs and {kinds['SIGSTOP']} SIGSTOPs, of six kinds of task at {len(sites)} sites; "
        f"{tally.missed} had ended before; {len(tally.broken)} broke a promise",
        chosen_by(share, seed),
        details=[
            f"{site.name}: {', '.join(f'{stage} {_count(tally, site, stage)}' for stage in STAGES)}" for site in sites
        ],
    )
    expect_none_broken(tally.broken)
    assert kinds["SIGKILL"] >= floor[0]
    assert kinds["SIGSTOP"] >= floor[1]
    assert all(sum(_count(tally, site, stage) for stage in STAGES) for site in sites)
    if share == 1:
        assert all(_count(tally, site, stage) >= kills for site in sites for stage in STAGES)


def _count(tally: tasks.Tally, site: Site, stage: str) -> int:
    return tally.cases[site.name, stage, "SIGKILL"] + tally.cases[site.name, stage, "SIGSTOP"]
