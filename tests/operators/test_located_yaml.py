"""YAML as plain values, with their places: by libyaml, and without it."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import time
from collections.abc import Iterator
from types import ModuleType

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_gobblin.operators import located_yaml


@pytest.fixture(params=["libyaml", "python"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module as it is, and as it is where libyaml isn't."""
    if request.param == "libyaml":
        assert yaml.__with_libyaml__
        yield located_yaml
        return
    spec = importlib.util.spec_from_file_location("located_yaml_in_python", located_yaml.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert yaml.cyaml.CParser not in module._Loader.__mro__
    yield module


def problems_of(reader: ModuleType, text: str | bytes) -> list[str]:
    """The problems of a text."""
    with pytest.raises(reader.Unreadable) as caught:
        reader.parse(text.encode() if isinstance(text, str) else text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[no, on, y, NO]", ["no", "on", "y", "NO"]),
        ("[true, False, TRUE]", [True, False, True]),
        ("[~, null, Null, ]", [None, None, None]),
        ("a:", {"a": None}),
        ("[1, -2, +3, 010, 0x10, 0o10]", [1, -2, 3, 10, 16, 8]),
        ("[1.5, .5, 1., 1e3, -2.5E-1]", [1.5, 0.5, 1.0, 1000.0, -0.25]),
        ("[10:30, 1_000, 2026-01-31, .inf, .nan, 1.2.3]", ["10:30", "1_000", "2026-01-31", ".inf", ".nan", "1.2.3"]),
        ("[=, <=, <<]", ["=", "<=", "<<"]),
        ("['1', \"true\", '~']", ["1", "true", "~"]),
        ("- |\n  two\n  lines\n", ["two\nlines\n"]),
        ("\ufeffa: Zürich", {"a": "Zürich"}),
    ],
)
def test_only_what_json_knows_is_read_by_the_rules_of_yaml_1_2(reader: ModuleType, text: str, value: object) -> None:
    found = reader.parse(text.encode()).value
    assert json.dumps(found) == json.dumps(value)


def test_what_several_mappings_share(reader: ModuleType) -> None:
    text = "x: &x {a: 1, b: 2}\ny: &y {<<: *x, b: 3, c: [4]}\nz:\n  <<: [*y, {b: 5, d: 6}]\n  a: 0\nw: *y\n"
    document = reader.parse(text.encode())
    assert document.value == {
        "x": {"a": 1, "b": 2},
        "y": {"a": 1, "b": 3, "c": [4]},
        "z": {"a": 0, "b": 3, "c": [4], "d": 6},
        "w": {"a": 1, "b": 3, "c": [4]},
    }
    assert document.values["z", "c", 0] == reader.Place(2, 26)  # where it is written


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["1:1: it is empty"]),
        ("# nothing\n", ["1:1: it is empty"]),
        ("a: 1\nb: 2\na: 3", ["3:1: a: the key was given before, in line 1"]),
        ("- {a: 1, 'a': 2}\n- {b: 1, b: 1}", ["1:10: [0].a: the key was g…", "2:10: [1].b: the key was g…"]),
        ("é: {a: 1, a: 2}", ["1:11: é.a: the key was given before, in line 1"]),
        ("op: !=\n", ["1:5: op: the tag '!=' is refused; quote a text that begins with '!'"]),
        ("a: !!python/object/apply:os.system [ls]", ["1:4: a: the tag '!python/object/apply:os.system' is refused…"]),
        ("a: !!python/name:os.system", ["1:4: a: the tag '!python/name:os.system' is refused…"]),
        ("a: !!binary aGk=", ["1:4: a: the tag '!binary' is refused…"]),
        ("a: !!set {b, c}", ["1:4: a: the tag '!set' is refused…"]),
        ("a: !!int x", ["1:4: a: it is not a number that can be used here"]),
        ("a: !!map x", ["1:4: a: the tag '!map' is refused…"]),
        ("a: 1e999", ["1:4: a: it is not a number that can be used here"]),
        ("a: " + "9" * 5000, ["1:4: a: it is not a number that can be used here"]),
        ("a: 0x" + "f" * 5000, ["1:4: a: it is not a number that can be used here"]),
        ("a: {<<: !!python/dict {b: 1}}", ["1:9: a.<<: expected an alias of a mapping"]),
        ("1: a", ["1:1: expected a text as key, found '1'; quote it"]),
        ("true: a", ["1:1: expected a text as key, found 'true'; quote it"]),
        ("? [a]\n: b", ["1:3: expected a text as key, found a list or a mapping"]),
        ("a: &a [*a]", ["1:4: a[0]: an alias is part of what it names"]),
        ("a: &a {<<: *a}", ["1:4: a: an alias is part of what it names"]),
        ("a: {<<: 1}", ["1:9: a.<<: expected an alias of a mapping"]),
        ("a: *b", ["1:4: it is not YAML: …found undefined alias…"]),
        ("a: 1\n---\nb: 2", ["2:1: it is not YAML: expected a single document…"]),
        ("a:\n\tb: 1", ["2:1: it is not YAML: …character…that cannot start any token"]),
        ("a: [1, 2\nb: 3", ["2:…: it is not YAML: while parsing a flow sequence…"]),
        ("a: 'b", ["…: it is not YAML: while scanning a quoted scalar, found unexpected end of stream"]),
        ("a: \x01", ["1:1: it is not YAML: it holds the character U+0001, which YAML doesn't allow"]),
        ("a: \0", ["1:1: it is not YAML: it holds the character U+0000, which YAML doesn't allow"]),
        (b"a: 1\nb: \xff", ["2:4: it is not UTF-8"]),
        ("[" * 100_000 + "]" * 100_000, ["1:101: it is nested deeper than 100 levels"]),
        ("a:\n" + "".join(f"{' ' * n}- \n" for n in range(1, 300)), ["…: it is nested deeper than 100 levels"]),
    ],
)
def test_what_is_refused_and_where(reader: ModuleType, text: str | bytes, problems: list[str]) -> None:
    found = problems_of(reader, text)
    assert len(found) == len(problems)
    for one, expected in zip(found, problems, strict=True):
        assert re.fullmatch(".*".join(map(re.escape, expected.split("…"))), one), one


