# SPDX-License-Identifier: Apache-2.0
"""`tide --host ssh://…`, `tide dial` and `tide fleet`, through a real sshd to real daemons."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

import conftest
from cli_tools import GUARD_S, tide  # noqa: F401
from daemon import eventually
from far import free_port, home, needs_sshd  # noqa: F401

LOCAL = ("run", "docker", "submit", "setup", "record", "signal", "doctor", "dashboard", "dial")


@pytest.fixture
def lab(home, tide):  # noqa: F811
    """A machine with one malleable job of four threads."""
    tide.start_pool("cnn", "--max", 4)
    return home.machine(tide.dir)


def ssh_processes(home, name="ssh"):
    """Processes of this name that were started with the home's own PATH."""
    mark = f"PATH={home.folder}/bin:".encode()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes() and (folder / "comm").read_text().strip() == name:
                yield int(folder.name)
        except OSError:
            continue


def failed(done, code, *texts):
    assert done.returncode == code, done
    for text in texts:
        assert text in done.stderr, done.stderr


# ---- one machine ----

@needs_sshd
def test_commands_that_only_ask_the_daemon_go_to_the_machine(home, tide, lab):
    def far(*words):
        done = home("--host", lab.address(), *words)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    [job] = json.loads(far("ps", "--json"))
    assert job["name"] == "cnn" and job["id"] == tide.job("cnn")["id"]
    assert far("set", "cnn", "--threads", "2").startswith(f"{job['id']} cnn: ") and tide.job("cnn")["target"] == 2
    assert "pinned to 2 by hand" in far("explain", "cnn") and "cnn" in far("history") and "cnn" in far("events")
    assert "cnn" in far("top") and "* equal" in far("policy") and "tided 0." in far("version")
    assert lab.address() in far("report")
    far("policy", "set", "weighted")
    assert "* weighted" in tide("policy").stdout
    failed(home("--host", lab.address(), "set", "none", "--threads", 1), 3, "no job 'none'")
    failed(home("--host", lab.address(), "power", "calibrate"), 2, "tide why not-with-host")
    far("cancel", "cnn")
    assert tide("ps").stdout.startswith("No jobs")


@needs_sshd
def test_the_variable_and_a_name_of_the_inventory_do_as_well(home, lab):
    home.inventory("# mine", f"lab1 {lab.address()}  # the big one")
    for words, env in ((("--host", "lab1", "ps", "-n"), {}), (("--host=lab1", "ps", "-n"), {}), (("ps", "-n"), {"TIDE_HOST": "lab1"}),
                       (("ps", "-n"), {"TIDE_HOST": lab.address()})):
        done = home(*words, env=env)
        assert (done.stdout, done.stderr, done.returncode) == ("cnn\n", "", 0), words
    failed(home("--host", "lab9", "ps"), 2, "no machine is called 'lab9'", "tide why bad-host")
    failed(home("ps", "--host", "lab1"), 2, "Put it before the command")
    failed(home("--host"), 2, "--host needs the name")


@needs_sshd
def test_requests_of_one_command_share_a_connection(home, lab):
    assert home("--host", lab.address(), "ps").returncode == 0
    assert lab.logins() == 1
    assert home("--host", lab.address(), "set", "cnn", "--threads", 1).returncode == 0
    assert lab.logins() == 2


@needs_sshd
def test_a_key_that_may_only_dial_reaches_the_daemon_and_nothing_else(home, lab):
    home.allow(f'command="{home.tide} dial",restrict ')
    assert home("--host", lab.address(), "ps", "-n").stdout == "cnn\n"
    assert home("--host", lab.address("/bin/rm"), "ps", "-n").stdout == "cnn\n"


