# SPDX-License-Identifier: Apache-2.0
"""A cluster of Slurm on this machine: a real slurmctld and two slurmd, each a machine of its own as far as
network, host name, users, /tmp, /run and /dev/shm go (namespaces). They share the processors."""
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR") or ROOT / "build").resolve()
SLOWNESS = int(os.environ.get("TIDE_TEST_SLOWNESS") or 1)
GUARD_S = 60 * SLOWNESS
USERS = {"alice": 61001, "bob": 61002}
NEEDED = ("slurmctld", "slurmd", "srun", "munged", "unshare", "nsenter", "setpriv", "ip")
ACCOUNTING = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db")
PLUGINS = pathlib.Path("/usr/lib/x86_64-linux-gnu/slurm-wlm")
CONTROLLER = "10.77.0.1"
NODES = {"n1": "10.77.0.2", "n2": "10.77.0.3"}

CONF = """ClusterName=lab
SlurmctldHost=ctl({controller})
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
PlugStackConfig={folder}/plugstack.conf
PluginDir={plugins}
ProctrackType={proctrack}
TaskPlugin={task}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
SchedulerParameters=sched_interval=1,batch_sched_delay=0
KillWait=5
UnkillableStepTimeout=30
MailProg=/bin/true
NodeName=n1 NodeAddr={nodes[n1]} CPUs={cpus} State=UNKNOWN
NodeName=n2 NodeAddr={nodes[n2]} CPUs={cpus} State=UNKNOWN
PartitionName=own Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
PartitionName=shared Nodes=n1 OverSubscribe=FORCE:2 MaxTime=INFINITE State=UP
"""

