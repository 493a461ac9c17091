#!/usr/bin/env python3
"""What docs/training and docs/hooks.md say is "as torch's", beside torch; the bounds that they state, beside exact numbers.

    beside_torch.py PROGRAM [SEED]     PROGRAM is beside_torch.cpp; exits with 77, and says why, where no python3 has torch

Inputs are random, and awkward: zeros, the smallest and the largest numbers, infinities, NaNs, numbers between two others.
"""
import fractions
import inspect
import math
import pathlib
import random
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support" / "python"))
from python_with_torch import python_with_torch

Exact = fractions.Fraction
INF, NAN = math.inf, math.nan


def f32(x):
    """The nearest float32; infinite beyond them."""
    if math.isfinite(x) and abs(x) > 3.4028235e38:
        return math.copysign(INF, x)
    return struct.unpack("f", struct.pack("f", x))[0]


FLOATS = [0.0, -0.0, 1.0, -1.0, 2.0**-149, -(2.0**-149), 2.0**-126, 3.4028234663852886e38]
FLOATS += [f32(x) for x in (1e-30, -1e30, 0.1, 65504.0, 65520.0)]


def floats(r, n, low=-40, high=40):
    """Of many magnitudes, as float32."""
    return [f32(r.choice([-1, 1]) * (1 + r.random()) * 2.0 ** r.randint(low, high)) for _ in range(n)]


def word(x):
    if isinstance(x, bool) or isinstance(x, str):
        return str(x)
    if isinstance(x, int):
        return str(x)
    if isinstance(x, (list, tuple)):
        return " ".join([str(len(x))] + [word(y) for y in x])
    return x.hex() if math.isfinite(x) else str(x)


def same(a, b):
    return a == b or (a != a and b != b)


class Questions:
    """Collects what is to be asked, so that the program starts once."""

    def __init__(self, program):
        self.program, self.lines, self.checks = program, [], []

    def ask(self, check, name, *arguments):
        line = " ".join([name] + [word(a) for a in arguments])
        self.lines.append(line)
        self.checks.append(check)

    def answer(self):
        done = subprocess.run([self.program], input="\n".join(self.lines) + "\n", capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"the program ended with {done.returncode}: {done.stderr}")
        answers = done.stdout.splitlines()
        assert len(answers) == len(self.lines)
        wrong = 0
        for line, check, answer in zip(self.lines, self.checks, answers):
            numbers = [float.fromhex(w) if "x" in w else float(w) for w in answer.split()]
            try:
                check(numbers)
            except AssertionError as e:
                wrong += 1
                if wrong <= 10:
                    print(f"{line[:400]}\n  gives {answer[:400]}\n  {e}", file=sys.stderr)
        print(f"{len(answers)} comparisons, {wrong} of them wrong")
        return wrong


def expect(got, wanted, what, tolerance=0.0):
    """Numbers that are equal, or within `tolerance` of each other; infinities and NaNs where the other has them."""
    assert len(got) == len(wanted), f"{what}: {len(got)} numbers, not {len(wanted)}"
    for i, (g, w) in enumerate(zip(got, wanted)):
        close = same(g, w) or (math.isfinite(g) and math.isfinite(w) and abs(g - w) <= tolerance)
        assert close, f"{what}, number {i}: {g!r}, not {w!r} (within {tolerance!r})"


def histograms(q, r):
    """edges() are low + i (high - low) / n rounded to double; each value is counted in the bin between its edges."""

    def ask(low, high, n, values):
        exact = [Exact(low) + i * (Exact(high) - Exact(low)) / n for i in range(n + 1)]

        def check(got):
            edges, counts, outside = got[: n + 1], got[n + 1 : 2 * n + 1], got[2 * n + 1 :]
            for e, x in zip(edges, exact):
                # float(x) is the nearest double; long double may take the other one where it is next to half-way.
                off = abs(Exact(e) - x) / Exact(math.ulp(float(x)))
                assert off <= Exact(501, 1000), f"edge {e!r} is {float(min(off, 1000))} ulp off"
            wanted = [0.0] * n
            for v in values:
                if low <= v < high:
                    wanted[sum(e <= v for e in edges) - 1] += 1
            expect(counts, wanted, "counts")
            expect(outside, [sum(v < low for v in values), sum(v >= high for v in values), sum(v != v for v in values)], "outside")

        q.ask(check, "histogram", low, high, n, values)

    for n in range(1, 301, 13):
        ask(0.0, float(n), n, [float(i) for i in range(n + 1)])
    ask(0.0, 22.0, 22, [15.0])
    for _ in range(60):
        low, high = sorted(r.choice([r.uniform(-1, 1), round(r.uniform(-9, 9), 1), r.uniform(-1, 1) * 10.0 ** r.randint(-300, 300)]) for _ in "ab")
        if low == high:
            continue
        n = r.randint(1, 200)
        edges = [float(Exact(low) + i * (Exact(high) - Exact(low)) / n) for i in range(n + 1)]
        values = [v for e in r.sample(edges, min(n, 20)) for v in (e, math.nextafter(e, INF), math.nextafter(e, -INF))]
        ask(low, high, n, values + [r.uniform(low, high) for _ in range(20)] + [NAN, INF, -INF])


