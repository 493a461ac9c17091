"""Runs bench/gpu.sh over compilers, a GPU and programs that only pretend, and looks at what it tells.

    gpu_sh.py

What is tested is the script: that it ends, keeps no part from running because another failed or hangs, loses none, and
says of each how it ended, in JSON and in its table.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

SYSTEM = "/usr/bin:/bin"

# Both compilers: what they build is this program's other half, by its name.
COMPILER = r"""#!/bin/bash
out= previous= kind=program own=()
for dir in ${STUB_OWN:-}; do own+=("$(dirname "$(dirname "$(dirname "$0")")")/$dir"); done
for a in "$@"; do
  [[ $previous != -o ]] || out=$a
  if [[ $previous == -isystem ]]; then
    for dir in "${own[@]}"; do [[ ! $a -ef $dir ]] || { echo "cstdlib:75: fatal error: stdlib.h: none in $a" >&2; exit 1; }; done
  fi
  case $a in -c) kind=object ;; -E) kind=header ;; -v) kind=directories ;; esac
  previous=$a
done
if [[ $kind == directories ]]; then
  printf '%s\n' '#include "..." search starts here:' '#include <...> search starts here:' "${own[@]/#/ }" 'End of search list.' >&2
  exit
fi
if [[ $kind == header ]]; then grep -q "${STUB_NO_HEADER:-no such header}" && exit 1; exit 0; fi
[[ $(basename "$out") != "${STUB_UNBUILT:-}" ]] || { echo "x.cpp:1: error: \"stub\" \\ of $out" >&2; exit 1; }
[[ $kind == object ]] || cp "$(dirname "$0")/program" "$out"
"""
PROGRAM = r"""#!/bin/bash
me=$(basename "$0") all=$*
after() { while (($# > 1)); do [[ $1 != "$flag" ]] || printf '%s' "$2"; shift; done; }
write() { local to; flag=$1; to=$(after "${@:3}"); [[ ! $to ]] || printf "$2" >"$to"; }
case $me in
  has_gpu) [[ ! ${STUB_NO_GPU:-} ]] || { echo "cudaErrorNoDevice (a stub)"; exit 1; }
    echo "1 x Stub, sm_90, CUDA 13.0"; exit ;;
  tutti-run) while [[ $1 != -- ]]; do shift; done; shift; export RANK=0; "$@"; exit ;;
esac
[[ $me != "${STUB_HANGS:-}" ]] || exec sleep 100
[[ $me != "${STUB_FAILS:-}" ]] || { printf 'first\n  | WRONG "this" \\ that\t| there\n'; exit 3; }
[[ $me != "${STUB_SKIPS:-}" ]] || { echo "not on this machine"; exit 77; }
case $me in
  gpu_fate) [[ $1 == kill ]] || exit 0
    for i in 1 2 3; do printf 'named the victim\nwent on with 3 ranks\n'; done; exit 137 ;;
  graph) printf 'eager 200 steps host 1.23 us step 4.56 us\nreplayed 200 steps host 0.50 us step 3.25 us\n' ;;
  digits | digits_cuda) for i in {1..30}; do lines+="$i 2.5\n"; done; write --loss-log "$lines" "$@" ;;
  bench-*) echo "figures of $me $*"; echo '{"bench":"'"$me"'"}' >"${1:-/dev/null}" ;;
  gpu_kernels) write --json '{"bench":"kernels"}\n' "$@" ;;
  tutti-bench) echo "figures of $*"; write -J '{"bench":"tutti-bench"}\n' "$@" ;;
  compute-sanitizer) [[ -x ${*: -2:1} && ${*: -1} == --quick ]] ;;
