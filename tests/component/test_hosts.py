# SPDX-License-Identifier: Apache-2.0
"""Programs that start programs, under `tide run`: Jupyter, Dask, Ray, joblib, DataLoader, multiprocessing.

TIDE_PYTHON_TORCH names a Python with PyTorch and scikit-learn, TIDE_PYTHON_HOSTS one that has Jupyter's kernel, Dask
and Ray besides (scripts/setup.sh hosts). TIDE_SOAK=1: all of them.
"""
import contextlib
import os
import pathlib
import signal
import subprocess

import pytest

from daemon import GUARD_S, eventually
from program import LONG_S, SOAK, TORCH_PYTHON, plain, run, tided  # noqa: F401 (fixtures)
from restless import Restless

FOLDER = pathlib.Path(__file__).parent / "hosts"
HOSTS_PYTHON = os.environ.get("TIDE_PYTHON_HOSTS")
WORKERS = 2  # of host.py
# Which, and how many of its workers have an agent that reports: the others' number is the one that they were begun with.
OF_TORCH = {"joblib": 2, "loader": 0, "fork": 0, "spawn": 2, "forkserver": 2}
OF_HOSTS = {"dask-processes": 2, "dask-threads": 0, "ray": 2}
ALWAYS = ("joblib",)
pytestmark = pytest.mark.skipif(not TORCH_PYTHON, reason="TIDE_PYTHON_TORCH names no Python with PyTorch")
needs_hosts = pytest.mark.skipif(not (SOAK and HOSTS_PYTHON), reason="TIDE_SOAK is not set, or TIDE_PYTHON_HOSTS names no Python")


def python_of(kind):
    if (kind not in ALWAYS and not SOAK) or (kind in OF_HOSTS and not HOSTS_PYTHON):
        pytest.skip("TIDE_SOAK is not set, or TIDE_PYTHON_HOSTS names no Python")
    return HOSTS_PYTHON if kind in OF_HOSTS else TORCH_PYTHON


@pytest.fixture(scope="module")
def stock():
    """The results of work(0 … 5) without the agent."""
    figures = plain(TORCH_PYTHON, FOLDER / "host.py", "plain")
    return [figures[i:i + 3] for i in range(0, len(figures), 3)]


@pytest.fixture
def host(run):  # noqa: F811
    def start(kind, **env):
        program = run(python_of(kind), FOLDER / "host.py", kind, options=["--max", "8"], **env)
        program.expect("begun", guard=LONG_S)
        return program
    return start


@contextlib.contextmanager
def restless(program):
    """Its job's target moves meanwhile."""
    with Restless(program.tided, lambda: [j for j in program.tided.jobs() if program.process.pid in j["pids"]], 5) as targets:
        yield
    assert targets.moves > 10 and not targets.statuses["gone"], targets.statuses


def done(program, what):
    program.tell(f"say('done', {what})")
    return " ".join(program.expect("done", guard=LONG_S)[1:])


def family(program):
    """Processes that were begun within the job, however far they went: they have its environment."""
    mark, found = f"TIDE_DIR={program.tided.dir}\0".encode(), []
    for process in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and mark in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def ends(program):
    """… and leaves nothing behind."""
    program.end()
    eventually(lambda: not family(program) and not program.tided.jobs())


def active(program):
    """{pid: threads} of the processes whose number is known."""
    return {b["pid"]: b["active"] for b in program.job()["backends"] if b["malleable"]}


def split(program):
    """{pid: threads} as the target is divided over the job's processes; empty: one has it all."""
    return {part["pid"]: part["threads"] for part in program.job().get("split") or []}


@pytest.mark.timeout(2 * LONG_S)
@pytest.mark.parametrize("kind", [*OF_TORCH, *OF_HOSTS])
def test_workers_compute_as_in_stock_and_share_the_jobs_target(host, stock, kind):
    program, governed = host(kind), {**OF_TORCH, **OF_HOSTS}[kind]
    with restless(program):
        assert done(program, "each(work, range(6))") == str(stock)
    job = program.job()
    workers = set(map(int, done(program, "*each(process, range(8))").split()))
    assert len(workers) == (1 if kind == "dask-threads" else WORKERS)
    assert (program.process.pid in workers) == (kind == "dask-threads")
    # Ray and DataLoader begin and end workers as they need them, so that later there may be others.
    assert eventually(lambda: len(set(active(program)) - {program.process.pid}) >= governed)
    # The target: at least a thread for each, and none more.
    for threads in (8, 1, 5):
        program.tided.api("PATCH", f"/v1/jobs/{job['id']}", {"threads": threads})
        eventually(lambda: (now := active(program)) and sum(now.values()) <= max(threads, len(now)))
    if governed:
        eventually(lambda: len(parts := split(program)) >= governed and sum(parts.values()) == max(5, len(parts)))
    else:
        assert not split(program)
    assert len(program.tided.jobs()) == 1
    ends(program)


