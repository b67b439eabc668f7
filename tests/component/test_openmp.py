# SPDX-License-Identifier: Apache-2.0
"""OpenMP programs under the agent and a real tided: their teams follow targets between regions."""
import os
import pathlib
import queue
import random
import shutil
import subprocess
import sys

import pytest

from daemon import eventually
from program import LONG_S, SOAK, TARGETS, WAITS, run  # noqa: F401 (a fixture)

HERE = pathlib.Path(__file__).parent
LIBOMP = next((p for p in ("/usr/lib/llvm-14/lib/libomp.so.5",
                           "/usr/lib/x86_64-linux-gnu/libomp.so.5") if os.path.exists(p)), None)


NO_CLANG = pytest.mark.skipif(not LIBOMP or not shutil.which("clang"), reason="no clang with libomp here")
# Intel's runtime, which programs of clang are linked with: the folder of PyPI's intel-openmp that has it.
LIBIOMP5 = os.environ.get("TIDE_LIBIOMP5")
COMPILERS = ["gcc", pytest.param("clang", marks=NO_CLANG)]


@pytest.fixture(autouse=True)
def on_trial(monkeypatch):
    monkeypatch.setenv("TIDE_OPENMP", "on")


@pytest.fixture
def tided(place):
    return place.daemon("--cpus", "0-7").start()


@pytest.fixture(params=COMPILERS)
def regions(request, compiled, run):
    """With clang without num_threads(n): objects that have it are moldable there."""
    options = ["-DNO_CLAUSE"] if request.param == "clang" else []
    return lambda *args, **env: run(compiled("openmp/regions.c", "-fopenmp", *options, cc=request.param),
                                    *args, **env)


def malleable(program):
    return eventually(lambda: (j := program.job())["state"] == "running" and j)


def moldable(program):
    """Its job, ten seconds before the daemon calls it rigid."""
    return eventually(lambda: (j := program.job())["backends"][0]["note"].startswith("moldable:") and j)


def test_teams_follow_the_target_between_regions(regions):
    program = regions()
    job = malleable(program)
    assert job["backends"][0]["name"] == "openmp" and job["backends"][0]["max"] == 8
    for threads in (3, 1, 8, 2):
        assert program.set(threads)[1]["status"] == "done"
        program.expect("team", threads)
    program.end()


def test_a_number_set_by_the_user_is_the_most(regions):
    program = regions(OMP_NUM_THREADS="3")
    malleable(program)
    program.expect("team", 3)
    program.set(1)
    program.expect("team", 1)
    program.set(6)
    program.expect("team", 3)


def test_explicit_teams_nested_ones_and_tasks_are_left_alone(request, regions):
    program = regions(OMP_MAX_ACTIVE_LEVELS="2")
    malleable(program)
    program.set(2)
    program.expect("team", 2)
    if "gcc" in request.node.name:
        program.tell("explicit 5")
        program.expect("explicit", 5)
        program.tell("nested")
        program.expect("nested", 2, 6)
    program.tell("tasks")
    program.expect("tasks", 5050, 2)
    program.set(4)
    program.expect("team", 4)


@NO_CLANG
def test_a_program_that_tells_libomp_a_number_keeps_it(compiled, run):
    """libomp keeps num_threads(n) for the next region; the agent's number must not take its place."""
    program = run(compiled("openmp/regions.c", "-fopenmp", cc="clang"), OMP_NUM_THREADS="3")
    program.expect("team", 3)
    job = eventually(lambda: (j := program.job())["state"] == "rigid" and j)
    assert "num_threads() for libomp" in job["backends"][0]["note"]
    program.set(1, deadline_ms=100)
    program.tell("explicit 5")
    program.expect("explicit", 5)
    program.tell("tasks")
    program.expect("tasks", 5050, 3)
    program.end()


def test_a_long_region_is_waited_for_and_said_to_be(regions):
    program = regions()
    malleable(program)
    program.set(4)
    program.expect("team", 4)
    program.tell("long 3")
    program.expect("begins")
    answer = program.set(1, deadline_ms=100)[1]
    assert answer["status"] == "partial"
    eventually(lambda: program.job()["note"].startswith("waiting for a safe point"))
    assert program.job()["active"] == 4
    program.expect("team", 1)
    eventually(lambda: (j := program.job())["active"] == 1 and j["note"] == "")


