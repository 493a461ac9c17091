#!/usr/bin/env python3
"""What run.py measured, as ratios and as plots.

  ./report.py results.json [--plots FOLDER]

A ratio is tutti's time over that of the best mode of Open MPI and MPICH over the same links, of cells of one kind (near
or far) of one run; below 1 tutti is faster. A plot is one SVG for each collective, number of ranks and kind.
"""
import argparse
import collections
import json
import math
import os
import statistics

MPI = {"shared memory": ("ompi", "ompi-nocma", "ompi-malloc", "ompi-yield", "ompi-noyield", "mpich", "mpich-rg"),
       "TCP": ("ompi-tcp", "mpich-tcp")}
OURS = {"shared memory": ("tutti", "tutti-sym"), "TCP": ("tutti-tcp",)}
FAR_NS = 120  # a hop above this is "far"
COLORS = ["#0b6e4f", "#1fa97c", "#7bd3b4", "#b3261e", "#e07a5f", "#6b4fa0", "#888888", "#3a6ea5"]


def kind(row):
    hops = [row["hop_ns"], row.get("hop2_ns", row["hop_ns"])]
    return "far" if min(hops) > FAR_NS else "near" if max(hops) <= FAR_NS else "mixed"


def label(b):
    return f"{b >> 20} MiB" if b >= 1 << 20 else f"{b >> 10} KiB" if b >= 1 << 10 else f"{b} B" if b else "-"


def cells_of(rows, field):
    """{(op, n, kind): {bytes: {peer: median}}} of what is right and was not disturbed."""
    all_values = collections.defaultdict(list)
    for r in rows:
        if r["ok"] and r["other_pct"] < 25 and kind(r) != "mixed":
            all_values[r["op"], r["n"], kind(r), r["bytes"], r["peer"]].append(r[field])
    cells = collections.defaultdict(lambda: collections.defaultdict(dict))
    for (op, n, k, size, peer), values in all_values.items():
        cells[op, n, k][size][peer] = statistics.median(values)
    return cells


def best(row, names):
    there = [(row[p], p) for p in names if p in row]
    return min(there) if there else None


def print_ratios(rows, field="call_us"):
    for (op, n, k), sizes in sorted(cells_of(rows, field).items()):
        for links, ours in OURS.items():
            shown = [p for p in ours if any(p in row for row in sizes.values())]
            if not shown or not any(best(row, MPI[links]) for row in sizes.values()):
                continue
            print(f"\n{op}, {n} ranks, {k}, {links}: us per call, and over the best MPI")
            gloo = links == "TCP" and any("gloo" in row for row in sizes.values())
            print("| size | best MPI | " + " | ".join(f"{p} | ratio" for p in shown) + (" | gloo | ratio |" if gloo else " |"))
            print("|---|---|" + "---|---|" * (len(shown) + gloo))
            for size in sorted(sizes):
                rival = best(sizes[size], MPI[links])
                if not rival:
                    continue
                columns = [f"{rival[0]:.4g} {rival[1]}"]
                for p in shown:
                    own = sizes[size].get(p)
                    columns += [f"{own:.4g}", f"{own / rival[0]:.2f}"] if own else ["", ""]
                if gloo:
                    theirs, own = sizes[size].get("gloo"), sizes[size].get(shown[0])
                    columns += [f"{theirs:.4g}", f"{own / theirs:.2f}"] if own and theirs else ["", ""]
                print(f"| {label(size)} | " + " | ".join(columns) + " |")


