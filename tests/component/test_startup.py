# SPDX-License-Identifier: Apache-2.0
"""The variables that size runtimes when a program starts (src/base/startup.c), as programs see them."""
import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from cli_tools import tide  # noqa: F401
from daemon import eventually

WAIT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000", "OPENBLAS_THREAD_TIMEOUT": "15"}
SIZED = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "PJRT_NPROC",
         "LOKY_MAX_CPU_COUNT", "ORT_INTRA_OP_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
NAMES = (*WAIT, *SIZED, "JDK_JAVA_OPTIONS", "TIDE_MAX", "GOMAXPROCS", "JULIA_NUM_THREADS", "MC_CORES")


def sizes(count):
    return {**dict.fromkeys(SIZED, str(count)), "JDK_JAVA_OPTIONS": f"-XX:ActiveProcessorCount={count}"}


def startup(tide, *arguments, env=None, cores=None):
    """The variables of NAMES that a program sees."""
    wrapper = ["taskset", "-c", cores] if cores else []
    done = tide("run", *arguments, "--", *wrapper, "env", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return {name: seen[name] for name in NAMES if name in seen}


def test_a_job_without_a_number_of_threads_keeps_its_sizes(tide):
    assert startup(tide) == WAIT
    assert startup(tide, "--min", "1") == WAIT
    assert startup(tide, "--spin") == {}
    assert startup(tide, env={"TIDE_SPIN": "1"}) == {}
    for off in ("0", ""):
        assert startup(tide, env={"TIDE_SPIN": off}) == WAIT


def test_the_number_of_threads_is_the_jobs(tide):
    cores = len(os.sched_getaffinity(0))
    assert startup(tide, "--threads", "5") == {**WAIT, **sizes(5)}
    assert startup(tide, "--max", str(cores)) == {**WAIT, "TIDE_MAX": str(cores)}
    assert startup(tide, "--max", str(cores + 3)) == {**WAIT, "TIDE_MAX": str(cores + 3)}
    if cores > 1:
        assert startup(tide, "--max", "1") == {**WAIT, **sizes(1), "TIDE_MAX": "1"}
        assert startup(tide, "--max", str(cores), "--request", "1") == \
            {**WAIT, **sizes(1), "TIDE_MAX": str(cores)}


def test_what_the_user_has_set_stays(tide):
    mine = {"OMP_NUM_THREADS": "7", "OMP_WAIT_POLICY": "active", "OPENBLAS_THREAD_TIMEOUT": "26"}
    seen = startup(tide, "--threads", "5", env={**mine, "JDK_JAVA_OPTIONS": "-Xmx1g"})
    assert seen == {**sizes(5), **mine, "JDK_JAVA_OPTIONS": "-XX:ActiveProcessorCount=5 -Xmx1g"}


def test_a_job_within_a_job_is_sized_anew(tide):
    def inner(*arguments, env=None, outer=None):
        done = tide("run", "--threads", "5", "--", "env", *[f"{k}={v}" for k, v in (env or {}).items()],
                    tide.program, "run", *arguments, "--", "env", env=outer)
        assert done.returncode == 0, done.stderr
        seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        return {name: seen[name] for name in NAMES if name in seen}

    assert inner() == WAIT
    assert inner("--spin") == {}
    assert inner("--threads", "6") == {**WAIT, **sizes(6)}
    # A variable that a program of the outer job has changed is the user's.
    assert inner("--threads", "6", env={"OMP_NUM_THREADS": "2"}) == \
        {**WAIT, **sizes(6), "OMP_NUM_THREADS": "2"}
    # So is one that the user had set before, also to the value that the outer job would have set.
    mine = {"OMP_NUM_THREADS": "5", "GOMP_SPINCOUNT": "1000"}
    assert inner(outer=mine) == {**mine, "OPENBLAS_THREAD_TIMEOUT": "15"}
    assert inner("--threads", "6", outer=mine) == {**sizes(6), **mine, "OPENBLAS_THREAD_TIMEOUT": "15"}


def test_a_job_tells_how_it_was_started(tide, tmp_path):
    """Also after its daemon was killed; and the runtimes that its processes have, with versions."""
    built(tmp_path, "sum.c", "#include <omp.h>\n#include <unistd.h>\n"
          "int main(void) { omp_in_parallel(); write(1, \"ready\\n\", 6); return sleep(600); }",
          "gcc", "-fopenmp", "-o", "sum")
    program = tide.start("run", "--threads", "3", "--name", "sum", "--", tmp_path / "sum", stdout=subprocess.PIPE,
                         env={"RAYON_NUM_THREADS": "7"})
    assert program.stdout.readline() == "ready\n"
    plain = tide.start("run", "--name", "plain", "--", "sleep", "600")
    eventually(lambda: len(tide.jobs()) == 2)
    assert (tide.job("sum")["sized"], tide.job("plain")["sized"]) == (3, None)
    row = next(line for line in tide("ps").stdout.splitlines() if "sum" in line)
    assert row.split()[9] == "3"  # MAX
    told = tide("explain", "sum").stdout
    assert "j1 sum: starting, started with 3 threads" in told
    assert re.search(rf"\n  process {program.pid}  gomp 1\.0\.0: moldable \(", told), told
    assert re.search(rf"\n  process {program.pid}: started with .*OMP_NUM_THREADS=3,", told)
    assert "RAYON" not in told  # the user's own
    answer = json.loads(tide("explain", "sum", "--json").stdout)["processes"]
    assert [(p["pid"], p["started"]["OMP_NUM_THREADS"]) for p in answer] == [(program.pid, "3")]
    assert [r["kind"] for r in answer[0]["runtimes"] if r["name"] == "gomp"] == ["moldable"]
    told = tide("explain", "plain").stdout
    assert f"process {plain.pid}  none that tide recognizes\n" in told and "started with" not in told
    before = tide.daemon()
    os.kill(before, signal.SIGKILL)
    tide.wait(lambda: tide.daemon() != before)
    assert tide("run", "true").returncode == 0  # starts a daemon again
    assert tide.job("sum")["sized"] == 3


def test_what_the_agent_governs_is_malleable_whatever_is_known_of_its_kind(tide, tmp_path, monkeypatch):
    monkeypatch.setitem(tide.env, "TIDE_OPENMP", "on")
    built(tmp_path, "loop.c", """#include <unistd.h>
        int main(void) { for (volatile long n = 0;; n++) {
            #pragma omp parallel
            { __asm__ volatile(""); }
            if (n == 0) write(1, "ready\\n", 6);
            usleep(1000); } }""", "gcc", "-O1", "-fopenmp", "-o", "loop")
    program = tide.start("run", "--threads", "2", "--max", "4", "--name", "loop", "--", tmp_path / "loop", stdout=subprocess.PIPE)
    assert program.stdout.readline() == "ready\n"
    tide.wait(lambda: tide.job("loop")["backends"])
    job = tide.job("loop")
    assert (job["state"], job["sized"]) == ("running", 2)
    told = tide("explain", "loop").stdout
    assert f"\n  process {program.pid}  gomp 1.0.0: malleable (" in told, told


def built(tmp_path, name, text, *command):
    source = tmp_path / name
    source.write_text(text)
    subprocess.run([*command, str(source)], check=True, cwd=tmp_path, timeout=120,
                   env={**os.environ, "GO111MODULE": "off"})


def need(program):
    if not shutil.which(program):
        pytest.skip(f"no {program} here")


def test_openmp_is_sized(tide, tmp_path):
    built(tmp_path, "size.c", """#include <omp.h>
        #include <stdio.h>
        int main(void) { int n = 0, k = 0;
            #pragma omp parallel reduction(+:n)
            n++;
            #pragma omp parallel num_threads(3) reduction(+:k)
            k++;
            printf("%d %d\\n", n, k); }""", "gcc", "-fopenmp", "-o", "size")
    assert tide("run", "--threads", "5", "--", tmp_path / "size").stdout == "5 3\n"
    assert tide("run", "--threads", "5", "--", tmp_path / "size", env={"OMP_NUM_THREADS": "4"}).stdout == "4 3\n"
    cores = len(os.sched_getaffinity(0))
    assert tide("run", "--", tmp_path / "size").stdout == f"{cores} 3\n"


def test_libgomp_waits_as_it_is_told(tide, tmp_path):
    built(tmp_path, "wait.c", "#include <omp.h>\nint main(void) { return omp_in_parallel(); }",
          "gcc", "-fopenmp", "-o", "wait")
    env = {"OMP_DISPLAY_ENV": "verbose"}
    said = tide("run", "--", tmp_path / "wait", env=env).stderr
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in said and "GOMP_SPINCOUNT = '1000'" in said
    said = tide("run", "--spin", "--", tmp_path / "wait", env=env).stderr
    assert "GOMP_SPINCOUNT" in said and "GOMP_SPINCOUNT = '1000'" not in said


def test_java_is_sized_and_says_so_on_stderr(tide, tmp_path):
    need("javac")
    built(tmp_path, "Size.java", """public class Size { public static void main(String[] a) {
        System.out.println(Runtime.getRuntime().availableProcessors()); } }""", "javac", "-d", str(tmp_path))
    done = tide("run", "--threads", "5", "--", "java", "-cp", tmp_path, "Size")
    assert (done.stdout, done.stderr) == ("5\n", "NOTE: Picked up JDK_JAVA_OPTIONS: -XX:ActiveProcessorCount=5\n")
    done = tide("run", "--threads", "5", "--", "java", "-XX:ActiveProcessorCount=3", "-cp", tmp_path, "Size")
    assert done.stdout == "3\n"
    done = tide("run", "--threads", "5", "--", "java", "-cp", tmp_path, "Size",
                env={"JDK_JAVA_OPTIONS": "-XX:ActiveProcessorCount=2"})
    assert done.stdout == "2\n"
    done = tide("run", "--", "java", "-cp", tmp_path, "Size")
    assert (done.stdout, done.stderr) == (f"{len(os.sched_getaffinity(0))}\n", "")


def test_go_reads_its_cores_itself(tide, tmp_path):
    need("go")
    built(tmp_path, "size.go", """package main
        import "runtime"
        func main() { println(runtime.GOMAXPROCS(0)) }""", "go", "build", "-o", "gosize")
    one = min(os.sched_getaffinity(0))
    done = tide("run", "--threads", "5", "--", "taskset", "-c", str(one), tmp_path / "gosize")
    assert done.stderr == "1\n"
