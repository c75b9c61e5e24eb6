"""The starter, run as a host without anything runs it: a Python of its own, isolated from this one's packages."""

import ast
import errno
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from casebook_workbench.bundle import parts
from gpu_casebook.cli import app
from gpu_casebook.guest import starter
from tests.bundle.bundles import WHEEL, archive, listing, members, wheel


def python(*words: object, cwd: Path) -> tuple[int, str]:
    """Exit status and both streams of a Python that sees none of this one's packages."""
    done = subprocess.run(
        [sys.executable, "-S", *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A bundle, unpacked as tar does it."""
    with tarfile.open(archive(tmp_path / "x.casebook.tar", members())) as tar:
        tar.extractall(tmp_path, filter="data")
    (tmp_path / "x.casebook.tar").unlink()
    return tmp_path / starter.NAME


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """A directory with the parts of a bundle, their list and a starter."""
    place = tmp_path / "parts"
    place.mkdir()
    files = members(**{"checkout/ballast": bytes(200_000)})
    parts.split(archive(place / "x.casebook.tar", files), 100_000)
    return place


RAN = ["tool from the wheel", "gadget site-", "worker /"]


def test_it_needs_the_standard_library_alone() -> None:
    tree = ast.parse(Path(starter.__file__).read_text())
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in top if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_an_old_python_can_read_it_and_is_told_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    ast.parse(Path(starter.__file__).read_text(), feature_version=(3, 8))
    before, starter.OLDEST = starter.OLDEST, (9, 9)
    try:
        assert starter.main([]) == 1
    finally:
        starter.OLDEST = before
    assert "Python 9.9 or newer is needed, and this is" in capsys.readouterr().err


def test_the_bundles_runner_runs_with_its_own_wheels_and_programs(home: Path) -> None:
    status, said = python(home / "run.py", "--trials", "2", "--no-probes", cwd=home.parent)
    assert status == 12, said
    assert f"words ['bundle-run', '{home}', '--trials', '2', '--no-probes']" in said
    for line in RAN:
        assert line in said


@pytest.mark.parametrize("name", ["run.py", "x.casebook.tar.run.py"])
def test_help_comes_before_anything_is_looked_at(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(Path(starter.__file__).read_bytes())
    status, said = python(tmp_path / name, "--help", cwd=tmp_path)
    assert (status, said.partition("\n")[0]) == (0, "usage: python3 run.py [BUNDLE] [OPTION]...")
    group: Any = get_command(app)
    command = group.get_command(None, "bundle-run")
    options = {option for each in command.params if each.opts[0].startswith("--") for option in each.opts[:1]}
    named = set(re.findall(r"^  (--[a-z-]+)", said, re.MULTILINE))
    assert {each.replace("--no-", "--") for each in named} == options


def test_what_the_host_has_does_not_come_first(home: Path, tmp_path: Path) -> None:
    (tmp_path / "gadget.py").write_text("raise SystemExit('the host has another')")
    script = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['run.py']\n"
    script += f"runpy.run_path({str(home / 'run.py')!r}, run_name='__main__')"
    assert python("-c", script, cwd=tmp_path)[0] == 12


def test_wheels_are_unzipped_once(home: Path) -> None:
    python(home / "run.py", cwd=home)
    site = next(home.glob("site-*"))
    assert not list(site.rglob("*.h"))
    (site / "gadget.py").write_text("print('kept')")
    assert "kept" in python(home / "run.py", cwd=home)[1]


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("missing", f"{starter.NAME}/{WHEEL}: is missing; copy it again"),
        (
            "short",
            f"{starter.NAME}/{WHEEL}: is damaged: {len(wheel()) - 1} bytes, and {len(wheel())} were packed; copy",
        ),
        ("changed", f"{starter.NAME}/{WHEEL}: is damaged: its sha256 is not the one that was packed; copy it again"),
        ("list", "bundle.json: is damaged; copy it again"),
        ("members", "bundle.json: is damaged; copy the bundle again"),
        ("time", "bundle.json: schema_version 7, and this run.py knows 2"),
    ],
)
def test_damage_is_named_in_one_line_and_nothing_runs(home: Path, what: str, line: str) -> None:
    member, data = home / WHEEL, (home / WHEEL).read_bytes()
    match what:
        case "missing":
            member.unlink()
        case "short":
            member.write_bytes(data[:-1])
        case "changed":
            member.write_bytes(data[:-1] + b"!")
        case "list":
            (home / starter.LIST).write_text("{")
        case "members":
            (home / starter.LIST).write_bytes(listing({"../../etc/passwd": b""}))
        case _:
            (home / starter.LIST).write_bytes(listing({}, schema_version=7))
    status, said = python(home / "run.py", cwd=home)
    assert status == 1
    assert said.startswith("casebook: ")
    assert line in said
    assert said.count("\n") == 1
    assert not list(home.glob("site-*"))


class TestParts:
    def test_they_are_put_together_where_they_lie(self, split: Path) -> None:
        status, said = python(split / "x.casebook.tar.run.py", "--trials", "1", cwd=split.parent)
        assert status == 12, said
        assert f"'{split / starter.NAME}', '--trials', '1'" in said

    def test_again_what_was_unpacked_is_used(self, split: Path) -> None:
        python(split / "x.casebook.tar.run.py", cwd=split)
        (split / starter.NAME / "note").write_text("of mine")
        assert python(split / "x.casebook.tar.run.py", cwd=split)[0] == 12
        assert (split / starter.NAME / "note").is_file()
        assert not list(split.glob(f".{starter.NAME}*"))

    @pytest.mark.parametrize("order", [1, -1])
    def test_named_in_any_order(self, split: Path, order: int) -> None:
        named = sorted(split.glob("x.casebook.tar.*of*"))[::order]
        assert starter.opened(named) == split / starter.NAME

    def test_named_by_their_directory(self, split: Path) -> None:
        assert starter.opened([split]) == split / starter.NAME

    @pytest.mark.parametrize("damage", ["missing", "swapped"])
    def test_one_that_is_missing_or_damaged_is_named(self, split: Path, damage: str) -> None:
        second = split / "x.casebook.tar.2of3"
        if damage == "missing":
            second.unlink()
        else:
            shutil.copyfile(split / "x.casebook.tar.1of3", second)
        status, said = python(split / "x.casebook.tar.run.py", cwd=split)
        assert status == 1
        assert f"{second}: is {damage.replace('swapped', 'damaged')}" in said
        assert not (split / starter.NAME).exists()

    def test_without_their_list_it_is_asked_for(self, split: Path) -> None:
        (split / "x.casebook.tar.parts.json").unlink()
        with pytest.raises(starter.Wrong, match=r"x\.casebook\.tar\.parts\.json: is missing"):
            starter.opened([split / "x.casebook.tar.1of3"])

    def test_of_two_bundles_one_must_be_named(self, split: Path) -> None:
        (split / "y.casebook.tar.parts.json").write_text("{}")
        with pytest.raises(starter.Wrong, match=r"several bundles here; name one: x\..*, y\."):
            starter.opened([split])
        assert python(split / "x.casebook.tar.run.py", cwd=split)[0] == 12  # it knows its own

    @pytest.mark.parametrize("text", ["", "[]", '{"parts": [1]}', '{"parts": [{"name": "x"}]}', "{}"])
    def test_a_broken_list_is_one_line(self, split: Path, text: str) -> None:
        (split / "x.casebook.tar.parts.json").write_text(text)
        status, said = python(split / "x.casebook.tar.run.py", cwd=split)
        assert (status, said.count("\n")) == (1, 1)
        assert "x.casebook.tar.parts.json: is " in said


def test_an_archive_is_unpacked_beside_itself(tmp_path: Path) -> None:
    assert starter.opened([archive(tmp_path / "x.casebook.tar", members())]) == tmp_path / starter.NAME


def test_another_bundle_in_the_way_is_left_alone(home: Path) -> None:
    other = archive(home.parent / "y.casebook.tar", members(**{"checkout/more": b""}))
    with pytest.raises(starter.Wrong, match="is of another bundle; move it away"):
        starter.opened([other])
    assert not (home / "checkout" / "more").exists()


def test_where_there_is_nothing_it_says_what_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(starter.Wrong, match=r"no bundle here: no bundle.json"):
        starter.opened([tmp_path])
    with pytest.raises(starter.Wrong, match="no such file"):
        starter.opened([tmp_path / "nowhere"])


@pytest.mark.parametrize("content", [b"", b"no tar at all" * 100, None])
def test_what_is_no_bundle_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.casebook.tar"
    if content is None:
        whole = archive(path, members()).read_bytes()
        content = whole[: len(whole) // 2]
    path.write_bytes(content)
    with pytest.raises(starter.Wrong, match=r"x\.casebook\.tar: is "):
        starter.opened([path])
    assert [each.name for each in tmp_path.iterdir()] == ["x.casebook.tar"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{starter.NAME}/../../up", tarfile.REGTYPE),
        ("/etc/cron.d/x", tarfile.REGTYPE),
        ("elsewhere/x", tarfile.REGTYPE),
        (f"{starter.NAME}/link", tarfile.SYMTYPE),
        (f"{starter.NAME}/hard", tarfile.LNKTYPE),
        (f"{starter.NAME}/pipe", tarfile.FIFOTYPE),
    ],
)
def test_an_archive_writes_nowhere_else(tmp_path: Path, name: str, kind: bytes) -> None:
    place = tmp_path / "in"
    place.mkdir()
    with tarfile.open(place / "x.casebook.tar", "w") as tar:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, "/etc/passwd"
        tar.addfile(entry, io.BytesIO())
    with pytest.raises(starter.Wrong, match="does not belong in one"):
        starter.opened([place / "x.casebook.tar"])
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "x.casebook.tar"]


def test_nor_does_a_wheel(home: Path) -> None:
    files = members(**{WHEEL: wheel({"../../up": b""})})
    (home / WHEEL).write_bytes(files[WHEEL])
    (home / starter.LIST).write_bytes(listing(files))
    python(home / "run.py", cwd=home)
    assert not (home.parent / "up").exists()


def test_a_full_disk_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "site/x")

    monkeypatch.setattr(starter, "make_site", full)
    assert starter.main([str(home)]) == 1
    assert capsys.readouterr().err == "casebook: site/x: No space left on device\n"


class TestPythons:
    def test_without_one_that_fits_the_line_says_which(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (home / starter.LIST).write_bytes(listing(members(), pythons={"3.99": [WHEEL]}))
        status, said = python(home / "run.py", cwd=home)
        assert (status, "the bundle's runner is for Python 3.99, and this is 3." in said) == (1, True)

    def test_one_that_fits_is_looked_for(self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (home / starter.LIST).write_bytes(listing(members(), pythons={"3.99": [WHEEL]}))
        other = tmp_path / "bin" / "python3.99"
        other.parent.mkdir()
        other.write_text('#!/bin/sh\necho "3.99 runs $@"\n')
        other.chmod(0o755)
        monkeypatch.setenv("PATH", str(other.parent), prepend=":")
        assert python(home / "run.py", "--trials", "1", cwd=home) == (0, f"3.99 runs {home / 'run.py'} --trials 1\n")


def test_members_are_looked_at_by_their_hash(home: Path) -> None:
    assert starter.verify(home)["members"] == json.loads((home / starter.LIST).read_text())["members"]
