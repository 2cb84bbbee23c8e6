"""Set-up changes its own checkout's environment and no other."""

import pytest

from testbed import bootstrap


def test_an_environment_that_is_another_checkouts_is_left_as_it_is(tmp_path, monkeypatch):
    other, link = tmp_path / "other", tmp_path / ".venv"
    other.mkdir()
    (other / ".setup-complete").write_text("of another folder")
    link.symlink_to(other)
    monkeypatch.setattr(bootstrap, "VENV", link)
    monkeypatch.setattr(bootstrap, "_STAMP", link / ".setup-complete")
    # if it went on, it would run this: nothing is to be installed by a test
    monkeypatch.setattr(bootstrap, "_run", lambda command: pytest.fail(f"ran {command}"))
    monkeypatch.setattr(bootstrap, "_install_torch", lambda pip: pytest.fail("installed"))

    with pytest.raises(bootstrap.SetupError, match=r"is a link to .*another checkout's environment"):
        bootstrap.ensure_setup()

    assert (other / ".setup-complete").read_text() == "of another folder"
