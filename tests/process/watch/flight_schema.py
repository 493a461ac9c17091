#!/usr/bin/env python3
"""Reads the dumps of a folder with Python's pickle, and compares their keys and types with the schema of PyTorch's flight
recorder, version 2.10. Where this python has that PyTorch, its analyser reads them, too.

  flight_schema.py FOLDER RANKS
"""

import json
import pathlib
import pickle
import subprocess
import sys

OPTIONAL_INT = (int, type(None))
TOP = {"version": str, "comm_lib_version": str, "pg_config": dict, "pg_status": dict, "entries": list}
CONFIG = {"name": str, "desc": str, "ranks": str}
STATUS = dict.fromkeys(("last_enqueued_collective", "last_started_collective", "last_completed_collective"), int)
ENTRY = {
    "record_id": int,
    "pg_id": int,
    "process_group": (tuple, list),
    "collective_seq_id": int,
    "p2p_seq_id": int,
    "op_id": int,
    "profiling_name": str,
    "time_created_ns": int,
    "duration_ms": (float, int, type(None)),  # JSON has one kind of numbers
    "input_sizes": list,
    "input_dtypes": list,
    "output_sizes": list,
    "output_dtypes": list,
    "state": str,
    "time_discovered_started_ns": OPTIONAL_INT,
    "time_discovered_completed_ns": OPTIONAL_INT,
    "retired": bool,
    "timeout_ms": int,
    "is_p2p": bool,
    "frames": list,
    "thread_id": str,
    "thread_name": str,
}
FRAME = {"name": str, "filename": str, "line": int}


def check(what, value, schema, more=()):
    assert set(value) - set(more) == set(schema), f"{what} has the keys {sorted(value)}"
    for key, wanted in schema.items():
        assert isinstance(value[key], wanted), f"{what}[{key!r}] is {value[key]!r}"


def check_dump(what, dump, more=()):
    check(what, dump, TOP, more)
    assert dump["version"] == "2.10"
    for name, config in dump["pg_config"].items():
        check(f"{what}: pg_config", config, CONFIG)
        assert config["name"] == name
        check(f"{what}: pg_status", dump["pg_status"][name], STATUS)
    assert dump["entries"], f"{what} has no entries"
    ids = [entry["record_id"] for entry in dump["entries"]]
    assert ids == sorted(set(ids)), f"{what}: record_id does not ascend"
    for entry in dump["entries"]:
        check(f"{what}: entry", entry, ENTRY, more)
        assert entry["process_group"][0] in dump["pg_config"]
        assert entry["state"] in ("scheduled", "started", "completed")
        assert (entry["state"] == "completed") == (entry["duration_ms"] is not None)
        for frame in entry["frames"]:
            check(f"{what}: frame", frame, FRAME)


def main():
    folder, ranks = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    for rank in range(ranks):
        with open(folder / f"flight_{rank}", "rb") as file:
            check_dump(f"flight_{rank}", pickle.load(file))
        with open(folder / f"rank_{rank}.json", encoding="utf-8") as file:
            check_dump(f"rank_{rank}.json", json.load(file), more=("tutti",))
    torch = "torch.distributed.flight_recorder.fr_trace"
    if subprocess.run([sys.executable, "-c", f"import {torch}"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        said = subprocess.run([sys.executable, "-m", torch, folder], capture_output=True, text=True, check=True)
        assert "Not all ranks joining collective" in said.stdout + said.stderr, said.stdout + said.stderr
    else:
        print(f"skipped: no {torch} here")


if __name__ == "__main__":
    main()
