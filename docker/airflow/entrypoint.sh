#!/bin/sh
# Set Spark's home, the pyspark that pip installed, and the machine's Java.
set -eu

SPARK_HOME=$(python -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
JAVA_HOME=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
export SPARK_HOME JAVA_HOME PATH="$SPARK_HOME/bin:$PATH" PYSPARK_PYTHON=python

exec "$@"
