"""Clients of object stores: our records, written by s3fs and read by obstore, compared with each of the two alone.

obstore's fsspec interface isn't included: it accepts `mode="create"` and overwrites all the same, so no journal can rest on it,
and one in four of its processes aborts as it ends.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.contenders.object_client import ENDPOINT, KEY, SECRET
from tests.benchmarks.measure import Contender, Once, alternately, run_program
from tests.benchmarks.peers import FOLDER
from tests.benchmarks.results import JSON, Row, keep, rows_of
from tests.services import s3
from tests.services.environment import use_environment

OURS = "airflow_gobblin's records, written by s3fs and read by obstore"
CLIENTS = {
    OURS: "ours",
    "s3fs": "s3fs",
    "obstore": "obstore",
}


def measure(rounds: int, records: int) -> list[Row]:
    """The rows of this work.

    :param records: how many, of 300 bytes each.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, s3.running(s3.versitygw(Path(folder) / "s3")) as server:

        def contender(who: str, client: str) -> Contender:
            def run(own: Path) -> Once:
                access = server.access
                secrets = {ENDPOINT: access.endpoint, KEY: access.key, SECRET: access.secret}
                asked = {"folder": own, "client": client, "bucket": server.create_bucket(), "records": records}
                return run_program(Path(sys.executable), "object_client", asked, secrets=secrets)

            return Contender(who, run)

        contenders = [contender(who, client) for who, client in CLIENTS.items()]
        figures = alternately(contenders, rounds, Path(folder) / "rounds")
    return rows_of(
        f"S3: create, read and list {records:,} records of 300 bytes, upload 4 x 64 MB",
        figures,
        f"python -m tests.benchmarks.object_clients --rounds {rounds} --records {records}",
        ours=OURS,
        versions={"obstore": version("obstore"), "s3fs": version("s3fs")},
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--records", type=int, default=3_000)
    parser.add_argument("--results", type=Path, default=JSON)
    asked = parser.parse_args(words)
    use_environment()
    keep(measure(asked.rounds, asked.records), asked.results)


if __name__ == "__main__":
    main()
