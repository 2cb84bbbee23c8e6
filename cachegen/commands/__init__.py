"""Registry of the command line's commands by name."""

from cachegen.commands import ablation, bench, calibrate, collect, decode, encode, evict, inspect, prepare, serve
from cachegen.commands.base import Command

COMMANDS: dict[str, Command] = {
    "prepare": prepare,
    "calibrate": calibrate,
    "encode": encode,
    "decode": decode,
    "inspect": inspect,
    "bench": bench,
    "ablation": ablation,
    "serve": serve,
    "evict": evict,
    "collect": collect,
}
