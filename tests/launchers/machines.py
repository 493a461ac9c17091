"""Two machines for tests of launchers, as far as networks, names, processes and /etc/hosts go.

    with Machines(scratch) as (node1, node2):
        node1.run(["hostname"])             # its output, or Failed
        node2.start(["sleep", "9"])         # a Running, which can be waited for

Each machine is a set of namespaces: network, host name, mounts, processes. It has its own /run, /dev/shm and /etc/hosts,
where its own name is 127.0.1.1, as Debian writes it. A cable joins 10.99.0.1 (node1) and 10.99.0.2 (node2). Everything
else, `scratch` included, is the file system of the host, as a cluster's shared file system. start_sshd() lets
`ssh node2 COMMAND` work between them without a question.

Whatever ends a machine, also SIGKILL to the driver, ends all of its processes; nothing has a name outside.
Needs root or user namespaces, iproute2 and util-linux: else Skip says what is missing.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

SKIPPED = 77


class Skip(Exception):
    """What a test needs is not here."""


class Failed(Exception):
    """What ran on a machine failed; the text has its output."""


def become_root():
    """Makes a user that is not root the root of a user namespace, by starting this program again in one."""
    if os.geteuid() == 0:
        return
    inside = ["unshare", "--user", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*inside, "--net", "true"], capture_output=True).returncode != 0:
        raise Skip("only root can make namespaces here")
    os.execvp(inside[0], [*inside, sys.executable, *sys.argv])


def need(*programs):
    """Returns the path of the last program; Skip if one of them is not installed."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    for program in programs:
        found = shutil.which(program, path=path)
        if not found:
            raise Skip(f"{program} is not installed")
    return found


