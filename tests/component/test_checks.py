# SPDX-License-Identifier: Apache-2.0
"""The project's own checks find what they are there to find."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import GUARD_S, ROOT
from project_scripts import check, script  # noqa: F401 (a fixture)


@pytest.mark.parametrize("file, include, allowed", [
    ("src/proto/a.c", '"base/error.h"', True),
    ("src/base/a.c", '"proto/proto.h"', False),
    ("src/policy/a.c", "<stdint.h>", True),
    ("src/policy/a.c", "<time.h>", False),
    ("src/agent/a.c", "<jansson.h>", False),
    ("src/cli/a.c", "<jansson.h>", True),
    ("src/lib/a.c", '"agent/program_api.h"', True),
    ("src/lib/a.c", '"agent/agent.h"', False),
    ("src/base/a.c", "<setjmp.h>", False),
    ("src/base/a.c", '"nowhere.h"', False),
    ("src/utils/a.c", "<stdint.h>", False),
    ("include/tide/a.h", '"base/error.h"', False),
    # rooms of a folder are layers, too
    ("src/policy/rules/a.c", '"policy/core/plan.h"', True),
    ("src/policy/core/a.c", '"policy/rules/rule.h"', False),
    ("src/policy/a.c", '"policy/rules/rule.h"', True),
    ("src/policy/core/a.c", '"policy/top.h"', True),
    ("src/policy/top.h", '"policy/core/plan.h"', False),
    ("src/policy/attic/a.c", "<stdint.h>", False),
    ("src/base/attic/a.c", "<stdint.h>", False),
])
def test_layers(tmp_path, file, include, allowed):
    for name in ("base/error.h", "proto/proto.h", "agent/program_api.h", "agent/agent.h", "policy/core/plan.h",
                 "policy/rules/rule.h", "policy/top.h", "../" + file):
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / file).write_text(f"#include {include}\n")
    result = script("check-layers.py", tmp_path)
    assert (result.returncode == 0) == allowed
    assert allowed or file in result.stdout


@pytest.mark.parametrize("body, good", [(98, True), (99, False)])
def test_function_length(tmp_path, body, good):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.c").write_text("int f(int a,\n      int b)\n{\n" + "    a++;\n" * body + "}\n")
    result = script("check-size.py", tmp_path)
    assert f"src/a.c:1: f: {body + 2} lines" in result.stdout
    assert (result.returncode == 0) == good


def test_file_length(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.c").write_text("void f(void)\n{\n}\n" + "\n" * 798)
    assert script("check-size.py", tmp_path).returncode == 1


def test_agent_elf_accepts_the_agent_only(build_dir):
    assert script("check-agent-elf.sh", build_dir / "libtide-agent.so").returncode == 0
    other = script("check-agent-elf.sh", build_dir / "libtide.so")
    assert other.returncode == 1 and "exports tide_" in other.stderr


def test_agent_elf_refuses_lazy_thread_locals_and_new_symbols(tmp_path):
    (tmp_path / "a.c").write_text("""
        #include <pthread.h>
        __thread int lazy;
        int *tide_agent_program_api(void)
        {
            pthread_create(0, 0, 0, 0);
            return &lazy;
        }""")
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", tmp_path / "a.so", tmp_path / "a.c"],
                   check=True)
    result = script("check-agent-elf.sh", tmp_path / "a.so")
    assert result.returncode == 1
    assert "__tls_get_addr" in result.stderr and "exports lazy" in result.stderr


PROGRAMS = ("tide", "tided", "tide-hub", "tide-power", "tide-kube", "tide-pods", "tide-runc", "tide-tfnode", "tide-sim",
            "tide-dashboard", "tide-gate", "tide-tls", "tide-top", "tide-slurm", "threadtide.so", "libdlb.so", "libtide.so")


def test_hardening_accepts_what_we_ship(build_dir):
    result = script("check-hardening.sh", *(build_dir / name for name in PROGRAMS))
    assert result.returncode == 0, result.stderr
    assert script("check-hardening.sh", "--lazy", build_dir / "libtide-agent.so").returncode == 0
    result = script("check-hardening.sh", build_dir / "libtide-agent.so")
    assert result.returncode == 1 and "binds symbols after its start" in result.stderr


@pytest.mark.parametrize("without, complaint", [
    ((), None),
    (("-fno-stack-protector",), "has no stack protector"),
    (("-U_FORTIFY_SOURCE",), "was compiled without _FORTIFY_SOURCE"),
    (("-no-pie", "-fno-pie"), "is not position independent"),
    (("-Wl,-z,lazy",), "binds symbols after its start"),
    (("-Wl,-z,norelro",), "keeps its relocations writable"),
    (("-Wl,-z,execstack",), "has a segment both writable and executable"),
])
def test_hardening_names_what_is_missing(tmp_path, without, complaint):
    (tmp_path / "a.c").write_text("""
        #include <stdio.h>
        #include <string.h>
        int main(int argc, char **argv)
        {
            char text[64];
            snprintf(text, argc * 20, "%s", argv[0]);
            return strlen(text) > 9;
        }""")
    subprocess.run(["gcc", "-O2", "-w", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2",
                    "-fpie", "-pie", "-Wl,-z,relro,-z,now,-z,noexecstack", *without,
                    "-o", tmp_path / "a", tmp_path / "a.c"], check=True)
    result = script("check-hardening.sh", tmp_path / "a")
    assert result.returncode == (complaint is not None)
    assert complaint is None or complaint in result.stderr


NEVER_INSTALLED = {"document"}  # fills in manual pages and completions at build time


def test_every_installed_program_is_checked_for_hardening(check, build_dir):
    """A new program or library must not be shipped unseen, nor one that only some options install: all that the root meson.build links count."""
    targets = json.loads(subprocess.run(["meson", "introspect", "--targets", build_dir], capture_output=True, check=True).stdout)
    linked = {pathlib.Path(target["filename"][0]).name for target in targets
              if target["type"] in ("executable", "shared library", "shared module")
              and (target["installed"] or target["defined_in"] == str(ROOT / "meson.build"))}
    linked = {re.sub(r"\.so[.\d]+$", ".so", name) for name in linked} - NEVER_INSTALLED
    assert {"tided", "tide-slurm", "threadtide.so", "libdlb.so"} <= linked
    command = check.PHASE["hardening"].command.replace(")", " ")
    assert linked <= set(command.split())
    assert linked == {*PROGRAMS, "libtide-agent.so"}
    assert "--lazy libtide-agent.so" in command


def test_tests_that_ci_leaves_out_are_run_by_a_target_of_make_that_is_documented():
    makefile, hacking = (ROOT / "Makefile").read_text(), (ROOT / "HACKING.md").read_text()
    for target, tests in (("check-kueue", "kube/test_kueue.py"), ("check-packages", "packages"), ("check-pods", "kube/shared_node.py"),
                          ("check-slurm", "slurm"), ("soak", "runtimes")):
        recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.M)[1]
        assert re.search(rf" tests/{tests}( tests/[a-z_/]+\.py)*\n", recipe) and f"| `make {target}` |" in hacking and f"'make {target} " in makefile, target


def test_targets_of_tests_are_those_of_other_suites_too(tmp_path):
    info = tmp_path / "meson-info"
    info.mkdir()
    (info / "intro-targets.json").write_text(json.dumps(
        [{"id": f"{name}@exe", "filename": [f"{tmp_path}/tests/{name}"]} for name in ("one", "two", "both", "lib")]))
    (info / "intro-tests.json").write_text(json.dumps([
        {"suite": ["p"], "depends": ["one@exe"]}, {"suite": ["p:pure"], "depends": ["two@exe", "both@exe"]},
        {"suite": ["p:other"], "depends": ["both@exe", "lib@exe"]}]))
    assert script("test-targets.py", tmp_path).stdout == "tests/both tests/lib tests/one tests/two\n"
    assert script("test-targets.py", tmp_path, "pure").stdout == "tests/both tests/lib tests/one\n"
    assert script("test-targets.py", tmp_path, "pure", "other", "p").returncode == 1


@pytest.fixture
def check_rooms(tmp_path):
    """A function that compiles {file: code} as src/ and runs check-rooms.py on it."""
    def run(files, *arguments):
        commands = []
        for name, code in files.items():
            path = tmp_path / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
            if name.endswith(".c"):
                out = name.replace("/", "_") + ".o"
                subprocess.run(["gcc", "-c", "-w", "-I", tmp_path / "src", "-o", tmp_path / out, path],
                               check=True)
                commands.append({"directory": str(tmp_path), "file": f"src/{name}", "output": out})
        (tmp_path / "compile_commands.json").write_text(json.dumps(commands))
        return script("check-rooms.py", "--build", tmp_path, "--src", tmp_path / "src", *arguments)
    return run


def ring(area, size):
    """Files that call each other round in a circle, nine in a room."""
    return {f"{area}/r{i // 9}/f{i}.c":
            f"void v{(i + 1) % size}(void); void v{i}(void) {{ v{(i + 1) % size}(); }}" for i in range(size)}


def test_rooms_allow_a_circle_of_three(check_rooms):
    assert check_rooms(ring("some", 3) | {"other/a.c": "int a;"}).returncode == 0


def test_rooms_refuse_a_circle_of_four_and_print_its_path(check_rooms):
    result = check_rooms(ring("some", 4))
    assert result.returncode == 1
    assert ("shortest: some/r0/f0.c -> some/r0/f1.c (v1) -> some/r0/f2.c (v2)"
            " -> some/r0/f3.c (v3) -> some/r0/f0.c (v0)") in result.stdout


def test_rooms_know_static_symbols_and_other_programs_apart(check_rooms):
    own = {f"one/f{i}.c": f"static void one{(i + 1) % 4}(void) {{}} void one{i}(void)"
                          f" {{ one{(i + 1) % 4}(); }}" for i in range(4)}
    # a.c of each program calls its own run(), not the other's.
    chain = {"one/a.c": "void run(void); void one_b(void) { run(); }", "one/b.c": "void run(void) {}",
             "two/a.c": "void run(void); void two_b(void) { run(); }",
             "two/b.c": "void one_b(void); void run(void) { one_b(); }"}
    assert check_rooms(own | chain).returncode == 0


def test_rooms_refuse_too_many_files(check_rooms):
    files = {f"some/room/f{i}.c": f"int v{i};" for i in range(16)}
    result = check_rooms(files)
    assert result.returncode == 0 and "src/some/room: 16 files" in result.stdout
    result = check_rooms(files | {f"some/room/g{i}.c": f"int w{i};" for i in range(3)})
    assert result.returncode == 1 and "src/some/room: FAILED: 19 files" in result.stdout


@pytest.mark.parametrize("header, text", [
    ("some/room/a_state.h", ""), ("some/room/a.h", "/* SPDX */\n/* Private to this room: x. */\n")])
def test_rooms_refuse_another_rooms_private_header(check_rooms, header, text):
    own = {header: text, "some/room/a.c": f'#include "{header}"\nint a;'}
    assert check_rooms(own).returncode == 0
    result = check_rooms(own | {"some/hall/b.c": f'#include "{header}"\nint b;'})
    assert result.returncode == 1
    assert f"some/hall/b.c includes {header}, which is private to some/room" in result.stdout


def test_rooms_list_the_calls_that_go_upwards_through_a_table(check_rooms):
    result = check_rooms({
        "low/a.h": "struct ops { void (*done)(void); };\nvoid low(const struct ops *ops);\n",
        "low/a.c": '#include "low/a.h"\nvoid low(const struct ops *ops) { ops->done(); }',
        "high/b.c": '#include "low/a.h"\nstatic void done(void) {}\n'
                    "static const struct ops ops = { .done = done };\nvoid high(void) { low(&ops); }",
    })
    assert "upwards: low/a.c calls high/b.c through struct ops" in result.stdout
    assert "1 tables of callbacks, 1 calls upwards" in result.stdout


def test_rooms_refuse_one_call_upwards_more_than_the_limit_and_say_what_to_do(check_rooms):
    limit = int(re.search(r"^UPWARDS_MAX = (\d+)", (ROOT / "scripts/check-rooms.py").read_text(), re.M)[1])

    def upwards(count):
        """Two files with so many tables."""
        each = range(count)
        return {
            "low/a.h": "".join(f"struct ops{i} {{ void (*done{i})(void); }};\nvoid low{i}(const struct ops{i} *);\n" for i in each),
            "low/a.c": '#include "low/a.h"\n' + "".join(
                f"void low{i}(const struct ops{i} *ops) {{ ops->done{i}(); }}\n" for i in each),
            "high/b.c": '#include "low/a.h"\nstatic void done(void) {}\n' + "".join(
                f"static const struct ops{i} ops{i} = {{ .done{i} = done }};\nvoid high{i}(void) {{ low{i}(&ops{i}); }}\n"
                for i in each)}

    result = check_rooms(upwards(limit))
    assert result.returncode == 0 and f"{limit} calls upwards, {limit} the limit; 0 wrong" in result.stdout
    result = check_rooms(upwards(limit + 1))
    assert result.returncode == 1
    assert f"FAILED: {limit + 1} calls upwards through tables, {limit} the limit" in result.stdout
    assert "UPWARDS_MAX in scripts/check-rooms.py" in result.stdout


BARE = re.compile(r'(?:\A|(?<=\n))[ \t]*(?:/\*+\s*(?:\*[ \t]*)?|"""|#[ \t]+|//[ \t]+|--[ \t]+)(?:Of|Who|Whom|That|By|What)\b.*')


