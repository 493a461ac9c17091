#!/usr/bin/env python3
"""The ranks of real launchers, on one machine and on two.

  run.py tutti_run|open_mpi|mpich|slurm|torchrun --build DIR

On one machine with 4 ranks and on two with 2 each (machines.py), a launcher runs a program that tells its rank, size, local
rank and node rank, examples/01_hello, the digits trainer, and tutti-doctor. On two machines rank 0's own name is 127.0.1.1 there.

Exit status 77 means skipped, with the reason printed: the launcher is not here, or not the right to make machines.
"""

import argparse
import os
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support" / "python"))
from machines import Failed, Machines, Skip, main_of, need
from python_with_torch import python_with_torch
from slurm import Slurm

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "examples/data/digits.csv"
RANKS = 4
PORT = "29500"


class Programs:
    def __init__(self, build):
        self.tutti_run = build / "tools/tutti-run"
        self.join = build / "tests/programs/tutti_program_join"
        self.hello = build / "examples/01_hello"
        self.digits = build / "examples/digits"
        self.doctor = build / "tools/tutti-doctor"
        for program in (self.tutti_run, self.join, self.hello, self.digits, self.doctor):
            if not program.exists():
                raise Failed(f"{program} has not been built")


def secret_in(folder):
    """Makes the secret of a job whose ranks are on several machines; returns the environment for it."""
    path = folder / "job.secret"
    if not path.exists():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.urandom(32))
    return {"TUTTI_SECRET_FILE": str(path)}


class ByShell:
    """A launcher that starts ranks on the other machine by ssh."""

    def __init__(self, machines, programs):
        self.machines = list(machines)
        self.node1 = self.machines[0]
        self.secret = secret_in(machines.scratch)
        self.why_not_two = None
        try:
            machines.start_sshd()
        except Skip as why:
            self.why_not_two = why

    def need_ssh(self):
        if self.why_not_two:
            raise self.why_not_two


