# SPDX-License-Identifier: Apache-2.0
"""A container that wishes us ill: all that its control directory and its labels let it try. Every
test ends with a look at another container, another job and the API, which must not have noticed."""
import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

from box import Box, connected, engine, job_of, joined  # noqa: F401, a fixture too
from conftest import ROOT
from daemon import SLOWNESS, WELCOME, Place, eventually

# Takes lines of JSON, {"code": …}, and answers with what they leave in `result`.
INTRUDER = """
import json, os, random, signal, socket, struct, sys, time, traceback
sys.path.insert(0, "/box")
import daemon as d
SOCKET = "/run/threadtide/agent.sock"
def connect(path=SOCKET):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(20)
    s.connect(path)
    return s
def answer(s):
    "(type, status, text) of the next message, or None after a hang-up."
    try:
        data = s.recv(2048)
    except ConnectionResetError:
        return None
    if not data:
        return None
    kind = struct.unpack_from("<H", data, 6)[0]
    if kind != d.RESULT:
        return kind, 0, ""
    return kind, struct.unpack_from("<i", data, 16)[0], data[40:].split(b"\\0")[0].decode()
def ask(data, path=SOCKET):
    s = connect(path)
    s.send(data)
    return answer(s)
def agent(path=SOCKET):
    s = connect(path)
    s.send(d.hello())
    assert answer(s)[0] == d.WELCOME
    return s
with open("/box/in") as orders, open("/box/out", "w", buffering=1) as out:
    for line in orders:
        space = dict(globals())
        try:
            exec(json.loads(line)["code"], space)
            out.write(json.dumps({"result": space.get("result")}) + "\\n")
        except Exception:
            out.write(json.dumps({"error": traceback.format_exc()}) + "\\n")
"""


class Intruder(Box):
    def __init__(self, engine, place, name, **more):
        super().__init__(engine, place, name, command=["/usr/bin/python3", "/box/intruder.py"],
                         start=False, **more)
        (self.dir / "intruder.py").write_text(INTRUDER)
        shutil.copy(ROOT / "tests/component/daemon.py", self.dir)
        shutil.copytree(ROOT / "fuzz/corpus/proto", self.dir / "corpus")
        self.start()

    def read(self):
        with open(self.dir / "out", encoding="utf-8") as lines:
            for line in lines:
                self.words.put(json.loads(line))

    def begin(self, code):
        self.tell(json.dumps({"code": code}))

    def result(self):
        answer = self.words.get(timeout=60)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def does(self, code):
        self.begin(code)
        return self.result()


class Stage:
    """A daemon with a container that is attacked, a job, and a container that attacks."""

    def __init__(self, build_dir, peer_program, engine):
        self.engine, self.build_dir, self.made = engine, build_dir, []
        self.place = Place(build_dir / "tided", peer_program)
        self.tided = self.place.daemon("--engine", engine.socket).start()
        self.victim = self.box(Box, "victim", "--max 8")
        connected(self.tided, self.victim)
        self.intruder = self.box(Intruder, "intruder")
        joined(self.tided, self.intruder)
        self.job = self.tided.job(name="bystander")

    def box(self, make, *args, **more):
        self.made.append(make(self.engine, self.place, *args, **more))
        return self.made[-1]

    def tide(self, *args):
        return subprocess.run([self.build_dir / "tide", *args], capture_output=True, timeout=30,
                              env={**os.environ, "TIDE_DIR": str(self.tided.dir)})

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.tided.process.pid}/fd"))

    def memory_kb(self):
        status = pathlib.Path(f"/proc/{self.tided.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.tided.process.pid}/stat").read_text()
        fields = fields.rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def all_is_well(self):
        """Orders reach the others' agents, a new job comes in and gets its threads, at once."""
        assert not self.tided.ended(), self.tided.log.read_text()
        for n in (2, 1):
            assert self.job.patch(threads=n)[1]["status"] == "done"
            status, answer = self.tided.api("PATCH", "/v1/jobs/victim", {"threads": n})
            assert (status, answer["status"]) == (200, "done"), answer
            self.victim.expect("target", n)
        self.job.patch(auto=True)
        self.tided.api("PATCH", "/v1/jobs/victim", {"auto": True})
        guest = self.tided.job("--max", "4")
        eventually(lambda: guest.get()["target"])  # a decision nobody waits for
        guest.end()
        victim = job_of(self.tided, self.victim)
        assert victim["pids"] == [self.victim.inspect()["State"]["Pid"]]

    def end(self):
        for box in self.made:
            box.remove()
        self.place.end()


@pytest.fixture(scope="module")
def stage(build_dir, compiled, engine):
    program = compiled("fake_peer.c", str(ROOT / "src/proto/proto.c"), str(ROOT / "src/base/latency.c"),
                       str(ROOT / "src/base/error.c"))
    result = Stage(build_dir, program, engine)
    yield result
    result.end()