def test_results_are_the_same_under_random_targets(regions):
    """Loops without reductions: equal bit for bit, whatever the number of threads."""
    program, dice = regions("0"), random.Random(14)
    malleable(program)
    program.tell("check 400")
    targets, answers = 0, []
    while not answers:
        program.set(dice.randint(1, 8), deadline_ms=2000)
        targets += 1
        while not program.words.empty():
            word = program.words.get()
            answers += [word[0]] if word[0] in ("equal", "different", "ended") else []
        if targets < TARGETS and answers == ["equal"]:
            answers.clear()
            program.tell("check 400")
    assert answers == ["equal"]


def test_signals_without_end(regions):
    """One each millisecond, on whichever thread, amid targets: results are the same, and the program follows."""
    program, dice = regions("0"), random.Random(16)
    malleable(program)
    program.tell("storm")
    program.tell("check 100")
    answers = []
    while not answers:
        program.set(dice.randint(1, 8), deadline_ms=2000)
        while not program.words.empty():
            word = program.words.get()
            answers += [word[0]] if word[0] in ("equal", "different", "ended") else []
    assert answers == ["equal"]
    for threads in (3, 8, 1):
        program.set(threads)
        program.expect("team", threads)
    program.tell("calm")
    assert int(program.expect("calm")[1]) > 100
    program.end()


def test_a_child_starts_clean_and_its_parent_goes_on(request, regions):
    """libgomp has no regions in such a child, libomp has."""
    program = regions()
    malleable(program)
    program.set(2)
    program.expect("team", 2)
    program.tell("fork 5" if "clang" in request.node.name else "fork 0")
    program.expect("child")
    program.tell("forkin")
    program.expect("child")
    program.set(4)
    program.expect("team", 4)
    program.end()


@pytest.mark.parametrize("kind, why", [
    ("ASKS", "omp_get_max_threads"), ("SETS", "omp_set_num_threads"),
    ("KNOWS_WITHIN", "omp_get_num_threads"), ("KEEPS_DATA", "thread-local variables"),
    ("COUNTS_CORES", "sched_getaffinity"), ("COUNTS_BY_SYSCONF", "sysconf"),
    ("HAS_A_BARRIER", "pthread_barrier_"), ("READS_THE_VARIABLE", "the text OMP_NUM_THREADS"),
    ("KEEPS_DATA_BY_A_KEY", "pthread_setspecific"),
    ("TELLS_BY_A_JUMP", "omp_get_num_threads"), ("ASKS_FOR_ITS_INDEX", "omp_get_thread_num"),
    ("ASKS_FOR_THE_FIRST", "omp_get_thread_num")])
@pytest.mark.parametrize("optimize", ["-O0", "-O3"])
def test_a_program_that_may_build_on_its_number_keeps_it(compiled, run, kind, why, optimize):
    program = run(compiled("openmp/kinds.c", "-fopenmp", f"-D{kind}", optimize), OMP_NUM_THREADS="3")
    program.expect("team", 3)
    row = moldable(program)["backends"][0]
    assert row["note"].startswith("moldable: the program may ") and why in row["note"] and row["max"] == 3
    program.set(1, deadline_ms=100)
    with pytest.raises(queue.Empty):
        program.words.get(timeout=0.5)
    program.end()


@pytest.mark.parametrize("options", [[], ["-fno-plt"], ["-no-pie", "-fcf-protection=full"]],
                         ids=" ".join)
@pytest.mark.parametrize("kind", ["STATIC_LOOP -O0", "STATIC_LOOP -O3", "DIVIDES_BY_HAND -O2"])
def test_a_division_by_what_the_region_tells_is_seen_to_be_harmless(compiled, run, kind, options):
    """gcc's static loops are of this kind."""
    program = run(compiled("openmp/kinds.c", "-fopenmp", *f"-D{kind}".split(), *options))
    malleable(program)
    for threads in (3, 8, 2):
        program.set(threads)
        program.expect("team", threads)


