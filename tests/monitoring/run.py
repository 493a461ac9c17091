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
        texts, wrong = files_of_two_jobs(tutti_run, program, pathlib.Path(folder))
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


def files_of_two_jobs(tutti_run, program, folder):
    """Returns the files of two jobs that run at the same time on this node, and what is wrong with them."""
    end = folder / "end"
    command = [tutti_run, "-n", str(RANKS), "--metrics", folder, "--", program, "how=hang", "who=0", f"until={end}"]
    jobs = [subprocess.Popen(command, env=dict(os.environ, TUTTI_JOB=name), stdout=subprocess.PIPE, text=True)
            for name in ("a", "b/2")]
    for job in jobs:  # until all ranks have written their files
        for line in job.stdout:
            if "called" in line:
                break
    end.touch()
    failed = [job.wait(timeout=300) for job in jobs]
    texts = [p.read_text() for p in sorted(folder.glob("*.prom"))]
    wrong = [f"the jobs ended with {failed}"] if any(failed) else []
    if len(texts) != 2 * RANKS:
        wrong.append(f"two jobs of {RANKS} ranks have left {len(texts)} files")
    series = [line.rpartition(" ")[0] for t in texts for line in t.splitlines() if not line.startswith("#")]
    # The textfile collector refuses all files then.
    wrong += [f"{s} is in two files" for s in sorted({s for s in series if series.count(s) > 1})[:5]]
    return texts, wrong


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