@pytest.fixture
def well(stage):
    """The attack leaves nothing behind, either."""
    stage.all_is_well()
    before = stage.descriptors()
    yield stage
    stage.all_is_well()
    eventually(lambda: stage.descriptors() <= before + 1)


# ---- who it is ----

def test_it_gives_no_orders(well):
    verbs = well.intruder.does("result = [ask(d.control(v, job='victim', intra=1)) for v in range(7)]")
    assert [status for _, status, _ in verbs] == [-13] * 7
    assert {text for _, _, text in verbs} == {"a process in a container may not control jobs"}
    well.intruder.does("s = agent(); s.send(d.control(d.SET, job='victim', intra=1)); result = answer(s)")
    assert job_of(well.tided, well.victim)["pinned"] is None


def test_no_name_pid_or_token_makes_it_another_job(well):
    victim = job_of(well.tided, well.victim)
    claims = [("", victim["id"], "victim"), (well.job.token, well.job.id, "bystander"), ("", "", "new")]
    for token, job, name in claims:
        code = (f"s = connect(); s.send(d.hello({token!r}, {job!r}, {name!r}));"
                "data = s.recv(2048); result = data[32:48].split(b'\\0')[0].decode()")
        assert well.intruder.does(code) == job_of(well.tided, well.intruder)["id"]
        pid = victim["pids"][0]
        code = f"import os; os.getpid = lambda: {pid}\n{code}\nassert os.getpid() == {pid}"
        assert well.intruder.does(code) == job_of(well.tided, well.intruder)["id"]
        well.intruder.does("import importlib; importlib.reload(os)")
    assert well.job.get()["pids"] == [well.job.peer.pid]
    assert {j["name"] for j in well.tided.jobs()} == {"victim", "intruder", "bystander"}


def test_forged_credentials_and_descriptors_are_not_taken(well):
    """A message comes with another's credentials (root may send these), and with files without end."""
    own = job_of(well.tided, well.intruder)
    code = """
s = connect()
first = [(socket.SOL_SOCKET, 2, struct.pack("iII", os.getpid(), 65534, 65534))]
s.sendmsg([d.hello()], first)
result = answer(s)[0]
for _ in range(100):
    s.sendmsg([d.beat()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("200i", *[1] * 200))])
"""
    before = well.descriptors()
    assert well.intruder.does(code) == WELCOME
    assert well.descriptors() <= before + 4
    assert job_of(well.tided, well.intruder)["owner"] == own["owner"]


def test_anothers_socket_does_not_hear_it(well):
    """Not with the directory of all of them mounted, nor from a group that has the victim's name."""
    groups = well.engine.groups(well.victim.id).parent
    spy = well.box(Intruder, "spy", binds=[f"{well.tided.dir}/containers:/all",
                                                f"{groups}:/groups"])
    joined(well.tided, spy)
    assert spy.does("result = ask(d.hello(), '/all/victim/agent.sock')")[1] == -13
    name = f"/groups/{spy.id}/{well.victim.id}"
    assert spy.does(f"""
os.mkdir({name!r})
child = os.fork()
if child == 0:
    open({name!r} + "/cgroup.procs", "w").write("0")
    try:
        status = ask(d.hello(), '/all/victim/agent.sock')[1]
    except Exception:
        status = 1
    os._exit(-status)
result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os.rmdir({name!r})
""") == 13
    well.made.remove(spy)
    spy.remove()


# ---- what it says ----

def test_nonsense_costs_it_its_connection_alone(well):
    """The fuzzers' seeds, whole and spoilt, in any order, before a hello and after one."""
    well.intruder.does("""
chance = random.Random(7)
seeds = [open(f"/box/corpus/{name}", "rb").read() for name in sorted(os.listdir("/box/corpus"))]
def spoil(data):
    data = bytearray(data)
    for _ in range(chance.randrange(6)):
        at = chance.randrange(len(data))
        data[at] = chance.choice([0, 1, 255, 128, chance.randrange(256)])
    return bytes(data[:chance.choice([len(data)] * 6 + [chance.randrange(len(data) + 1)])])
for _ in range(600):
    s = connect()
    s.settimeout(0)
    try:
        if chance.random() < .7:
            s.send(d.hello())
        for _ in range(chance.randrange(12)):
            s.send(spoil(chance.choice(seeds)) or b"x")
    except OSError:
        pass
    s.close()
last = ask(b"x")  # accepted behind all others
""")
    assert "connection closed" in well.tided.log.read_text()
    eventually(lambda: job_of(well.tided, well.intruder))


EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\n\x00"