@pytest.mark.parametrize("options", [["-DHAS_A_TABLE"], ["-DHAS_IT_IN_CODE", "-Wl,-z,notext"]], ids=["data", "code"])
def test_an_address_of_the_runtime_that_is_no_slot_stays(compiled, run, options):
    """Our stub would be the program's data, or a write into its code."""
    program = run(compiled("openmp/kinds.c", "-fopenmp", *options), OMP_NUM_THREADS="3")
    program.expect("team", 3)
    job = moldable(program)
    assert "regions of the program go to an unknown library" in job["backends"][0]["note"]
    program.set(1, deadline_ms=100)
    with pytest.raises(queue.Empty):
        program.words.get(timeout=0.5)
    program.end()


def test_threads_that_openmp_binds_are_left_alone(compiled, run):
    """Its main thread may use one core only then, which is not the process's limit."""
    cores = len(os.sched_getaffinity(0))
    program = run(compiled("openmp/kinds.c", "-fopenmp"), OMP_PROC_BIND="true")
    program.expect("team", cores)
    with pytest.raises(queue.Empty):
        program.words.get(timeout=1)


# libomp keeps num_threads(n) where the agent's number would go: such programs are moldable there.
VALIDATIONS = {
    "gcc": ("gcc", "openmp/validate.c"), "gcc -O3": ("gcc", "openmp/validate.c", "-O3"),
    "clang": ("clang", "openmp/validate.c", "-DNO_CLAUSE"), "gfortran": ("gfortran", "openmp/validate.f90"),
    "libiomp5": ("clang", "openmp/validate.c", "-DNO_CLAUSE", "-fopenmp=libiomp5", f"-L{LIBIOMP5}", f"-Wl,-rpath,{LIBIOMP5}"),
}


@pytest.fixture(params=VALIDATIONS)
def validation(request, compiled, monkeypatch):
    """validation(*options): a program with OpenMP's constructs, by each compiler and runtime."""
    compiler, source, *options = VALIDATIONS[request.param]
    if not shutil.which(compiler) or (compiler == "clang" and not LIBOMP):
        pytest.skip(f"no {compiler} with OpenMP here")
    if "iomp5" in request.param and not LIBIOMP5:
        pytest.skip("no libiomp5 here: TIDE_LIBIOMP5 names its folder")
    monkeypatch.setenv("OMP_CANCELLATION", "true")
    return lambda *more: compiled(source, *more, "-fopenmp", *options, cc=compiler)


def validate(binary, threads, rounds):
    """The words of its last line without the agent."""
    env = {"OMP_NUM_THREADS": str(threads)}
    stock = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("TIDE_")}
    return subprocess.run([binary], input=f"go {rounds}\n", env={**stock, **WAITS, **env}, check=True, text=True,
                          capture_output=True, timeout=LONG_S).stdout.splitlines()[-1].split()


def test_each_construct_has_its_result_under_random_targets(validation, run, tided):
    """Targets come while the program computes: it is told to go on first, and heard before the next one."""
    binary, dice = validation(), random.Random(14)
    expected = validate(binary, 3, 3)[:2]
    assert expected == validate(binary, 1, 3)[:2]
    program = run(binary)

    def goes_on(rounds, threads=None):
        program.tell(f"go {rounds}")
        if threads:
            program.set(threads, deadline_ms=1000)
        *result, smallest, largest = program.expect("sum")
        assert result == expected
        return smallest, largest

    def malleable():
        goes_on(1)  # a program without regions is not seen
        return next((b for j in tided.jobs() for b in j["backends"] if b["malleable"]), None)
    eventually(malleable)
    for _ in range(5000 if SOAK else 30):
        goes_on(2, dice.randint(1, 8))
    for threads in (5, 1, 8, 3):
        program.set(threads)
        eventually(lambda n=str(threads): goes_on(1) == (n, n))
    program.end()


def test_data_of_threads_stay_with_them(validation, run):
    """threadprivate and copyin: the program keeps its number."""
    binary = validation("-DDATA_OF_THREADS")
    program = run(binary, OMP_NUM_THREADS="3")
    moldable(program)
    program.set(1, deadline_ms=100)
    program.tell("go 20")
    assert program.expect("sum")[1:] == [validate(binary, 3, 3)[1], "3", "3"]
    program.end()