BARE_LINE = re.compile(r"^\t?(?:- )?(?:Of|Who|Whom|That|What)\b.*", re.M)


def test_comments_open_with_their_subject():
    """Bare words in a noun's place cost readers a second look: HACKING's words, kept where they are kept today.
    Comments that begin a line alone; those behind code are not looked at."""
    goes_on = re.compile(r"\n[ \t]*(#|//|--)[^\n]*\n\Z")
    assert BARE.search("/*\n * Of the number") and BARE.search('    """What a') and not BARE.search("/* Offers */")
    assert BARE.search("x: 1\n  # What") and BARE.search("  /** Of a") and BARE.search("// That") and not BARE.search("// Thatch")
    kept = [(folder, kind) for folder in ("src", "include", "tests", "fuzz", "bench", "examples")
            for kind in ("*.[ch]", "meson.build")]
    kept += [(folder, "*.py") for folder in ("tests", "bench", "python", "scripts", "demo")]
    kept += [(folder, kind) for folder in ("dist", "debian", "completions", ".ci") for kind in ("*",)]
    kept += [("scripts", "*.sh"), ("tests", "*.sh"), ("tests", "*.sql"), ("tests", "*.y*ml"), ("bench", "*.y*ml"), ("demo", "*.sh"),
             ("ui/src", "*.ts"), ("ui/test", "*.mjs"), (".", "meson.build"), (".", "meson_options.txt"), (".", "Makefile"),
             (".", "mkdocs.yml")]
    files = {file for folder, kind in kept for file in (ROOT / folder).glob(kind if folder == "." else f"**/{kind}") if file.is_file()}
    assert {"dist/kubernetes/rbac.yaml", ".ci/run", "ui/src/machine.ts", "completions/tide.bash.in", "meson.build"} <= {
        str(file.relative_to(ROOT)) for file in files}
    found = [f"{file.relative_to(ROOT)}: {match[0].strip()}" for file in sorted(files)
             for match in BARE.finditer(file.read_text(errors="replace"))
             if not goes_on.search(match.string, 0, match.start())]
    assert not found


