#!/usr/bin/env python3
"""examples/torch_ddp: DistributedDataParallel on tutti ends with Gloo's parameters, and with bits that no bucket changes;
where a rank is killed, backward() and all_reduce() of the others raise, and their interpreters end in order.

    torch_ddp.py LIBRARY     exits with 77, and says why, where no python3 has torch
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support" / "python"))
from python_with_torch import python_with_torch

RANKS = 3
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "torch_ddp"


def start(library):
    python = python_with_torch("torch.distributed")
    status = max(abs(s) for s in run([python, __file__, library, "compare"]))
    status = max(status, *(abs(s) for s in run([python, __file__, library, "registered"])))
    for scene in ("backward", "all_reduce"):
        *survivors, killed = run([python, __file__, library, scene])
        if killed != -signal.SIGKILL or any(survivors):
            print(f"{scene}: the last rank kills itself, the others end with 0 after an error; they ended with", survivors, killed)
            status = 1
    return status


def run(command):
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        ranks = [subprocess.Popen([*command, str(r), folder], env=env) for r in range(RANKS)]
        try:
            return [r.wait(timeout=300) for r in ranks]
        finally:
            for r in ranks:
                r.kill()


def survive(library, scene, rank, folder):
    """The last rank is killed in the midst of training; what the others get must be an error that names it."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    sys.path.insert(0, str(EXAMPLE))
    import tutti_process_group

    tutti_process_group.register(library)
    dist.init_process_group("tutti", init_method=f"file://{folder}/torch", rank=rank, world_size=RANKS)
    ddp = DistributedDataParallel(torch.nn.Linear(160, 160))
    for step in range(1000):
        if rank == RANKS - 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            if scene == "all_reduce":
                dist.all_reduce(torch.ones(1000))
            else:
                ddp(torch.randn(16, 160)).sum().backward()
        except RuntimeError as e:
            if step < 3 or f"rank {RANKS - 1}" not in str(e):
                raise
            return
    raise AssertionError(f"rank {rank}: no error after {scene} without rank {RANKS - 1}")


def registered(library, rank, folder):
    """Tensors that come again are registered, as long as anyone has them; what torch puts in their memory later is its own."""
    import random
    import threading

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    sys.path.insert(0, str(EXAMPLE))
    import tutti_process_group

    def check(what, holds):
        if not holds:
            raise AssertionError(f"rank {rank}: {what}")

    def shared(tensor):
        at = tensor.data_ptr() + tensor.numel() * tensor.element_size() // 2
        for line in open("/proc/self/maps"):
            begin, end = (int(x, 16) for x in line.split()[0].split("-"))
            if begin <= at < end:
                return line.split()[1].endswith("s")
        return False

    tutti_process_group.register(library)
    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=RANKS)
    world = dist.new_group(backend="tutti")

    def reduce(x, times):
        for n in range(times):
            x.fill_(rank + n)
            dist.all_reduce(x, group=world)
            check("a sum", bool((x == sum(range(RANKS)) + n * RANKS).all()))

    x = torch.empty(300_001)
    reduce(x, 1)
    check("not registered at once", not shared(x))
    reduce(x, 3)
    check("registered when it comes again", shared(x) and len(world.registrations) == 1)
    view = x[:100_000]
    del x
    reduce(view, 2)
    check("registered as long as a view has the memory", shared(view))
    small = torch.zeros(10)
    del view
    reduce(small, 2)
    check("ended with its last holder", len(world.registrations) == 0)

    # Other threads write to memory of their own, which was, or will be, that of registered tensors.
    stop, wrong = threading.Event(), []

    def write(seed):
        draw = random.Random(seed)
        while not stop.is_set():
            number = draw.randrange(1 << 20)
            mine = [torch.full((draw.randrange(1, 60_000),), float(number)) for _ in range(20)]
            for t in mine:
                t.add_(1)
            if not all(bool((t == number + 1).all()) for t in mine):
                wrong.append(number)

    writers = [threading.Thread(target=write, args=(10 * rank + k,)) for k in range(2)]
    for w in writers:
        w.start()
    draw = random.Random(1)
    try:
        kept = []
        for _ in range(60):
            kept.append(torch.empty(draw.choice((17_000, 30_000, 50_001, 400_000))))
            reduce(kept[-1], 3)
            if len(kept) > 3:
                del kept[draw.randrange(len(kept))]
            reduce(draw.choice(kept), 1)
    finally:
        stop.set()
        for w in writers:
            w.join()
    check(f"what other threads wrote is as it was, {wrong[:3]}", not wrong)
    check("registrations of what is there", len(world.registrations) <= 4)

    net = torch.nn.Sequential(*(torch.nn.Linear(300, 300) for _ in range(4)))
    ddp = DistributedDataParallel(net, process_group=world, bucket_cap_mb=0.5, gradient_as_bucket_view=True)
    for _ in range(6):
        ddp(torch.randn(16, 300)).sum().backward()
    held = net[1].weight.grad
    check("DDP's gradients are in registered memory", shared(held))
    before = held.clone()
    world.close()
    check("private after the end, with its content", not shared(held) and torch.equal(before, held))