@pytest.fixture
def private_libgomp(compiled, tmp_path):
    """A library that brings a libgomp of its own, the N-th, as packages of Python do."""
    stock = subprocess.run(["gcc", "-print-file-name=libgomp.so.1"], capture_output=True, text=True,
                           check=True).stdout.strip()
    library = compiled("openmp/work.c", "-fopenmp", "-shared", "-fPIC", "-Wl,-rpath,$ORIGIN")

    def make(n):
        for path, name in ((stock, f"libgomp-{n}.so"), (library, f"private{n}.so")):
            text = pathlib.Path(path).read_bytes()
            assert b"libgomp.so.1\0" in text
            (tmp_path / name).write_bytes(text.replace(b"libgomp.so.1\0", b"libgomp-%d.so\0" % n))
        return tmp_path / f"private{n}.so"
    return make


@pytest.fixture
def second_libgomp(private_libgomp):
    return private_libgomp(2)


def python(run, *libraries):
    return run(sys.executable, HERE / "openmp/loads.py", *libraries)


def test_python_calls_a_library_and_waits_for_a_lock(compiled, run):
    program = python(run, compiled("openmp/work.c", "-fopenmp", "-shared", "-fPIC"))
    malleable(program)
    program.set(3)
    program.expect("teams", 3)
    program.tell("lock 2")
    program.expect("locked")
    answer = program.set(5)[1]
    assert answer["status"] == "done" and program.job()["active"] == 5  # no region runs
    program.expect("unlocked")
    program.expect("teams", 5)
    program.end()


def test_two_copies_of_libgomp_follow_together(compiled, run, second_libgomp):
    program = python(run, compiled("openmp/work.c", "-fopenmp", "-shared", "-fPIC"), second_libgomp)
    malleable(program)
    for threads in (3, 6, 1):
        program.set(threads)
        program.expect("teams", threads, threads)
    maps = pathlib.Path(f"/proc/{program.process.pid}/maps").read_text()
    assert "libgomp-2.so" in maps and "/libgomp.so.1" in maps
    program.tell("close")
    program.expect("closed")
    program.set(4)
    program.expect("teams", 4)
    program.end()


def test_a_library_that_asks_anew_keeps_its_number(compiled, run):
    library = compiled("openmp/work.c", "-fopenmp", "-shared", "-fPIC", "-DASKS")
    program = python(run, library)
    assert "omp_get_max_threads" in moldable(program)["backends"][0]["note"]
    program.end()


def test_a_runtime_that_comes_later_with_global_scope_takes_no_calls(compiled, run, second_libgomp):
    """ld.so has bound the first library to its own copy: its regions and its barriers stay there."""
    program = run(sys.executable, HERE / "openmp/loads.py", second_libgomp, OMP_NUM_THREADS="4")
    malleable(program)
    program.expect("teams", 4)
    program.tell(f"global {compiled('openmp/work.c', '-fopenmp', '-shared', '-fPIC')}")
    program.expect("loaded")
    for threads in (3, 1, 2):
        program.set(threads)
        program.expect("teams", threads)
    program.end()


def test_calls_go_where_ld_so_has_bound_them(compiled, run, second_libgomp):
    """A library with global scope comes between binding and the first region."""
    program = run(sys.executable, HERE / "openmp/loads.py", second_libgomp,
                  f"+{compiled('openmp/work.c', '-fopenmp', '-shared', '-fPIC')}", OMP_NUM_THREADS="4")
    program.expect("teams", 4, 4)
    malleable(program)
    program.set(2)
    program.expect("teams", 2, 2)
    program.end()


def test_a_size_that_tide_chose_is_no_limit(regions):
    """tide run sets OMP_NUM_THREADS for runtimes that keep their size."""
    program = regions(OMP_NUM_THREADS="2", TIDE_STARTUP="2:8:ffff")
    malleable(program)
    for threads in (5, 1, 8):
        program.set(threads)
        program.expect("team", threads)
    program.end()


