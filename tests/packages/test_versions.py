# SPDX-License-Identifier: Apache-2.0
"""The earlier version, of the commit in `old-release`, and the present one, unpacked side by side: each program with the other's."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import pytest

from conftest import BUILD, Packages, compiled_example

NAMES = ("threadtide", "libtide1", "libtide-dev", "python3-threadtide")
GUARD_S = 60
CORES = len(os.sched_getaffinity(0))
BOTH = pytest.mark.parametrize("one, other", [("old", "new"), ("new", "old")])


class Version:
    """Programs, agent and library of a version, at a place of their own; the examples compiled with its header."""

    def __init__(self, made, folder):
        made.unpack(folder, *NAMES)
        self.bin, self.agent = folder / "usr/bin", folder / "usr/lib/threadtide"
        self.library = next(folder.glob("usr/lib/*/libtide.so.1")).parent
        self.python = folder / "usr/lib/python3/dist-packages"
        self.loop, self.controller = (compiled_example(folder, name) for name in ("malleable_loop", "controller"))


@pytest.fixture(scope="module")
def versions(packages, tmp_path_factory):
    old = Packages(BUILD.with_name(BUILD.name + "-old"), NAMES)
    return {name: Version(made, tmp_path_factory.mktemp(name)) for name, made in (("old", old), ("new", packages))}


class Bed:
    """A daemon's folder, and programs of either version that use it. With a library of its own, if @library names another version."""

    def __init__(self, versions, folder):
        self.versions, self.folder = versions, folder
        self.running = contextlib.ExitStack()

    def env(self, version, library=None):
        return {"PATH": f"{self.versions[version].bin}:/usr/bin:/bin", "HOME": str(self.folder), "TIDE_DIR": str(self.folder / "run"),
                "TIDE_CLAIMS_DIR": str(self.folder / "claims"), "TIDE_AGENT_DIR": str(self.versions[version].agent),
                "LD_LIBRARY_PATH": str(self.versions[library or version].library)}

    def start(self, version, *words, library=None):
        return self.running.enter_context(contextlib.closing(Process(words, self.env(version, library), self.folder)))

    def try_(self, version, *words, library=None):
        return subprocess.run(words, env=self.env(version, library), cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=GUARD_S, check=False)

    def tide(self, version, *words):
        done = self.try_(version, "tide", *words)
        assert done.returncode == 0, f"{version}: {words}\n{done.stdout}"
        return done.stdout

    def daemon(self, version):
        process = self.start(version, "tided", "--engine", "none")
        eventually(lambda: self.try_(version, "tide", "ps").returncode == 0)
        said = self.tide(version, "version")
        assert str(process.pid) in said or "tided" in said
        return process

    def job(self, version, name, *options, program=None, library=None):
        return self.start(version, "tide", "run", "--name", name, *options, "--", self.versions[program or version].loop, "8", "900000000",
                          library=library)

    def jobs(self, version):
        return {job["name"]: job for job in json.loads(self.tide(version, "ps", "--json"))}

    def has(self, **wanted):
        """Waits until each job has so many threads, as both versions of tide say."""
        for version in self.versions:
            eventually(lambda: {name: (job["target"], job["active"]) for name, job in self.jobs(version).items()
                                if name in wanted} == {name: (n, n) for name, n in wanted.items()})


