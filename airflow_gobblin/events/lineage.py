"""OpenLineage: the published datasets and their sources, once a task has announced them.

The names are OpenLineage's own: a table of PostgreSQL is `database.schema.table` of `postgres://host:port`, and the output is the
dataset's folder, of `file` or of `s3://bucket`. Columns are traced to the source's if only converters of this package lie between
them; with an author's own converter, none is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_gobblin.events.assets import SCHEME
from airflow_gobblin.rows.converters.columns import AddColumn, DropColumns, RenameColumns
from airflow_gobblin.rows.sources.sql import SqlSource
from airflow_gobblin.rows.work import RowsWork
from airflow_gobblin.storage.locations import remote_location

if TYPE_CHECKING:
    import pyarrow as pa
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import column_lineage_dataset, schema_dataset

    from airflow_gobblin.connections import Connections
    from airflow_gobblin.events.publication import Publication
    from airflow_gobblin.job import Work
    from airflow_gobblin.model.work import Dataset

    Name = tuple[str, str]
    """A namespace, and a name in it."""

__all__ = ["lineage"]


def lineage(work: Work, publications: tuple[Publication, ...], connections: Connections) -> OperatorLineage[Any, Any]:
    """Return the inputs and outputs of a task that announced these slots, by the newest one of each dataset."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    newest = {one.urn: one for one in sorted(publications, key=lambda one: one.slot)}
    found: OperatorLineage[Any, Any] = OperatorLineage()
    if not newest or not isinstance(work, RowsWork):
        return found
    for dataset in work.source.datasets(connections):
        publication = newest.get(dataset.urn)
        if publication is None:
            continue
        table = _table(work.source, dataset.urn, connections)
        if table is not None:
            found.inputs.append(_input(table))
        found.outputs.append(_output(work, dataset, publication, table))
    return found


def _table(source: object, urn: str, connections: Connections) -> Name | None:
    """Return OpenLineage's name for the source's table; `None` if the source isn't known here."""
    if not isinstance(source, SqlSource):
        return None
    (table,) = (table for table in source.tables if table.urn == urn)
    uri = urlsplit(connections.uri(source.conn_id))
    if uri.scheme.startswith("sqlite"):
        return f"sqlite:/{unquote(uri.path).lstrip('/')}", f"{table.namespace or 'main'}.{table.table}"
    database = unquote(uri.path.removeprefix("/"))
    name = f"{database}.{table.namespace or 'public'}.{table.table}"
    return f"postgres://{uri.hostname or 'localhost'}:{uri.port or 5432}", name


def _folder(target: str, folder: str) -> Name:
    """Return OpenLineage's name for a folder below the target root."""
    location = remote_location(target)
    if location is None:
        return "file", str(Path(unquote(urlsplit(target).path) if "://" in target else target) / folder)
    scheme, _, rest = location.url.partition("://")
    bucket, _, prefix = rest.partition("/")
    return f"{scheme}://{bucket}", "/".join(filter(None, (prefix, folder)))


def _input(table: Name) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(*table)


def _output(work: RowsWork, dataset: Dataset, publication: Publication, table: Name | None) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset, output_statistics_output_dataset, symlinks_dataset

    asset = symlinks_dataset.Identifier(f"{SCHEME}://{publication.ingestion}", publication.dataset, "TABLE")
    facets = {
        "symlinks": symlinks_dataset.SymlinksDatasetFacet([asset]),
        "version": dataset_version_dataset.DatasetVersionDatasetFacet(str(publication.slot)),
    }
    if publication.schema is not None:
        from airflow_gobblin.model import schema

        published = schema.decode(publication.schema)
        facets["schema"] = _schema(published)
        if table is not None and (columns := _traced(work, published)) is not None:
            facets["columnLineage"] = _columns(table, columns)
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=publication.rows, size=publication.bytes, fileCount=publication.files
    )
    location = _folder(work.sink.target, work.sink.folder(dataset))
    return OutputDataset(*location, facets=facets, outputFacets={"outputStatistics": statistics})


def _schema(published: pa.Schema) -> schema_dataset.SchemaDatasetFacet:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [schema_dataset.SchemaDatasetFacetFields(name=field.name, type=str(field.type)) for field in published]
    return schema_dataset.SchemaDatasetFacet(fields)


def _traced(work: RowsWork, published: pa.Schema) -> Mapping[str, str] | None:
    """Map each published column that comes from a source column to that column; return `None` if a converter isn't known."""
    columns = {name: name for name in published.names}
    for converter in reversed(work.converters):
        if isinstance(converter, AddColumn):
            columns = {name: before for name, before in columns.items() if before != converter.name}
        elif isinstance(converter, RenameColumns):
            old = {new: name for name, new in converter.names.items()}
            columns = {name: old.get(before, before) for name, before in columns.items()}
        elif not isinstance(converter, DropColumns):
            return None
    return columns


def _columns(table: Name, columns: Mapping[str, str]) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    from openlineage.client.facet_v2 import column_lineage_dataset as facet

    same = [facet.Transformation(type="DIRECT", subtype="IDENTITY")]
    fields = {
        name: facet.Fields([facet.InputField(*table, field=column, transformations=same)])
        for name, column in columns.items()
    }
    return facet.ColumnLineageDatasetFacet(fields)
