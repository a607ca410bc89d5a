"""The English of docstrings and pages, as far as a pattern can hold it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.services.environment import ROOT
from tests.test_docs import PAGES

CODE = [
    file
    for folder in ("airflow_gobblin", "dags", "spark_jobs", "tests")
    for file in sorted((ROOT / folder).rglob("*.py"))
]
SUBJECT = re.compile(r"(?:^|[.;:] )(?:What|Who|Whoever) [a-zA-Z`][^.?]*(?:\.|$)")
"""A sentence whose subject is a clause of that kind. A question ends otherwise."""
FIELD = re.compile(r"\S +:(?:param|return|raises)\b[^:`]*:")
"""A field of a docstring that doesn't begin its line, where tools don't find it."""


@cache
def docstrings(file: Path) -> list[str]:
    """Return the docstrings of a module, its classes and functions, and those below constants and fields."""
    expressions = (node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Expr))
    return [one.value for one in expressions if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def paragraphs(page: Path) -> Iterator[str]:
    """Yield the paragraphs, items and rows of a page, without its code blocks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    yield from re.split(r"\n\n|\n *[*-] |\n\|", text)


def test_no_sentence_has_a_clause_with_who_or_what_as_its_subject() -> None:
    texts = [
        *((file, text) for file in CODE for text in docstrings(file)),
        *((page, text) for page in PAGES for text in paragraphs(page)),
    ]
    found = [(file, match.group()) for file, text in texts for match in SUBJECT.finditer(" ".join(text.split()))]
    assert not [f"{file.relative_to(ROOT)}: {sentence}" for file, sentence in found]


def test_each_field_of_a_docstring_has_a_line_of_its_own() -> None:
    lines = ((file, line.strip()) for file in CODE for text in docstrings(file) for line in text.split("\n"))
    assert not [f"{file.relative_to(ROOT)}: {line}" for file, line in lines if FIELD.search(line)]