def top_ks(q, r):
    """Among equal scores the first class wins; a NaN is never right, whatever K."""
    for _ in range(60):
        classes, rows = r.randint(1, 7), r.randint(1, 9)
        scores = [r.choice([0.0, 1.0, r.random(), INF, -INF, NAN]) for _ in range(classes * rows)]
        scores = [f32(s) for s in scores]
        labels = [r.randrange(classes) for _ in range(rows)]

        def check(got, scores=scores, labels=labels, classes=classes):
            wanted = []
            for k in (1, 3, 1000):
                right = 0
                for i, label in enumerate(labels):
                    row = scores[i * classes : (i + 1) * classes]
                    order = sorted(range(classes), key=lambda c: (0, 0, c) if row[c] != row[c] else (1, -row[c], c))
                    right += row[label] == row[label] and label in order[:k]
                wanted.append(right / len(labels))
            expect(got, wanted, "accuracies")

        q.ask(check, "top_k", labels, scores)


def samplers(q, r, torch):
    from torch.utils.data.distributed import DistributedSampler

    def permuted(n, seed):
        g = torch.Generator()
        g.manual_seed(seed)
        return torch.randperm(n, generator=g).tolist()

    for _ in range(40):
        n, seed = r.choice([0, 1, 2, r.randint(0, 3000)]), r.choice([0, 2**32 - 1, 2**32 + 7, r.getrandbits(63)])
        q.ask(lambda got, n=n, seed=seed: expect(got, permuted(n, seed), "torch.randperm"), "permute", n, seed)
    for _ in range(60):
        n, ranks, seed, epoch = r.choice([1, 2, r.randint(1, 200)]), r.randint(1, 9), r.getrandbits(r.choice([3, 33, 60])), r.randint(0, 9)
        shuffle, drop = r.random() < 0.7, r.random() < 0.5
        rank = r.randrange(ranks)
        s = DistributedSampler(range(n), ranks, rank, shuffle=shuffle, seed=seed, drop_last=drop)
        s.set_epoch(epoch)
        # torch's own drop_last fails where there are fewer samples than ranks.
        if drop and n < ranks:
            continue
        q.ask(lambda got, wanted=list(s): expect(got, wanted, "DistributedSampler"), "sampler", n, rank, ranks,
              "shuffled" if shuffle else "sequential", "drop" if drop else "pad", seed, epoch)


def batches(q, r, torch):
    for _ in range(40):
        batch, ranks = r.randint(1, 40), r.randint(1, 9)
        sizes = [len(c) for c in torch.arange(batch).chunk(ranks)]
        q.ask(lambda got, sizes=sizes, ranks=ranks: expect(got, sizes + [0] * (ranks - len(sizes)), "chunks"), "chunks", batch, ranks)


def clipping(q, r, torch):
    types = {"f32": torch.float32, "f64": torch.float64}

    def ask(values, most, name):
        p = torch.nn.Parameter(torch.zeros(len(values), dtype=types[name]))
        p.grad = torch.tensor(values, dtype=types[name])
        norm = torch.nn.utils.clip_grad_norm_([p], most).item()
        clipped = p.grad.tolist()

        def check(got):
            squares = sum(Exact(v) ** 2 for v in values) if all(map(math.isfinite, values)) else None
            if squares is not None and squares < Exact(2) ** 1000:  # in double, also where torch's float32 overflows
                exact = math.sqrt(squares)
                assert abs(got[0] - exact) <= 1e-14 * exact + 1e-160, f"norm {got[0]!r}, not {exact!r}"
            if math.isfinite(norm):
                epsilon = 4e-6 if name == "f32" else 1e-13
                expect(got[1:], clipped, "clip_grad_norm_", epsilon * max(map(abs, values)) + 1e-160)
            elif not math.isfinite(got[0]):  # torch has NaNs, or NaNs and zeros
                expect(got[1:], [NAN] * len(values), "nothing is made of what overflowed")
                if norm != norm:
                    expect(got[1:], clipped, "clip_grad_norm_")

        q.ask(check, "clip", most, name, values)

    for most in (0.0, 1e-3, 1.0, 1e6, INF):
        ask([1.0, INF, 2.0], most, "f32")
        ask([3.0, NAN, 4.0], most, "f32")
        ask([1e200, 1.0], most, "f64")
        for _ in range(8):
            ask(floats(r, r.randint(1, 40)), most, "f32")
            ask([r.gauss(0, 1) * 10.0 ** r.randint(-100, 100) for _ in range(r.randint(1, 40))], most, "f64")
            ask([r.choice(FLOATS[:-2]) for _ in range(9)], most, "f32")


