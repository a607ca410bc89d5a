"""Mirror the files of an installed package, Airflow's own by default, into a folder: new files are copied, changed ones are
replaced, and those that are gone are deleted.

It needs a connection `spark_default` (Spark), for example from the environment:

    AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[2]"}'

The copy and the journal are written below `MIRROR_LAKE`, by default the folder `mirror` in Airflow's home. `MIRROR_SOURCE` names
another tree.
"""

import os

import airflow
from airflow.sdk import DAG

from airflow_gobblin import Delete, Existing, GobblinMirror, Keep, Mirror, SparkOptions

LAKE = os.environ.get("MIRROR_LAKE") or os.path.join(os.environ.get("AIRFLOW_HOME", "~/airflow"), "mirror")
LAKE = os.path.abspath(os.path.expanduser(LAKE))

package = Mirror(
    name="package",  # names the journal: choose it once
    source=os.environ.get("MIRROR_SOURCE") or os.path.dirname(airflow.__file__),
    target=f"{LAKE}/copy",
    exclude=("__pycache__/",),
    existing=Existing.UPDATE,  # by default a file that differs is left, and fails the run
    delete=Delete(at_most=0.2),  # if more is gone, nothing is deleted, and the run is red
    keep=Keep("tp"),
    empty_folders=True,
    journal=f"file://{LAKE}/journal",
)

with DAG("mirror_dataset", schedule=None, max_active_runs=1, doc_md=__doc__):
    GobblinMirror(package, spark=SparkOptions(conn_id="spark_default"))
