"""pyiceberg's append of existing Parquet files to a table in a catalog on SQLite.

Each file's footer is read before: only the commit is compared.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import parquet_files_to_data_files

from tests.benchmarks.contenders.reporting import Laps, arguments, print_figures


def main() -> None:
    asked = arguments(folder="", files="")
    folder = Path(asked.folder)
    catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=(folder / "lake").as_uri())
    catalog.create_namespace("shop")
    rows = pa.table({"id": pa.array([1], pa.int64())})
    table = catalog.create_table("shop.orders", rows.schema)
    (folder / "data").mkdir()
    paths = [str(folder / "data" / f"{number}.parquet") for number in range(int(asked.files))]
    for path in paths:
        pq.write_table(rows, path)
    clock = Laps()
    with table.transaction() as transaction:
        mapping = table.schema().name_mapping.model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
    found = [*parquet_files_to_data_files(table.io, table.metadata, iter(paths))]
    clock.lap("footers")
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in found:
            append.append_data_file(file)
    seconds = clock.lap("commit")
    print_figures(seconds, clock.phases, files=len([*table.scan().plan_files()]))


if __name__ == "__main__":
    main()
