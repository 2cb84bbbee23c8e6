"""What a refused namespace tells its user, and who may supervise."""

import re
import threading

import pytest

from testbed.errors import IsolationError
from testbed.isolation import explain_refusal, run_isolated

REFUSED = "unshare: unshare failed: Operation not permitted\n"


@pytest.mark.parametrize(
    ("sysctls", "reason"),
    [
        ({"kernel/apparmor_restrict_unprivileged_userns": "1"}, r"AppArmor .*restrict_unprivileged_userns=1\)"),
        ({"kernel/unprivileged_userns_clone": "0"}, r"kernel\.unprivileged_userns_clone=0"),
        ({"user/max_user_namespaces": "0"}, r"switched off \(user\.max_user_namespaces=0\)"),
        ({"user/max_user_namespaces": "95000"}, "seccomp"),
        ({}, "seccomp"),
    ],
)
def test_user_is_told_the_reason_and_to_use_sudo(sysctls, reason):
    text = explain_refusal(REFUSED, is_root=False, sysctls=sysctls)

    assert "Operation not permitted" in text
    assert "sudo" in text
    assert re.search(reason, text)


def test_root_without_the_capability_is_told_how_to_start_the_container():
    text = explain_refusal(REFUSED, is_root=True, sysctls={"user/max_user_namespaces": "0"})

    assert "--cap-add SYS_ADMIN" in text
    assert "sudo" not in text


def test_only_the_main_thread_may_supervise():
    errors = []

    def supervise():
        try:
            run_isolated(["true"])
        except IsolationError as error:
            errors.append(str(error))

    thread = threading.Thread(target=supervise)
    thread.start()
    thread.join()

    assert errors == ["namespaces can only be supervised from the main thread"]
