"""YAML at its edges: hostile, odd and merely mistyped files."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drystone.config.nodes import MAX_BYTES, parse
from drystone.config.problem import Report


def outcome(data: bytes) -> tuple[object, list[str]]:
    report = Report("a.yaml")
    node = parse(data, report)
    return (None if node is None else node.plain()), [f"{p.line}:{p.column} {p.where} {p.found}" for p in report.sorted()]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("on", "on"), ("y", "y"), ("yes", "yes"), ("true", True), ("False", False), ("null", None), ("~", None),
        ("''", ""), ("12", 12), ("-3", -3), ("017", 17), ("0x1f", 31), ("0o17", 15), ("1e-5", 1e-5), (".5", 0.5),
        ("1_000", "1_000"),        ("1:30", "1:30"), ("2020-01-01", "2020-01-01"), ("'12'", "12"), ("1.2.3", "1.2.3"),
        (".inf", float("inf")),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    assert outcome(f"a: {text}".encode()) == ({"a": value}, [])


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "1:1  an empty file"),
        (b"# only a comment\n", "1:1  an empty file"),
        (b"a: 1\na: 2\n", "2:1 a a again"),
        (b"a: {b: 1, c: {d: 1, d: 2}}\n", "1:21 a.c.d d again"),
        (b"a: !!python/object/apply:os.system ['true']\n", "1:4 a the tag tag:yaml.org,2002:python/object/apply:os.system"),
        (b"a: !thing {x: 1}\n", "1:4 a the tag !thing"),
        (b"a: !!binary aGk=\n", "1:4 a 'aGk=' with the tag binary"),
        (b"a: !!int x\n", "1:4 a 'x' with the tag int"),
        (b"a: " + b"9" * 5000 + b"\n", "1:4 a '9"),
        (b"? [a]\n: 1\n", "1:3  a list or mapping"),
        (b"a: &x [*x]\n", "1:4 a[0] an alias to something that holds it"),
        (b"a: [1, 2\nb: 3\n", "2:2 "),
        (b"a:\n\t- 1\n", "2:1 "),
        (b"a: 1\n---\nb: 2\n", "2:1 "),
        (b"a: *x\n", "1:4 "),
        (b"a: \xff\n", "1:4  the byte 0xff"),
        (b"a: 1\n\nb: \x00\n", "1:1 "),
        (b"a: " + b"[" * 3000, "1:43  more"),
        (b"a: " + b"{a: " * 200 + b"}" * 200, "1:160  more"),
        (b"a: " + b"x" * MAX_BYTES, f"1:1  {MAX_BYTES + 3} bytes"),
    ],
)  # fmt: skip
def test_what_is_no_config_is_told_with_its_place(data: bytes, problem: str) -> None:
    _, told = outcome(data)
    assert len(told) == 1, told
    assert told[0].startswith(problem), told


def test_an_alias_bomb_ends_soon() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    begun = time.process_time()
    value, told = outcome("\n".join(lines).encode())
    assert value is None
    assert len(told) == 1
    assert "more" in told[0]
    assert time.process_time() - begun < 20


def test_aliases_are_written_out() -> None:
    assert outcome(b"a: &x {b: 1}\nc: *x\n") == ({"a": {"b": 1}, "c": {"b": 1}}, [])


def test_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert outcome(b"\xef\xbb\xbfa: 1\n") == ({"a": 1}, [])


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_in_problems(data: bytes) -> None:
    report = Report("a.yaml")
    node = parse(data, report)
    assert (node is not None) or report.problems


@given(st.text(alphabet=" \n-:{}[],&*!|>'\"%@`#?ab01.\t<~", max_size=60))
def test_any_yaml_like_text_ends_in_a_value_or_in_problems(text: str) -> None:
    report = Report("a.yaml")
    node = parse(text.encode(), report)
    assert (node is not None) or report.problems