class Process(subprocess.Popen):
    def __init__(self, words, env, folder):
        super().__init__(words, env=env, cwd=folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def close(self):
        self.kill()
        self.wait()

    def end(self):
        self.send_signal(signal.SIGTERM)
        assert self.wait(GUARD_S) == 0


def eventually(condition):
    end = time.monotonic() + GUARD_S
    while not (found := condition()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.1)
    return found


@pytest.fixture
def bed(versions):
    with tempfile.TemporaryDirectory(prefix="tide-versions-", ignore_cleanup_errors=True) as name:
        result = Bed(versions, pathlib.Path(name))
        with result.running:
            yield result


def shares(bed, *names):
    """All cores are divided among these jobs, and each has as many threads as it is told."""
    def divided():
        jobs = [bed.jobs(version).get(name) for version in bed.versions for name in names]
        return (all(job and job["target"] == job["active"] and job["active"] for job in jobs)
                and sum(job["active"] for job in jobs) == 2 * max(CORES, len(names)))
    eventually(divided)


@BOTH
def test_jobs_of_both_versions_share_the_machine_under_either_daemon(bed, one, other):
    """The agent of one talks to the daemon of the other, beside one of its own; each tide steers both."""
    bed.daemon(other)
    foreign, own = bed.job(one, "foreign"), bed.job(other, "own")
    shares(bed, "foreign", "own")
    for version in bed.versions:
        for job in ("foreign", "own"):
            bed.tide(version, "set", job, "--threads", "2")
            bed.has(**{job: 2})
            bed.tide(version, "set", job, "--auto")
        bed.tide(version, "set", "foreign", "--weight", "300")
        assert "foreign" in bed.tide(version, "explain", "foreign")
        shares(bed, "foreign", "own")
    own.close()
    shares(bed, "foreign")
    assert foreign.poll() is None


@BOTH
def test_a_program_and_its_library_go_with_the_agent_and_the_daemon_of_another_version(bed, one, other):
    """A newer library must not be told of a symbol that an older program misses, nor the reverse."""
    bed.daemon(other)
    bed.job(other, "foreign", program=one, library=one)
    bed.job(other, "linked", program="old", library="new")  # a program that was compiled before the upgrade
    shares(bed, "foreign", "linked")
    done = bed.try_(other, bed.versions[one].controller, "foreign", library=one)
    assert done.returncode == 0 and "failed" not in done.stdout, done.stdout
    said = subprocess.run(["/usr/bin/python3", "-c", "import threadtide.controller as c\n"
                           "with c.Controller() as c: print(*sorted(job.name for job in c.jobs()))"],
                          env={**bed.env(other, one), "PYTHONPATH": bed.versions[one].python}, check=True, stdout=subprocess.PIPE, text=True)
    assert said.stdout.split() == ["foreign", "linked"]


def test_a_daemon_goes_on_with_what_one_of_the_other_version_has_left(bed):
    """Up, and down again: jobs, threads that were set by hand, the queue, the policy; history goes on with the newer one."""
    daemon = bed.daemon("old")
    bed.tide("old", "run", "--name", "short", "--", "sh", "-c", "sleep 0.2")
    bed.tide("old", "policy", "set", "fcfs/max-prop")
    bed.tide("old", "submit", "--name", "night", "--hold", "--", "true")
    job = bed.job("old", "long")
    eventually(lambda: "long" in bed.jobs("old"))
    bed.tide("old", "set", "long", "--threads", "2")
    bed.has(long=2)
    pids = bed.jobs("old")["long"]["pids"]
    for version in ("new", "old"):
        daemon.end()
        daemon = bed.daemon(version)
        bed.has(long=2)
        assert bed.jobs(version)["long"]["pids"] == pids and job.poll() is None
        assert "night" in bed.tide("old", "queue") and "night" in bed.tide("new", "queue")
        assert json.loads(bed.tide(version, "policy", "--json"))["policy"].startswith("fcfs")
        if version == "new":
            assert {"short", "long"} <= {json.loads(line)["name"] for line in bed.tide("new", "history", "--json").splitlines()}
    bed.tide("old", "cancel", "night")


@BOTH
def test_a_program_runs_whatever_the_daemon_of_the_other_version_knows(bed, one, other):
    """An attribute that a daemon does not know is left out; nothing keeps the program from running."""
    bed.daemon(other)
    options = ("--weight", "50", "--min", "1", "--class", "3", *(("--slo", "p99=50ms") if one == "new" else ()))
    done = bed.try_(one, "tide", "run", "--name", "job", *options, "--", "echo", "it ran")
    assert (done.returncode, "it ran" in done.stdout, "not as a job" in done.stdout) == (0, True, False), done.stdout
    assert ("without --slo" in done.stdout) == (one == "new"), done.stdout


def keys(value, path=""):
    """Paths of all members of JSON; of an array those of its first element."""
    if isinstance(value, dict):
        return {f"{path}.{key}" for key in value}.union(*(keys(inner, f"{path}.{key}") for key, inner in value.items()))
    return keys(value[0], path + "[]") if isinstance(value, list) and value else set()


def test_what_users_rely_on_is_still_there(bed, versions):
    """Commands and their options, members of answers, keys of tide.conf, policies and their parameters, symbols of the library."""
    answers, there = {}, {}
    for version in ("old", "new"):
        daemon = bed.daemon(version)
        bed.job(version, "one")
        shares(bed, "one")
        answers[version] = set().union(*({f"{' '.join(words)}: {key}" for key in keys(json.loads(bed.tide(version, *words).splitlines()[0]
                                          if words[0] == "history" else bed.tide(version, *words)))}
                                         for words in (["ps", "--json"], ["policy", "--json"], ["history", "--json"], ["power", "--json"])))
        bed.tide(version, "cancel", "one")
        daemon.end()
        commands = re.findall(r"^  ([a-z]+)  ", bed.tide(version, "help"), re.M)
        options = {f"{name} {option}" for name in commands for option in re.findall(r"--[a-z][a-z-]+", bed.try_(version, "tide", name, "--help").stdout)}
        conf = {f"tide.conf {key}" for key in re.findall(r"^([a-z-]+)=", bed.try_(version, "tided", "--check-config").stdout, re.M)}
        policies = {f"policy {name} {word}" for name in re.findall(r"^[* ] ?([a-z-]+) ", bed.tide(version, "policy", "list"), re.M)
                    for word in ["", *re.findall(r"^  ([a-z-]+) ", bed.tide(version, "policy", "show", name), re.M)]}
        symbols = set(re.findall(r" T (tide_\w+@@\S+)", subprocess.run(
            ["nm", "-D", versions[version].library / "libtide.so.1"], check=True, stdout=subprocess.PIPE, text=True).stdout))
        assert len(commands) > 20 and len(options) > 60 and len(conf) > 10 and len(policies) > 15 and len(symbols) > 15
        there[version] = set(commands) | options | conf | policies | symbols
    assert len(answers["old"]) > 60
    assert answers["old"] - answers["new"] == set()
    assert there["old"] - there["new"] == set()