def test_more_copies_than_the_agent_tells_apart_are_left_alone(run, private_libgomp):
    program = run(sys.executable, HERE / "openmp/loads.py", *[private_libgomp(n) for n in range(1, 10)],
                  OMP_NUM_THREADS="2")
    program.expect("teams", *[2] * 9)
    job = moldable(program)
    assert "more copies of OpenMP" in job["backends"][0]["note"]
    program.set(1, deadline_ms=100)
    with pytest.raises(queue.Empty):
        program.words.get(timeout=0.5)
    program.end()


def test_libraries_that_come_and_go_compute_what_they_should(compiled, run, tmp_path):
    """Their code comes to lie where that of others was."""
    libraries = [compiled("openmp/work.c", "-fopenmp", "-shared", "-fPIC", *more)
                 for more in ([], ["-Wl,-z,now"], ["-DPAD=5000", "-O0"], ["-O3"])]
    program = run(sys.executable, HERE / "openmp/loads.py", libraries[0], OMP_NUM_THREADS="4")
    malleable(program)
    program.tell(f"again 200 {' '.join(map(str, libraries[1:]))}")
    done = []
    while not done:
        for threads in (1, 2, 4):
            program.set(threads, deadline_ms=1000)
        while not program.words.empty():
            word = program.words.get()[0]
            done += [word] if word in ("done", "broken", "ended") else []
    assert done == ["done"]
    program.set(3)
    program.expect("teams", 3)
    program.end()


def test_a_child_made_while_the_agent_reads_a_library_can_load_others(compiled, run):
    """The list of libraries is locked meanwhile, and glibc does not free that lock in a child."""
    program = run(sys.executable, HERE / "openmp/loads.py",
                  compiled("openmp/work.c", "-fopenmp", "-shared", "-fPIC"), OMP_NUM_THREADS="2")
    malleable(program)
    big = compiled("openmp/work.c", "-fopenmp", "-shared", "-fPIC", "-DPAD=60000000")
    agent = next(int(t.name) for t in pathlib.Path(f"/proc/{program.process.pid}/task").iterdir()
                 if (t / "comm").read_text() == "tide-agent\n")
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(agent, {core})  # beside a busy thread it reads for much longer than a fork waits
    os.setpriority(os.PRIO_PROCESS, agent, 19)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        program.tell(f"fork 20 {big} {compiled('openmp/constructor.c', '-DLIBRARY', '-DQUIET', '-shared', '-fPIC')}")
        assert program.expect("children")[1] == "0"
    finally:
        busy.kill()
        busy.wait()
    program.end()


@pytest.mark.parametrize("options", [["-Wl,-z,now,-z,relro"], ["-Wl,-z,lazy"], ["-no-pie"]], ids=" ".join)
def test_a_constructor_that_waits_for_a_region_ends(compiled, run, options):
    """It holds the loader's lock, which the thread that it waits for must not need."""
    program = run(compiled("openmp/constructor.c", "-fopenmp", "-rdynamic", *options), OMP_NUM_THREADS="4")
    malleable(program)
    program.set(2)
    program.expect("team", 2)
    program.tell(str(compiled("openmp/constructor.c", "-DLIBRARY", "-shared", "-fPIC")))
    program.expect("loaded")  # with 4 until the agent has looked at it
    program.set(3)
    program.expect("team", 3)
    program.end()


def test_a_library_that_asks_finds_the_old_number_from_its_first_region_on(compiled, run):
    program = run(compiled("openmp/constructor.c", "-fopenmp", "-rdynamic"), OMP_NUM_THREADS="4")
    malleable(program)
    program.set(2)
    program.expect("team", 2)
    program.tell(str(compiled("openmp/constructor.c", "-DLIBRARY", "-DASKS", "-fopenmp", "-shared", "-fPIC")))
    assert program.expect("loaded")[1] == "4"
    job = moldable(program)
    assert "omp_get_max_threads" in job["backends"][0]["note"]
    with pytest.raises(queue.Empty):
        program.words.get(timeout=0.5)
    program.end()