esac
"""

BUILDS = (
    "has_gpu tutti-run gpu_collectives gpu_fate gpu_gradients gpu_means nccl_hello bench-nccl-overhead "
    "bench-nccl-gradients tutti-bench graph digits digits_cuda kernels_test gpu_kernels"
).split()
PARTS = (
    "test/hello test/collectives/1 test/collectives/2 test/collectives/4 test/gradients/1 test/gradients/2 "
    "test/gradients/4 test/means/3 test/kill/4 test/graph/1 test/graph/2 test/graph/4 test/digits/1 test/digits/2 "
    "test/digits/4 test/kernels_test bench/graph/1 bench/kernels bench/overhead/1 bench/gradients/1 bench/all_reduce-1 "
    "bench/all_reduce-1-graph bench/all_reduce-2 bench/reduce_scatter-2 bench/each-2 sanitizer/memcheck/kernels_test "
    "sanitizer/racecheck/kernels_test"
).split()
ALL = [f"build/{name}" for name in BUILDS] + PARTS
OF_TUTTI_BENCH = [p for p in PARTS if p.startswith(("bench/all_reduce", "bench/reduce_scatter", "bench/each"))]
WITHOUT_TUTTI_BENCH = "bench/overhead/2"  # bandwidths all the same


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Run:
    """One run of the script, in a tree of its own: it builds beside itself."""

    def __init__(self, at, without=(), **told):
        self.at, self.out = at, at / "out"
        at.mkdir()
        for part in ("include", "examples", "tests", "tools"):
            at.joinpath(part).symlink_to(ROOT / part)
        shutil.copytree(ROOT / "bench", at / "bench")
        executable(at / "cuda/bin/nvcc", COMPILER)
        executable(at / "cuda/bin/g++", COMPILER)
        executable(at / "cuda/bin/program", PROGRAM)
        executable(at / "cuda/bin/compute-sanitizer", PROGRAM)
        for file in ("cuda/lib64/libcublas.so", "nccl/include/nccl.h", "nccl/lib/libnccl.so.2"):
            executable(at / file, "")
        for file in without:
            at.joinpath(file).unlink()
        executable(at / "cuda/bin/python3", "#!/bin/bash\n")  # no NCCL of pip's
        cuda = at / "cuda"
        told = {"PATH": f"{cuda}/bin:{SYSTEM}", "CUDA_HOME": cuda, "NCCL_ROOT": at / "nccl", "CXX": "g++", **told}
        kept = {k: v for k, v in os.environ.items() if k not in ("ARCH", "OPT", "INCLUDE", "LIMIT", "PART_LIMIT")}
        self.process = subprocess.Popen(
            ["bash", at / "bench/gpu.sh", self.out],
            env={**kept, **{k: str(v) for k, v in told.items()}},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self):
        try:
            self.said = self.process.communicate(timeout=100)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.status = self.process.returncode
        lines = (self.out / "parts.jsonl").read_text().splitlines()
        self.parts = {p["part"]: p for p in map(json.loads, lines)}
        assert len(self.parts) == len(lines), "a part is told twice"
        self.figures = [json.loads(line) for line in (self.out / "results.jsonl").read_text().splitlines()]
        self.table = (self.out / "table.md").read_text()
        for name, p in self.parts.items():
            assert set(p) == {"part", "result", "seconds", "why"}, p
            assert (p["result"] == "ok") == (p["why"] == ""), f"{name}: whoever is not ok says why: {p}"
            assert f"| {name} | {p['result']} |" in self.table, f"{name} is not in the table:\n{self.table}"
        assert self.status == any(p["result"] == "failed" for p in self.parts.values()), self.said
        return self

    def expect(self, others, more=(), **unlike):
        """All parts there are, with `more`, and how they ended: (result, a word of why) for the names in `unlike`."""
        wrong = set(self.parts) ^ {*ALL, *more}
        assert not wrong, f"{wrong} is too much, or missing"
        unlike = {name: of for names, of in unlike.items() for name in names.split()}
        for name, p in self.parts.items():
            result, why = unlike.get(name, others)
            assert p["result"] == result and why in p["why"], f"{name} is to be {result} ({why}): {p}\n{self.said}"


def main():
    with tempfile.TemporaryDirectory() as temporary:
        begun = []

        def run(*without, **told):
            begun.append(Run(pathlib.Path(temporary) / str(len(begun)), without, **told))
            return begun[-1]

        try:
            check(run)
        finally:
            for r in begun:
                if r.process.poll() is None:
                    r.process.kill()
    return 0


def check(run):
    of = lambda program: " ".join(p for p in PARTS if program in p)
    builds = " ".join(n for n in ALL if n.startswith("build/"))
    faulty = run(STUB_FAILS="gpu_gradients", STUB_SKIPS="nccl_hello", STUB_UNBUILT="digits_cuda")
    bare = run("cuda/bin/compute-sanitizer", STUB_NO_HEADER="CLI", STUB_HANGS="gpu_means", PART_LIMIT=1)
    no_gpu = run(STUB_NO_GPU=1, STUB_OWN="nccl/include cuda/include")  # as where packages have put all into /usr/include
    late = run(LIMIT=1)
    lacking = run("nccl/include/nccl.h", CUDA_HOME="/none", NCCL_ROOT="/none", CXX="no-such-compiler")

    faulty.end().expect(("ok", ""), **{
        of("test/gradients"): ("failed", 'status 3: WRONG "this" \\ that'),
        "test/hello": ("skipped", "not on this machine"),
        "build/digits_cuda": ("failed", 'error: "stub" \\ of'),
        of("test/digits"): ("skipped", "digits_cuda was not built"),
    })
    graphs = [f for f in faulty.figures if f["bench"] == "example/graph"]
    assert [(g["how"], g["host_us"], g["step_us"]) for g in graphs] == [("eager", 1.23, 4.56), ("replayed", 0.5, 3.25)]
    for name, times in {"kernels": 1, "bench-nccl-overhead": 1, "bench-nccl-gradients": 1, "tutti-bench": 14}.items():
        assert sum(f["bench"] == name for f in faulty.figures) == times, f"{name}: {faulty.figures}"
    assert "figures of bench-nccl-overhead" in faulty.table and "1 x Stub" in faulty.table, faulty.table

    no_gpu.end().expect(("skipped", "no GPU: cudaErrorNoDevice (a stub)"),
                        **{builds: ("ok", "")})
    late.end().expect(("skipped", "was not built"), [WITHOUT_TUTTI_BENCH],
                      **{builds: ("failed", "the time for building was over")})
    # Its limit is so short that another part may pass it, too, where the machine is busy.
    bare.end()
    if not shutil.which("compute-sanitizer", path=SYSTEM):
        assert set(PARTS) - set(bare.parts) == {p for p in PARTS if p.startswith("sanitizer")}, bare.said
        assert bare.parts["sanitizer/kernels_test"]["why"] == "no compute-sanitizer"
    hung = bare.parts["test/means/3"]
    assert (hung["result"], hung["why"]) == ("failed", "not done in its time") and hung["seconds"] < 30, hung
    assert "INCLUDE=" in bare.parts["build/tutti-bench"]["why"]
    assert WITHOUT_TUTTI_BENCH in bare.parts and f"overhead-2.jsonl {4 << 20}" in bare.table, bare.table
    for name in OF_TUTTI_BENCH:
        assert bare.parts[name]["result"] == "skipped", bare.parts[name]
    lacking.end()
    assert list(lacking.parts) == ["prerequisites"] and lacking.status == 1, lacking.said
    assert "CUDA_HOME" in lacking.parts["prerequisites"]["why"], lacking.said


if __name__ == "__main__":
    sys.exit(main())
