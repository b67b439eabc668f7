# SPDX-License-Identifier: Apache-2.0
"""Libraries of others in LD_PRELOAD, and programs that can have none, under `tide run`."""
import glob
import shutil
import subprocess

import pytest

from cli_tools import tide  # noqa: F401

ALLOCATORS = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
SUM = """
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    static int is_mapped(const char *name)
    {
        FILE *maps = fopen("/proc/self/maps", "r");
        char line[4400];
        while (fgets(line, sizeof(line), maps))
            if (strstr(line, name))
                return 1;
        return 0;
    }
    int main(int argc, char **argv)
    {
        long sum = 0;
        #pragma omp parallel for reduction(+:sum) schedule(static)
        for (int i = 0; i < 20000; i++) {
            char *p = malloc((size_t)(i % 5000) + 1);
            memset(p, i & 1, (size_t)(i % 5000) + 1);
            sum += p[i % 5000];
            free(p);
        }
        printf("%ld", sum);
        for (int i = 1; i < argc; i++)
            printf(" %d", is_mapped(argv[i]));
        return 42;
    }"""


def library(name):
    """Debian and Ubuntu have it in /usr/lib/x86_64-linux-gnu."""
    found = glob.glob(f"/usr/lib/*/{ALLOCATORS[name]}")
    if not found:
        pytest.skip(f"no {ALLOCATORS[name]}: scripts/setup.sh check installs it")
    return found[0]


@pytest.mark.parametrize("name", ALLOCATORS)
@pytest.mark.parametrize("threads", [1, 3])
def test_an_allocator_serves_the_program_beside_the_agent(tide, tmp_path, name, threads):
    allocator = library(name)
    (tmp_path / "sum.c").write_text(SUM)
    subprocess.run(["gcc", "-O1", "-fopenmp", tmp_path / "sum.c", "-o", tmp_path / "sum"], check=True, timeout=60)
    for _ in range(5):
        done = tide("run", "--threads", threads, "--", tmp_path / "sum", ALLOCATORS[name], "libtide-agent",
                    env={"LD_PRELOAD": allocator})
        assert (done.returncode, done.stdout, done.stderr) == (42, "10000 1 1", "")


@pytest.mark.parametrize("cc, options", [("gcc", ["-static"]), ("musl-gcc", []), ("musl-gcc", ["-static"])],
                         ids=["static", "musl", "static-musl"])
def test_a_program_that_cannot_have_the_agent_starts_as_it_is(tide, compiled, cc, options, tmp_path):
    if not shutil.which(cc):
        pytest.skip(f"no {cc}: scripts/setup.sh check installs it")
    program = compiled("inert/show.c", *options, cc=cc)
    probe = tmp_path / "agent"
    done = tide("run", "--", program, probe)
    assert (done.returncode, done.stderr) == (42, "")
    assert probe.read_text() == "absent\n" and "Threads:\t1\n" in done.stdout