@pytest.mark.parametrize("kind, why", [
    ("KEEPS_DATA", "thread-local variables"), ("KEEPS_DATA_BY_A_KEY", "pthread_setspecific"),
    ("HAS_A_BARRIER", "pthread_barrier_"), ("READS_THE_VARIABLE", "the text OMP_NUM_THREADS")])
def test_a_library_without_openmp_to_which_the_number_may_matter(compiled, run, kind, why):
    """The program's regions may call it."""
    program = run(compiled("openmp/constructor.c", "-fopenmp", "-rdynamic"), OMP_NUM_THREADS="4")
    malleable(program)
    program.set(2)
    program.expect("team", 2)
    program.tell(str(compiled("openmp/constructor.c", "-DLIBRARY", f"-D{kind}", "-shared", "-fPIC")))
    assert program.expect("loaded")[1] == "4"
    assert why in moldable(program)["backends"][0]["note"]
    with pytest.raises(queue.Empty):
        program.words.get(timeout=0.3)
    program.end()


def test_what_every_process_has_keeps_no_number(compiled, run, tmp_path):
    """libstdc++ and Python have data for each thread, which begin by themselves."""
    (tmp_path / "plus.cc").write_text("#include <iostream>\nint plus; std::ostream *p = &std::cout;\n")
    library = tmp_path / "plus.so"
    subprocess.run(["g++", "-shared", "-fPIC", tmp_path / "plus.cc", "-o", library], check=True)
    program = run(compiled("openmp/constructor.c", "-fopenmp", "-rdynamic"), OMP_NUM_THREADS="4")
    program.tell(str(library))
    program.expect("loaded")
    malleable(program)
    program.set(2)
    program.expect("team", 2)
    program.end()


def test_growth_ends_where_a_limit_is(compiled, run):
    """libgomp ends a program for which it cannot make a thread."""
    program = run(compiled("openmp/regions.c", "-fopenmp"))
    malleable(program)
    program.set(2)
    program.expect("team", 2)
    program.limits_memory(20 << 20)
    program.set(8)
    eventually(lambda: "limits" in program.job()["backends"][0]["note"])
    assert program.job()["active"] == 2
    program.limits_memory(None)
    program.expect("team", 8)
    eventually(lambda: program.job()["backends"][0]["note"] == "")
    program.end()


@NO_CLANG
def test_a_tool_sees_the_callers_that_it_sees_without_us(compiled, run):
    binary = compiled("openmp/tool.c", "-fopenmp", "-rdynamic", cc="clang")
    program = run(binary, OMP_NUM_THREADS="2")
    assert program.expect("caller")[1] == binary.name
    job = moldable(program)
    assert "OMPT" in job["backends"][0]["note"]
    program.set(1, deadline_ms=100)
    with pytest.raises(queue.Empty):
        for _ in range(9):
            assert program.words.get(timeout=0.5)[0] == "team"
    program.end()


@NO_CLANG
@pytest.mark.parametrize("order", ["agent-first", "tool-first"])
def test_a_tool_in_ld_preload_beside_the_agent(compiled, run, build_dir, order):
    """The program keeps its number, and its tool sees the callers that it sees without us."""
    binary = compiled("openmp/tool.c", "-fopenmp", "-DNO_TOOL", cc="clang")
    tool = compiled("openmp/tool.c", "-DNO_PROGRAM", "-shared", "-fPIC", cc="clang")
    preload = [str(build_dir / "libtide-agent.so"), str(tool)]
    program = run(binary, OMP_NUM_THREADS="2", LD_PRELOAD=":".join(preload if order == "agent-first" else preload[::-1]))
    assert program.expect("caller")[1] == binary.name
    assert "OMPT" in moldable(program)["backends"][0]["note"]
    program.set(1, deadline_ms=100)
    with pytest.raises(queue.Empty):
        for _ in range(9):
            assert program.words.get(timeout=0.5)[0] == "team"
    program.end()


def test_a_program_with_openmp_is_no_other_under_an_agent_that_is_off(compiled, run):
    program = run(compiled("openmp/regions.c", "-fopenmp"), OMP_NUM_THREADS="3", TIDE_DISABLE="1")
    program.expect("team", 3)
    assert len(os.listdir(f"/proc/{program.process.pid}/task")) == 3
    program.end()
