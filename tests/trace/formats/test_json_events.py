"""A reader of large JSON files, held against Python's on the same text, with windows of a few characters."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from emu.errors import InputError
from emu.trace.formats.kineto import json_events
from emu.trace.formats.kineto.json_events import EVENTS, json_entries


def entries(text: str, folder: Path, name: str = "a.json") -> list[tuple[str, Any]]:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return list(json_entries(path))


def value_at_random(random_: random.Random, depth: int = 2) -> Any:
    kinds: list[Any] = [
        None,
        True,
        False,
        random_.randrange(-(10**6), 10**6),
        random_.random() * 1e9,
        'a "b" \\ \n { [ , :',
        "é",
        "",
    ]
    if depth:
        some = range(random_.randrange(4))
        kinds += [
            [value_at_random(random_, depth - 1) for _ in some],
            {f"k{i}": value_at_random(random_, depth - 1) for i in some},
        ]
    return random_.choice(kinds)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 2**20])
@pytest.mark.parametrize("seed", range(6))
def test_the_entries_are_those_that_python_reads(
    seed: int, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_events, "_CHUNK", chunk)
    random_ = random.Random(seed)
    events = [value_at_random(random_) for _ in range(random_.randrange(5))]
    beside = {f"key {i}": value_at_random(random_) for i in range(3)}
    whole = {"first": beside["key 0"], EVENTS: events, **beside} if seed % 2 else {EVENTS: events, **beside}
    wanted = [pair for key, value in whole.items() for pair in ([(key, e) for e in value] if key == EVENTS else [(key, value)])]
    for indent, separators in ((None, (",", ":")), (None, (" , ", " : ")), (1, None)):
        text = json.dumps(whole, indent=indent, separators=separators, ensure_ascii=bool(indent))
        assert entries(f" \n{text}\n\t", tmp_path) == wanted
        assert entries(text, tmp_path, "a.json.gz") == wanted
        assert entries(json.dumps(events, indent=indent, separators=separators), tmp_path) == [(EVENTS, e) for e in events]


@pytest.mark.parametrize("chunk", range(1, 40))
def test_a_number_is_whole_wherever_a_window_ends(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_events, "_CHUNK", chunk)
    for text in ('{"a": 1.5e-5, "b": -2E+3}', "[0.25e-7,12.5,-1e5,7]", "[0.1]", "[3e-9 ]"):
        found = json.loads(text)
        wanted = [*found.items()] if isinstance(found, dict) else [(EVENTS, each) for each in found]
        assert entries(text, tmp_path) == wanted


@pytest.mark.parametrize("chunk", [1, 5, 2**20])
def test_a_file_that_is_cut_off_anywhere_says_after_which_event(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_events, "_CHUNK", chunk)
    text = '{"a": 5, "traceEvents": [{"name": "mm"}, {"ts": 1}, 7], "b": "x"}'
    ends = [text.index(each) + 1 for each in ("}", ", {")]
    for cut in range(len(text)):
        with pytest.raises(InputError) as raised:
            entries(text[:cut], tmp_path)
        found = str(raised.value)
        assert found.startswith("profile: 'a.json' is cut off after ")
        if cut <= ends[0] - 1:
            assert "after its beginning; copy the file again" in found
        elif ends[0] < cut < text.index("}", ends[0]):
            assert "after event 0 (mm);" in found
        elif text.index("7") + 2 < cut:
            assert "after event 2 ();" in found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("5", "it must begin with { or ["),
        ('"traceEvents"', "it must begin with { or ["),
        ('{"a" 5}', "no colon after the key 'a'"),
        ('{"a": 5 "b": 6}', "no comma and no } after a value"),
        ('{"a": 5]', "no comma and no } after a value"),
        ('{"traceEvents": {"a": 5}}', "traceEvents must be a list"),
        ('{"traceEvents": [1 2]}', "no comma and no ] after a value"),
        ('{"traceEvents": [1}', "no comma and no ] after a value"),
        ("[1; 2]", "no comma and no ] after a value"),
        ('{"a": nope}', "Expecting value"),
    ],
)
def test_what_is_no_json_is_said(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        entries(text, tmp_path)
    assert str(raised.value).startswith("profile: 'a.json' must be JSON, but is not after ")
    assert why in str(raised.value)


def test_an_entry_that_does_not_end_is_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_events, "_CHUNK", 8)
    monkeypatch.setattr(json_events, "_LONGEST", 32)
    assert entries('{"a": "' + "x" * 20 + '"}', tmp_path) == [("a", "x" * 20)]
    with pytest.raises(InputError, match=r"'a.json' must be JSON, but is not after its beginning: Unterminated string"):
        entries('{"a": "' + "x" * 100 + '"}', tmp_path)


def test_a_gzip_is_known_by_its_bytes_and_a_name_must_not_say_one_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(gzip.compress(b'{"a": 5}'))
    assert list(json_entries(tmp_path / "a.json")) == [("a", 5)]
    for name in ("b.json.gz", "b.JSON.GZ"):
        (tmp_path / name).write_text('{"a": 5}')
        with pytest.raises(InputError, match=rf"{name}' must be a gzip, as its name ends in .gz; name it .json if it is plain"):
            list(json_entries(tmp_path / name))
    whole = gzip.compress(json.dumps({"a": list(range(1000))}).encode())
    (tmp_path / "c.json").write_bytes(whole[:-9])
    with pytest.raises(InputError, match=r"'c.json' is cut off after its beginning"):
        list(json_entries(tmp_path / "c.json"))
    (tmp_path / "d.json").write_bytes(whole[:30] + b"\0\0\0\0" + whole[34:])
    with pytest.raises(InputError, match=r"'d.json'"):
        list(json_entries(tmp_path / "d.json"))
    with pytest.raises(InputError, match=r"^profile: cannot read .*: No such file or directory$"):
        list(json_entries(tmp_path / "none.json"))
