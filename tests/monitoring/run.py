#!/usr/bin/env python3
"""What docs/monitoring says about the metrics of a job, held to the files of a real one and to Prometheus' own checks.

  run.py TUTTI_RUN PROGRAM NVML     PROGRAM is the one of tests/process/programs/watched.cpp, NVML the folder of a library
                                    that stands for NVIDIA's; exits with 77, and says why, where there is no promtool
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
NAME = re.compile(r"(?<![\w:])tutti_[a-z_]+(?![\w:])")
RANKS = 2


def main(tutti_run, program, nvml):
    if not shutil.which("promtool"):
        print("skipped: no promtool (Debian: prometheus)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        texts, wrong = files_of_two_jobs(tutti_run, program, nvml, pathlib.Path(folder))
        wrong += served(tutti_run, program, pathlib.Path(folder))
    for text in texts:
        wrong += promtool("check", "metrics", text=text)
    wrong += promtool("check", "config", DOCS / "monitoring/prometheus.yml")
    wrong += promtool("check", "rules", DOCS / "monitoring/alerts.yml")
    wrong += promtool("test", "rules", HERE / "alerts.yml")
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as rules:  # JSON is YAML, and promtool has no check of a query
        queries = [{"record": "a", "expr": re.sub(r"\$__rate_interval", "1m", q)} for q in dashboard_queries()]
        json.dump({"groups": [{"name": "grafana.json", "rules": [dict(q, labels={"n": str(n)}) for n, q in enumerate(queries)]}]}, rules)
        rules.flush()
        wrong += promtool("check", "rules", rules.name)
    # A metric without a sample, such as a reducer's, has its type.
    wrong += unknown_names(set(NAME.findall("".join(re.sub("^# (?!TYPE).*$", "", t, flags=re.M) for t in texts))))
    print(*wrong, sep="\n")
    return 1 if wrong else 0


def start(tutti_run, program, end, **variables):
    """Starts a job whose rank 0 waits for the file `end`, and returns it once all ranks have called something."""
    command = [tutti_run, "-n", str(RANKS), "--", program, "how=hang", "who=0", f"until={end}", "timeout=300000"]
    job = subprocess.Popen(command, env=dict(os.environ, **variables), stdout=subprocess.PIPE, text=True)
    for _ in range(RANKS):
        while "called" not in (job.stdout.readline() or "called"):
            pass
    return job


def files_of_two_jobs(tutti_run, program, nvml, folder):
    """Returns the files of two jobs that run at the same time on this node, and what is wrong with them."""
    end = folder / "end"
    jobs = [start(tutti_run, program, end, TUTTI_METRICS_JOB=name, TUTTI_METRICS_DIR=str(folder), LD_LIBRARY_PATH=nvml)
            for name in ("a", "b/2")]
    end.touch()
    failed = [job.wait(timeout=300) for job in jobs]
    end.unlink()
    texts = [p.read_text() for p in sorted(folder.glob("*.prom"))]
    wrong = [f"the jobs ended with {failed}"] if any(failed) else []
    if len(texts) != 2 * RANKS:
        wrong.append(f"two jobs of {RANKS} ranks have left {len(texts)} files")
    series = [line.rpartition(" ")[0] for t in texts for line in t.splitlines() if not line.startswith("#")]
    # The textfile collector refuses all files then.
    wrong += [f"{s} is in two files" for s in sorted({s for s in series if series.count(s) > 1})[:5]]
    return texts, wrong


def served(tutti_run, program, folder):
    """Returns what is wrong with the metrics that ranks serve: by promtool, and by a Prometheus that collects them."""
    port = free_ports(RANKS + 1)
    own = port + RANKS
    job = start(tutti_run, program, folder / "end", TUTTI_METRICS_PORT=str(port))
    targets = [f"127.0.0.1:{port + r}" for r in range(RANKS)]
    wrong = []
    for t in targets:
        with urllib.request.urlopen(f"http://{t}/metrics", timeout=30) as reply:
            wrong += promtool("check", "metrics", text=reply.read().decode())
    scrape = {"job_name": "tutti", "scrape_interval": "1s", "static_configs": [{"targets": targets}]}
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}))
    collector = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address=127.0.0.1:{own}", "--log.level=error"], stdout=subprocess.DEVNULL)
    query = f"http://127.0.0.1:{own}/api/v1/query?query=" + urllib.parse.quote("tutti_world_open == 1 and on (instance) up == 1")
    found, until = [], time.monotonic() + 120
    while len(found) != RANKS and time.monotonic() < until:
        time.sleep(0.5)
        try:
            with urllib.request.urlopen(query, timeout=30) as reply:
                found = json.load(reply)["data"]["result"]
        except OSError:  # it is not up yet
            pass
    collector.terminate()
    collector.wait(timeout=60)
    (folder / "end").touch()
    job.wait(timeout=300)
    if sorted(f["metric"]["instance"] for f in found) != targets:
        wrong.append(f"Prometheus has collected {found} from {targets}")
    return wrong


def free_ports(count):
    """Returns the first of so many ports in a row that are free."""
    for first in range(18000 + os.getpid() % 4000, 30000):
        try:
            for p in range(first, first + count):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", p))
            return first
        except OSError:
            pass
    raise RuntimeError("no free ports")


def promtool(*arguments, text=None):
    """Returns what promtool complains about."""
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    return [] if done.returncode == 0 else [f"{' '.join(command)}:\n{done.stdout}{text or ''}"]


def dashboard_queries():
    dashboard = json.loads((DOCS / "monitoring/grafana.json").read_text())
    return [t["expr"] for p in dashboard["panels"] for t in p["targets"]]


def unknown_names(known):
    """Returns the names of metrics that alerts, dashboard and pages use, and the job's files do not have."""
    rules = (DOCS / "monitoring/alerts.yml").read_text()
    section = (DOCS / "slow_or_stuck.md").read_text().split("### Metrics for Prometheus")[1].split("\n## ")[0]
    used = {"grafana.json": "\n".join(dashboard_queries()), "alerts.yml": rules, "slow_or_stuck.md": section,
            "README.md": (DOCS / "monitoring/README.md").read_text()}
    bases = {re.sub("_(bucket|sum|count)$", "", n) for n in known}
    found = []
    for file, text in used.items():
        names = set(NAME.findall(text))
        if not names:
            found.append(f"{file} uses no metric: has its form changed?")
        allowed = known | bases if file.endswith(".md") else known
        found += [f"{file}: no rank has written {n}" for n in sorted(names - allowed)]
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
