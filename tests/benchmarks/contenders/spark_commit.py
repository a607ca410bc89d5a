"""Spark's job commit: from the end of the last task, each of which wrote one file, to the end of the write.

By the v1 committer, which renames, or by Hadoop's magic committer, which completes uploads.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.benchmarks.contenders.reporting import arguments, print_figures
from tests.benchmarks.contenders.spark_session import start_session

ENDPOINT, KEY, SECRET = (f"BENCHMARK_S3_{word}" for word in ("ENDPOINT", "KEY", "SECRET"))
_SQL_END = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd"
_MAGIC = {
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
}
"""The settings that Spark's documentation gives for its writers to use an s3a committer; Parquet would need one more."""


def s3a(committer: str) -> dict[str, str]:
    """The settings for the server that the environment names, if it names one."""
    if ENDPOINT not in os.environ:
        return {}
    given = {
        "endpoint": os.environ[ENDPOINT],
        "endpoint.region": "us-east-1",
        "access.key": os.environ[KEY],
        "secret.key": os.environ[SECRET],
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "committer.name": committer,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    found = {f"spark.hadoop.fs.s3a.{name}": value for name, value in given.items()}
    return {**found, **(_MAGIC if committer == "magic" else {})}


def committer_of(success: bytes) -> str:
    """The committer that made a target.

    :param success: its `_SUCCESS`, in which s3a's committers write their names.
    """
    return str(json.loads(success)["committer"]) if success else "file"


def commit_seconds(log: Path) -> float:
    """The time between the end of the write's last task and the end of the write, by the event log.

    It is the second query: the session began with one, and counting the files afterwards may be a third.
    """
    events = [json.loads(line) for line in log.read_text().splitlines()]
    ended = [e["time"] for e in events if e["Event"] == _SQL_END][1]
    tasks = [e["Task Info"]["Finish Time"] for e in events if e["Event"] == "SparkListenerTaskEnd"]
    return float(ended - max(finished for finished in tasks if finished <= ended)) / 1000


def main() -> None:
    asked = arguments(folder="", files="", jars="none", target="none", committer="file")
    logs, files = Path(asked.folder) / "events", int(asked.files)
    logs.mkdir()
    target = f"{asked.folder}/out" if asked.target == "none" else asked.target
    spark = start_session(
        "" if asked.jars == "none" else asked.jars,
        {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": logs.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
            **s3a(asked.committer),
        },
    )
    rows = spark.range(0, files, 1, files)
    rows.selectExpr("cast(id as string)").write.text(target)
    written = spark.read.text(target)
    found = len(written.inputFiles())
    spark.stop()
    (log,) = logs.iterdir()
    seconds = commit_seconds(log)
    print_figures(seconds, {"job commit": seconds}, files=found)


if __name__ == "__main__":
    main()
