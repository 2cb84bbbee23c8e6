"""Run a command in fresh namespaces that vanish with it: ``python -m testbed.isolation COMMAND...``.

The supervisor starts unshare(1), which makes user (when not root), network, mount and pid namespaces; the
command is process 1 in there. Whichever of the three dies, even by SIGKILL, the kernel ends the rest: the
supervisor's death kills unshare, unshare's death kills process 1, and with process 1 go all processes, interfaces
and mounts of the namespaces. A control pipe carries the gentler message: an interrupted supervisor closes it, the
command sees its end and winds up (:func:`interrupt_on_supervisor_exit`).
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import IsolationError

CONTROL_FD_VARIABLE = "CACHEGEN_CONTROL_FD"
GRACE_S = 20.0
# timeout(1) signals its child and then the child's group: twice for one wish
SAME_INTERRUPT_S = 0.5
PROBE_TIMEOUT_S = 10.0
PR_SET_PDEATHSIG = 1
SYSTEM_PATHS = ("/usr/sbin", "/sbin")  # tc lies there, and a user's PATH may lack them
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Process 1 of the namespaces, before it becomes the command. Only unshare holds the guard pipe's other end then:
# if unshare died before its child had asked to die with it, the pipe is at its end.
SETUP = """
exec {guard_w}>&-
if read -t 0 -u {guard_r}; then exit 1; fi
exec {guard_r}<&-
mount -t sysfs sysfs /sys && ip link set dev lo up || exit 1
exec "$@"
"""

# sysctl -> (value that refuses, what to do about it)
REFUSING_SYSCTLS = {
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "AppArmor keeps users from making user namespaces"),
    "kernel/unprivileged_userns_clone": ("0", "users may not make user namespaces"),
    "user/max_user_namespaces": ("0", "user namespaces are switched off"),
}


def is_isolated() -> bool:
    """Return whether this process runs in namespaces made by :func:`run_isolated`."""
    return CONTROL_FD_VARIABLE in os.environ


def run_isolated(argv: list[str], env: dict[str, str] | None = None) -> int:
    """Run a command in fresh namespaces and return its exit status (128 + signal if a signal ended it).

    SIGINT, SIGTERM and SIGHUP close the control pipe; then the command has 20 s to end. A second one, or the
    end of that time, kills it. Call it from the main thread: signals arrive there, and the kernel would take
    another thread's end for the supervisor's.

    Parameters
    ----------
    argv : list of str
        The command; it becomes process 1 of its pid namespace, in a session of its own.
    env : dict, optional
        Its environment; by default this process's.

    Raises
    ------
    IsolationError
        Called from another thread, or unshare(1) is missing.
    """
    if threading.current_thread() is not threading.main_thread():
        raise IsolationError("namespaces can only be supervised from the main thread")
    control_r, control_w = os.pipe()
    try:
        process = _start(argv, dict(os.environ if env is None else env), control_r)
    except BaseException:
        os.close(control_w)
        raise
    finally:
        os.close(control_r)
    try:
        with _signals_as_bytes() as signals_fd:
            _wait(process, control_w, signals_fd)
    finally:
        # unshare ignores SIGTERM while it waits
        process.kill()
        process.wait()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def can_isolate() -> str | None:
    """Try to make the namespaces; return None if that works, else why not and what to do."""
    control_r, control_w = os.pipe()
    try:
        process = _start(["true"], dict(os.environ), control_r, stderr=subprocess.PIPE)
    except IsolationError as error:
        return str(error)
    finally:
        os.close(control_r)
        os.close(control_w)
    try:
        _, stderr = process.communicate(timeout=PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"making namespaces took longer than {PROBE_TIMEOUT_S:g} s"
    if process.returncode == 0:
        return None
    sysctls = {}
    for name in REFUSING_SYSCTLS:
        path = Path("/proc/sys") / name
        if path.exists():
            sysctls[name] = path.read_text().strip()
    return explain_refusal(stderr.decode(errors="replace"), os.geteuid() == 0, sysctls)


def explain_refusal(message: str, is_root: bool, sysctls: dict[str, str]) -> str:
    """Return why namespaces were refused and what to do, from unshare's message and the sysctls found."""
    said = f"private namespaces are refused here ({' '.join(message.split()) or 'no message'})"
    if is_root:
        return (
            f"{said}: root lacks CAP_SYS_ADMIN or CAP_NET_ADMIN. In a container, start it with "
            "--cap-add NET_ADMIN --cap-add SYS_ADMIN --security-opt apparmor=unconfined"
        )
    for name, (refusing, reason) in REFUSING_SYSCTLS.items():
        if sysctls.get(name) == refusing:
            return f"{said}: {reason} ({name.replace('/', '.')}={refusing}). Run it with sudo"
    return f"{said}. Run it with sudo; in a container the seccomp profile may refuse user namespaces"


