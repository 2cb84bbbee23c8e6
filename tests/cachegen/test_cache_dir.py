"""Folders that are built once, whole or not at all."""

import os
import time

import pytest

from cachegen.cache_dir import build_folder_once, cache_dir


def test_the_cache_folder_follows_the_xdg_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "cachegen"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "cachegen"


def test_a_folder_is_built_once(tmp_path):
    target = tmp_path / "deep" / "target"
    assert build_folder_once(target, lambda folder: (folder / "x").write_text("1")) == target
    build_folder_once(target, lambda folder: pytest.fail("built again"))
    assert (target / "x").read_text() == "1"


def test_a_failed_build_leaves_nothing(tmp_path):
    def fail(folder):
        (folder / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        build_folder_once(tmp_path / "target", fail)
    assert list(tmp_path.iterdir()) == []


def test_of_two_builders_the_first_to_finish_wins(tmp_path):
    target = tmp_path / "target"

    def build_while_another_finishes(folder):
        (folder / "x").write_text("second")
        build_folder_once(target, lambda inner: (inner / "x").write_text("first"))

    build_folder_once(target, build_while_another_finishes)
    assert (target / "x").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_what_a_killed_builder_left_is_removed_when_it_is_old(tmp_path):
    target = tmp_path / "target"
    old, young = tmp_path / ".target-old", tmp_path / ".target-young"
    for folder in (old, young):
        folder.mkdir()
    two_hours_ago_s = time.time() - 7200
    os.utime(old, (two_hours_ago_s, two_hours_ago_s))
    build_folder_once(target, lambda folder: None)

    assert sorted(tmp_path.iterdir()) == [young, target]