def rounding(q, r, torch):
    """A gradient times a factor that is a float: the product in float, or double, and that rounded to 16 bits."""
    types = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
    for name, dtype in types.items():
        for _ in range(40):
            by = f32(r.choice([0.1, 1 / 3, r.random(), r.random() * 2.0 ** r.randint(-20, 20), -2.5, 2.0**-30]))
            values = [r.choice(FLOATS) if r.random() < 0.3 else f32(r.gauss(0, 1) * 2.0 ** r.randint(-30, 20)) for _ in range(30)]
            values += [5 * 2.0**-24, 2.0**-24, INF, NAN]
            g = torch.tensor(values, dtype=torch.float64).to(torch.float32).to(dtype)
            product = g * by if name == "f64" else (g.to(torch.float32) * by).to(dtype)
            q.ask(lambda got, w=product.tolist(): expect(got, w, "a product"), "scale", by, name, g.tolist())
    for name in ("f16", "bf16"):  # to nearest, ties to even
        for _ in range(20):
            values = [r.choice(FLOATS + [INF, NAN]) for _ in range(6)] + floats(r, 40, -150 if name == "bf16" else -30, 20)
            values += torch.tensor([r.randint(0, 0x7F7F) for _ in range(20)], dtype=torch.int16).view(types[name]).to(torch.float32).tolist()
            ties = [v * (1 + 2.0**-8) for v in values] + [v * (1 + 2.0**-11) for v in values]
            values = [f32(v) for v in values + ties]
            wanted = torch.tensor(values, dtype=torch.float32).to(types[name]).tolist()
            q.ask(lambda got, w=wanted: expect(got, w, "a float in 16 bits"), "narrow", name, values)


def optimizers(q, r, torch):
    def ask(name, dtype, steps, gradients, rate, decay, first, second=0.0, epsilon=0.0):
        start = [r.gauss(0, 1) for _ in gradients[0]]
        p = torch.tensor(start, dtype=dtype, requires_grad=True)
        start = p.tolist()
        if name == "sgd":
            o = torch.optim.SGD([p], lr=rate, momentum=first, weight_decay=decay)
        else:
            o = torch.optim.AdamW([p], lr=rate, betas=(first, second), eps=epsilon, weight_decay=decay)
        wanted, given = [], []
        for g in gradients:
            p.grad = torch.tensor(g, dtype=dtype)
            given.append(p.grad.tolist())
            o.step()
            wanted.append(p.tolist())

        def check(got):
            n = len(start)
            for i in range(n):
                most = max([abs(start[i])] + [abs(w[i]) for w in wanted if math.isfinite(w[i])])
                loss = (3e-6 if dtype == torch.float32 else 1e-14) * steps * (most + rate)
                expect([got[s * n + i] for s in range(steps)], [w[i] for w in wanted], f"parameter {i} of {name}", loss)

        more = [] if name == "sgd" else [second, epsilon]
        q.ask(check, "optimizer", name, "f32" if dtype == torch.float32 else "f64", rate, decay, first, *more, start, steps, *given)

    for dtype in (torch.float32, torch.float64):
        for _ in range(30):
            steps, n = r.randint(1, 12), r.randint(1, 6)
            gradients = [[r.gauss(0, 1) * r.choice([1, 1, 1e-6, 1e3, 0]) for _ in range(n)] for _ in range(steps)]
            if r.random() < 0.5:  # something that is no number, and finite ones after it
                gradients[r.randrange(steps)][r.randrange(n)] = r.choice([INF, -INF, NAN])
            rate = r.choice([0.0, 0.1, r.random()])
            ask("sgd", dtype, steps, gradients, rate, r.choice([0.0, 0.0, 0.01, 0.5]), r.choice([0.0, 0.0, 0.9, 0.5]))
            ask("adamw", dtype, steps, gradients, rate, r.choice([0.0, 0.01, 0.5]), r.choice([0.9, 0.0, 0.5]), r.choice([0.999, 0.9]), r.choice([1e-8, 1e-3]))


