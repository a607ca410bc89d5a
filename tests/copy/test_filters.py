"""Filters, by the tables of rclone's own documentation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gobblin.copy.filters import Filter, Rule
from airflow_gobblin.errors import ConfigurationError

# Source: https://rclone.org/filtering/#examples and #patterns
EXAMPLES = [
    ("file.jpg", ["file.jpg", "directory/file.jpg"], ["afile.jpg", "directory/afile.jpg"]),
    ("/file.jpg", ["file.jpg"], ["afile.jpg", "directory/file.jpg"]),
    ("*.jpg", ["file.jpg", "dir/file.jpg"], ["file.png", "dir/file.png", "file.jpg/another.png"]),
    ("/*.jpg", ["file.jpg", "file2.jpg"], ["file.png", "dir/file.jpg"]),
    ("*.{jpg,png}", ["file.jpg", "dir/file.png"], ["file.gif", "dir/file.gif"]),
    ("dir/**", ["dir/anyfile", "subdir/dir/subsubdir/anyfile"], ["file.png", "subdir/file.png", "adir/file.jpg"]),
    ("*.t?t", ["file.txt", "dir/file.tzt"], ["file.qxt", "dir/file.png", "file.t/t"]),
    ("*.[a-z]", ["file.a", "dir/file.b"], ["file.0", "dir/file.1"]),
    (r"*.\?\?\?", ["file.???", "dir/file.???"], ["file.abc", "dir/file.def"]),
    (r"*.\d\d\d", ["file.012", "dir/file.345"], ["file.abc", "dir/file.def"]),
    ("*.{{jpe?g}}", ["file.jpeg", "dir/file.jpg"], ["file.png", "dir/file.jpeeg"]),
    (r"/{{.*\.jpe?g}}", ["file.jpeg", "file.jpg"], ["file.png"]),
    ("*.{{(?i)jpg}}", ["file.jpg", "file.JPG"], ["file.png"]),
    ("potato", ["potato"], ["POTATO"]),
    ("l?ss", ["less", "lass"], ["floss"]),
    ("h[ae]llo", ["hello", "hallo"], ["hullo"]),
    ("h[!ae]llo", ["hullo"], ["hello", "hallo", "h/llo"]),
    ("h[^ae]llo", ["hullo"], ["hello", "hallo", "h/llo"]),
    ("{one,two}_potato", ["one_potato", "two_potato"], ["three_potato", "_potato"]),
    (r"\*.jpg", ["*.jpg"], ["a.jpg"]),
    (r"\\.jpg", ["\\.jpg"], ["..jpg"]),
    (r"\[one\].jpg", ["[one].jpg"], ["o.jpg"]),
    (r"*\[{JP,KR,HK}\]*", ["a [JP].zip", "dir/[HK]"], ["a JP.zip"]),
    (r"[\[\]]", ["[", "]"], ["a"]),
    ("potat[[:alpha:]]or", ["potatXor"], ["potat1or"]),
    ("'.' '+' '(' ')' '|' '^' '$'", ["'.' '+' '(' ')' '|' '^' '$'"], ["'x' '+' '(' ')' '|' '^' '$'"]),
    ("potato,sausage", ["potato,sausage"], ["potato"]),
    ("{a,{b,c}d}e", ["ae", "bde", "cde"], ["be", "ade"]),
    ("potato**sausage", ["potato/x/sausage", "potatosausage"], ["potato"]),
    (".*{,/**}", [".git", "a/.git/config"], ["a.git"]),
    ("**/*.jpg", ["a/b.jpg", "a/b/c.jpg"], ["b.jpg"]),
]


@pytest.mark.parametrize(("pattern", "matching", "others"), EXAMPLES, ids=[pattern for pattern, *_ in EXAMPLES])
def test_patterns_mean_what_they_mean_in_rclone(pattern: str, matching: list[str], others: list[str]) -> None:
    rule = Rule(True, pattern)
    assert [path for path in matching if not rule.matches(path)] == []
    assert [path for path in others if rule.matches(path)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "***potato",
        "***",
        "ab]c",
        "ab[c",
        "ab}c",
        "ab{c",
        "ab{{cd",
        "[]",
        "[z-a]",
        "a\\",
        "[[:nothing:]]",
        "{{(}}",
        "[",
        "{{a{99999999999}}}",
        "{{" + "(" * 5000 + "}}",
    ],
)
def test_malformed_patterns_are_named(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match="file pattern"):
        Filter.of(include=[pattern])


def test_a_pattern_of_too_many_alternatives_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="1000 alternatives"):
        Rule(True, "{a,b}" * 11)


def test_the_first_rule_that_matches_decides() -> None:
    lines = """
        + cleared
        # a comment
        ; another one
        !
        - /file1.jpg
        + /file2.png
        + /*.jpg
        - /*.png
        - /potato
        + /sausage1
        + /sausage2*
        + /sausage3**
        + /a/*.jpg
        - *
    """
    one = Filter.of(lines=lines.splitlines())
    yes = ["file2.png", "file3.jpg", "sausage1", "sausage2potato", "sausage3/potato", "a/one.jpg"]
    no = ["cleared", "file1.jpg", "FILE2.png", "afile2.png", "file4.png", "potato", "sausage1/potato"]
    no += ["sausage2/potato", "a/one.png", "unicorn"]
    assert [path for path in (*yes, *no) if one.includes(path)] == yes
    folders = ["sausage1", "sausage2", "sausage2/sub/dir", "sausage3", "SAUSAGE3", "sausage3/sub/dir", "sausage4", "a"]
    assert [f for f in folders if one.enters(f)] == ["sausage3", "sausage3/sub/dir", "a"]


def test_what_is_excluded_stays_so_beside_patterns_to_include() -> None:
    one = Filter.of(include=["**/*.jpg"], exclude=["**/tmp/**"])
    assert one.includes("alice/x.jpg")
    assert not one.includes("alice/tmp/x.jpg")
    assert not one.includes("alice/x.png")
    assert not one.enters("alice/tmp")


def test_a_filter_file_alone_includes_what_it_does_not_name() -> None:
    one = Filter.of(lines=["- /dir1/", "- /dir2/", "+ *.pdf", "- *.txt"])
    assert [p for p in ("a.pdf", "dir1/a.pdf", "dir2/x/a.pdf", "a.txt", "a.doc") if one.includes(p)] == [
        "a.pdf",
        "a.doc",
    ]
    assert [f for f in ("dir1", "dir1/x", "dir3") if one.enters(f)] == ["dir3"]


def test_a_line_that_is_no_rule_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"filter line .\*\.jpg"):
        Filter.of(lines=["*.jpg"])


elements = st.sampled_from(["a", "b", "ab", ".a", "tmp"])
paths = st.lists(elements, min_size=1, max_size=4).map("/".join)
parts = st.sampled_from(
    ["a", "b", "*", "**", "/", "/**", "?", "{a,b}", "{a/b,**}", "[ab]", "{{a.?}}", ".", "tmp", "/*"]
)
patterns = st.lists(parts, min_size=1, max_size=5).map("".join).filter(lambda p: "***" not in p)
rules = st.lists(st.builds(Rule, st.booleans(), patterns), max_size=4)


@given(rules, paths)
def test_a_folder_that_is_not_entered_has_nothing_that_is_included(some: list[Rule], path: str) -> None:
    one = Filter(tuple(some))
    above = [path[:at] for at, char in enumerate(path) if char == "/"]
    if one.includes(path):
        assert [folder for folder in above if not one.enters(folder)] == []
