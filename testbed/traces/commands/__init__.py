"""Commands of ``python -m testbed.traces``. Adding one: a module here, and a line in ``COMMANDS``."""

from testbed.traces.commands import import_file, list_all, show, synth
from testbed.traces.commands.base import Command

COMMANDS: dict[str, Command] = {"list": list_all, "show": show, "import": import_file, "synth": synth}
