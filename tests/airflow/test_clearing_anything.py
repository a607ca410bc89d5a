"""Clear anything: random sequences of what users do, on a real Airflow; rows are published once, and the page is true.

A seed determines a sequence: what a user chooses from what exists at that moment. Airflow determines when it happens.
"""

from __future__ import annotations

import html
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from urllib.parse import quote

import httpx
import pytest

from airflow_gobblin.admin.views import AuditLevel, FileState, audit, verify
from airflow_gobblin.model.coverage import Range
from airflow_gobblin.model.watermark import TimestampWatermark
from airflow_gobblin.plugins.page.showing import brief
from airflow_gobblin.storage.files import LocalFiles
from tests.airflow.conftest import Shops
from tests.airflow.shop import Shop
from tests.proofs import Proved, fresh_seed, some_and_whole
from tests.services.airflow import Airflow

DATASETS = ("visits", "countries")
ACTIONS = 20
TRIES = 20
"""How often something may be tried for each action that can be done."""
TOGETHER = 10
"""How many sequences are played at the same time."""
SECONDS_TO_REST = 300
"""How long all runs of a sequence may go on together after its last action."""
FIRST, START, LAST = date(2026, 1, 1), date(2026, 1, 3), date(2026, 1, 10)
"""The days that have visits, and the first day that is ingested if nobody asks for others."""
FACT = re.compile(r"<dt>([^<]+)</dt><dd[^>]*>([^<]*)</dd>")