def test_what_it_says_does_not_reach_a_terminal(well):
    """Escapes in every text that an agent has, numbers at both ends."""
    evil = EVIL.encode() + b"\xff\xfe"
    well.intruder.does(f"""
evil = {evil!r} * 20
most = 2 ** 32 - 1
s = connect()
s.send(d.message(d.HELLO, struct.pack("<4I", most, most, most, 4096) + evil[:40] + evil[:16] +
                 evil[:64] + evil[:32] + evil[:32]))
assert answer(s)[0] == d.WELCOME
s.send(d.message(d.BACKEND, struct.pack("<8I", 0, 1, 4096, 4096, most, most, most, most) +
                 evil[:32] + evil[:32] + evil[:128]))
s.send(d.message(d.HEARTBEAT, struct.pack("<2Q4I3Q", 0, 0, 1, most, most, most, 2 ** 64 - 1,
                                          2 ** 64 - 1, 2 ** 64 - 1) + evil[:32]))
kept = s
import builtins; builtins.kept = s
""")
    eventually(lambda: job_of(well.tided, well.intruder)["backends"])
    for words in (["ps"], ["ps", "--json"], ["top", "--once"], ["explain", "intruder"], ["queue"],
                  ["doctor"], ["set", "intruder", "1"]):
        done = well.tide(*words)
        bad = [c for c in done.stdout.decode("utf-8", "surrogateescape") +
               done.stderr.decode("utf-8", "surrogateescape")
               if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or 0xdc80 <= ord(c) < 0xdd00)]
        assert not bad, (words, done)
    log = well.tided.log.read_bytes()
    assert b"\x1b" not in log
    job = job_of(well.tided, well.intruder)
    assert job["active"] >= 0 and job["target"] >= 0, job
    well.intruder.does("import builtins; builtins.kept.close(); del builtins.kept")


# ---- how much of it ----

def test_thousands_of_connections(well):
    before, memory = well.descriptors(), well.memory_kb()
    alive = well.intruder.does("""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
for _ in range(3000):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(.5)
    try:
        s.connect(SOCKET)
    except OSError:
        break
    held.append(s)
result = len(held)
import builtins; builtins.held = held
""")
    assert alive > 64
    well.all_is_well()
    assert well.descriptors() <= before + 70
    assert well.memory_kb() < memory + 4096
    well.intruder.does("import builtins; [s.close() for s in builtins.held]; del builtins.held")


# Children that do something once, and stay.
PEERS = """
import builtins
builtins.children = []
def peers(n, code):
    ready, go = os.pipe()
    for _ in range(n):
        pid = os.fork()
        if pid == 0:
            try:
                exec(code, globals())
            except OSError:
                pass
            finally:
                os.write(go, b"x")
                time.sleep(1000)
        builtins.children.append(pid)
    while n > 0:
        n -= len(os.read(ready, 400))
globals()["peers"] = peers
"""
END_PEERS = """
import builtins
for pid in builtins.children:
    os.kill(pid, signal.SIGKILL)
for pid in builtins.children:
    os.waitpid(pid, 0)
"""


def flood(stage, code, seconds=1.5):
    """The share of a core that tided needs while eight processes of the intruder run @code."""
    stage.intruder.begin(f"""
end = time.monotonic() + {seconds}
for i in range(8):
    if os.fork() == 0:
        try:
            exec({code!r})
        finally:
            os._exit(0)
for i in range(8):
    os.wait()
""")
    began, used = time.monotonic(), stage.cpu_s()
    stage.all_is_well()  # in the middle of it
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    share = (stage.cpu_s() - used) / (time.monotonic() - began)
    stage.intruder.result()
    return share


def test_a_flood_of_connections_costs_the_others_nothing(well):
    share = flood(well, """
while time.monotonic() < end:
    try:
        connect().close()
    except OSError:
        pass
""")
    assert share < 0.5


def test_a_flood_of_messages_costs_the_others_nothing(well):
    share = flood(well, """
s = agent()
beat = d.beat()
while time.monotonic() < end:
    s.send(beat)
""")
    assert share < 0.5


def test_a_flood_of_its_own_threads_costs_the_others_nothing(well):
    """The dearest message: each makes a decision."""
    share = flood(well, """
for _ in range(3):
    os.fork()  # 64 processes: as many as it has connections
s = agent()
s.send(d.backend())
while time.monotonic() < end:
    s.send(d.local(1))
    s.send(d.local(2))
""")
    assert share < 0.5


def test_floods_from_many_containers_cost_no_more_than_from_two(well):
    """Each has a budget, and all of them together have one; the victim, which is one of them, has its turn."""
    code = """
for i in range(16):
    if os.fork() == 0:
        s = agent()
        s.send(d.backend())
        while True:
            s.send(d.local(1))
            s.send(d.local(2))
"""
    crowd = [well.box(Intruder, f"crowd{i}") for i in range(8)]
    for one in crowd:
        joined(well.tided, one)
    for one in crowd:
        one.does(code)
    time.sleep(1)
    began, used = time.monotonic(), well.cpu_s()
    well.all_is_well()
    others = time.monotonic() - began
    time.sleep(max(0.0, began + 2 - time.monotonic()))
    share = (well.cpu_s() - used) / (time.monotonic() - began)
    for one in crowd:
        well.made.remove(one)
        one.remove()
    assert others < 8 * SLOWNESS  # without a budget of all together more than twice that
    assert share < 0.45
    assert "connection closed" not in well.tided.log.read_text().split("crowd0")[-1]