def normalisation(q, r, torch):
    """What one process computes of the concatenated batch; running statistics and defaults as torch's."""
    for _ in range(25):
        samples = [r.choice([0, 1, 2, r.randint(0, 6)]) for _ in range(r.randint(1, 4))]
        channels, pixels = r.randint(1, 4), r.choice([1, 2, 5])
        if sum(samples) * pixels < 2:
            samples[0] = 2
        total = sum(samples)
        far, wide = r.choice([0, 0, 1e3]), r.choice([1, 1e-2, 1e4])
        x = torch.tensor([far + wide * r.gauss(0, 1) for _ in range(total * channels * pixels)], dtype=torch.float64).view(total, channels, pixels)
        dy = torch.tensor([r.gauss(0, 1) for _ in range(total * channels * pixels)], dtype=torch.float64).view(total, channels, pixels)
        norm = torch.nn.BatchNorm1d(channels, dtype=torch.float64)
        with torch.no_grad():
            norm.weight.copy_(torch.tensor([r.gauss(0, 1) for _ in range(channels)]))
            norm.bias.copy_(torch.tensor([r.gauss(0, 1) for _ in range(channels)]))
        x.requires_grad_(True)
        y = norm(x)
        y.backward(dy)
        weight_grad, bias_grad = norm.weight.grad.tolist(), norm.bias.grad.tolist()
        norm.eval()
        flat = lambda t: t.detach().reshape(-1).tolist()
        parts = [flat(y), flat(x.grad), flat(norm(x)), norm.running_mean.tolist(), norm.running_var.tolist(), weight_grad, bias_grad]

        def check(got, parts=parts):
            at = 0
            for name, part in zip("y dx evaluated running_mean running_variance dweight dbias".split(), parts):
                most = max([1e-300] + [abs(v) for v in part])
                expect(got[at : at + len(part)], part, name, 1e-9 * most + 1e-12)  # dx of two values all but cancels
                at += len(part)

        q.ask(check, "batch_norm", samples, channels, pixels, norm.weight.tolist(), norm.bias.tolist(), flat(x), flat(dy))
    # One value per channel, which torch refuses: y is the bias, and statistics stay.
    q.ask(lambda got: expect([got[0]] + got[3:5], [3.0, 0.0, 1.0], "one value"), "batch_norm", [1], 1, 1, [2.0], [3.0], [7.0], [1.0])


