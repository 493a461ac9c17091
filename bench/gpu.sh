#!/usr/bin/env bash
# Everything here that a GPU must judge: builds it, tests it, measures it, in under 9 minutes and with nothing from outside
# the machine. bench/gpu.sh --help
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

usage() {
  cat <<'END'
usage: bench/gpu.sh DIRECTORY

Builds the tests, examples and benchmarks of GPUs with nvcc and g++ (no CMake), runs them on 1, 2 and 4 ranks, which share
the GPUs there are, and writes into DIRECTORY: parts.jsonl and table.md (what ran, how it ended), results.jsonl (figures),
and a log for each part. Without a GPU it builds everything and says what it skipped. A part that fails does not stop the
others; the exit status is 1 if one did.

From the environment:
  ARCH      what nvcc builds for (sm_90)
  CXX, OPT  the C++ compiler (g++) and how it optimises (-O2)
  CUDA_HOME, NCCL_ROOT   where CUDA and NCCL are, if they are not found
  INCLUDE   a directory with headers that the machine lacks: CLI/ and nlohmann/, for tutti-bench;
            as of another machine's /usr/include (docs/gpu.md)
  LIMIT, PART_LIMIT      seconds for all (530), and for each part at most (its own)
END
}
[[ ${1:---help} != --help && ${1} != -h ]] || { usage; exit 0; }

mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 2
bin=$PWD/build/gpu
mkdir -p "$bin"
arch=${ARCH:-sm_90} cxx=${CXX:-g++} opt=${OPT:--O2} limit=${LIMIT:-530} part_limit=${PART_LIMIT:-600}
failed=0
# What an earlier run has left is none of this one's.
rm -f "$out"/{build,test,bench,sanitizer}-*.log "$out"/loss-*.txt "$out"/{kernels.json,overhead.jsonl,overhead-2.jsonl,gradients.jsonl} \
  "$out"/{graph,each,all_reduce,reduce_scatter}-*.jsonl
: >"$out/parts.jsonl"
: >"$out/results.jsonl"

