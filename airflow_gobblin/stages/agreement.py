"""Whether the channels of a version agree: Spark computes each in a job of its own, from what its function returned once.

Rows made by something that Spark computes differently each time would differ between these jobs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_gobblin.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["check_agreement"]

_FICKLE = re.compile(
    r"\b(rand|randn|random|randstr|uuid|shuffle|sample|first|first_value|any_value|last|last_value|collect_list|collect_set"
    r"|array_agg|listagg|string_agg|monotonically_increasing_id|spark_partition_id|input_file_name|now|curdate"
    r"|current_timestamp|current_date|current_time|localtimestamp|unix_timestamp)(\"|\s*\()",
    re.IGNORECASE,
)
"""Functions, in a plan of Spark Connect, that give something else each time, or whose result depends on the order of rows."""


def check_agreement(stage: str, made: Mapping[str, DataFrame]) -> None:
    """Check that nothing random and no current time is in more than one channel of a version.

    Spark doesn't show this for Python functions that aren't declared so, nor for sums of floating-point numbers.

    :param made: the channels, by name.
    :raises ConfigurationError: something is.
    """
    if sum(map(_differs_each_time, made.values())) < 2:
        return
    raise ConfigurationError(
        operation="evaluate",
        subject=f"stage {stage!r}",
        cause="more than one of its channels, such as its rows and its state, is made by something that Spark gives otherwise "
        "each time: `rand`, `uuid`, `current_timestamp`, `first`, `collect_list`",
        hint="Let its function checkpoint what they are made from: `common = common.localCheckpoint()`.",
    )


def _differs_each_time(frame: DataFrame) -> bool:
    """Return whether a DataFrame may have different rows each time it is computed, as far as its plan shows."""
    of_any: Any = frame  # classic Spark's, or Spark Connect's
    if hasattr(frame, "_jdf"):
        analyzed = of_any._jdf.queryExecution().analyzed()
        current = of_any.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
        return not analyzed.deterministic() or bool(analyzed.containsPattern(current))
    plan = of_any._plan.to_proto(of_any.sparkSession.client)  # which has not been analyzed
    return _FICKLE.search(str(plan)) is not None