@needs_sshd
def test_events_follow_over_a_restart_and_leave_no_process_behind(home, tide, lab):
    said = home.folder / "events"
    with open(said, "wb") as out:
        follower = subprocess.Popen([home.tide, "--host", lab.address(), "events", "--follow", "--since", "1h"], env=home.env,
                                    stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        tide("run", "--name", "early", "--", "true")
        eventually(lambda: re.search("job-ended .* early", said.read_text()))
        assert list(ssh_processes(home))
        os.kill(tide.daemon(), signal.SIGTERM)
        eventually(lambda: "the daemon has ended; waiting" in said.read_text())
        tide("run", "--name", "late", "--", "true")  # starts a daemon again
        eventually(lambda: re.search("job-ended .* late", said.read_text()))
        assert "the daemon answers again" in said.read_text()
    finally:
        follower.terminate()
        assert follower.wait(GUARD_S) == -signal.SIGTERM
    eventually(lambda: not list(ssh_processes(home)))


# ---- what does not go ----

def test_commands_that_work_here_say_so(home):
    for command in LOCAL:
        failed(home("--host", "ssh://nowhere.invalid", command, "x"), 2, "works on the machine where it is called", "not-with-host")
        failed(home(command, "x", env={"TIDE_HOST": "ssh://nowhere.invalid"}), 2, "not-with-host")
    for words in (("help",), ("why", "no-daemon"), ("sim", "--help")):
        assert home(*words, env={"TIDE_HOST": "ssh://nowhere.invalid"}).returncode == 0
    failed(home("--host", "ssh://nowhere.invalid", "cancel", "--all"), 2, "name them")
    listed = re.findall(r"^  ([a-z]+)  ", home("help").stdout, re.M)
    assert set(LOCAL) < set(listed)


@pytest.mark.parametrize("address", [
    "ssh://-oProxyCommand=touch", "ssh://", "ssh://a b", "ssh://host;id", "ssh://-v@host", "ssh://host:0", "ssh://host:99999", "ssh://host:22x",
    "ssh://host/bin/tide;id", "ssh://host/$(id)", "ssh://[::1", "ssh://us er@host", "ssh://u@v@host", "http://host", "ftp://host",
    "ssh://" + "a" * 300, "ssh://`id`"])
def test_an_address_that_ssh_or_a_shell_could_take_for_something_else_is_refused(home, address):
    home.program("ssh", "touch $HOME/called")
    failed(home("--host", address, "ps"), 2, "is no address of a machine", "tide why bad-host")
    assert not (home.folder / "called").exists()


@needs_sshd
def test_failures_say_what_ssh_or_the_other_side_said(home, tide):
    machine = home.machine(tide.dir)
    failed(home("--host", machine.address(), "ps"), 5, f"no daemon runs there (no process listens on {tide.dir}/api.sock)",
           "tide why host-unreachable")
    failed(home("--host", machine.address("/no/tide"), "ps"), 5, "has no program '/no/tide' for this user")
    failed(home("--host", f"ssh://127.0.0.1:{free_port()}", "ps"), 5, "ssh does not reach 127.0.0.1", "Connection refused")
    (home.folder / "authorized").write_text("")
    failed(home("--host", machine.address(), "ps"), 5, "Permission denied (publickey")


def test_strange_ends_of_the_connection_are_told_and_harmless(home):
    for script, text in (("echo 'Welcome to lab1'; cat >/dev/null", "does a start file"),
                         ("exit 0", "the connection broke"),
                         ("head -c 1 > /dev/null; exit 0", "the connection broke"),  # a reset, as bytes were not read
                         ("printf '\\033]0;pwned\\007bad\\n' >&2; exit 255", "?]0;pwned?bad"),
                         ("printf 'HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\n\\r\\nnot json!'; sleep 60", "is not JSON"),
                         ("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 255", "xxx")):
        home.program("ssh", script)
        done = home("--host", "ssh://lab", "ps")
        failed(done, 5, text)
        assert "\033" not in done.stderr and len(done.stderr) < 1000
    home.program("ssh", "exec sleep 60")
    home.inventory("lab ssh://lab")
    begin = time.monotonic()
    failed(home("fleet", "-d", "500ms"), 5)
    assert time.monotonic() - begin < GUARD_S
    (home.folder / "bin/ssh").unlink()
    failed(home("--host", "ssh://lab", "ps", env={"PATH": str(home.folder / "bin")}), 5, "cannot start ssh")


def test_endless_words_of_the_other_end_do_not_fill_the_memory_here(home):
    home.program("ssh", "yes xxxxxxxxxxxxxxx 2>/dev/null | head -c 3000000 >&2; stat -Lc %s /proc/$$/fd/2 > $HOME/size; exit 255")
    failed(home("--host", "ssh://lab", "ps"), 5, "ssh does not reach lab: xxx")
    assert int((home.folder / "size").read_text()) <= 65536


def test_a_reason_with_cut_characters_is_in_json(home):
    home.program("ssh", "printf '" + "x" * 158 + "éé\\n' >&2; exit 255")
    home.inventory("lab ssh://lab")
    done = home("fleet", "--json")
    assert done.returncode == 5
    for letters in range(150, 160):
        text = "{" + f'"error": {{"message": "{"x" * letters}' + "é" * 60 + '"}}'
        home.program("ssh", f"printf 'HTTP/1.1 403 Forbidden\\r\\nContent-Length: {len(text.encode())}\\r\\n\\r\\n%s' '{text}'; sleep 1")
        [machine] = json.loads(home("fleet", "--json").stdout)
        assert machine["error"].startswith("xxx"), letters


# ---- many machines ----

@needs_sshd
def test_all_machines_are_asked_and_the_unreachable_named(home, tide, lab):
    off = f"off ssh://127.0.0.1:{free_port()}"
    home.inventory(f"lab1 {lab.address()}", off)
    done = home("fleet", "--deadline", "60s")
    assert done.returncode == 6 and done.stderr == ""
    title, lab1, unreachable = re.sub(r"\n {20,}", " ", done.stdout).splitlines()
    assert title.split() == ["MACHINE", "CORES", "FREE", "LOAD", "JOBS", "WAITING", "POWER", "POLICY", "STATE"]
    assert lab1.split()[0] == "lab1" and lab1.split()[4:6] == ["1", "0"] and lab1.split()[-1] == "ok"
    assert "unreachable" in unreachable and "refused" in unreachable
    machines = json.loads(home("fleet", "--json", "--deadline", "60s").stdout)
    assert [(m["name"], m["reached"], bool(m["error"])) for m in machines] == [("lab1", True, False), ("off", False, True)]
    assert machines[0]["machine"]["cpus"] == os.cpu_count() and machines[0]["jobs"][0]["name"] == "cnn"
    done = home("fleet", "ps", "-d", "60s")
    assert done.returncode == 6 and "tide: fleet: off is unreachable: ssh does not reach" in done.stderr
    title, row = done.stdout.splitlines()
    assert title.split()[:3] == ["MACHINE", "ID", "NAME"] and row.split()[:3] == ["lab1", tide.job("cnn")["id"], "cnn"]
    assert json.loads(home("fleet", "ps", "--json", "-d", "60s").stdout)[0]["machine"] == "lab1"
    home.inventory(off)
    assert home("fleet").returncode == 5
    other = home.folder / "other"
    other.write_text(f"lab7 {lab.address()}\n")
    assert home("fleet", "-d", "60s", "-i", other).returncode == 0
    assert home("fleet", "-d", "60s", env={"TIDE_FLEET": str(other)}).returncode == 0


@needs_sshd
def test_a_machine_that_is_silent_delays_the_others_until_the_deadline_alone(home):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        home.inventory(f"silent ssh://127.0.0.1:{silent.getsockname()[1]}")
        done = home("fleet", "--deadline", "2s")
        assert done.returncode == 5 and "did not answer within 2 s" in re.sub(r"\n *", " ", done.stdout)


def test_hundreds_of_machines_end_with_the_deadline(home):
    home.program("ssh", "exec sleep 600")
    home.inventory(*(f"m{i} ssh://m{i}" for i in range(300)))
    done = home("fleet", "--json", "--deadline", "1s")
    assert done.returncode == 5 and len(json.loads(done.stdout)) == 300
    assert list(ssh_processes(home)) == []


@needs_sshd
def test_a_silent_rack_does_not_hide_the_machines_behind_it(home, lab):
    home.program("ssh", f'case "$*" in *127.0.0.1*) exec {shutil.which("ssh")} -F none -i {home.folder}/user '
                        f'-o UserKnownHostsFile={home.folder}/known -o StrictHostKeyChecking=no "$@" ;; esac\nexec sleep 600')
    home.inventory(*(f"m{i} ssh://m{i}" for i in range(100)), f"lab1 {lab.address()}")
    machines = json.loads(home("fleet", "--json", "--deadline", "20s").stdout)
    assert [m["name"] for m in machines if m["reached"]] == ["lab1"]


def test_what_is_wrong_with_an_inventory_is_told_with_its_line(home):
    if not pathlib.Path("/etc/tide/fleet").exists():
        failed(home("fleet"), 2, "there is no inventory of machines", "tide why no-inventory")
    for lines, text in ((["a ssh://a", "", "b"], "line 3: 'b' has no address"), (["a ssh://a", "a ssh://b"], "line 2: the machine 'a' stands there twice"),
                        (["a nonsense"], "line 1: 'nonsense' is no address"), (["a ssh://a b"], "line 1: there are more than two words"),
                        (["a\x7fb ssh://a"], "line 1: 'a?b' is no name of a machine"),
                        (["kubernetes:x ssh://no-star"], "line 1: 'ssh://no-star' has no '*'"),
                        ([f"m{i} ssh://m" for i in range(1025)], "line 1025: there are more than 1024 machines")):
        home.inventory(*lines)
        home.program("kubectl", "echo node 10.0.0.1")
        failed(home("fleet"), 2, text, "tide why bad-inventory")
    home.inventory("# nothing")
    failed(home("fleet"), 2, "has no machine")
    failed(home("fleet", "-i", "/nowhere"), 2, "No such file")
    failed(home("fleet", "top"), 2, "'top' is not ps")
    failed(home("fleet", "-d", "soon"), 2, "'soon' is no time")


def names(done):
    return {m["name"]: m["address"] for m in json.loads(done.stdout)}


def test_nodes_of_kubernetes_are_machines(home):
    home.program("ssh", "exit 255")
    home.program("kubectl", '[ "$*" = "${*%-l gpu=yes*}" ] && exit 1\nprintf "n1 10.0.0.1\\nn2 fd00::2 10.0.0.2\\nn3\\n"')
    home.inventory("kubernetes:gpu=yes ssh://ana@*:2222")
    assert names(home("fleet", "--json")) == {"n1": "ssh://ana@10.0.0.1:2222", "n2": "ssh://ana@[fd00::2]:2222", "n3": "ssh://ana@n3:2222"}
    assert set(names(home("fleet", "--json", "-i", "kubernetes:gpu=yes")).values()) == {
        "ssh://10.0.0.1", "ssh://[fd00::2]", "ssh://n3"}
    failed(home("--host", "n1", "ps"), 5, "10.0.0.1: the connection broke")
    failed(home("fleet", "-i", "kubernetes:other"), 2, "kubectl could not list the nodes")
    failed(home("fleet", "-i", "kubernetes:--all"), 2, "a label selector is missing")
    for evil in ("root@10.0.0.9/tmp/evil", "10.0.0.9/tmp/evil", "10.0.0.9]", "-v"):
        home.program("kubectl", f"echo n1 '{evil}'")
        home.program("ssh", "touch $HOME/called")
        failed(home("fleet", "-i", "kubernetes:gpu=yes"), 2, "line 1: '", "tide why bad-inventory")
    assert not (home.folder / "called").exists()


NAMES = """
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 53))
print("ready", flush=True)
def name(text):
    return b"".join(bytes([len(part)]) + part.encode() for part in text.split(".") if part) + b"\\0"
while True:
    q, who = s.recvfrom(2000)
    end = q.index(b"\\0", 12) + 5
    rows = {b"_tide": [(8450, "lab1.test"), (9999, "lab2.test")], b"_ends": [(0, "")]}.get(q[13:13 + q[12]])
    body = b"".join(b"\\xc0\\x0c" + struct.pack(">HHIH", 33, 1, 60, 6 + len(name(host))) + struct.pack(">HHH", 1, 1, port) + name(host)
                    for port, host in rows or [])
    broken = q[13:13 + q[12]] == b"_broken"
    s.sendto(q[:2] + struct.pack(">HHHHH", 0x8180 if rows or broken else 0x8183, 1, 1 if broken else len(rows or []), 0, 0) + q[12:end] +
             (b"\\xc0\\x0c\\0\\x21\\0\\1" if broken else body), who)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be its own name server")
def test_targets_of_dns_are_machines(home):
    (home.folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    (home.folder / "names.py").write_text(NAMES)
    script = home.folder / "look.sh"
    script.write_text(textwrap.dedent(f"""\
        rm -f {home.folder}/names.log; ip link set lo up && mount --bind {home.folder}/resolv.conf /etc/resolv.conf || exit 77
        {sys.executable} {home.folder}/names.py > {home.folder}/names.log & server=$!
        while ! grep -qs ready {home.folder}/names.log; do sleep 0.02; done
        "$@"; code=$?
        kill $server; exit $code
        """))
    inside = ("unshare", "-nm", "sh", script)
    if home("version", program=inside).returncode == 77:
        pytest.skip("no namespaces here")
    done = home("fleet", "--json", "-d", "1s", "-i", "dns:_tide._tcp.test", program=inside)
    assert done.stdout, done
    assert names(done) == {"lab1.test": "ssh://lab1.test:8450", "lab2.test": "ssh://lab2.test:9999"}, done
    home.inventory("dns:_tide._tcp.test ssh://ana@*:22")
    done = home("fleet", "--json", "-d", "1s", program=inside)
    assert set(names(done).values()) == {"ssh://ana@lab1.test:22", "ssh://ana@lab2.test:22"}, done
    failed(home("fleet", "-i", "dns:_none._tcp.test", program=inside), 2, "there is no such name")
    failed(home("fleet", "-i", "dns:_ends._tcp.test", program=inside), 2, "has no machine")
    failed(home("fleet", "-i", "dns:_broken._tcp.test", program=inside), 2, "is broken")


# ---- tide submit --any ----

@pytest.fixture
def labs(home, tide, public_dir):  # noqa: F811
    """Two machines: `busy` with a job, `idle` with a daemon and none."""
    tide.start_pool("cnn")
    run = public_dir / "idle"
    daemon = subprocess.Popen([home.tide.parent / "tided", "--dir", run], env=tide.env, stderr=subprocess.DEVNULL)
    machines = {"busy": home.machine(tide.dir), "idle": home.machine(run)}
    home.inventory(*(f"{name} {machine.address()}" for name, machine in machines.items()))
    eventually(lambda: home("--host", "idle", "ps").returncode == 0)
    (home.folder / "work it's").mkdir()
    yield machines
    for job in json.loads(home("--host", "idle", "ps", "--json").stdout):
        home("--host", "idle", "cancel", job["id"])
    daemon.terminate()
    daemon.wait(GUARD_S)


@needs_sshd
def test_the_machine_with_the_fewest_jobs_for_each_core_takes_a_job(home, labs):
    work = home.folder / "work it's"
    words = ("a b", "it's", "$HOME", "`id`", "\\", "*", "", "--any", "é\n;")
    done = home("submit", "--any", "--name", "far", "--wait", "--output", "far.out", "--", sys.executable, "-c",
                "import os, sys; print([sys.argv[1:], os.getcwd(), os.environ['TIDE_DIR'][-4:]]); sys.exit(3)", *words, cwd=work)
    assert done.returncode == 3 and done.stdout == "Submitted job j1 (far), output in far.out\n", done
    assert "tide: submit: idle takes it: 0 jobs on" in done.stderr
    assert (work / "far.out").read_text() == f"{[list(words), str(work), 'idle']!r}\n"
    # As long as it has two jobs and the other one, the other one takes the next.
    for _ in range(2):
        assert home("submit", "--any", "-q", "-o", "/dev/null", "--", "sleep", 600, cwd=work).returncode == 0
    assert len(json.loads(home("--host", "idle", "ps", "--json").stdout)) in (1, 2)
    assert len(json.loads(home("fleet", "ps", "--json", "-d", "60s").stdout)) == 3


@needs_sshd
def test_what_no_machine_can_take_is_told(home, labs):
    many = os.cpu_count() + 1
    failed(home("submit", "--any", "--request", many, "--", "true"), 2, f"none of the 2 machines that were reached has {many} cores", "no-machine")
    failed(home("submit", "--any", "--inventory", "dns:x y z", "--", "true"), 2, "more than two words")
    failed(home("submit", "--inventory", "x", "--", "true"), 2, "--inventory goes with --any alone")
    failed(home("submit", "--any", "--hold", "--nonsense", "--", "true"), 2, "no option '--nonsense'")
    nowhere = home.folder / "nowhere"
    nowhere.write_text(f"off ssh://127.0.0.1:{free_port()}\n")
    failed(home("submit", "--any", "--inventory", nowhere, "--", "true"), 5, "none of the 1 machines was reached; off: ssh does not reach")
    # A directory that is not there, and a program that is not.
    home.inventory(f"idle {labs['idle'].address()}")
    gone = home.folder / "gone"
    gone.mkdir()
    script = home.folder / "bin/ssh"
    script.write_text(script.read_text().replace("exec ", f'case "$*" in *"exec "*) rm -rf {gone};; esac; exec ', 1))
    done = home("submit", "--any", "--", "true", cwd=gone)
    assert done.returncode != 0 and "gone" in done.stderr
    assert home("submit", "--any", "--", "/no/such", cwd=home.folder).returncode == 127


def test_a_loop_of_a_shell_keeps_its_list(home, tide):
    tide.start_pool("cnn")
    home.program("ssh", f'case "$*" in *dial) TIDE_DIR={tide.dir} exec {home.tide} dial;; esac\ncat >> $HOME/eaten; echo "$*" >> $HOME/asked')
    home.inventory("lab ssh://lab")
    loop = f"while read word; do {home.tide} submit --any -q -- true $word; done"
    done = subprocess.run(["sh", "-c", loop], env=home.env, input="a\nb\nc\n", text=True, capture_output=True, timeout=2 * GUARD_S)
    assert done.returncode == 0, done
    assert [line[-3:] for line in (home.folder / "asked").read_text().splitlines()] == ["'a'", "'b'", "'c'"]
    assert (home.folder / "eaten").read_text() == ""