def hooks(q, r):
    """The bounds of docs/hooks.md: on sums of n ranks, in one pass."""
    units = {"bf16": (Exact(1, 2**8), Exact(1, 2**134)), "f16": (Exact(1, 2**11), None)}

    def ask(name, world, of_rank):
        n, count = len(of_rank), len(of_rank[0])
        terms = [[Exact(of_rank[k][i]) for k in range(n)] for i in range(count)]
        magnitudes = [sum(map(abs, t)) for t in terms]
        most = max([abs(x) for t in terms for x in t])
        blocks = [range(at, min(at + 256, count)) for at in range(0, count, 256)]

        def check(got):
            sums = [Exact(g) * n for g in got]
            for i in range(count):
                slack = magnitudes[i] * n / 2**22 + Exact(n, 2**149)  # of float, of which the sum and the mean are made
                if name == "sum":
                    allowed = 0
                elif name == "quantize":
                    block = blocks[i // 256]
                    largest = [max(abs(terms[j][k]) for j in block) for k in range(n)]
                    of_sums = max(abs(sum(terms[j])) for j in block) + sum(largest) / 253
                    allowed = (sum(largest) + of_sums) / 253
                    slack += sum(largest) * n / 2**22
                else:
                    u, floor = units[name]
                    floor = n * floor if floor else Exact(n * n, 2**39) * most
                    allowed = magnitudes[i] * (n if world == "messages" else 2) * u + floor
                off = abs(sums[i] - sum(terms[i]))
                assert off <= allowed + slack, f"element {i} is off by {float(off)!r}, more than {float(allowed)!r}"

        q.ask(check, "hook", name, world, n, *of_rank)

    for name in ("sum", "bf16", "f16", "quantize"):
        for world in ("threads", "messages"):
            for n in (1, 2, 3, 5):
                # Halfway between two bfloat16 and next to it, on all ranks: where every error has the same sign.
                step = 2.0**-8 if name == "bf16" else 2.0**-11
                halves = [f32((1 + j * step) * (1 + s * 2.0**-22)) for j in range(1, 40) for s in (-1, 0, 1)]
                ask(name, world, [halves for _ in range(n)])
                ask(name, world, [floats(r, 300, -3, 3) for _ in range(n)])
                scale = r.choice([-100, 0, 90])
                ask(name, world, [floats(r, 300, scale - 8, scale) for _ in range(n)])
                if name != "quantize":
                    ask(name, world, [[r.choice(FLOATS[:6] + [1e-40, 1e-38]) for _ in range(50)] for _ in range(n)])


def adasum(q, r):
    for _ in range(30):
        n = r.randint(1, 8)
        a, b = ([r.gauss(0, 1) for _ in range(n)] for _ in "ab")
        kind = r.randrange(4)
        if kind == 0:  # orthogonal: their sum
            a, b = a + [0.0] * n, [0.0] * n + b
        elif kind == 1:  # equal: their mean
            b = list(a)
        elif kind == 2:  # one of no length counts as it is
            b = [0.0] * n
        dot = sum(Exact(x) * Exact(y) for x, y in zip(a, b))
        square_a, square_b = (sum(Exact(x) ** 2 for x in v) for v in (a, b))
        of_a, of_b = (1 - dot / (2 * s) if s else 1 for s in (square_a, square_b))
        wanted = [float(of_a * Exact(x) + of_b * Exact(y)) for x, y in zip(a, b)]
        if kind < 2:
            plain = [(x + y) / (1 + kind) for x, y in zip(a, b)]
            assert all(abs(w - p) < 1e-15 * (1 + abs(p)) for w, p in zip(wanted, plain))
        size = max(map(abs, a + b)) * (1 + abs(float(dot / min(s for s in (square_a, square_b) if s))))
        q.ask(lambda got, w=wanted, s=size: expect(got, w, "adasum", 1e-14 * s), "adasum", a, b)


def defaults(q, torch):
    def of(f):
        return {k: p.default for k, p in inspect.signature(f).parameters.items()}

    scaler = of(torch.cuda.amp.GradScaler.__init__)
    wanted = [scaler[k] for k in ("init_scale", "growth_factor", "backoff_factor", "growth_interval")]
    try:
        from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
        low = of(PowerSGDState.__init__)
        wanted += [low[k] for k in ("matrix_approximation_rank", "start_powerSGD_iter", "min_compression_rate", "use_error_feedback", "warm_start")]
    except ImportError:  # a torch without torch.distributed
        wanted += [1, 1000, 2, True, True]
    norm, momentum, adamw = of(torch.nn.BatchNorm1d.__init__), of(torch.optim.SGD.__init__), of(torch.optim.AdamW.__init__)
    wanted += [norm["eps"], norm["momentum"], momentum["momentum"], momentum["weight_decay"]]
    wanted += [adamw["lr"], *adamw["betas"], adamw["eps"], adamw["weight_decay"]]
    q.ask(lambda got: expect(got, list(map(float, wanted)), "defaults"), "defaults")


def averager(torch):
    """docs/training/local_sgd.md: PeriodicModelAverager averages after steps 1, k + 1, 2k + 1."""
    try:
        from torch.distributed.algorithms.model_averaging import averagers
    except ImportError:
        return 0
    made = averagers.PeriodicModelAverager.__new__(averagers.PeriodicModelAverager)
    made.step, made.period, made.warmup_steps, made.process_group = 0, 4, 0, None
    steps = []
    averagers.utils.average_parameters_or_parameter_groups = lambda *_: steps.append(made.step + 1)
    for _ in range(10):
        made.average_parameters([])
    if steps == [1, 5, 9]:
        return 0
    print(f"PeriodicModelAverager with k = 4 averages after steps {steps}", file=sys.stderr)
    return 1


def main(program, seed):
    import torch

    torch.set_num_threads(1)
    r = random.Random(seed)
    q = Questions(program)
    histograms(q, r)
    top_ks(q, r)
    samplers(q, r, torch)
    batches(q, r, torch)
    clipping(q, r, torch)
    rounding(q, r, torch)
    optimizers(q, r, torch)
    normalisation(q, r, torch)
    hooks(q, r)
    adasum(q, r)
    defaults(q, torch)
    print(f"torch {torch.__version__}, seed {seed}")
    sys.exit(1 if q.answer() + averager(torch) else 0)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(sys.argv[1], int(sys.argv[2]))
    sys.exit(subprocess.run([python_with_torch(), __file__, sys.argv[1], "1"]).returncode)
