"""Files written, kept and put back."""

import subprocess
from pathlib import Path

import pytest

from watchdog.setup.plan import File, Manifest, changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "etc/setup"


def file(tmp_path: Path, text: str = "new\n", mode: int = 0o640) -> File:
    return File(path=tmp_path / "x.service.d/file.conf", text=text, why="a test", mode=mode)


def test_a_new_file_is_written_and_undone_without_a_trace(tmp_path: Path, folder: Path) -> None:
    f = file(tmp_path)
    manifest = Manifest(folder)
    assert manifest.state(f) == "new"
    manifest.write(f)
    assert (f.path.read_text(), f.path.stat().st_mode & 0o777) == ("new\n", 0o640)

    assert Manifest(folder).state(f) == "as it is"
    Manifest(folder).undo()

    assert sorted(tmp_path.rglob("*")) == []


def test_what_was_there_before_comes_back(tmp_path: Path, folder: Path) -> None:
    f = file(tmp_path)
    f.path.parent.mkdir()
    f.path.write_text("old\n")
    f.path.chmod(0o600)
    assert changes([f], Manifest(folder), replace=False) == ([], [(f, "not ours")])
    assert changes([f], Manifest(folder), replace=True) == ([f], [])
    Manifest(folder).write(f)
    Manifest(folder).write(file(tmp_path, "newer\n"))

    Manifest(folder).undo()

    assert (f.path.read_text(), f.path.stat().st_mode & 0o777) == ("old\n", 0o600)


def test_what_a_person_changed_stays(tmp_path: Path, folder: Path) -> None:
    f = file(tmp_path)
    Manifest(folder).write(f)
    f.path.write_text("mine\n")

    assert changes([f], Manifest(folder), replace=False) == ([], [(f, "changed by a person")])
    assert "kept" in Manifest(folder).undo()[0]
    assert f.path.read_text() == "mine\n"


def copies(folder: Path) -> list[str]:
    return sorted(each.read_text() for each in (folder / "before").iterdir())


def test_the_file_before_setup_outlives_an_undo_that_leaves_what_a_person_changed(tmp_path: Path, folder: Path) -> None:
    f = file(tmp_path)
    f.path.parent.mkdir()
    f.path.write_text("old\n")
    Manifest(folder).write(f)
    f.path.write_text("mine\n")

    said = Manifest(folder).undo()

    assert f.path.read_text() == "mine\n"
    [copy] = (folder / "before").iterdir()
    assert copy.read_text() == "old\n"
    assert said == [f"kept {f.path}: it was changed since", f"kept {copy}: {f.path} as it was before setup replaced it"]

    Manifest(folder).write(f)
    assert f"restored {f.path}" in Manifest(folder).undo()
    assert f.path.read_text() == "mine\n", "it is what was there before the later setup"
    assert copies(folder) == ["old\n"]


def test_a_second_replacement_leaves_the_first_copy_and_keeps_another(tmp_path: Path, folder: Path) -> None:
    f = file(tmp_path)
    f.path.parent.mkdir()
    for text in ("old\n", "mine\n", "mine, too\n"):
        f.path.write_text(text)
        Manifest(folder).write(f)

    assert copies(folder) == ["mine\n", "mine, too\n", "old\n"]
    said = Manifest(folder).undo()
    assert f.path.read_text() == "old\n"
    assert copies(folder) == ["mine\n", "mine, too\n"]
    assert len(said) == 3


def test_an_interruption_before_a_file_is_replaced_leaves_no_second_copy(tmp_path: Path, folder: Path) -> None:
    f = file(tmp_path)
    f.path.parent.mkdir()
    f.path.write_text("old\n")
    Manifest(folder).write(f)
    f.path.write_text("old\n")  # as if it had not been replaced yet

    Manifest(folder).undo()

    assert f.path.read_text() == "old\n"
    assert not folder.exists()


def test_our_own_file_is_renewed(tmp_path: Path, folder: Path) -> None:
    Manifest(folder).write(file(tmp_path))
    newer = file(tmp_path, "newer\n")

    assert changes([newer], Manifest(folder), replace=False) == ([newer], [])


def test_an_interruption_before_the_file_is_there_can_be_undone(tmp_path: Path, folder: Path) -> None:
    f = file(tmp_path)
    Manifest(folder).write(f)
    f.path.unlink()  # as if only the manifest had been written

    assert Manifest(folder).undo() == []
    assert not folder.exists()


def test_lines_that_are_none_are_left_out(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "manifest").write_text("nonsense\n../etc/passwd\n" + "0" * 64 + "  relative\n")

    assert Manifest(folder).entries == {}


def test_units_that_are_to_be_left_alone_are_remembered(tmp_path: Path, folder: Path) -> None:
    f = file(tmp_path)
    Manifest(folder).write(f)
    Manifest(folder).leave(["a.service", "b.service"], leave=True)
    Manifest(folder).leave(["b.service"], leave=False)

    assert Manifest(folder).left == {"a.service"}
    done = subprocess.run(["sha256sum", "--check", "--strict", folder / "manifest"], capture_output=True, check=False)
    assert done.returncode == 0, "to sha256sum it is a comment"
    Manifest(folder).undo()
    assert not folder.exists()
