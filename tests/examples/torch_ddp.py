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
    if sys.argv[2] == "compare":
        main(sys.argv[1], int(sys.argv[3]), sys.argv[4])
    else:
        survive(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
