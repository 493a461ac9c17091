#!/usr/bin/env python3
"""What docs/monitoring says about the metrics of a job, held to the files of a real one and to Prometheus' own checks.

  run.py TUTTI_RUN PROGRAM     PROGRAM is the one of tests/process/programs/watched.cpp; exits with 77, and says why, where
                               there is no promtool
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
NAME = re.compile(r"(?<![\w:])tutti_[a-z_]+(?![\w:])")
RANKS = 2


def main(tutti_run, program):
    if not shutil.which("promtool"):
        print("skipped: no promtool (Debian: prometheus)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, TUTTI_METRICS_DIR=folder)
        subprocess.run([tutti_run, "-n", str(RANKS), "--", program, "how=well"], env=env, check=True, timeout=300)
        texts = [p.read_text() for p in sorted(pathlib.Path(folder).glob("*.prom"))]
    wrong = [] if len(texts) == RANKS else [f"{RANKS} ranks have left {len(texts)} files"]
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
    wrong += unknown_names(set(NAME.findall("".join(re.sub("^#.*$", "", t, flags=re.M) for t in texts))))
    print(*wrong, sep="\n")
    return 1 if wrong else 0


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
    files = {"tutti_rank_"}  # of ranks, tutti_rank_0.prom; a histogram has its base name in pages only
    bases = {re.sub("_(bucket|sum|count)$", "", n) for n in known}
    found = []
    for file, text in used.items():
        names = set(NAME.findall(text)) - files
        if not names:
            found.append(f"{file} uses no metric: has its form changed?")
        allowed = known | bases if file.endswith(".md") else known
        found += [f"{file}: no rank has written {n}" for n in sorted(names - allowed)]
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