class TuttiRun(ByShell):
    name = "tutti-run"

    def __init__(self, machines, programs):
        super().__init__(machines, programs)
        self.tutti_run = programs.tutti_run

    def one(self, words):
        return self.node1.run([self.tutti_run, "-n", RANKS, "--", *words])

    def two(self, words):
        self.need_ssh()
        return self.node1.run([self.tutti_run, "--hosts", "node1:2,node2:2", "--", *words])

    def more(self, programs):
        """Once on each machine, as torchrun."""
        place = ["--nproc-per-node", RANKS // 2, "--master-addr", "node1", "--master-port", PORT]
        started = [m.start([self.tutti_run, "--nnodes", 2, "--node-rank", m.number - 1, *place, "--", programs.join],
                           self.secret) for m in self.machines]  # fmt: skip
        expect_ranks(all_of(started), 2)


class Mpirun(ByShell):
    place = {"MASTER_ADDR": "node1", "MASTER_PORT": PORT}

    def __init__(self, machines, programs):
        need(self.command[0])
        super().__init__(machines, programs)

    def one(self, words):
        return self.node1.run([*self.command, "-n", RANKS, *words])

    def on_two(self, words, variables, status=0):
        self.need_ssh()
        passed = [word for name, value in variables.items() for word in self.passes(name, value)]
        return self.node1.run([*self.command, *self.hosts, "-n", RANKS, *passed, *words], status=status)

    def two(self, words):
        return self.on_two(words, self.place | self.secret)

    def more(self, programs):
        """What is missing is an error that says how to give it, on every rank that mpirun lets say it."""
        for given, missing in (({}, "MASTER_ADDR"), (self.place, "TUTTI_SECRET_FILE")):
            said = self.on_two([programs.hello], given, status=1)
            expect(said, " ".join(self.passes(missing, "")).strip(), count=self.heard)


class OpenMpi(Mpirun):
    name = "(Open MPI's mpirun)"
    command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"]
    hosts = ["--host", "node1:2,node2:2"]
    heard = 1  # it ends the others when one has failed

    def passes(self, name, value):
        return ["-x", f"{name}={value}"]


class Mpich(Mpirun):
    name = "(MPICH's mpiexec)"
    command = ["mpiexec.hydra"]
    hosts = ["-hosts", "node1:2,node2:2"]
    heard = RANKS

    def passes(self, name, value):
        return ["-genv", name, value]


class Srun:
    name = "(srun)"

    def __init__(self, machines, programs):
        self.slurm = Slurm(machines)
        self.secret = secret_in(machines.scratch)
        self.scratch = machines.scratch

    def one(self, words):
        return self.slurm.run(["srun", "-N1", f"-n{RANKS}", *words])

    def two(self, words):
        """Rank 0 makes the secret of the step."""
        return self.slurm.run(["srun", "-N2", "--ntasks-per-node=2", *words])

    def more(self, programs):
        self.uneven(programs)
        self.inside_allocation(programs)
        self.batch_of_the_page(programs)
        self.meet_at_a_file(programs)

    def uneven(self, programs):
        said = self.slurm.run(["srun", "-N2", "-n3", "-m", "cyclic", programs.join], self.secret)
        expect(said, "joined rank 0 of 3 local 0 of 2 node 0 ", "joined rank 1 of 3 local 0 of 1 node 1 ",
               "joined rank 2 of 3 local 1 of 2 node 0 ")  # fmt: skip

    def inside_allocation(self, programs):
        """mpirun takes its machines from Slurm, which counts the daemons of mpirun as tasks."""
        env = self.secret | Mpirun.place
        for mpirun in (OpenMpi.command, Mpich.command):
            if not shutil.which(mpirun[0]):
                continue
            expect_ranks(self.slurm.run(["salloc", "-N2", "--ntasks-per-node=2", *mpirun, programs.join], env), 2)

    def batch_of_the_page(self, programs):
        """The script of docs/launching.md, as it stands there."""
        lines = (ROOT / "docs/launching.md").read_text().split("    #!/bin/bash\n")[1].split("\n")
        script = ["#!/bin/bash"]
        for line in lines:
            if line and not line.startswith("    "):
                break
            script.append(line[4:])
        folder = self.slurm.first.folder
        shutil.copy(programs.hello, folder / "01_hello")
        (folder / "digits").write_text(f'#!/bin/sh\nexec {programs.digits} --data {DATA} "$@"\n')
        (folder / "digits").chmod(0o755)
        said = self.slurm.batch("\n".join(script))
        expect_hello(said)
        expect_training(said)

    def meet_at_a_file(self, programs):
        """The recipe of old tutorials, and its mistake: the world's size in nodes, while ranks are counted in tasks."""
        meet = f"file://{self.scratch}/meet"
        step = ["srun", "-N2", "--ntasks-per-node=2"]
        join = [programs.join, "join=300000"]
        right = self.slurm.run([*step, *join], self.secret | {"TUTTI_RENDEZVOUS": f"{meet}?world_size={RANKS}"})
        expect_ranks(right, 2)
        by_hand = "TUTTI_RANK=$SLURM_PROCID TUTTI_WORLD_SIZE=$SLURM_{} exec {} join=300000"
        env = self.secret | {"TUTTI_RENDEZVOUS": meet}
        expect_ranks(self.slurm.run([*step, "sh", "-c", by_hand.format("NTASKS", programs.join)], env), 2)
        options = "exec {} join=300000 rendezvous={} rank=$SLURM_PROCID world=$SLURM_NNODES"
        for words, more in (
            (join, {"TUTTI_RENDEZVOUS": f"{meet}?world_size=2"}),
            (["sh", "-c", by_hand.format("NNODES", programs.join)], env),
            (["sh", "-c", options.format(programs.join, meet)], {}),
            (join, env | {"WORLD_SIZE": "2"}),
        ):
            said = self.slurm.run([*step, *words], self.secret | more, status=2)
            expect(said, 'SLURM_STEP_NUM_TASKS="4"', count=RANKS)
            if not re.search(r'(size="?|SIZE="|size )2\b', said):
                raise Failed(f"the error does not name the 2 of the world:\n{said}")


class Torchrun:
    name = "(torchrun)"

    def __init__(self, machines, programs):
        self.machines = list(machines)
        self.secret = secret_in(machines.scratch)
        self.python = python_with_torch("torch.distributed.run")

    def agent(self, machine, nodes, words, env=None, place=("--master_addr", "node1", "--master_port", PORT)):
        logs = machine.folder / "logs"
        per_node = RANKS // nodes
        return machine.start(
            [self.python, "-m", "torch.distributed.run", "--no_python", "-r", "1", "-t", "1", "--log_dir", logs,
             "--monitor_interval", "0.2", "--nnodes", nodes, "--node_rank", machine.number - 1,
             *place, "--nproc_per_node", per_node, *words], env)  # fmt: skip

    def one(self, words):
        return all_of([self.agent(self.machines[0], 1, words)])

    def two(self, words):
        return all_of([self.agent(m, 2, words, self.secret) for m in self.machines])

    def more(self, programs):
        """torchrun's own rendezvous, which says on which machine rank 0 is."""
        place = ["--rdzv_backend", "c10d", "--rdzv_endpoint", f"node1:{PORT}", "--rdzv_id", "job"]
        agents = [self.agent(m, 2, [programs.join], self.secret, place) for m in self.machines]
        expect_ranks(all_of(agents), 2)


def all_of(started):
    """Returns the output of commands that have to end well, in turn."""
    for command in started:
        if (status := command.wait()) != 0:
            raise Failed(f"{command.shown}: ended with {status}\n" + "\n".join(c.output() for c in started))
    return "".join(c.output() for c in started)


def expect(text, *parts, count=1):
    for part in parts:
        if text.count(part) < count:
            raise Failed(f"{part!r} is not {count} times in\n{text}")


def expect_ranks(text, machines):
    """Each rank has joined once, with the numbers of a launcher that counts the ranks of a machine one after the other."""
    told = re.findall(r"joined rank (\d+) of (\d+) local (\d+) of (\d+) node (\d+) sum (\d+) ", text)
    here = RANKS // machines
    wanted = [(r, RANKS, r % here, here, r // here, 2**RANKS - 1) for r in range(RANKS)]
    if sorted(tuple(map(int, line)) for line in told) != wanted:
        raise Failed(f"these are not the ranks (rank, size, local rank, local size, node, sum) {wanted}:\n{text}")


def expect_hello(text):
    said = sorted(re.findall(r"rank \d+ of \d+: the ranks add up to \d+", text))
    if said != [f"rank {r} of {RANKS}: the ranks add up to {RANKS * (RANKS - 1) // 2}" for r in range(RANKS)]:
        raise Failed(f"not every rank has said hello once:\n{text}")


def expect_training(text):
    top = re.findall(r"top-1 +([\d.]+) %", text)
    if "(all equal)" not in text or f"rank {RANKS - 1} " not in text or not top or float(top[-1]) < 90:
        raise Failed(f"the digits have not been learned by {RANKS} ranks alike:\n{text}")


def expect_doctor(text, way):
    """tutti-doctor knows how its ranks were started, and of the secret that they have."""
    expect(text, f"{RANKS} ranks, by", way.name, "rendezvous ")
    if "has no secret" in text:
        raise Failed(f"the ranks had a secret:\n{text}")


def check(way, programs):
    join, digits = [programs.join], [programs.digits, "--epochs", "2", "--data", DATA]
    for machines, run in ((1, way.one), (2, way.two)):
        if not run:
            continue
        expect_ranks(run(join), machines)
        expect_hello(run([programs.hello]))
        expect_training(run(digits))
        expect_doctor(run([programs.doctor]), way)
        places = f"{machines} machine{'s' * (machines - 1)}"
        print(f"{RANKS} ranks on {places}: rank, size, local rank, node rank, 01_hello, digits, doctor", flush=True)
    way.more(programs)


WAYS = {"tutti_run": TuttiRun, "open_mpi": OpenMpi, "mpich": Mpich, "slurm": Srun, "torchrun": Torchrun}


def test():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    args = parser.parse_args()
    programs = Programs(args.build.resolve())
    with Machines(args.build / "launchers" / args.way) as machines:
        check(WAYS[args.way](machines, programs), programs)


if __name__ == "__main__":
    main_of(test)