def test_aliases_of_aliases_are_no_bomb(reader: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_VALUES", 10_000)
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 50))]
    (problem,) = problems_of(reader, "\n".join(lines))
    assert problem.endswith("it holds more than 10,000 values")
    lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 2000))]
    assert reader.parse("\n".join(lines).encode()).value["a1999"] == {"x": 1}
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 150))]
    (problem,) = problems_of(reader, "\n".join(lines))
    assert problem.endswith("it is nested deeper than 100 levels")


def test_a_merge_of_merges_and_a_large_text_are_refused_at_once(reader: ModuleType) -> None:
    many = "{" + ", ".join(f"k{n}: 1" for n in range(5_000)) + "}"
    started = time.process_time()
    (problem,) = problems_of(reader, f"a: &a {many}\nb: {{<<: [{', '.join(['*a'] * 5_000)}]}}")
    assert problem.endswith("'<<' brings more than 2,000,000 values")
    assert time.process_time() - started < 20
    assert problems_of(reader, "a: " + "x" * (4 << 20)) == ["1:1: it is larger than 4 MiB; make several files of it"]


# JSON writes other characters as two escapes, which is no YAML.
TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))
KEY = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=100)  # YAML's have 1,024 at most
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEY, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_json_is_yaml_and_every_value_has_its_place(value: object) -> None:
    text = json.dumps(value, indent=1)
    document = located_yaml.parse(text.encode())
    assert json.dumps(document.value) == json.dumps(value)
    lines = text.splitlines()
    for path, place in document.values.items():
        part: object = value
        for key in path:
            part = part[key]  # type: ignore[index]
        begins = "[" if isinstance(part, list) else "{" if isinstance(part, dict) else json.dumps(part)
        assert lines[place.line - 1][place.column - 1 :].startswith(begins)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab1:-[]{}&*<!?|>'\"#,~ \n\t.=%@`") | st.binary(max_size=40))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    problems: tuple[located_yaml.Problem, ...] = ()
    try:
        json.dumps(located_yaml.parse(data).value, allow_nan=False)
    except located_yaml.Unreadable as error:
        problems = error.problems
        assert problems
    assert all(problem.place >= located_yaml.Place(1, 1) for problem in problems)
