"""What the sinks of tables have in common: their tables' names, and the rules of their columns. Light to import, as sinks are."""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_gobblin.errors import ConfigurationError
from airflow_gobblin.model.naming import table_key
from airflow_gobblin.tables.port import SchemaRule

__all__ = ["SchemaRules", "named", "rule_of", "rules_of"]

SchemaRules = SchemaRule | Mapping[str, SchemaRule]
"""One rule for the tables of all datasets; or one by a dataset's URN, where others have `SchemaRule.REFUSE`."""

_DATASET = "{dataset}"
_PLACE = re.compile(r"\{[^{}]*\}")


def named(template: str, urn: str) -> str:
    """Return the name of a dataset's table.

    :param template: a name in which `{dataset}` stands for the dataset's key.
    :raises ConfigurationError: something else is in braces.
    """
    for found in _PLACE.findall(template):
        if found != _DATASET:
            raise ConfigurationError(
                operation="name",
                subject=f"the tables {template!r}",
                cause=f"{found} stands for nothing",
                hint=f"Write {_DATASET} where the dataset's key is to stand.",
            )
    return template.replace(_DATASET, table_key(urn))


def rules_of(given: SchemaRules | str | Mapping[str, str]) -> SchemaRules:
    """Return rules that may be given by their names.

    :raises ConfigurationError: there is no such rule.
    """
    try:
        if isinstance(given, Mapping):
            return {urn: SchemaRule(rule) for urn, rule in given.items()}
        return SchemaRule(given)
    except ValueError as error:
        raise ConfigurationError(
            operation="use",
            subject=f"schema_rule={given!r}",
            cause=error,
            hint=f"Give one of {', '.join(repr(rule.value) for rule in SchemaRule)}, or a mapping of URNs to these.",
        ) from error


def rule_of(rules: SchemaRules, urn: str) -> SchemaRule:
    """Return the rule of a dataset."""
    return rules if isinstance(rules, SchemaRule) else rules.get(urn, SchemaRule.REFUSE)
