# SPDX-License-Identifier: Apache-2.0
"""`tide doctor PID` on real programs, without a daemon and without the agent."""
import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

import conftest
from cli_tools import assert_error, tide  # noqa: F401
from daemon import GUARD_S

UNEVEN = """
    #include <omp.h>
    int main(void) {
        for (;;) {
            #pragma omp parallel
            { volatile double y = 0;
              for (long i = 0; i < 20000 * (1 + 30 * (omp_get_thread_num() == 0)); i++) y += 1; }
        }
    }"""


@pytest.fixture
def program(tmp_path):
    """program(COMMAND..., env=...) starts one, and ends it with the test."""
    started = []

    def start(*command, env=None):
        started.append(subprocess.Popen([str(word) for word in command], env={**conftest.plain_env(), **(env or {})},
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(GUARD_S)


def compiled(tmp_path, text, *options, compiler="gcc", name="program.c"):
    (tmp_path / name).write_text(text)
    subprocess.run([compiler, "-O1", "-o", tmp_path / "program", tmp_path / name, *options], check=True,
                   timeout=GUARD_S)
    return tmp_path / "program"


def until(check):
    end = time.monotonic() + GUARD_S
    while not (result := check()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return result


def threads(process):
    return len(os.listdir(f"/proc/{process.pid}/task"))


def examined(tide, process, code=None):
    done = tide("doctor", str(process.pid), "--json")
    assert done.stderr == ""
    assert done.returncode in ((0, 1) if code is None else (code,))
    answer = json.loads(done.stdout)
    answer["runtimes"] = {row["name"]: row for row in answer["runtimes"]}
    answer["findings"] = {row["code"]: row for row in answer["findings"]}
    return answer


def test_eight_openmp_threads_on_one_core(tide, tmp_path, program):
    built = compiled(tmp_path, UNEVEN, "-fopenmp")
    process = program("taskset", "-c", min(os.sched_getaffinity(0)), built, env={"OMP_NUM_THREADS": "8"})
    until(lambda: threads(process) == 8)
    seen = examined(tide, process, 1)
    assert (seen["threads"], seen["allowed"], seen["tide"]) == (8, 1.0, "unreachable")
    assert seen["thread_names"] == {"program": 8}
    assert (seen["runtimes"]["gomp"]["kind"], seen["runtimes"]["gomp"]["copies"]) == ("moldable", 1)
    assert seen["losses"]["waiting"] > 0.3
    assert seen["losses"]["involuntary_per_second"] > 0
    assert seen["findings"]["oversubscribed"]["problem"]
    assert seen["findings"]["oversubscribed"]["fix"] == f"env OMP_NUM_THREADS=1 {built}"
    text = tide("doctor", str(process.pid)).stdout
    assert "threads    8 program\n" in text and "moldable (reads its size at the start), OMP_NUM_THREADS=8\n" in text
    gomp = seen["runtimes"]["gomp"]
    assert (gomp["reported"], gomp["max"], gomp["active"], gomp["variable"]) == (False, None, None, "OMP_NUM_THREADS=8")
    assert "how large the pools are is known only where the agent reports it\n" in text


def test_threads_that_spin_in_libgomp(tide, tmp_path, program):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("on one core libgomp does not spin for long")
    process = program(compiled(tmp_path, UNEVEN, "-fopenmp"), env={"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "active"})
    until(lambda: threads(process) == 2)
    # On a busy machine it may hardly run for a second: too few samples say nothing.
    until(lambda: int(pathlib.Path(f"/proc/{process.pid}/stat").read_text().split()[13]) > 20)
    seen = examined(tide, process)
    if seen["losses"]["spinning"] is None:
        pytest.skip("the kernel allows no sampling here")
    seen = until(lambda: "spinning" in (now := examined(tide, process))["findings"] and now)
    assert seen["losses"]["spinning"] > 0.2  # one of the two threads has a thirtieth of the work
    assert seen["findings"]["spinning"]["fix"] == f"tide run -- {tmp_path}/program"
    process.kill()
    busy = program("sh", "-c", "while :; do :; done")  # computes all the time
    assert "spinning" not in examined(tide, busy)["findings"]


def test_java_whose_folder_has_a_pipe(tide, tmp_path, program):
    """Nothing that lies beside a library is waited for. Any file may be mapped under the name."""
    library = tmp_path / "jvm" / "lib" / "libjvm.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(bytes(4096))
    os.mkfifo(tmp_path / "jvm" / "release")
    process = program("python3", "-c", "import mmap, sys, time; f = open(sys.argv[1]); "
                      "m = mmap.mmap(f.fileno(), 0, prot=1); print('ready', flush=True); time.sleep(600)", library)
    assert process.stdout.readline() == b"ready\n"
    java = examined(tide, process)["runtimes"]["java"]
    assert (java["kind"], java["version"]) == ("moldable", "")


@pytest.mark.parametrize("beside,kind,why", [
    ((), "malleable", "the agent limits the threads of each call"),
    (("libtensorflow_framework.so.2",), "moldable", "another library computes with threads, too"),
    (("libgomp.so.1.0.0",), "moldable", "another library computes with threads, too")], ids=["alone", "beside-tensorflow", "beside-openmp"])
def test_a_blas_beside_another_library_with_threads_is_what_the_agent_makes_of_it(tide, tmp_path, program, beside, kind, why):
    paths = [tmp_path / name for name in ("libopenblas.so.0", *beside)]
    for path in paths:
        path.write_bytes(bytes(4096))
    process = program("python3", "-c", "import mmap, sys, time; files = [open(path) for path in sys.argv[1:]]; "
                      "kept = [mmap.mmap(file.fileno(), 0, prot=1) for file in files]; "
                      "print('ready', flush=True); time.sleep(600)", *paths)
    assert process.stdout.readline() == b"ready\n"
    seen = examined(tide, process)["runtimes"]["openblas"]
    assert (seen["kind"], seen["why"]) == (kind, why)
    assert seen["except"] == ("builds with OpenMP" if kind == "malleable" else None)
    usually = f"openblas: {'usually ' if kind == 'malleable' else ''}{kind} ({why}"
    assert usually in tide("doctor", str(process.pid)).stdout


def test_a_static_go_program_with_its_version(tide, tmp_path, program):
    if not shutil.which("go"):
        pytest.skip("no go here")
    (tmp_path / "wait.go").write_text('package main\nimport "time"\nfunc main() { time.Sleep(time.Hour) }\n')
    subprocess.run(["go", "build", "-o", tmp_path / "wait", tmp_path / "wait.go"], check=True, timeout=120,
                   env={**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off"})
    seen = examined(tide, program(tmp_path / "wait"), 0)
    version = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout
    assert seen["static"]
    assert seen["runtimes"]["go"]["kind"] == "rigid"
    assert f'go{seen["runtimes"]["go"]["version"]} ' in version


def test_openmp_inside_a_static_program(tide, tmp_path, program):
    built = compiled(tmp_path, "#include <omp.h>\n#include <unistd.h>\nint main(void) {\n#pragma omp parallel\n"
                     "{ __asm__ volatile(\"\"); }\nsleep(600); }", "-fopenmp", "-static")
    process = program(built, env={"OMP_NUM_THREADS": "3"})
    until(lambda: threads(process) == 3)
    seen = examined(tide, process)
    assert seen["static"] and "gomp" in seen["runtimes"]
    assert "static: the agent cannot be loaded into it" in tide("doctor", str(process.pid)).stdout


STRANGE = """
    #include <pthread.h>
    #include <sys/prctl.h>
    #include <unistd.h>
    static void *idle(void *arg) { prctl(PR_SET_NAME, "\\033]0;t\\xff"); write(1, "ready\\n", 6); sleep(600); return arg; }
    int main(void) { pthread_t t; prctl(PR_SET_NAME, "a\\033[2Jb\\n\\xc3"); pthread_create(&t, 0, idle, 0);
        for (;;) %s; }"""


def test_what_another_user_chose_gives_no_orders_to_a_terminal(tide, tmp_path, program):
    process = program(compiled(tmp_path, STRANGE % "sleep(600)", "-pthread"), "x\x1b[31m\nrm")
    assert process.stdout.readline() == b"ready\n"
    text = tide("doctor", str(process.pid)).stdout
    assert "\x1b" not in text and f"process {process.pid} (a?[2Jb??), 2 threads\n" in text
    seen = examined(tide, process)
    assert seen["comm"] == "a?[2Jb??"
    assert seen["thread_names"] == {"a?[2Jb??": 1, "?]0;t?": 1}
    assert seen["command"] == f"{tmp_path}/program 'x?[31m?rm'"


def test_a_command_that_cannot_be_typed_is_not_told(tide, tmp_path, program):
    built = compiled(tmp_path, UNEVEN, "-fopenmp")
    core = min(os.sched_getaffinity(0))
    process = program("taskset", "-c", core, built, "x\ny", env={"OMP_NUM_THREADS": "8"})
    until(lambda: threads(process) == 8)
    assert examined(tide, process, 1)["findings"]["oversubscribed"]["fix"] == "env OMP_NUM_THREADS=1 COMMAND"


def test_strangers_names_in_the_survey(tide, tmp_path, program):
    """The survey shows all users' processes to root, to others their own."""
    program_path = compiled(tmp_path, STRANGE % "", "-pthread")
    core = min(os.sched_getaffinity(0))
    for _ in range(2):
        assert program("taskset", "-c", core, program_path).stdout.readline() == b"ready\n"
    rows = json.loads(tide("doctor", "--json").stdout)["processes"]
    assert [row["comm"] for row in rows].count("a?[2Jb??") == 2
    assert not [line for line in tide("doctor").stdout.splitlines() if "\x1b" in line]


def test_thousands_of_threads(tide, tmp_path, program):
    built = compiled(tmp_path, """#include <pthread.h>
        #include <unistd.h>
        static void *idle(void *arg) { sleep(600); return arg; }
        int main(void) { pthread_attr_t a; pthread_t t; pthread_attr_init(&a); pthread_attr_setstacksize(&a, 65536);
            for (int i = 0; i < 3000; i++) if (pthread_create(&t, &a, idle, 0)) return 1;
            write(1, "ready\\n", 6); sleep(600); }""", "-pthread")
    process = program(built)
    assert process.stdout.readline() == b"ready\n"
    seen = examined(tide, process)
    assert (seen["threads"], seen["thread_names"]) == (3001, {"program": 3001})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a control group")
def test_a_quota_that_stops_it(tide, program):
    v1 = pathlib.Path("/sys/fs/cgroup/cpu")
    group = (v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")) / f"doctor-{os.getpid()}"
    process = program("sh", "-c", "while :; do :; done")
    try:
        group.mkdir()
        if v1.is_dir():
            (group / "cpu.cfs_quota_us").write_text("10000")
        else:
            (group / "cpu.max").write_text("10000 100000")
        (group / "cgroup.procs").write_text(str(process.pid))
        seen = examined(tide, process, 1)
        assert (seen["quota"], seen["allowed"]) == (0.1, 0.1)
        assert seen["losses"]["throttled"] > 0
        assert seen["findings"]["throttled"]["problem"]
        assert f"doctor-{os.getpid()}" in seen["findings"]["throttled"]["fix"]
        assert "stopped by its quota in " in tide("doctor", str(process.pid)).stdout
    except OSError:
        pytest.skip("this machine lets no control group be made")
    finally:
        process.kill()
        process.wait(GUARD_S)
        until(lambda: not group.exists() or not (group / "cgroup.procs").read_text())
        if group.exists():
            group.rmdir()


def test_who_cannot_be_looked_at(tide, program):
    gone = program("true")
    gone.wait(GUARD_S)
    assert_error(tide("doctor", str(gone.pid)), 3, f"tide: doctor: there is no process {gone.pid}")
    zombie = program("true")
    until(lambda: pathlib.Path(f"/proc/{zombie.pid}/stat").read_text().split()[2] == "Z")
    assert_error(tide("doctor", str(zombie.pid)), 3, f"tide: doctor: process {zombie.pid} has ended; its parent {os.getpid()}")
    if pathlib.Path("/proc/2/comm").exists() and pathlib.Path("/proc/2/comm").read_text() == "kthreadd\n":
        assert_error(tide("doctor", "2"), 3, "tide: doctor: process 2 is a part of the kernel")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become two users")
def test_another_users_process(tide, program, public_dir):
    process = program("sleep", "600")
    done = tide("doctor", str(process.pid), user=65534, group=65534, extra_groups=[],
                env={"TIDE_DIR": str(public_dir / "run")})
    assert_error(done, 4, f"tide: doctor: process {process.pid} belongs to another user")