def interrupt_on_supervisor_exit() -> None:
    """Raise KeyboardInterrupt in the main thread, once, when the supervisor is interrupted or gone.

    To be called in the isolated command, from its main thread.
    """
    fd = int(os.environ[CONTROL_FD_VARIABLE])
    os.set_inheritable(fd, False)
    # A shell's background job starts with SIGINT ignored, and process 1 of a namespace gets no signal that it
    # has no handler for.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main_thread = threading.main_thread().ident
    assert main_thread is not None  # it is running

    def watch() -> None:
        os.read(fd, 1)  # nobody ever writes: this returns at the pipe's end
        signal.pthread_kill(main_thread, signal.SIGINT)

    threading.Thread(target=watch, name="supervisor watch", daemon=True).start()


def _start(argv: list[str], env: dict[str, str], control_r: int, stderr: int | None = None) -> subprocess.Popen[bytes]:
    """Start unshare with the command below it; it dies with this thread."""
    libc = ctypes.CDLL(None)
    supervisor = os.getpid()

    def die_with_supervisor() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # it died before the line above
            os._exit(1)

    guard_r, guard_w = os.pipe()
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    namespaces = [
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation",
        "private",
    ]
    setup = SETUP.format(guard_r=guard_r, guard_w=guard_w)
    env[CONTROL_FD_VARIABLE] = str(control_r)
    env["PATH"] = os.pathsep.join([env.get("PATH", os.defpath), *SYSTEM_PATHS])
    try:
        return subprocess.Popen(
            ["unshare", *user, *namespaces, "bash", "-c", setup, "isolated", *argv],
            env=env,
            pass_fds=(control_r, guard_r, guard_w),
            stderr=stderr,
            # no terminal signal reaches the command: Ctrl-C comes by the control pipe, once
            start_new_session=True,
            preexec_fn=die_with_supervisor,
        )
    except FileNotFoundError as error:
        raise IsolationError("unshare(1) is missing: install util-linux") from error
    finally:
        os.close(guard_r)
        os.close(guard_w)


def _wait(process: subprocess.Popen[bytes], control_w: int, signals_fd: int) -> None:
    """Wait for the end of the process, obeying signals; close the control pipe on the way."""
    pid_fd = os.pidfd_open(process.pid)
    first_s: float | None = None
    try:
        while True:
            wait_s = None if first_s is None else max(0.0, first_s + GRACE_S - time.monotonic())
            ready, _, _ = select.select([pid_fd, signals_fd], [], [], wait_s)
            if pid_fd in ready:
                return
            if signals_fd in ready:
                os.read(signals_fd, 64)
                if first_s is None:
                    first_s = time.monotonic()
                    os.close(control_w)
                elif time.monotonic() - first_s > SAME_INTERRUPT_S:
                    return
            elif not ready:
                return
    finally:
        os.close(pid_fd)
        if first_s is None:
            os.close(control_w)


@contextmanager
def _signals_as_bytes() -> Iterator[int]:
    """Make each stop signal a byte on the file descriptor given, for the with-block."""
    read_fd, write_fd = os.pipe()
    for fd in (read_fd, write_fd):
        os.set_blocking(fd, False)
    old_fd = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    old = {number: signal.signal(number, lambda *_: None) for number in STOP_SIGNALS}
    try:
        yield read_fd
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_fd)
        os.close(read_fd)
        os.close(write_fd)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m testbed.isolation COMMAND [ARGUMENT...]")
    sys.exit(run_isolated(sys.argv[1:]))
