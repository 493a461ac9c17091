"""A Slurm of two nodes on the two machines of machines.py, configured in their scratch folder."""

import time

from machines import Failed, Skip, need

CPUS = 4  # of each node, whatever the host has

CONFIGURATION = """\
ClusterName=scratch
SlurmctldHost={first.name}({first.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd_%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


class Slurm:
    """slurmctld on the first machine, a slurmd on each; Skip if they do not come up."""

    def __init__(self, machines):
        slurmctld, slurmd = need("srun", "sinfo", "slurmctld"), need("slurmd")
        self.machines = machines
        self.first = next(iter(machines))
        folder = machines.scratch / "slurm"
        (folder / "state").mkdir(parents=True)
        nodes = "\n".join(f"NodeName={m.name} NodeAddr={m.address} CPUs={CPUS} RealMemory=1000 State=UNKNOWN"
                          for m in machines)  # fmt: skip
        (folder / "slurm.conf").write_text(CONFIGURATION.format(first=self.first, folder=folder, nodes=nodes))
        (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={folder}/cgroup\n")
        self.env = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.daemons = [self.first.start([slurmctld, "-D"], self.env)]
        for m in machines:
            (folder / f"spool_{m.name}").mkdir()
            self.daemons.append(m.start([slurmd, "-D", "-N", m.name], self.env))
        self.await_nodes()

    def await_nodes(self):
        until = time.monotonic() + 60
        while True:
            asked = self.first.start(["sinfo", "-h", "-N", "-o", "%N %T"], self.env)
            asked.wait()
            if asked.output().count("idle") == len(self.daemons) - 1:
                return
            ended = [d for d in self.daemons if d.popen.poll() is not None]
            if ended or time.monotonic() > until:
                said = "\n".join(f"{d.shown}:\n{d.output()[-500:]}" for d in ended or self.daemons)
                raise Skip(f"Slurm does not come up here: {asked.output().strip()}\n{said}")
            time.sleep(0.2)

    def run(self, words, env=None, timeout=120, status=0):
        """Runs a command of Slurm on the first machine; returns its output."""
        return self.first.run(words, self.env | (env or {}), timeout, status)

    def batch(self, script, *options, timeout=120):
        """Submits a batch script, waits for its end, and returns what the job has written."""
        path = self.first.folder / "job.sbatch"
        out = self.first.folder / "job.out"
        path.write_text(script)
        try:
            self.run(["sbatch", "--wait", f"--output={out}", *options, path], timeout=timeout)
        except Failed as why:
            raise Failed(f"{why}\n{out.read_text() if out.exists() else ''}") from None
        return out.read_text()