ACCOUNTED = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStoragePass={folder}/munge/socket
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
"""

SLURMDBD = """AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=ctl
SlurmUser=root
PidFile={folder}/slurmdbd.pid
PluginDir={plugins}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
"""

# Each machine has a /tmp of its own, in which what the tests need of the real one is where it was.
PRIVATE = r"""
set -e
mount --make-rprivate /
own=$1; host=$2; shift 2
mkdir -p "$own"
mount -t tmpfs -o mode=1777 tmpfs "$own"
for path; do
    case $path in
    /tmp/*) mkdir -p "$own/${path#/tmp/}"; mount --rbind "$path" "$own/${path#/tmp/}" ;;
    esac
done
mount --rbind "$own" /tmp
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for file in passwd group hosts; do mount --bind "$host/$file" /etc/$file; done
hostname "$(basename "$own")"
ip link set lo up
exec sleep infinity
"""


def eventually(check, guard=GUARD_S, pause=0.05):
    """check() until it is true; its last value. Fails after the guard."""
    end = time.monotonic() + guard
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < end, f"not within {guard} s: {value!r}"
        time.sleep(pause)


def missing(more=()):
    """Why no cluster can be made here, or ""."""
    if os.geteuid() != 0:
        return "needs root"
    if not (BUILD / "threadtide.so").exists():
        return f"{BUILD} has no threadtide.so: libslurm-dev was not there"
    lacking = [name for name in (*NEEDED, *more) if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
    if more and not (PLUGINS / "accounting_storage_mysql.so").exists():
        lacking.append("accounting_storage_mysql.so")
    return f"not here: {', '.join(lacking)}" if lacking else ""


def command(*words):
    subprocess.run(words, check=True, timeout=GUARD_S)


class Machine:
    """Namespaces with one process that holds them."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--uts", "--ipc", "bash", "-c", PRIVATE, "bash", str(cluster.folder / name),
             str(cluster.folder), str(cluster.folder), str(ROOT), str(BUILD), sys.prefix], stderr=subprocess.PIPE)
        self.enter = ["nsenter", f"--target={self.holder.pid}", "--mount", "--net", "--uts", "--ipc",
                      f"--wdns={cluster.work}", "--"]
        eventually(self.ready)

    def ready(self):
        assert self.holder.poll() is None, self.holder.stderr.read().decode()
        return pathlib.Path(f"/proc/{self.holder.pid}/comm").read_text() == "sleep\n"

    def words(self, words, user=None):
        uid = USERS.get(user)
        become = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else ["--reuid=0"]
        return [*self.enter, "setpriv", *become, *map(str, words)]

    def run(self, *words, user=None, env=None, check=True, **more):
        done = subprocess.run(self.words(words, user), env=self.cluster.environment(env), text=True, check=False,
                              capture_output=True, timeout=GUARD_S, **more)
        assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def start(self, *words, user=None, env=None, **more):
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        process = subprocess.Popen(self.words(words, user), env=self.cluster.environment(env), text=True, **more)
        self.cluster.started.append(process)
        return process

    def jobs(self, user=None, folder=None):
        """The jobs of the daemon in that folder, or the system's, by name."""
        env = {"TIDE_DIR": folder} if folder else None
        done = self.run(BUILD / "tide", "ps", "--json", user=user, env=env, check=False)
        if done.returncode:
            return {}
        rows = json.loads(done.stdout)
        rows = rows["jobs"] if isinstance(rows, dict) else rows
        return {row["name"]: row for row in rows}

    def end(self):
        self.holder.kill()
        self.holder.wait()


class Cluster:
    """With `fenced`, control groups (v1) hold processes to their job's and their step's processors; with `accounted`,
    slurmdbd and a MariaDB keep what jobs used."""

    def __init__(self, cpus, fenced=False, accounted=False):
        self.fenced, self.accounted = fenced, accounted
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tide-slurm-"))
        self.started, self.machines = [], {}
        self.folder.chmod(0o755)
        for name in ("munge", "state", "work"):
            (self.folder / name).mkdir(mode=0o755)
        self.work = self.folder / "work"
        self.work.chmod(0o1777)
        self.configure()
        (self.folder / "slurm.conf").write_text(CONF.format(
            controller=CONTROLLER, folder=self.folder, plugins=PLUGINS, nodes=NODES, cpus=cpus,
            proctrack="proctrack/cgroup" if fenced else "proctrack/linuxproc",
            task="task/cgroup,task/affinity" if fenced else "task/affinity") + (ACCOUNTED.format(folder=self.folder) if accounted else ""))
        (self.folder / "slurmdbd.conf").write_text(SLURMDBD.format(folder=self.folder, plugins=PLUGINS))
        (self.folder / "slurmdbd.conf").chmod(0o600)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nConstrainCores=yes\nConstrainRAMSpace=no\n")
        for file in ("passwd", "group"):
            tail = "".join(f"{name}:x:{uid}:{f'{uid}::/:/bin/sh' if file == 'passwd' else ''}\n"
                           for name, uid in USERS.items())
            (self.folder / file).write_text(pathlib.Path("/etc", file).read_text() + tail)
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{CONTROLLER} ctl\n")
        key = self.folder / "munge/key"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o600)
        try:
            self.begin()
        except BaseException:
            self.end()
            raise

    def configure(self, plugin=""):
        """Slurm reads plugstack.conf for each command and each step."""
        (self.folder / "plugstack.conf").write_text(
            plugin or f"optional {BUILD}/threadtide.so helper={BUILD}/tide-slurm\n")

    def environment(self, more=None):
        """As a user's shell has it: nothing of this test's own."""
        return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8",
                "SLURM_CONF": f"{self.folder}/slurm.conf", **(more or {})}

    def begin(self):
        self.started.append(subprocess.Popen(
            ["munged", "--foreground", "--force", f"--key-file={self.folder}/munge/key",
             f"--socket={self.folder}/munge/socket", f"--pid-file={self.folder}/munge/pid",
             f"--log-file={self.folder}/munge/log", f"--seed-file={self.folder}/munge/seed"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.ctl = self.machines["ctl"] = Machine(self, "ctl")
        self.ctl.run("ip", "link", "add", "br0", "type", "bridge")
        self.ctl.run("ip", "addr", "add", f"{CONTROLLER}/24", "dev", "br0")
        self.ctl.run("ip", "link", "set", "br0", "up")
        for name, address in NODES.items():
            node = self.machines[name] = Machine(self, name)
            self.ctl.run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns",
                         node.holder.pid)
            self.ctl.run("ip", "link", "set", f"to-{name}", "master", "br0", "up")
            node.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
            node.run("ip", "link", "set", "eth0", "up")
        self.n1, self.n2 = self.machines["n1"], self.machines["n2"]
        eventually((self.folder / "munge/socket").exists)
        if self.accounted:
            self.begin_accounting()
        self.daemon(self.ctl, "slurmctld", "-D")
        for name in NODES:
            self.daemon(self.machines[name], "slurmd", "-D", "-N", name)
        eventually(lambda: self.ctl.run("sinfo", "-h", "-N", "-p", "own", "-o", "%T", check=False).stdout.split() ==
                   ["idle"] * 2)

    def begin_accounting(self):
        data = self.folder / "database"
        self.ctl.run("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-test-db",
                     "--auth-root-authentication-method=socket")
        self.ctl.run("mkdir", "-p", "/run/mysqld")
        self.daemon(self.ctl, "mariadbd", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-networking",
                    "--innodb-use-native-aio=0", "--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900",
                    "--socket=/run/mysqld/mysqld.sock", f"--pid-file={self.folder}/mariadbd.pid")
        eventually(lambda: self.ctl.run("test", "-S", "/run/mysqld/mysqld.sock", check=False).returncode == 0)
        self.slurmdbd = self.daemon(self.ctl, "slurmdbd", "-D")
        eventually(lambda: self.ctl.run("sacctmgr", "-i", "add", "cluster", "lab", check=False).returncode == 0, pause=0.5)

    def daemon(self, machine, *words):
        with open(self.folder / f"{machine.name}-{words[0]}.log", "w", encoding="utf-8") as log:
            return machine.start(*words, stdout=log, stderr=subprocess.STDOUT)

    def sbatch(self, script, *options, user="alice"):
        """Submits it on the controller; its number."""
        done = self.ctl.run("sbatch", "--parsable", *options, user=user, input="#!/bin/sh\n" + script)
        return int(done.stdout.split(";")[0])

    def srun(self, *words, user="alice", **more):
        return self.ctl.run("srun", *words, user=user, **more)

    def state(self, job):
        found = re.search(r"JobState=(\w+)", self.ctl.run("scontrol", "show", "job", job).stdout)
        return found[1] if found else ""

    def ended(self, job):
        return eventually(lambda: self.state(job) in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
                          and self.state(job))

    def rest(self):
        """No job of an earlier test is left."""
        for user in USERS:
            self.ctl.run("scancel", "--full", f"--user={user}", check=False)
        eventually(lambda: not self.ctl.run("squeue", "-h").stdout.strip())

    def accounts(self, job, *columns):
        """A job and its steps as slurmdbd tells them: {step: the columns}; the job itself is ""."""
        done = self.ctl.run("sacct", "-n", "-P", "-j", job, f"--format=JobID,{','.join(columns)}")
        rows = [line.split("|") for line in done.stdout.splitlines()]
        return {row[0].partition(".")[2]: row[1:] for row in rows}

    def end(self):
        try:
            self.rest()  # a slurmstepd without slurmctld would wait for it
        except (AssertionError, AttributeError, subprocess.SubprocessError):
            pass  # it never came up
        for process in reversed(self.started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in reversed(self.started):
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for machine in self.machines.values():
            machine.end()
        for name in NODES if self.fenced else ():
            for group in pathlib.Path("/sys/fs/cgroup").glob(f"*/slurm_{name}"):
                for below in sorted(group.rglob("*/"), reverse=True):
                    below.rmdir()
                group.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)