def plot(path, title, series):
    """Lines over bytes, both axes logarithmic."""
    points = [p for line in series.values() for p in line]
    if len(points) < 2:
        return
    width, height, left, bottom, top, right = 760, 460, 64, 48, 36, 150
    low_x, high_x = (f(math.log2(x) for x, _ in points) for f in (min, max))
    low_y, high_y = math.floor(min(math.log10(y) for _, y in points)), math.ceil(max(math.log10(y) for _, y in points))
    at_x = lambda x: left + (math.log2(x) - low_x) / max(high_x - low_x, 1) * (width - left - right)
    at_y = lambda y: height - bottom - (math.log10(y) - low_y) / max(high_y - low_y, 1) * (height - top - bottom)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="{left}" y="22" font-size="15">{title}</text>']
    for e in range(low_y, high_y + 1):
        y = at_y(10.0 ** e)
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        name = f"{10 ** e} us" if 0 <= e < 3 else f"{10.0 ** e:g} us" if e < 0 else f"{10 ** (e - 3)} ms"
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
    for x in sorted({x for x, _ in points}):
        out.append(f'<text x="{at_x(x):.1f}" y="{height - bottom + 18}" text-anchor="middle">{label(x)}</text>')
    for i, (name, line) in enumerate(series.items()):
        color = COLORS[i % len(COLORS)]
        coordinates = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in sorted(line))
        out.append(f'<polyline points="{coordinates}" fill="none" stroke="{color}" stroke-width="2"/>')
        out.append(f'<text x="{width - right + 10}" y="{top + 20 + 18 * i}" fill="{color}">{name}</text>')
    out.append("</svg>")
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")


def plot_all(rows, folder):
    os.makedirs(folder, exist_ok=True)
    groups = {"tutti": ("tutti",), "tutti, shared buffers": ("tutti-sym",), "tutti, registered": ("tutti-reg",), "tutti, TCP": ("tutti-tcp",),
              "best Open MPI": [p for p in MPI["shared memory"] if p.startswith("ompi")],
              "best MPICH": ("mpich", "mpich-rg"), "best Gloo": ("gloo-ring", "gloo-bcube", "gloo-hd"),
              "best floor": ("floor-shm", "floor-plain", "floor-zc")}
    for (op, n, k), sizes in cells_of(rows, "call_us").items():
        series = {}
        for name, peers in groups.items():
            line = [(size, best(row, peers)[0]) for size, row in sizes.items() if size and best(row, peers)]
            if line:
                series[name] = line
        plot(os.path.join(folder, f"{op}-{n}-{k}.svg"), f"{op}, {n} ranks, {k}: one call", series)


def print_ddp(rows):
    """Exposed: the median over the rounds of each round's, and the fastest step of all less the fastest one alone."""
    kinds = dict.fromkeys((r["model"], r["compute"]) for r in rows)
    for model, compute in kinds:
        here = [r for r in rows if (r["model"], r["compute"]) == (model, compute)]
        best = {w: min(r["min_ms"] for r in here if r["what"] == w) for w in dict.fromkeys(r["what"] for r in here)}
        alone = {who: best.get(f"{who}: backward, alone", 0) for who in ("tutti", "torch")}
        torch = {}
        table = []
        for w in best:
            mine = [r for r in here if r["what"] == w]
            exposed = fastest = None
            if "exposed_ms" in mine[0]:
                exposed = statistics.median(r["exposed_ms"] for r in mine)
                fastest = best[w] - alone[w.split(":")[0]]
                if w.startswith("torch"):
                    torch[w] = (exposed, fastest)
            table.append((w, statistics.median(r["ms"] for r in mine), exposed, best[w], fastest))
        print(f"\n{model}, 2 ranks, the backward pass computes: {compute}")
        print("| | step, ms | exposed | DDP / it | bucket views / it | fastest step | exposed | bucket views / it |")
        print("|---|---|---|---|---|---|---|---|")
        default, views = torch.get("torch: DDP"), torch.get("torch: DDP, gradients as bucket views")
        for w, ms, exposed, least, fastest in table:
            cells = [""] * 5
            if exposed is not None:
                over = lambda t, x: f"{t / x:.1f}" if x > 0 else "hidden"
                cells = [f"{exposed:.1f}", over(default[0], exposed), over(views[0], exposed), f"{fastest:.1f}", over(views[1], fastest)]
            print(f"| {w} | {ms:.1f} | {' | '.join(cells[:3])} | {least:.1f} | {' | '.join(cells[3:])} |")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("results")
    ap.add_argument("--plots", metavar="FOLDER", help="write SVG files there")
    a = ap.parse_args()
    with open(a.results) as f:
        rows = json.load(f).get("peers", [])
    print_ratios(rows)
    if a.plots:
        plot_all(rows, a.plots)


if __name__ == "__main__":
    main()