def test_who_never_reads_is_waited_for_by_nobody(well):
    memory = well.memory_kb()
    well.intruder.does(PEERS + """
peers(40, "s = agent(); s.send(d.backend())")
""")
    eventually(lambda: len(job_of(well.tided, well.intruder)["backends"]) >= 40)
    for n in range(500):
        well.tided.api("PATCH", "/v1/jobs/intruder", {"threads": 40 + n % 40, "deadline_ms": 1})
    well.all_is_well()
    assert well.memory_kb() < memory + 4096
    well.intruder.does(END_PEERS)


def test_a_fork_bomb_of_peers_is_one_job(well):
    """Each says hello and is followed as long as it lives; there is an end to that."""
    before = well.descriptors()
    well.intruder.does(PEERS + """
peers(400, "s = connect(); s.send(d.hello()); answer(s); s.close()")
""")
    job = job_of(well.tided, well.intruder)
    assert 64 <= len(job["pids"]) <= 256  # as many as the loop came by to hear, and no more
    assert well.descriptors() <= before + 256 + 64
    well.all_is_well()
    well.intruder.does(END_PEERS)
    eventually(lambda: len(job_of(well.tided, well.intruder)["pids"]) == 1)


# ---- what it does in its directory ----

def test_what_it_puts_into_a_writable_directory_is_not_followed(place, engine, compiled):
    """Mounted for writing by mistake, and quicker than the daemon: no file but ours is changed."""
    secret = place.base / "secret"
    secret.write_text("precious")
    secret.chmod(0o600)
    quick = compiled("swift_vandal.c", "-shared", "-fPIC", "-ldl")
    tided = place.daemon("--engine", engine.socket)
    folder = tided.dir / "containers" / "vandal"
    tided.program = ["env", f"LD_PRELOAD={quick}", f"VICTIM={secret}", f"VANDALISED={folder}",
                     tided.program]
    tided.start()
    vandal = Box(engine, place, "vandal", agent=False, labels={"io.threadtide.key": "vandal"},
                 binds=[f"{folder}:/run/threadtide"])
    try:
        joined(tided, vandal)
        assert (folder / "agent.sock").is_symlink()
        assert secret.stat().st_mode & 0o777 == 0o600 and secret.read_text() == "precious"
    finally:
        vandal.remove()
    eventually(lambda: not folder.exists())  # its link goes, what it leads to stays
    assert secret.read_text() == "precious"


# ---- what is written on it ----

def test_hostile_labels_are_a_note(well):
    labels = {"io.threadtide.min": "9" * 1000000, "io.threadtide.max": "-1", "io.threadtide.weight": EVIL,
              "io.threadtide.priority": "1e9", "io.threadtide.deadline": "9" * 40 + "h",
              "io.threadtide.request": "0x10", "io.threadtide.placement": "../../exclusive",
              "io.threadtide.key": "../../../../etc", f"io.threadtide.{EVIL[:4]}": "x",
              "io.threadtide.class": " 3"}
    labels = {key.replace("\0", ""): value.replace("\0", "") for key, value in labels.items()}
    box = well.box(Box, "labelled", labels=labels, agent=False)
    job = joined(well.tided, box)
    assert (job["min"], job["limit"], job["weight"]) == (1, None, 100), job
    assert "io.threadtide." in job["note"] and job["note"].isprintable() and len(job["note"]) < 300
    done = well.tide("ps")
    assert b"\x1b" not in done.stdout and len(done.stdout) < 10000
    well.made.remove(box)
    box.remove()
    eventually(lambda: job_of(well.tided, box) is None)


@pytest.mark.parametrize("name", ["x" * 200, "4711", "j1", "a..b"])
def test_a_name_that_is_none_of_a_job_is_replaced(well, name):
    """Docker's rules are others than ours: a number would be taken for a pid, j1 for an id."""
    ids = {j["id"] for j in well.tided.jobs()}
    box = well.box(Box, name, agent=False, labels={"io.threadtide": "true"})
    job, = eventually(lambda: [j for j in well.tided.jobs() if j["id"] not in ids])
    assert job["name"] == (name if name == "a..b" else job["id"])
    assert job["pids"] == [box.inspect()["State"]["Pid"]]
    well.made.remove(box)
    box.remove()
    eventually(lambda: len(well.tided.jobs()) == len(ids))
