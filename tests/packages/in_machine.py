# SPDX-License-Identifier: Apache-2.0
"""Packages under a real systemd; each test goes on where the one before has ended. Run by test_machine.py."""
import grp
import json
import os
import pathlib
import pwd
import subprocess
import time

import pytest

PACKAGES = pathlib.Path("/project/packages")
EARLIER, LATER = os.environ.get("EARLIER", ""), os.environ.get("LATER", "")
NAMES = ("threadtide", "libtide1", "libtide-dev", "python3-threadtide", "threadtide-power", "threadtide-hub", "threadtide-docker", "threadtide-slurm",
         "tide-kube")
GUARD_S = 120
N = os.cpu_count()
THREADS = 2  # that the long job is given
CGROUP = pathlib.Path("/sys/fs/cgroup")
OFF = ("tide-power", "tide-hub", "tide-hub-broker")
# A program of N threads on paper, which writes down every number it is given, and when.
JOB = """
import ctypes, sys, time
lib = ctypes.CDLL("libtide.so.1")
class State(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("max", ctypes.c_uint32), ("target", ctypes.c_uint32)]
FN = ctypes.CFUNCTYPE(None, ctypes.POINTER(State), ctypes.c_void_p)
log = open(sys.argv[1], "a", buffering=1)
def change(state, arg):
    target = state.contents.target
    log.write(f"{time.monotonic():.3f} {target}\\n")
    lib.tide_active(max(1, min(int(sys.argv[2]), target)))
keep = FN(change)
assert lib.tide_declare(int(sys.argv[2])) >= 0
lib.tide_on_change(keep, None)
lib.tide_active(int(sys.argv[2]))
print("ready", flush=True)
time.sleep(3600)
"""


def run(*words, check=True):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=GUARD_S * 2, check=False)
    assert done.returncode == 0 or not check, f"{words}\n{done.stdout}"
    return done.stdout.strip()


def apt(*words):
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    return run("apt-get", "-qq", "-y", "--no-install-recommends", "--allow-downgrades", *words)


def install(version):
    apt("install", *(str(next((PACKAGES / version).glob(f"{name}_*.deb"))) for name in NAMES))


def is_(what, unit):
    return run("systemctl", f"is-{what}", unit, check=False)


def shown(name, unit="tided"):
    return run("systemctl", "show", "--property", name, "--value", unit)


def eventually(condition):
    end = time.monotonic() + GUARD_S
    while not (found := condition()):
        assert time.monotonic() < end, run("journalctl", "--no-pager", "-n", "30", "-o", "cat", "-u", "tided")
        time.sleep(0.2)
    return found


def job(name="long"):
    return next((job for job in json.loads(run("tide", "ps", "--json")) if job["name"] == name), None)


def steady():
    """The job as it has to be with a daemon."""
    found = job()
    return found and (found["target"], found["active"]) == (THREADS, THREADS) and found


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("job") / "targets"