def main(library, rank, folder):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    sys.path.insert(0, str(EXAMPLE))
    import tutti_process_group

    def check(what, holds):
        if not holds:
            raise AssertionError(f"rank {rank}: {what}")

    def trained(group, cap_mb, views=False):
        torch.manual_seed(rank)
        net = torch.nn.Sequential(*(layer for _ in range(6) for layer in (torch.nn.Linear(160, 160), torch.nn.Tanh())))
        dist._DEFAULT_FIRST_BUCKET_BYTES = int(cap_mb * 2**20)  # 1 MiB would hold all of this model
        ddp = DistributedDataParallel(net, process_group=group, bucket_cap_mb=cap_mb, gradient_as_bucket_view=views)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5, momentum=0.9)
        for _ in range(6):
            optimizer.zero_grad()
            (ddp(torch.randn(16, 160)) ** 2).mean().backward()
            optimizer.step()
        return torch.cat([p.detach().view(-1) for p in net.parameters()])

    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=RANKS)
    tutti_process_group.register(library, order="rank")
    pair = [dist.new_group([0, 1], backend=b) for b in ("gloo", "tutti")]
    if rank < 2:  # two terms have one sum
        gloo, ours, small = trained(pair[0], 25), trained(pair[1], 25), trained(pair[1], 0.01, views=True)
        check("parameters are those of Gloo", torch.equal(gloo, ours) and torch.equal(gloo, small))

    os.environ["TUTTI_TRANSPORT"] = "tcp"  # where sums are made piece by piece, each in an order of its own
    world = dist.new_group(backend="tutti")
    bits = [trained(world, cap) for cap in (25, 0.15, 0.001)]
    check("the bits do not depend on buckets", all(torch.equal(bits[0], other) for other in bits[1:]))
    parts = [torch.empty_like(bits[0]) for _ in range(RANKS)]
    dist.all_gather(parts, bits[0], group=world)
    check("all ranks have the same", all(torch.equal(bits[0], other) for other in parts))
    check("and close to Gloo's", torch.allclose(bits[0], trained(dist.group.WORLD, 25), atol=1e-5))

    numbers = torch.arange(4)[::2] + rank  # not contiguous
    dist.all_reduce(numbers, group=world)
    check("integers add up", numbers.tolist() == [3, 9])
    dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=world)
    dist.broadcast(numbers, 1, group=world)
    dist.barrier(group=world)
    try:
        dist.all_reduce(torch.zeros(3, dtype=torch.bool), group=world)
        check("booleans are refused", False)
    except TypeError as e:
        check("the message says which", "bool" in str(e))
    world.close()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        sys.exit(start(sys.argv[1]))
    if sys.argv[2] == "registered":
        registered(sys.argv[1], int(sys.argv[3]), sys.argv[4])
    elif sys.argv[2] == "compare":
        main(sys.argv[1], int(sys.argv[3]), sys.argv[4])
    else:
        survive(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
