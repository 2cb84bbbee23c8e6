"""The soak in short: fifty requests beside writers, eviction and random faults."""

import json
import subprocess
import sys
import time
from types import SimpleNamespace

from storage_server import REPOSITORY

from bench import soak
from bench.soak_faults import Faults
from cachegen.stores import FileStore


def test_fifty_requests_among_faults_give_no_wrong_token_and_leave_nothing_behind(tmp_path, monkeypatch, capsys):
    result = tmp_path / "runs" / "soak.json"
    monkeypatch.setattr(soak, "RESULT", result)

    status = soak.main(["--requests", "50", "--seed", "1"])

    summary = json.loads(result.read_text(encoding="utf-8"))
    assert json.loads(capsys.readouterr().out) == summary
    assert (summary["problems"], status) == ([], 0)
    assert (summary["wrong_tokens"], summary["stuck"]) == (0, 0)
    assert sum(summary["outcomes"].values()) == 50
    assert summary["outcomes"]["right"] >= 40
    assert sum(summary["faults"].values()) > 0
    assert summary["log_events"]["fetch"] > 0
    for look in (summary["start"], summary["end"]):
        assert min(look["rss_bytes"], look["descriptors"], look["threads"]) > 0


WRITER = """
import sys
from cachegen.errors import StoreUnavailableError
from cachegen.stores import FileStore
store = FileStore(sys.argv[1])
for _ in sys.stdin:
    try:
        store.put("chunks/a", bytes(100))
    except StoreUnavailableError as error:
        print(error, flush=True)
    else:
        print("stored", flush=True)
"""


def test_the_faults_of_disk_clock_and_profile_do_what_they_say(tmp_path):
    store = FileStore(tmp_path)
    store.put("used/aa", b"")
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:

        def put():
            writer.stdin.write("\n")
            writer.stdin.flush()
            return writer.stdout.readline().strip()

        faults = Faults(tmp_path, SimpleNamespace(restart=None), 0, [b"foreign"], [writer.pid])
        answers = [put()]
        faults._ending = SimpleNamespace(wait=lambda _seconds: answers.append(put()))
        faults._fill_disk()
        answers.append(put())
        writer.stdin.close()
    faults._jump()
    faults._exchange_for_foreign()

    assert answers == ["stored", f"{tmp_path}/chunks/a: File too large", "stored"]
    assert abs(store.entries("used/")[0].modified_s - time.time()) > 86400
    assert store.get("chunks/a") == b"foreign"