@pytest.fixture(scope="module")
def long(log):
    """A job with cores of its own and a fixed number of threads."""
    with subprocess.Popen(["tide", "run", "--name", "long", "--placement", "exclusive", "--", "python3", "-c", JOB,
                           log, str(N)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        run("tide", "set", "long", "--threads", str(THREADS))
        eventually(steady)
        eventually(lambda: len(os.sched_getaffinity(process.pid)) == THREADS)
        yield process
        process.kill()


def test_installed_the_daemon_runs_and_what_needs_a_configuration_does_not():
    install(EARLIER)
    for unit in ("tided.service", "tided.socket"):
        assert (is_("active", unit), is_("enabled", unit)) == ("active", "enabled")
    for unit in OFF:
        assert (is_("active", unit), is_("enabled", unit)) == ("inactive", "disabled")
    assert grp.getgrnam("tide-admin") and pwd.getpwnam("tide-power") and pwd.getpwnam("tide-hub")
    assert run("systemctl", "--failed", "--no-legend", "--plain", "list-units", "tide*") == ""
    assert os.stat("/run/tide/api.sock").st_mode & 0o777 == 0o666


def test_the_daemon_takes_a_unit_of_power_that_is_installed_later():
    """tided looks its groups up when it starts or reloads."""
    ask = ("import http.client, socket; c = http.client.HTTPConnection('localhost'); c.sock = socket.socket(socket.AF_UNIX);"
           " c.sock.connect('/run/tide/api.sock'); c.request('GET', '/v1/power/demand'); print(c.getresponse().status)")
    apt("purge", "threadtide-power")
    run("systemctl", "restart", "tided")
    apt("install", str(next((PACKAGES / EARLIER).glob("threadtide-power_*.deb"))))
    eventually(lambda: run("runuser", "-u", "tide-power", "--", "python3", "-c", ask) == "200")
    assert run("runuser", "-u", "nobody", "--", "python3", "-c", ask) == "403"


def test_the_first_jobs_share_the_machine():
    run("env", "PROGRAM=/project/loop", "CHUNKS=2000", "sh", "debian/tests/first-job")


@pytest.mark.parametrize("version", [LATER, EARLIER])
def test_a_new_version_takes_the_job_over_with_its_threads(long, log, version):
    before, process, began = shown("MainPID"), steady(), time.monotonic()
    seen = len(log.read_text().splitlines())
    install(version)
    assert run("tided", "--version").split()[1] == version.rpartition("-")[0]
    assert shown("MainPID") not in (before, "0") and shown("ActiveState") == "active"
    now = eventually(steady)
    assert now["pids"] == process["pids"] and long.poll() is None
    eventually(lambda: len(os.sched_getaffinity(long.pid)) == THREADS)
    given = [line.split() for line in log.read_text().splitlines()[seen:]]
    # While there is no daemon, a job has its own cores again, never less than before.
    assert given[-1][1] == str(THREADS) and all(THREADS <= int(target) <= N for _, target in given), given
    with open("results/targets", "a") as file:
        print(f"{version}: restarted after {float(shown('ExecMainStartTimestampMonotonic')) / 1e6 - began:.1f} s, {given}", file=file)
    assert is_("active", "tided.socket") == "active"


def test_a_daemon_that_its_administrator_has_turned_off_stays_off(long):
    run("systemctl", "disable", "--now", "tided.service", "tided.socket")
    install(LATER)
    assert (is_("active", "tided"), is_("enabled", "tided")) == ("inactive", "disabled")
    run("systemctl", "enable", "--now", "tided.service")
    eventually(steady)


def test_removed_they_leave_jobs_running_with_all_that_is_theirs(long):
    assert [path.name for path in CGROUP.glob("tide-*")] or len(os.sched_getaffinity(long.pid)) == THREADS
    apt("remove", *NAMES)
    assert long.poll() is None
    eventually(lambda: len(os.sched_getaffinity(long.pid)) == N)
    eventually(lambda: not list(CGROUP.glob("tide-*")))
    assert not os.path.exists("/run/tide") and not os.path.exists("/usr/bin/tided")
    eventually(lambda: subprocess.run(["pgrep", "-x", "tided"], check=False).returncode == 1)
    for unit in ("tided.service", "tided.socket", *(f"{name}.service" for name in OFF)):
        assert shown("LoadState", unit) == "not-found", unit
    assert os.path.exists("/etc/tide/tide.conf") and os.path.isdir("/var/lib/tide")


def test_purged_they_leave_nothing():
    run("dpkg", "--purge", *(name for name in NAMES if name not in ("libtide1", "libtide-dev", "python3-threadtide", "tide-kube")))  # these left nothing
    for path in ("/etc/tide", "/var/lib/tide", "/var/lib/tide-power", "/var/lib/tide-hub", "/run/tide", "/usr/lib/threadtide",
                 "/dev/shm/tide-claims"):
        assert not os.path.exists(path), path
    accounts = pathlib.Path("/etc/passwd").read_text() + pathlib.Path("/etc/group").read_text()
    assert "tide" not in accounts
    assert run("systemctl", "--no-legend", "--plain", "--all", "list-units", "tide*") == ""
    found = run("find", "/etc/systemd", "/run/systemd", "/var/lib/systemd", "-name", "*tide*")
    assert found == ""
