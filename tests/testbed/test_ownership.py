"""Who owns what a run under sudo leaves."""

import os

import pytest

from testbed.ownership import give_back

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

SUDO = {"SUDO_UID": "12345", "SUDO_GID": "12346"}


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "report.md").touch()
    (tmp_path / "runs" / "latest").symlink_to("one")
    (tmp_path / "elsewhere").touch()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    return tmp_path


def owners(tree):
    paths = sorted((tree / "runs").rglob("*"))
    return {path.name: (path.lstat().st_uid, path.lstat().st_gid) for path in [tree / "runs", *paths]}


def test_under_sudo_everything_becomes_the_users_and_no_link_is_followed(tree):
    give_back([tree / "runs"], SUDO)

    assert set(owners(tree).values()) == {(12345, 12346)}
    assert (tree / "elsewhere").stat().st_uid == os.geteuid()


@pytest.mark.parametrize("environment", [{}, {"SUDO_UID": "me"}, {"SUDO_UID": "1"}])
def test_without_sudo_nothing_changes(tree, environment):
    before = owners(tree)
    give_back([tree / "runs"], environment)
    assert owners(tree) == before


def test_what_another_user_owns_already_stays_his(tree):
    os.chown(tree / "runs" / "one" / "report.md", 777, 777)
    give_back([tree / "runs"], SUDO)
    assert owners(tree)["report.md"] == (777, 777)