say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }
quoted() { printf '%s' "$1" | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g'; }
# record PART RESULT SECONDS WHY
record() {
  [[ $2 != failed ]] || failed=1
  say "$2  $1${4:+: $4}"
  printf '{"part":"%s","result":"%s","seconds":%d,"why":"%s"}\n' "$1" "$2" "$3" "$(quoted "${4:-}")" >>"$out/parts.jsonl"
}
# What there is so far: after each part, so that it is there whatever ends this.
table() {
  {
    printf '%s, NCCL of %s, %s\n\n| part | result | s | |\n|---|---|---|---|\n' "${gpu:-no GPU}" "$nccl_so" "$(date -u +%F)"
    sed -E 's/^\{"part":"([^"]*)","result":"([^"]*)","seconds":([0-9]+),"why":"(.*)"\}$/| \1 | \2 | \3 | \4 |/' "$out/parts.jsonl"
    for log in "$out"/bench-*.log; do  # the figures, as the programs print them
      [[ ! -s $log ]] || printf '\n%s\n\n```\n%s\n```\n' "$(basename "$log" .log)" "$(grep -v '^$' "$log" | head -60)"
    done
  } >"$out/table.md"
}

# --- what there is
first_of() { for p in "$@"; do [[ -e $p ]] && { printf '%s' "$p"; return 0; }; done; return 1; }
nvcc=$(command -v nvcc || first_of "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" || true)
cuda=${CUDA_HOME:-$([[ $nvcc ]] && dirname "$(dirname "$(readlink -f "$nvcc")")")}
pip_dir() { python3 -c 'import importlib.util as u,sys
s=u.find_spec(sys.argv[1]); print(list(s.submodule_search_locations)[0] if s else "")' "$1" 2>/dev/null; }
cuda_lib=$(first_of "$cuda"/lib64 "$cuda"/lib "$cuda"/targets/x86_64-linux/lib || true)
nccl_pip=$(pip_dir nvidia.nccl)
nccl_h=$(first_of "${NCCL_ROOT:-/none}/include/nccl.h" "$cuda/include/nccl.h" /usr/include/nccl.h /usr/local/include/nccl.h \
  "${nccl_pip:-/none}/include/nccl.h" || true)
nccl_so=$(first_of "${NCCL_ROOT:-/none}"/lib*/libnccl.so* "$cuda_lib"/libnccl.so* /usr/lib/x86_64-linux-gnu/libnccl.so* \
  /usr/lib/aarch64-linux-gnu/libnccl.so* /usr/local/lib/libnccl.so* "${nccl_pip:-/none}"/lib/libnccl.so* || true)
cublas_so=$(first_of "$cuda_lib"/libcublas.so* "$(pip_dir nvidia.cu13)"/lib/libcublas.so* \
  "$(pip_dir nvidia.cublas)"/lib/libcublas.so* || true)
sanitizer=$(command -v compute-sanitizer || first_of "$cuda/bin/compute-sanitizer" "$cuda/compute-sanitizer/compute-sanitizer" || true)
has_header() { printf '#include <%s>\n' "$1" | $cxx -x c++ -std=c++20 ${INCLUDE:+-I"$INCLUDE"} -E - >/dev/null 2>&1; }

missing=()
[[ $nvcc ]] || missing+=("nvcc (CUDA toolkit; PATH or CUDA_HOME)")
[[ $cuda_lib ]] || missing+=("the CUDA runtime (CUDA_HOME)")
[[ $nccl_h && $nccl_so ]] || missing+=("NCCL: nccl.h with libnccl.so (NCCL_ROOT, the CUDA toolkit, or pip's nvidia-nccl)")
command -v "${cxx##* }" >/dev/null || missing+=("a C++ compiler ($cxx)")
if ((${#missing[@]})); then
  printf 'gpu.sh: missing: %s\n' "${missing[@]}" >&2
  record prerequisites failed 0 "missing: $(IFS=';'; printf '%s' "${missing[*]}")"
  table
  exit 1
fi

# Not what the compiler looks through anyway: named before its own order, /usr/include leaves <cstdlib> without its stdlib.h.
own_includes=$(LC_ALL=C $cxx -x c++ -E -v - </dev/null 2>&1 | sed -n '/^#include </,/^End of search/s/^ //p')
includes=()
include() {
  local own
  while read -r own; do [[ ! $1 -ef $own ]] || return 0; done <<<"$own_includes"
  includes+=(-isystem "$1")
}
include "$(dirname "$nccl_h")"
include "$cuda/include"
[[ ! $cublas_so ]] || include "$(dirname "$(dirname "$cublas_so")")/include"
[[ ! ${INCLUDE:-} ]] || include "$INCLUDE"
flags=(-std=c++20 "$opt" -Wall -Wextra -Wno-missing-field-initializers -Iinclude -Itests -Itools -Iexamples -Ibench ${includes[@]+"${includes[@]}"})
linked() { printf -- '-L%s -l:%s -Wl,-rpath,%s ' "$(dirname "$1")" "$(basename "$1")" "$(dirname "$1")"; }
read -ra libs <<<"-pthread -L$cuda_lib -lcudart -Wl,-rpath,$cuda_lib $(linked "$nccl_so")"
read -ra blas <<<"${cublas_so:+$(linked "$cublas_so")}"
kernel_flags=(-std=c++20 "-arch=$arch" -O3 --expt-relaxed-constexpr -Iinclude -Itests -Iexamples)

# --- building: as many at a time as there are cores, in three fifths of the time at most
declare -A building=()
built_as="$arch $opt $cxx $nvcc $nccl_so"  # what was built otherwise is built again
[[ $built_as == "$(cat "$bin/built-as" 2>/dev/null)" ]] || find "$bin" -maxdepth 1 -type f -executable -delete
printf '%s' "$built_as" >"$bin/built-as"
build() { # NAME COMMAND...
  local name=$1
  shift
  building[$name]=1
  if [[ -x $bin/$name && -z $(find include bench examples tests/gpu tests/support tools -newer "$bin/$name" -type f -print -quit) ]]; then
    return
  fi
  rm -f "$bin/$name"
  while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || true; done
  local left=$((limit * 3 / 5 - SECONDS))
  if ((left < 1)); then
    echo "error: the time for building was over" >"$out/build-$name.log"
    return
  fi
  { timeout -k 5 "$left" "$@" -o "$bin/$name" || { (($? != 124)) || echo "error: not built in its time"; rm -f "$bin/$name"; }; } \
    >"$out/build-$name.log" 2>&1 &
}
say "building with $nvcc ($arch) and $cxx $opt, NCCL of $nccl_so"
# First what everything else needs.
printf '#include <cstdio>\n#include <cuda_runtime_api.h>\nint main() { int n = 0; auto e = cudaGetDeviceCount(&n);
if (e != cudaSuccess || n == 0) { std::printf("%%s (%%s)\\n", cudaGetErrorName(e), cudaGetErrorString(e)); return 1; }
cudaDeviceProp p{}; cudaGetDeviceProperties(&p, 0); int r = 0; cudaRuntimeGetVersion(&r);
std::printf("%%d x %%s, sm_%%d%%d, CUDA %%d.%%d\\n", n, p.name, p.major, p.minor, r / 1000, r %% 1000 / 10); }\n' >"$bin/has_gpu.cpp"
build has_gpu $cxx "${flags[@]}" "$bin/has_gpu.cpp" "${libs[@]}"
build tutti-run $cxx -std=c++20 "$opt" -Iinclude -Itools tools/tutti-run/*.cpp -pthread
for name in gpu_collectives gpu_fate gpu_gradients; do build $name $cxx "${flags[@]}" tests/gpu/programs/$name.cpp "${libs[@]}"; done
build gpu_means "$nvcc" "${kernel_flags[@]}" -I"$(dirname "$nccl_h")" tests/gpu/programs/gpu_means.cu -cudart shared \
  -L"$(dirname "$nccl_so")" "-l:$(basename "$nccl_so")" -Xlinker "-rpath,$cuda_lib,-rpath,$(dirname "$nccl_so")"
build nccl_hello $cxx "${flags[@]}" examples/nccl_hello/main.cpp "${libs[@]}"
build bench-nccl-overhead $cxx "${flags[@]}" bench/gpu/overhead.cpp "${libs[@]}"
build bench-nccl-gradients $cxx "${flags[@]}" bench/gpu/gradients.cpp "${libs[@]}"
if has_header CLI/CLI.hpp && has_header nlohmann/json.hpp; then
  build tutti-bench bash -c 'set -e; o=$(mktemp -d); trap "rm -rf $o" EXIT
    for source in bench/tutti-bench/*.cpp; do
      [[ $source == */no_nccl.cpp ]] || { "${@:2:$#-3}" -c $source -o $o/$(basename $source).o & parts+=($!); }
    done
    for part in ${parts[@]}; do wait $part; done
    "${@:2:$#-3}" $o/*.o $1 "${@: -2}"' - "${libs[*]}" $cxx "${flags[@]}"
else
  record build/tutti-bench skipped 0 "no CLI/CLI.hpp or nlohmann/json.hpp: INCLUDE=a directory with both (docs/gpu.md), or \
Debian's libcli11-dev and nlohmann-json3-dev; bench/overhead has the bandwidths of all_reduce without"
fi
if [[ $cublas_so ]]; then
  build graph $cxx "${flags[@]}" examples/graph/main.cpp "${libs[@]}" "${blas[@]}"
  build digits $cxx "${flags[@]}" examples/digits/main.cpp -pthread
  build digits_cuda bash -c 'set -e; o=$(mktemp -d); trap "rm -rf $o" EXIT
    '"$nvcc ${kernel_flags[*]}"' -c examples/digits_cuda/kernels.cu -o $o/k.o
    "${@:2:$#-3}" examples/digits_cuda/main.cpp $o/k.o $1 "${@: -2}"' - "${libs[*]} ${blas[*]}" $cxx "${flags[@]}"
else
  record build/graph skipped 0 "no libcublas.so beside the CUDA toolkit"
  record build/digits_cuda skipped 0 "no libcublas.so beside the CUDA toolkit"
fi
for source in tests/gpu/*_test.cu bench/gpu_*.cu; do
  [[ -e $source ]] || continue
  name=$(basename "$source" .cu)
  build "$name" "$nvcc" "${kernel_flags[@]}" "$source"
done
[[ -e tests/gpu/kernels_test.cu ]] || record build/kernels_test skipped 0 "there is no tests/gpu/kernels_test.cu yet"
wait
for name in "${!building[@]}"; do
  if [[ -x $bin/$name ]]; then
    record "build/$name" ok 0 ""
  else
    record "build/$name" failed 0 "$(grep -m1 -E 'error|rror:' "$out/build-$name.log" || tail -1 "$out/build-$name.log" || true)"
  fi
done
say "built"

# --- running
gpu=$("$bin/has_gpu" 2>/dev/null) && gpus=${gpu%% *} || gpus=0
[[ -x $bin/has_gpu ]] || gpu="what asks for one was not built"
say "GPU: ${gpu:-unknown}"

# What a program said when it failed: under tutti-run, the rank that was the first; else the last line.
said() { { grep -m1 '^  | ' "$1" || grep -m1 -iE 'wrong|failed:' "$1" || tail -1 "$1"; } | sed 's/^  | //'; }

# part NAME SECONDS PROGRAM COMMAND...: PROGRAM is what must have been built
part() {
  run_part "$@"
  table
}
run_part() {
  local name=$1 most=$2 needs=$3 start=$SECONDS left status
  shift 3
  if [[ ! -x $bin/$needs ]]; then
    record "$name" skipped 0 "$needs was not built"
    return
  fi
  if ((gpus == 0)); then
    record "$name" skipped 0 "no GPU: $gpu"
    return
  fi
  left=$((limit - SECONDS))
  ((most < part_limit)) || most=$part_limit
  if ((left < 5)); then
    record "$name" failed 0 "the ${limit} s for all were over"
    return
  fi
  timeout -k 5 $((most < left ? most : left)) "$@" >"$out/${name//\//-}.log" 2>&1
  status=$?
  case $status in
    0) record "$name" ok $((SECONDS - start)) "" ;;
    77) record "$name" skipped $((SECONDS - start)) "$(tail -1 "$out/${name//\//-}.log")" ;;
    124 | 137) record "$name" failed $((SECONDS - start)) "not done in its time" ;;
    *) record "$name" failed $((SECONDS - start)) "status $status: $(said "$out/${name//\//-}.log")" ;;
  esac
}
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
# ranks N COMMAND...: more ranks than GPUs are machines of their own to NCCL, and talk over loopback
ranks() {
  local n=$1
  shift
  if ((n <= gpus)); then
    "$bin/tutti-run" -n "$n" --settle 30 -- "$@"
  else
    "$bin/tutti-run" -n "$n" --settle 30 -- bash -c \
      'export NCCL_HOSTID=gpu-sh-$RANK NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} NCCL_IB_DISABLE=1 TUTTI_SHARE_GPUS=1; exec "$@"' - "$@"
  fi
}
killed() {
  local log
  log=$(ranks 4 "$bin/gpu_fate" kill 2>&1)
  local status=$?
  printf '%s\n' "$log"
  ((status == 77)) && return 77
  [[ $status == 137 && $(grep -c 'named the victim' <<<"$log") == 3 &&
    $(grep -c 'went on with 3 ranks' <<<"$log") == 3 && $log != *WRONG* ]]
}
# The losses of the host's trainer and of the GPU's: equal but for rounding, which training makes larger.
same_losses() {
  local n=$1
  "$bin/digits" --epochs 2 --loss-log "$out/loss-host.txt" &&
    ranks "$n" "$bin/digits_cuda" --share-gpus --epochs 2 --loss-log "$out/loss-gpu-$n.txt" || return
  paste "$out/loss-host.txt" "$out/loss-gpu-$n.txt" | awk '
    { d = ($2 - $4) / $2; if (d < 0) d = -d; if (NR <= 10 && d > most) most = d; host += $2; gpu += $4; bad += $1 != $3 }
    END { off = gpu / host - 1; if (off < 0) off = -off
      printf "%d steps; the first 10 differ by at most %.2g, the mean of all by %.2g of it\n", NR, most, off
      exit !(NR > 20 && bad == 0 && most < 1e-3 && off < 0.03) }'
}
figures() { # FILE: JSON lines of a part
  [[ ! -s $1 ]] || cat "$1" >>"$out/results.jsonl"
}
export -f ranks killed same_losses
export bin out gpus
of_shell=(bash -c '"$@"' -)  # for timeout, which runs programs, not functions

part test/hello 40 nccl_hello "${of_shell[@]}" ranks 1 "$bin/nccl_hello"
part test/collectives/1 60 gpu_collectives "${of_shell[@]}" ranks 1 "$bin/gpu_collectives"
part test/collectives/2 80 gpu_collectives "${of_shell[@]}" ranks 2 "$bin/gpu_collectives"
part test/collectives/4 80 gpu_collectives "${of_shell[@]}" ranks 4 "$bin/gpu_collectives" thin
for n in 1 2 4; do part test/gradients/$n 40 gpu_gradients "${of_shell[@]}" ranks $n "$bin/gpu_gradients"; done
part test/means/3 40 gpu_means "${of_shell[@]}" ranks 3 "$bin/gpu_means"
part test/kill/4 80 gpu_fate "${of_shell[@]}" killed
for n in 1 2 4; do
  part test/graph/$n 40 gpu_fate "${of_shell[@]}" ranks $n "$bin/gpu_fate" graph
  part test/digits/$n 60 digits_cuda "${of_shell[@]}" same_losses $n
done
# example/graph prints: eager 200 steps host 1.23 us step 4.56 us …
replayed() {
  awk -v ranks="$1" '{ sub(/^\[[0-9]+\] /, "") }
    /^(eager|replayed) .* us / { printf "{\"bench\":\"example/graph\",\"how\":\"%s\",\"ranks\":%d,\"steps\":%d,\"host_us\":%s,\"step_us\":%s}\n",
      $1, ranks, $2, $5, $8 }' "$2" >"$out/graph-$1.jsonl"
  figures "$out/graph-$1.jsonl"
}
part bench/graph/1 40 graph "${of_shell[@]}" ranks 1 "$bin/graph"
[[ ! -e $out/bench-graph-1.log ]] || replayed 1 "$out/bench-graph-1.log"

for test in tests/gpu/*_test.cu; do
  name=$(basename "$test" .cu)
  [[ ! -e $test ]] || part "test/$name" 60 "$name" "$bin/$name"
done

part bench/kernels 60 gpu_kernels "$bin/gpu_kernels" --json "$out/kernels.json"
figures "$out/kernels.json"
part bench/overhead/1 60 bench-nccl-overhead "${of_shell[@]}" ranks 1 "$bin/bench-nccl-overhead" "$out/overhead.jsonl"
figures "$out/overhead.jsonl"
if [[ ! -x $bin/tutti-bench ]]; then  # bandwidths between ranks need no headers from elsewhere
  part bench/overhead/2 60 bench-nccl-overhead "${of_shell[@]}" ranks 2 "$bin/bench-nccl-overhead" "$out/overhead-2.jsonl" \
    $((gpus < 2 ? 4 << 20 : 256 << 20))
  figures "$out/overhead-2.jsonl"
fi
part bench/gradients/1 40 bench-nccl-gradients "${of_shell[@]}" ranks 1 "$bin/bench-nccl-gradients" "$out/gradients.jsonl"
figures "$out/gradients.jsonl"
bench() { # NAME RANKS ARGUMENTS...
  local name=$1 n=$2
  shift 2
  part "bench/$name" 50 tutti-bench "${of_shell[@]}" ranks "$n" "$bin/tutti-bench" --backend nccl --share_gpus -J "$out/$name.jsonl" "$@"
  figures "$out/$name.jsonl"
}
bench all_reduce-1 1 all_reduce -b 1K -e 256M -f 16
bench all_reduce-1-graph 1 all_reduce -b 1K -e 1M -f 32 -G 10
bench all_reduce-2 2 all_reduce -b 1K -e 4M -f 16 -n 5 -w 2
bench reduce_scatter-2 2 reduce_scatter -b 1M -e 4M -f 4 -n 5 -w 2
# Each of nccl-tests' collectives once: what arrives is checked.
each_collective() {
  local of status=0
  for of in all_reduce reduce broadcast all_gather reduce_scatter gather scatter all_to_all sendrecv barrier; do
    ranks "$1" "$bin/tutti-bench" --backend nccl --share_gpus "$of" -b 1M -e 1M -n 3 -w 1 -J "$out/each-$of.jsonl" || status=1
  done
  return $status
}
export -f each_collective
part bench/each-2 90 tutti-bench "${of_shell[@]}" each_collective 2
for figure in "$out"/each-*.jsonl; do figures "$figure"; done

for test in tests/gpu/*_test.cu; do
  name=$(basename "$test" .cu)
  [[ -e $test ]] || continue
  if [[ ! $sanitizer ]]; then
    record "sanitizer/$name" skipped 0 "no compute-sanitizer"
    continue
  fi
  for tool in memcheck racecheck; do
    part "sanitizer/$tool/$name" 90 "$name" "$sanitizer" --tool $tool --error-exitcode 1 "$bin/$name" --quick
  done
done

table
printf '\n%d ok, %d failed, %d skipped, in %d s; see %s/table.md\n' "$(grep -c '"result":"ok"' "$out/parts.jsonl")" \
  "$(grep -c '"result":"failed"' "$out/parts.jsonl")" "$(grep -c '"result":"skipped"' "$out/parts.jsonl")" "$SECONDS" "$out"
exit $failed