@needs_hosts
@pytest.mark.timeout(2 * LONG_S)
@pytest.mark.parametrize("kind", ["dask-processes", "ray"])
def test_a_worker_that_is_killed_is_begun_again_in_the_same_job(host, stock, kind):
    program = host(kind)
    with restless(program):
        done(program, "kills_one(each(number, [0])[0][0])")
        assert done(program, "each(work, range(6))") == str(stock)
    assert len(program.tided.jobs()) == 1
    ends(program)


@needs_hosts
@pytest.mark.timeout(2 * LONG_S)
def test_a_ray_job_is_cancelled_with_all_that_it_has_begun(host, build_dir):
    program = host("ray")
    done(program, "each(number, range(4))")
    assert len(family(program)) > len(program.job()["pids"])  # Ray's servers have no agent that reports
    subprocess.run([build_dir / "tide", "cancel", program.job()["id"]], check=True, capture_output=True, timeout=GUARD_S,
                   env={**os.environ, "TIDE_DIR": str(program.tided.dir)})
    assert program.process.wait(LONG_S) in (signal.SIGTERM, -signal.SIGTERM)
    eventually(lambda: not family(program) and not program.tided.jobs(), guard=LONG_S)


# ---- Jupyter ----

LOOP = "import torch; x = torch.randn(300, 300)\\nwhile True: x = (x @ x).sigmoid()"
NUMBER = "int(re.search(r'at::get_num_threads.. : (.)', torch.__config__.parallel_info())[1])"


@pytest.fixture
def notebook(run):  # noqa: F811
    if not (SOAK and HOSTS_PYTHON):
        pytest.skip("TIDE_SOAK is not set, or TIDE_PYTHON_HOSTS names no Python")
    program = run(HOSTS_PYTHON, FOLDER / "kernel.py", options=["--max", "8"], backend="pytorch")
    program.expect("begun", guard=LONG_S)
    program.ask("cell('import re, torch, work')")
    return program


@pytest.mark.timeout(2 * LONG_S)
def test_cells_compute_as_in_stock_and_are_interrupted_while_targets_move(notebook, stock):
    with restless(notebook):
        assert done(notebook, "cell('print([work.work(seed) for seed in range(6)])')") == str(stock)
        for code in (LOOP, "import time; time.sleep(300)", LOOP) * 3:
            assert done(notebook, f"interrupted('''{code}''', 0.3)") == "KeyboardInterrupt"
        assert done(notebook, "cell('print(work.work(3))')") == str(stock[3])
    ends(notebook)


@pytest.mark.timeout(2 * LONG_S)
def test_an_idle_kernel_has_the_target_at_once_and_its_next_cell_begins_with_it(notebook):
    own = done(notebook, "cell('torch.get_num_threads()')")
    for threads in (3, 1, 8, 2):
        assert notebook.set(threads)[1]["status"] in ("done", "waiting")
        notebook.becomes(active=threads)
        assert done(notebook, f'cell("""{NUMBER}, torch.get_num_threads()""")') == f"({threads}, {own})"
    ends(notebook)


@pytest.mark.timeout(2 * LONG_S)
def test_a_kernel_that_is_restarted_stays_in_its_job(notebook):
    assert notebook.set(3)[1]["status"] in ("done", "waiting")
    before = set(active(notebook))
    job = notebook.job()["id"]
    assert notebook.ask("restart()") == "restarted"
    notebook.ask("cell('import re, torch, work')")
    eventually(lambda: (now := active(notebook)) and not set(now) & before and set(now.values()) == {3})
    assert [j["id"] for j in notebook.tided.jobs()] == [job]
    assert done(notebook, f'cell("{NUMBER}")') == "3"
    ends(notebook)