class Running:
    """A command that runs on a machine. `popen` is the process outside that ends with it, and it with that."""

    def __init__(self, popen, shown, log):
        self.popen, self.shown, self.log = popen, shown, log

    def output(self):
        """Returns what it has written so far, to either stream."""
        return self.log.read_text(errors="replace")

    def wait(self, timeout=120):
        """Returns its exit status, or minus a signal's number; kills it and throws Failed after `timeout` seconds."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise Failed(f"{self.shown}: has not ended within {timeout} s\n{self.output()}") from None


class Machine:
    def __init__(self, scratch, number):
        self.number = number
        self.name = f"node{number}"
        self.address = f"10.99.0.{number}"
        self.cable = f"cable{number}"
        self.folder = scratch / self.name
        self.folder.mkdir(parents=True)
        (self.folder / "tmp").mkdir()
        self.started = 0
        other = 3 - number
        self.set_hosts(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n10.99.0.{other} node{other}\n")
        setup = (
            'set -e; hostname "$1"; mount --bind "$2/hosts" /etc/hosts; mount -t tmpfs tmpfs /run;'
            "mkdir /run/sshd; mount -t tmpfs tmpfs /dev/shm; ip link set lo up;"
            "echo ready; while sleep 3600; do :; done"
        )
        self.holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child",
             "--mount-proc", "sh", "-c", setup, "sh", self.name, str(self.folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        said = self.holder.stdout.readline()
        if said != "ready\n":
            raise Skip(f"namespaces cannot be made here: {said.strip()}")

    def set_hosts(self, lines):
        (self.folder / "hosts").write_text(lines)

    def start(self, command, env=None):
        """Starts a command, whose words may be paths, in the machine's folder; `env` is added to an environment without a
        launcher's variables."""
        space = f"/proc/{self.holder.pid}/ns"
        inside = ["nsenter", f"--net={space}/net", f"--uts={space}/uts", f"--mount={space}/mnt",
                  f"--pid={space}/pid_for_children", "setpriv", "--pdeathsig", "KILL",
                  "env", f"--chdir={self.folder}"]  # fmt: skip
        variables = {k: os.environ[k] for k in ("HOME", "LANG", "USER", "LOGNAME") if k in os.environ}
        variables |= {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                      "TMPDIR": str(self.folder / "tmp")}  # fmt: skip
        self.started += 1
        log = self.folder / f"{self.started}.log"
        words = [str(word) for word in command]
        with open(log, "w") as out:
            popen = subprocess.Popen([*inside, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                     env=variables | {k: str(v) for k, v in (env or {}).items()})  # fmt: skip
        return Running(popen, f"{self.name}$ {' '.join(words)}", log)

    def run(self, command, env=None, timeout=120, status=0):
        """Runs a command and returns its output; Failed if it does not end with `status`."""
        running = self.start(command, env)
        ended = running.wait(timeout)
        if ended != status:
            raise Failed(f"{running.shown}: ended with {ended}, not {status}\n{running.output()}")
        return running.output()

    def end(self):
        self.holder.kill()
        self.holder.wait()


class Machines:
    """node1 and node2, as a context. `scratch` is a folder that does not exist, and is removed at the end."""

    def __init__(self, scratch):
        self.scratch = pathlib.Path(scratch).resolve()
        self.machines = []

    def __enter__(self):
        need("unshare", "nsenter", "setpriv", "hostname", "mount", "ip")
        shutil.rmtree(self.scratch, ignore_errors=True)
        try:
            for number in (1, 2):
                self.machines.append(Machine(self.scratch, number))
            self.plug_in()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __iter__(self):
        return iter(self.machines)

    def plug_in(self):
        a, b = self.machines
        a.run(["ip", "link", "add", a.cable, "type", "veth", "peer", "name", b.cable])
        # From outside, where the other machine's processes have numbers.
        moved = subprocess.run(["nsenter", f"--net=/proc/{a.holder.pid}/ns/net", "ip", "link", "set", b.cable, "netns",
                                str(b.holder.pid)], capture_output=True, text=True)  # fmt: skip
        if moved.returncode != 0:
            raise Skip(f"a cable cannot be made here: {moved.stderr.strip()}")
        for machine in self.machines:
            machine.run(["ip", "addr", "add", f"{machine.address}/24", "dev", machine.cable])
            machine.run(["ip", "link", "set", machine.cable, "up"])

    def start_sshd(self):
        """Starts an sshd on each, for the user that runs the test; Skip if `ssh` between them does not work then."""
        sshd = need("ssh", "ssh-keygen", "sshd")
        folder = self.scratch / "ssh"
        folder.mkdir()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
        host = (folder / "host.pub").read_text()
        (folder / "known_hosts").write_text("".join(f"{m.name},{m.address} {host}" for m in self.machines))
        (folder / "ssh_config").write_text(f"Host *\n  IdentityFile {folder}/user\n"
                                           f"  GlobalKnownHostsFile {folder}/known_hosts\n"
                                           f"  UserKnownHostsFile /dev/null\n")  # fmt: skip
        (folder / "sshd_config").write_text(f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
                                            "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n"
                                            "MaxStartups 100\n")  # fmt: skip
        for machine in self.machines:  # where both programs look by themselves
            subprocess.run(["nsenter", f"--mount=/proc/{machine.holder.pid}/ns/mnt", "mount", "--bind", folder, "/etc/ssh"],
                           check=True)  # fmt: skip
            machine.sshd = machine.start([sshd, "-D", "-e"])
        for machine in self.machines:
            for other in self.machines:
                self.await_ssh(machine, other)

    def await_ssh(self, machine, other):
        until = time.monotonic() + 30
        while True:
            tried = machine.start(["ssh", "-o", "BatchMode=yes", other.name, "hostname"])
            if tried.wait() == 0 and tried.output().strip() == other.name:
                return
            if time.monotonic() > until or other.sshd.popen.poll() is not None:
                said = f"{tried.output().strip()}; sshd: {other.sshd.output().strip()[-200:]}"
                raise Skip(f"ssh {other.name} does not work here: {said}")
            time.sleep(0.1)

    def __exit__(self, *_):
        for machine in self.machines:
            machine.end()
        self.machines.clear()
        shutil.rmtree(self.scratch, ignore_errors=True)


def main_of(test):
    """Runs a test as a program: exit status 0, 1 with the reason, or 77 where it is skipped, with the reason."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    try:
        become_root()
        test()
    except Skip as why:
        print(f"skipped: {why}")
        sys.exit(SKIPPED)
    except Failed as why:
        print(why, file=sys.stderr)
        sys.exit(1)