def test_lines_of_manual_pages_open_with_their_subject():
    """A paragraph or the text of an option begins with what it is about, not with a bare Of, That, Who, Whom or What."""
    goes_on = re.compile(r"[^\n]\n\Z")
    texts = sorted((ROOT / "man").glob("*.scd")) + [ROOT / "docs" / name for name in ("permissions.md", "api.md")]
    found = [f"{file.relative_to(ROOT)}: {match[0].strip()}" for file in texts for match in BARE_LINE.finditer(file.read_text())
             if match[0].startswith("- ") or not goes_on.search(match.string[:match.start()]) or
             match[0].startswith("\t") and not re.search(r"\n\t[^\n]*\n\Z", match.string[:match.start()])]
    assert len(texts) > 30 and not found


@pytest.mark.parametrize("name, others", [
    ("kwok", {"github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/cri-api", "k8s.io/cri-client"}),
    ("helm", {"github.com/Azure/go-ansiterm", "github.com/spf13/cobra", "github.com/spf13/pflag"})])
def test_tools_of_kubernetes_share_what_is_compiled(name, others):
    """Two modules with different versions of a library compile it, and all that uses it, twice: minutes."""
    def versions(name):
        text = (ROOT / f"tests/kube/tools/{name}/go.mod").read_text()
        found = dict(re.findall(r"^(?:require)?\s+(\S+/\S+) (v\S+)", text, re.M))
        return found | dict(re.findall(r"^(?:replace)?\s+(\S+) => \S+ (v\S+)", text, re.M))
    kubernetes, own = versions("kubernetes"), versions(name)
    assert kubernetes["k8s.io/client-go"] == own["k8s.io/client-go"]
    assert {module for module in kubernetes.keys() & own.keys() if kubernetes[module] != own[module]} == others