@dataclass
class User:
    """A user who acts on a shop at random."""

    shop: Shop
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)
    records: dict[str, str] = field(default_factory=dict)
    """The digests of the journal's records, as first seen."""
    covered: tuple[Range, ...] = ()
    """The coverage of the visits, as last seen."""

    @property
    def runs(self) -> dict[str, str]:
        """The ids of all runs of the shop's DAG, with their states."""
        answer = self.shop.airflow.request("GET", f"dags/{self.shop.name}/dagRuns", params={"limit": 100})
        return {run["dag_run_id"]: run["state"] for run in answer["dag_runs"]}

    def play(self) -> None:
        """Play a sequence, bring the shop to rest, and check what must hold then."""
        for _ in range(ACTIONS * TRIES):
            act = self.chance.choice(
                (self.trigger, self.ask, self.backfill, self.clear, self.clear, self.fail, self.kill)
            )
            if act():
                self.done[act.__name__] += 1
                self.look()
            if self.done.total() == ACTIONS:
                break
            time.sleep(self.chance.choice((0, 0.5, 2)))
        assert self.done.total() == ACTIONS, f"{self.shop.name}: Airflow lets hardly anything be done: {self.done}"
        self.rest()
        self.check()

    # Acts of a user: each returns whether it could be done

    def trigger(self) -> bool:
        """A run of all, or of some, with a new country at the source."""
        self.shop.execute(f"INSERT INTO countries VALUES ('{self.done.total()}', 'Country {self.done.total()}')")
        some = self.chance.choice(((), DATASETS[:1], DATASETS))
        return self._could(lambda: self.shop.trigger(*some))

    def ask(self) -> bool:
        """The trigger form: a range of the visits, perhaps to be replaced."""
        start, end = self._days()
        asked: dict[str, object] = {"datasets": ["visits"], "start": f"{start}", "end": f"{end + timedelta(days=1)}"}
        asked["replace"] = self.chance.random() < 0.5
        return self._could(lambda: self.shop.airflow.trigger(self.shop.name, conf=asked))

    def backfill(self) -> bool:
        """A backfill of a few days, of which runs may exist already."""
        start, end = self._days()
        body = {
            "dag_id": self.shop.name,
            "from_date": f"{start}T00:00:00Z",
            "to_date": f"{end}T00:00:00Z",
            "max_active_runs": self.chance.choice((1, 2)),
            "reprocess_behavior": "completed",
            "dag_run_conf": {"datasets": ["visits"], "replace": self.chance.random() < 0.5},
        }
        return self._could(lambda: self.shop.airflow.request("POST", "backfills", json=body))

    def clear(self) -> bool:
        """Any tasks of any run, or one mapped instance of a task (a dataset's), with or without the tasks downstream."""
        run_id = self._any_run()
        if run_id is None:
            return False
        tasks = self.shop.airflow.task_instances(self.shop.name, run_id)
        if not tasks:
            return False
        downstream = self.chance.random() < 0.5
        mapped = sorted((task.name, task.map_index) for task in tasks if task.map_index >= 0)
        if mapped and self.chance.random() < 0.3:
            name, index = self.chance.choice(mapped)
            return self._could(lambda: self.shop.clear(run_id, name, downstream=downstream, index=index))
        names = sorted({task.name for task in tasks})
        some = self.chance.sample(names, self.chance.choice((1, 1, 2, len(names))))
        return self._could(lambda: self.shop.clear(run_id, *some, downstream=downstream))

    def fail(self) -> bool:
        """Mark a run as failed, which ends its running tasks."""
        run_id = self._any_run()
        if run_id is None:
            return False
        path = f"dags/{self.shop.name}/dagRuns/{quote(run_id)}"
        return self._could(lambda: self.shop.airflow.request("PATCH", path, json={"state": "failed"}))

    def kill(self) -> bool:
        """Kill the process of a running task."""
        going = [run_id for run_id, state in self.runs.items() if state == "running"]
        tasks = [t for run_id in going for t in self.shop.airflow.task_instances(self.shop.name, run_id)]
        pids = [task.pid for task in tasks if task.state == "running" and task.pid is not None]
        if not pids:
            return False
        try:
            os.kill(self.chance.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _any_run(self) -> str | None:
        """None may exist yet: a sequence may begin with a clear."""
        runs = [*self.runs]
        return self.chance.choice(runs) if runs else None

    def _days(self) -> tuple[date, date]:
        first = self.chance.randrange((LAST - FIRST).days + 1)
        last = min(first + self.chance.randrange(2), (LAST - FIRST).days)
        return FIRST + timedelta(days=first), FIRST + timedelta(days=last)

    def _could(self, act: Callable[[], object]) -> bool:
        """Whether Airflow allowed it: it may be busy, two requests may conflict, or its answer may be lost."""
        try:
            act()
        except httpx.TransportError:
            return False
        except RuntimeError as error:
            if not re.search(r": (409|500) ", str(error)):
                raise
            return False
        return True

    # Checks

    def look(self) -> None:
        """No record has changed or gone (I5), nothing that was covered is uncovered (I4), and the page is up to date."""
        found = dict(self._records())
        assert self.records.items() <= found.items(), (
            f"{self.shop.name}: a record of the journal was changed, or is gone"
        )
        self.records = found
        state = self.shop.journal.state("visits")
        assert all(state.coverage.covers(part) for part in self.covered), f"{self.shop.name}: coverage has shrunk"
        self.covered = state.coverage.ranges()
        shown = int(self._page("visits")["Slots"].replace(",", "")) if state.head else 0
        assert state.head <= shown <= self.shop.journal.state("visits").head

    def _records(self) -> dict[str, str]:
        store = self.shop.journal.store
        keys = [key for key in store.list(f"{self.shop.name}/") if not key.partition("/")[2].startswith("_")]
        return {key: sha256(data).hexdigest() for key, data in store.get_many(keys) if data is not None}

    def rest(self) -> None:
        """Let all runs end, and one more go over what they left."""
        airflow, name = self.shop.airflow, self.shop.name
        for one in airflow.request("GET", "backfills", params={"dag_id": name})["backfills"]:
            if one["completed_at"] is None:
                self._could(lambda one=one: airflow.request("PUT", f"backfills/{one['id']}/cancel"))  # type: ignore[misc]
        deadline = time.monotonic() + SECONDS_TO_REST
        for run_id in self.runs:
            self.shop.wait(run_id, seconds=deadline - time.monotonic())
        run_id = self.shop.trigger()
        assert self.shop.wait(run_id, seconds=SECONDS_TO_REST) == "success", (
            name,
            self.shop.states(run_id),
            self.shop.log(run_id, "finish"),
        )

    def check(self) -> None:
        """The rows, the journal, the files and the page."""
        self.look()
        for urn in DATASETS:
            source, published = self._wanted(urn), self.shop.published_rows(urn)
            assert published == source, (
                f"{self.shop.name} {urn}: {published - source} too many, {source - published} missing"
            )
            self._check_page(urn)
        journal, files = self.shop.journal, LocalFiles(self.shop.folder / "lake")
        bad: list[object] = [
            found for urn in DATASETS for found in verify(journal, files, urn) if found.state is not FileState.OK
        ]
        bad += [found for found in audit(journal, files) if found.level is AuditLevel.PROBLEM]
        assert not bad, (self.shop.name, bad)

    def _wanted(self, urn: str) -> Counter[str]:
        """The rows of the source that are to be published: visits since the start, and of days that were asked for."""
        rows = self.shop.source_rows(urn)
        if urn == "countries":
            return rows
        coverage = self.shop.journal.state(urn).coverage
        days = [START + timedelta(days=n) for n in range((FIRST - START).days, 0)]
        asked = {day.day for day in days if coverage.covers(Range(position(day), position(day + timedelta(days=1))))}
        return Counter(
            {row: n for row, n in rows.items() if (day := json.loads(row)["day"]) >= START.day or day in asked}
        )

    def _page(self, urn: str) -> dict[str, str]:
        """The facts that the page shows of a dataset."""
        asked = {"dag_id": self.shop.name, "ingestion": self.shop.name, "urn": urn}
        headers = {"Authorization": f"Bearer {self.shop.airflow.token(None)}"}
        page = httpx.get(f"{self.shop.airflow.url}/gobblin/dataset", params=asked, headers=headers, timeout=60)
        assert page.status_code == 200, page.text
        return {name: html.unescape(value) for name, value in FACT.findall(page.text)}

    def _check_page(self, urn: str) -> None:
        facts = self._page(urn)
        state = self.shop.journal.state(urn)
        assert facts["Watermark"] == (brief(state.watermark) if state.watermark is not None else "none")
        assert facts["Slots"] == f"{state.head:,}"
        assert facts["Rows"] == f"{sum(self._wanted(urn).values()):,}"
        assert facts["Files"] == f"{len(self.shop.journal.read_dataset(urn).files):,}"


def position(day: date) -> TimestampWatermark:
    return TimestampWatermark(datetime(day.year, day.month, day.day, tzinfo=UTC))


@pytest.mark.parametrize(
    "sequences",
    [
        *some_and_whole([1], [20]),
        pytest.param(200, id="200", marks=[pytest.mark.soak, pytest.mark.other_size, pytest.mark.timeout(4 * 3600)]),
    ],
)
def test_whatever_users_do(airflow: Airflow, shops: Shops, sequences: int, proved: Proved) -> None:
    first = fresh_seed()
    seeds = range(first, first + sequences)

    def play(seed: int) -> User:
        (shop,) = shops(f"anything-{len(seeds)}-{seed}", days=(f"{START}", f"{START + timedelta(days=1)}"))
        user = User(shop, random.Random(seed))
        user.play()
        return user

    # Airflow's scheduler may end if a task that it is about to fail is cleared in that moment.
    with airflow.kept_running(), ThreadPoolExecutor(TOGETHER) as pool:
        users = [ended.result() for ended in [pool.submit(play, seed) for seed in seeds]]
    done: Counter[str] = sum((user.done for user in users), Counter())
    slots = sum(user.shop.slots(urn) for user in users for urn in DATASETS)
    acts = ", ".join(f"{name} {number}" for name, number in done.most_common())
    proved(
        "random sequences of what users do, on a real Airflow",
        f"{len(users)} of {ACTIONS} each ({acts}); {slots} slots; none broke a promise",
        f"seeds {seeds.start} to {seeds.stop - 1}",
    )
    assert min(done[name] for name in ("trigger", "ask", "backfill", "clear", "fail", "kill")) >= len(seeds) // 4