@pytest.mark.parametrize("file", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda file: file.stem)
def test_every_pinned_wheel_has_its_hash(file):
    """One without would make pip refuse the whole file."""
    pins = file.read_text().replace("\\\n", "").splitlines()
    pins = [line for line in pins if line and not line.startswith("#")]
    assert pins
    for pin in pins:
        version, *hashes = pin.split("--hash=sha256:")
        assert "==" in version and hashes, pin
        assert all(len(h.strip()) == 64 for h in hashes), pin
    assert (ROOT / "scripts/setup.sh").read_text().count("--require-hashes -r") == 2


@pytest.mark.parametrize("status", [0, 1], ids=["built", "failed"])
def test_a_build_of_kubernetes_keeps_its_result_or_tells_its_error(tmp_path, status):
    for name, body in (("dpkg-query", "printf 'installed %s\\n' \"${@:4}\""), ("go", f"""
            [ "$1" = version ] && {{ echo go version go1.99.0 linux/amd64; exit; }}
            seq 300 | sed s,^,example.org/package/, >&2
            [ {status} = 0 ] || {{ echo no such module >&2; exit 1; }}
            while [ "$1" != -o ]; do shift; done
            case "$2" in */) touch "$2/server" ;; *) touch "$2"; chmod +x "$2" ;; esac""")):
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key != "TIDE_KUBE_TOOLS"}
    done = subprocess.run(
        [ROOT / "scripts/setup.sh", "kube"], capture_output=True, text=True, timeout=GUARD_S,
        env={**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert (done.returncode, "setup: building etcd" in done.stdout) == (status, True), done
    assert "no such module" in done.stderr if status else len(list(tmp_path.glob("cache/threadtide/kube/*/etcd"))) == 1


@pytest.mark.parametrize("helm, said", [
    ("helm-that-is-not-there", "there is no program 'helm-that-is-not-there'"),
    ("false", "false cannot render namespace.yaml"),
])
def test_manifests_that_cannot_be_made_are_left_as_they_are(tmp_path, helm, said):
    (tmp_path / "namespace.yaml").write_text("as it was\n")
    done = subprocess.run([ROOT / "scripts/manifests.sh", tmp_path], capture_output=True, text=True,
                          timeout=GUARD_S, env={**os.environ, "HELM": helm})
    assert done.returncode == 1
    assert said in done.stderr and done.stderr.endswith("Nothing was written.\n")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("namespace.yaml", "as it was\n")]


MIRRORED = "/* why */\nstatic int\ng(int a,\n  int b)\n{\n    return a;\n}\n\nint f(int a)\n{\n    return a;\n}\n"


@pytest.mark.parametrize("change, says", [
    (("/* why */", "/* because */"), ""),
    (("int f(int a)\n{\n    return a;", "int f(int a)\n{\n    /* as it is */\n    return a;"), ""),
    (("return a;\n}\n\nint f", "return 1;\n}\n\nint f"), ""),  # another function
    (("int f(int a)\n{\n    return a;", "int f(int a)\n{\n    return -a;"), "f() has changed"),
    (("int f(int a)", "int f(long a)"), "f() has changed"),
    (("int f(", "int h("), "f() is gone"),
])
def test_a_function_that_the_model_mirrors_does_not_change_unseen(tmp_path, change, says):
    source, model = tmp_path / "src/a.c", tmp_path / "tests/models/protocol.pml"
    for path in (source, model):
        path.parent.mkdir(parents=True)
    source.write_text(MIRRORED)
    model.write_text("/*\n *   src/a.c f()\n */\n")
    assert "compare it" in script("check-model.py", tmp_path).stdout  # it has no sum yet
    assert script("check-model.py", "--update", tmp_path).returncode == 0
    assert script("check-model.py", tmp_path).returncode == 0
    source.write_text(MIRRORED.replace(*change))
    result = script("check-model.py", tmp_path)
    assert (result.returncode == 1) == bool(says) and says in result.stdout


def test_the_page_of_metrics_is_what_the_sources_say(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src")
    for file in ("scripts/metrics.py", "docs/reference-metrics.md"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)

    def check():
        return subprocess.run([tmp_path / "scripts/metrics.py", "--check"], capture_output=True, text=True, timeout=GUARD_S)
    assert check().returncode == 0
    source = tmp_path / "src/daemon/api/metrics.c"
    source.write_text(source.read_text().replace('"Jobs by state."', '"Jobs by their state."'))
    assert check().returncode == 1 and "docs/reference-metrics.md is not what the sources say" in check().stderr


DOCUMENTS = {
    "README.md": "# It\n\n[docs](docs/README.md) ([es](README.es.md))\n\n```\nrun 1  # now\n```\n\n2 of `a b`, `c`\n",
    "README.es.md": "# Eso\n\n[docs](docs/README.md) ([en](README.md))\n\n```\nrun 1  # ya\n```\n\n`c` y\n`a b` por 2\n",
    "docs/README.md": "# All\n\n[one](one.md#the-first-one)\n",
    "docs/one.md": "# One\n\n## The *first*: `one`\n\n## Again\n\n## Again\n\n[again](#again-1) [code](../a.c)\n\n    [no](link)\n",
    "a.c": "",
    "mkdocs.yml": "site_name: x.md\nnav:\n  - It: README.md\n  - All: docs/README.md\n  - In:\n      - One: docs/one.md\n",
}


@pytest.mark.parametrize("file, change, says", [
    ("a.c", ("", ""), ""),
    ("docs/README.md", ("one.md#", "two.md#"), "docs/README.md: no file two.md#the-first-one"),
    ("docs/README.md", ("first-one", "first"), "docs/README.md: no heading one.md#the-first"),
    ("docs/one.md", ("#again-1", "#again-2"), "docs/one.md: no heading #again-2"),
    ("docs/one.md", ("../a.c", "../../a.c"), "docs/one.md: no file ../../a.c"),
    ("docs/one.md", ("../a.c", "../docs"), "docs/one.md: no file ../docs"),
    ("docs/deep/two.md", ("", "# Two\n"), "docs/deep/two.md: neither docs/README.md nor mkdocs.yml leads to it"),
    ("mkdocs.yml", ("docs/one.md", "docs/two.md"), "mkdocs.yml: no page docs/two.md"),
    ("mkdocs.yml", ("docs/one.md", "docs/README.md"), "mkdocs.yml: docs/README.md stands there twice"),
    ("mkdocs.yml", ("docs/one.md", "README.md"), "mkdocs.yml: docs/one.md is missing"),
    ("docs/two.es.md", ("", "# Dos\n"), "docs/two.es.md: there is no docs/two.md"),
    ("README.md", ("run 1", "run --fast 1"), "README.es.md: other blocks of code than README.md"),
    ("README.md", ("# now", "# at once"), ""),
    ("README.es.md", ("`c`", "`d`"), "README.es.md: other code than README.md: d is c there"),
    ("README.md", ("2 of", "3 of"), "README.es.md: other figures than README.md: 2 is 3 there"),
    ("README.md", ("docs/README.md", "docs/one.md"), "README.es.md: other links than README.md"),
])
def test_documents_lead_to_what_exists_and_translations_keep_up(tmp_path, file, change, says):
    for name, text in {**DOCUMENTS, file: DOCUMENTS.get(file, "").replace(*change, 1)}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    result = script("check-documents.py", tmp_path)
    assert (result.returncode == 1) == bool(says) and says in result.stdout, result.stdout
