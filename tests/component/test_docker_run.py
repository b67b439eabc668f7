# SPDX-License-Identifier: Apache-2.0
"""`docker tide run`, the runtime tide and `tide setup docker`, with a real Docker Engine."""
import json
import os
import pathlib
import pty
import shlex
import shutil
import signal
import socket
import stat
import subprocess

import pytest

import conftest
from daemon import NOBODY, Daemon, eventually
from engine import IMAGE, Engine, skeleton

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a container engine needs root"),
    pytest.mark.skipif(not shutil.which("docker"), reason="no docker command"),
]

AGENT, CONTROL = "/opt/threadtide", "/run/threadtide"
LIBRARY = f"{AGENT}/$LIB/libtide-agent.so"
SHOW = """import json, os
print(json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "uid": os.getuid(),
                  "files": sorted(map(int, os.listdir("/proc/self/fd"))),
                  "agent": "libtide-agent" in open("/proc/self/maps").read()}))"""
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


class Docker:
    """An engine, a daemon's directory for its containers, and command lines to it."""

    def __init__(self, build_dir, folder):
        self.build, self.dir = build_dir, folder / "run"
        self.config = folder / "config"
        (self.config / "cli-plugins").mkdir(parents=True)
        (self.config / "cli-plugins/docker-tide").symlink_to(build_dir / "tide")
        self.env = {**conftest.plain_env(), "TIDE_DIR": str(self.dir),
                    "DOCKER_CONFIG": str(self.config)}
        before = os.environ.get("TIDE_DIR")
        os.environ["TIDE_DIR"] = str(self.dir)  # tide-runc's, from dockerd
        self.engine = Engine("docker")
        os.environ.pop("TIDE_DIR")
        if before:
            os.environ["TIDE_DIR"] = before
        self.to = ["docker", "--host", f"unix://{self.engine.socket}"]
        self.ways = {"docker tide": [*self.to, "tide"],
                     "tide docker": [build_dir / "tide", "docker", *self.to[1:]]}

    def setup(self, *options, program=None):
        engine = self.engine.dir
        return self.call(program or self.build / "tide", "setup", "docker", "--config",
                         engine / "daemon.json", "--pidfile", engine / "pid", "--socket",
                         self.engine.socket, "--plugins", engine / "plugins", *options)

    def call(self, *words, **more):
        return conftest.run(words, more.pop("env", self.env), **more)

    def run(self, *words, way="docker tide", verb="run", **more):
        return self.call(*self.ways[way], verb, "--network=none", "-v", "/usr:/usr:ro", *words,
                         **more)

    def plain(self, *words, **more):
        return self.call(*self.to, *words, **more)

    def inspect(self, name):
        status, answer = self.engine.api("GET", f"/containers/{name}/json")
        assert status == 200, answer
        return answer

    def maps(self, name):
        return pathlib.Path(f"/proc/{self.inspect(name)['State']['Pid']}/maps").read_text()

    def is_up(self, name):
        """The container's program has begun to sleep."""
        return eventually(lambda: "up" in self.plain("logs", name).stdout)


@pytest.fixture(scope="module")
def docker(build_dir, tmp_path_factory):
    result = Docker(build_dir, tmp_path_factory.mktemp("docker"))
    try:
        result.engine.start().make_image()
        yield result
    finally:
        result.engine.end()


@pytest.fixture
def names(docker):
    """names(): of a container that is removed at the end."""
    made = []

    def name():
        made.append(f"test-{os.getpid()}-{len(made)}")
        return made[-1]
    yield name
    for one in made:
        docker.engine.api("DELETE", f"/containers/{one}?force=1")


@pytest.fixture
def runtime(docker):
    """The runtime tide, registered."""
    done = docker.setup()
    assert done.returncode == 0, done.stderr
    yield docker
    assert docker.setup("--undo").returncode == 0


def shown(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


# ---- docker tide run ----

@pytest.mark.parametrize("way", ["docker tide", "tide docker"])
def test_program_has_agent_and_environment(docker, way):
    env = {**docker.env, "TIDE_TOKEN": "secret", "TIDE_JOB_ID": "j1", "TIDE_JOB_NAME": "caller"}
    result = docker.run("--rm", IMAGE, "python3", "-c", SHOW, way=way, env=env)
    seen = shown(result)
    assert seen["agent"]
    assert seen["env"]["LD_PRELOAD"] == LIBRARY
    assert seen["env"]["TIDE_SOCKET"] == f"{CONTROL}/agent.sock"
    # Nothing else is there: no token of the caller's, no descriptor.
    assert {key for key in seen["env"] if key.startswith("TIDE")} == {"TIDE_SOCKET", "TIDE_STARTUP"}
    stock = shown(docker.plain("run", "--rm", "--network=none", "-v", "/usr:/usr:ro", IMAGE,
                               "python3", "-c", SHOW))
    assert seen["files"] == stock["files"] and not stock["agent"]
    # Nobody listens in its directory: one line, and no other noise.
    assert result.stderr.count("\n") == 1 and "unmanaged until a tided runs" in result.stderr


def test_nothing_is_said_when_a_daemon_listens(docker):
    docker.dir.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(docker.dir / "api.sock"))
        listener.listen()
        result = docker.run("--rm", IMAGE, "true")
    (docker.dir / "api.sock").unlink()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_options_of_docker_run_are_kept_and_ours_become_labels(docker, names, tmp_path):
    name = names()
    (tmp_path / "env").write_text("FILE=1\nLD_PRELOAD=/usr/lib/no-such.so\n")
    result = docker.run(
        "--min", "2", "--name", name, "--max=4", "-iw", "/tmp", "--hostname", "box", "--priority",
        "-7", "-u", str(NOBODY), "-eA=b", "--label", "mine=1", "-l", "io.threadtide.max=3",
        "--read-only", "--tmpfs", "/run", "--cpus", "0.5", "--env-file", tmp_path / "env",
        "--deadline", "2h", "--placement", "quota", "--entrypoint", "python3",
        IMAGE, "-c", SHOW, "--max", "9")
    seen = shown(result)
    box = docker.inspect(name)
    labels = box["Config"]["Labels"]
    assert seen["env"]["HOSTNAME"] == "box" and seen["env"]["A"] == "b"
    assert seen["env"]["FILE"] == "1" and seen["cwd"] == "/tmp" and seen["uid"] == NOBODY
    assert seen["env"]["LD_PRELOAD"] == f"/usr/lib/no-such.so:{LIBRARY}" and seen["agent"]
    assert box["Config"]["Cmd"][-2:] == ["--max", "9"]
    assert box["HostConfig"]["NanoCpus"] == 500000000 and box["HostConfig"]["ReadonlyRootfs"]
    assert (labels["mine"], labels["io.threadtide"]) == ("1", "true")
    assert (labels["io.threadtide.min"], labels["io.threadtide.max"]) == ("2", "3")
    assert labels["io.threadtide.priority"] == "-7"
    assert labels["io.threadtide.placement"] == "quota"
    assert labels["io.threadtide.deadline"].endswith("Z")


def sizes(seen):
    names = "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TIDE_MAX", "JDK_JAVA_OPTIONS"
    return [seen["env"].get(name) for name in names]


def test_runtimes_in_a_container_are_sized_by_what_it_may_have(docker):
    if os.cpu_count() < 2:
        pytest.skip("one CPU: no number is below it")

    def run(*words, env=None):
        return sizes(shown(docker.run("--rm", *words, "python3", "-c", SHOW, env={**docker.env, **(env or {})})))
    java = "-XX:ActiveProcessorCount=1"
    path = "/images/create?fromSrc=-&repo=sized&changes=ENV%20OMP_NUM_THREADS=7%20JDK_JAVA_OPTIONS=-Xmx1g"
    assert docker.engine.api("POST", path, raw=skeleton())[0] == 200
    assert run(IMAGE) == [None, "passive", None, None]
    assert run("--max", "1", IMAGE) == ["1", "passive", "1", java]
    assert run("--cpus", "0.5", IMAGE) == ["1", "passive", None, java]
    assert run("--cpus", "0.5", "--env", "OMP_NUM_THREADS=3", IMAGE, env={"TIDE_SPIN": "1"}) == \
        ["3", None, None, java]
    assert run("--max", "1", "-e", "TIDE_SPIN=1", "sized") == ["7", None, "1", f"{java} -Xmx1g"]


@pytest.mark.parametrize("words, expected", [
    (["-e", "LD_PRELOAD=/usr/lib/one.so"], f"/usr/lib/one.so:{LIBRARY}"),
    (["-e", "LD_PRELOAD="], LIBRARY),
    ([], f"/usr/lib/of-image.so:{LIBRARY}"),
], ids=["user's", "none", "image's"])
def test_what_is_preloaded_stays_in_front(docker, words, expected):
    path = "/images/create?fromSrc=-&repo=preloads&changes=ENV%20LD_PRELOAD=/usr/lib/of-image.so"
    assert docker.engine.api("POST", path, raw=skeleton())[0] == 200
    result = docker.run("--rm", *words, "preloads", "sh", "-c", "echo $LD_PRELOAD")
    assert result.stdout == f"{expected}\n"


@pytest.mark.parametrize("way", ["docker tide", "tide docker"])
@pytest.mark.parametrize("words, status", [
    ([IMAGE, "sh", "-c", "exit 7"], 7),
    ([IMAGE, "/no/such/program"], 127),
    (["--pull=never", "no-such-image"], 125),
    (["--no-such-option", IMAGE, "true"], 125),
    (["--max", "none", IMAGE, "true"], 2),
], ids=["program's", "no program", "no image", "no option", "wrong value"])
def test_exit_status_is_dockers(docker, way, words, status):
    assert docker.run("--rm", *words, way=way).returncode == status


def test_image_that_is_not_here_is_said_once(docker):
    """A registry that cannot be reached: docker says why, and we end as docker run does."""
    result = docker.run("127.0.0.1:9/no/image")
    assert result.returncode == 125
    assert result.stderr.count("127.0.0.1:9") >= 1 and result.stdout == ""


def test_detached_container_has_the_agent_and_its_directory(docker, names):
    name = names()
    result = docker.run("-d", "--name", name, IMAGE, "python3", "-c", SLEEP)
    assert result.stdout.strip() == docker.inspect(name)["Id"]
    docker.is_up(name)
    assert "libtide-agent.so" in docker.maps(name)
    mounts = {m["Destination"]: m for m in docker.inspect(name)["Mounts"]}
    assert mounts[AGENT]["Source"] == str(docker.build / "agent") and not mounts[AGENT]["RW"]
    control = pathlib.Path(mounts[CONTROL]["Source"])
    assert control.parent == docker.dir / "containers" and control.is_dir()
    assert len(control.name) == 32 and not mounts[CONTROL]["RW"]


def test_create_takes_the_same_options(docker, names):
    name = names()
    assert docker.run("--max", "2", "--name", name, IMAGE, "true", verb="create").returncode == 0
    box = docker.inspect(name)
    assert box["State"]["Status"] == "created"
    assert box["Config"]["Labels"]["io.threadtide.max"] == "2"
    assert f"LD_PRELOAD={LIBRARY}" in box["Config"]["Env"]


def test_container_of_a_terminal_has_one(docker):
    command = [str(c) for c in (*docker.ways["docker tide"], "run", "--network=none", "-v",
                                "/usr:/usr:ro", "--rm", "-it", IMAGE, "sh", "-c", "tty; exit 5")]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, docker.env)
    said = b""
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            break
        if not more:
            break
        said += more
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert b"/dev/pts/0" in said
    os.close(terminal)


@pytest.mark.parametrize("way", ["docker tide", "tide docker"])
def test_signal_reaches_the_program(docker, names, way):
    """`tide docker run` has become docker; as a plugin we are told from Docker 25 on."""
    version = docker.plain("version", "--format", "{{.Client.Version}}").stdout
    if way == "docker tide" and int(version.split(".")[0]) < 25:
        pytest.skip(f"docker {version.strip()} keeps signals from its plugins")
    name = names()
    script = "trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done"
    command = [*docker.ways[way], "run", "--network=none", "-v", "/usr:/usr:ro", "--name", name,
               IMAGE, "sh", "-c", script]
    with subprocess.Popen([str(c) for c in command], env=docker.env, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as client:
        try:
            assert client.stdout.readline() == "up\n"
            client.send_signal(signal.SIGTERM)
            assert client.wait(conftest.GUARD_S) == 9
        finally:
            client.kill()


@pytest.mark.parametrize("options, cc", [(["-static"], "gcc"), ([], "musl-gcc")],
                         ids=["static", "musl"])
def test_program_that_cannot_have_the_agent_runs_without_noise(docker, compiled, options, cc):
    if not shutil.which(cc):
        pytest.skip(f"no {cc}")
    program = compiled("inert/show.c", *options, cc=cc)
    words = ["-v", f"{program}:/show", IMAGE, "sh", "-c", "/show /tmp/agent; echo $?; cat /tmp/agent"]
    ours = docker.run("--rm", *words)
    assert ours.stdout.endswith("42\nabsent\n") and ours.stderr.count("\n") == 1  # no tided


@pytest.mark.parametrize("user, seen", [("65534", "absent\n"), ("0", "mapped\n")])
def test_setuid_program_inside_runs_without_the_agent(docker, public_dir, compiled, user, seen):
    shutil.copy(compiled("inert/show.c"), public_dir / "show")
    (public_dir / "show").chmod(0o4755)
    public_dir.chmod(0o777)
    result = docker.run("--rm", "--user", user, "-v", f"{public_dir}:/box", IMAGE, "sh", "-c",
                        "/box/show /box/agent; cat /box/agent")
    assert "euid 0\n" in result.stdout and result.stdout.endswith(seen), result


@pytest.mark.parametrize("way", ["run", "runtime"])
def test_environment_that_has_no_room_for_the_agent_stays_as_it_is(docker, runtime, way):
    """The kernel would refuse the program, or docker's."""
    full = "LD_PRELOAD=" + 130900 * ":"
    words = ["--rm", "-e", full, IMAGE, "python3", "-c", SHOW]
    if way == "run":
        result = docker.run(*words)
    else:
        result = docker.plain("run", "--runtime=tide", "--network=none", "-v", "/usr:/usr:ro", *words)
    assert shown(result)["env"]["LD_PRELOAD"] == 130900 * ":" and not shown(result)["agent"]


def test_container_starts_again_without_agent_and_directory(docker, names, public_dir):
    name = names()
    shutil.copytree(docker.build / "agent", public_dir / "agent")
    env = {**docker.env, "TIDE_AGENT_DIR": str(public_dir / "agent")}
    assert docker.run("-d", "--name", name, IMAGE, "python3", "-c", SLEEP, env=env).returncode == 0
    docker.is_up(name)
    assert "libtide-agent.so" in docker.maps(name)
    assert docker.plain("stop", "-t", "0", name).returncode == 0
    shutil.rmtree(public_dir / "agent")
    shutil.rmtree(docker.dir)
    assert docker.plain("start", name).returncode == 0
    eventually(lambda: docker.plain("logs", name).stdout.count("up") == 2)
    assert "libtide-agent.so" not in docker.maps(name)


def test_missing_agent_is_said_and_the_container_runs(docker):
    result = docker.run("--rm", IMAGE, "python3", "-c", SHOW,
                        env={**docker.env, "TIDE_AGENT_DIR": "/no/such/directory"})
    assert not shown(result)["agent"] and "LD_PRELOAD" not in shown(result)["env"]
    result = docker.run("--rm", "-e", "LD_PRELOAD=/usr/lib/mine.so", IMAGE, "python3", "-c", SHOW,
                        env={**docker.env, "TIDE_AGENT_DIR": "/no/such/directory"})
    assert shown(result)["env"]["LD_PRELOAD"] == "/usr/lib/mine.so"
    assert "there is no agent in /no/such/directory" in result.stderr


def test_other_verbs_are_tides(docker):
    assert docker.plain("tide", "version").stdout == docker.call(
        docker.build / "tide", "version").stdout
    assert "Usage: tide docker" in docker.plain("tide", "--help").stdout
    assert "tide*" in docker.plain("--help").stdout.replace("tide  ", "tide* ")
    assert docker.call(docker.build / "tide", "docker", "ps").returncode == 2


# ---- the runtime ----

def test_runtime_gives_agent_and_environment(runtime, names):
    name = names()
    words = ["run", "-d", "--name", name, "--runtime=tide", "--network=none", "-v", "/usr:/usr:ro",
             "--ulimit", "core=-1", "-e", "LD_PRELOAD=/usr/lib/mine.so", IMAGE]
    assert runtime.plain(*words, "python3", "-c", SLEEP).returncode == 0
    runtime.is_up(name)
    assert "libtide-agent.so" in runtime.maps(name)
    control = runtime.dir / "containers" / runtime.inspect(name)["Id"]
    assert stat.S_IMODE(control.stat().st_mode) == 0o711
    seen = shown(runtime.plain("exec", name, "python3", "-c", SHOW))
    assert seen["env"]["LD_PRELOAD"] == f"/usr/lib/mine.so:{LIBRARY}" and seen["agent"]
    assert seen["env"]["TIDE_SOCKET"] == f"{CONTROL}/agent.sock"
    limits = pathlib.Path(f"/proc/{runtime.inspect(name)['State']['Pid']}/limits").read_text()
    assert limits.split("Max core file size")[1].split()[0] == "unlimited"
    # The directory is mounted: a socket that is made later is seen.
    (control / "agent.sock").touch()
    assert runtime.plain("exec", name, "ls", CONTROL).stdout == "agent.sock\nstartup\n"


def test_runtime_sizes_a_container_and_what_starts_in_it_later(runtime, names):
    if os.cpu_count() < 2:
        pytest.skip("one CPU: no number is below it")
    name = names()
    words = ["run", "-d", "--name", name, "--runtime=tide", "--network=none", "-v", "/usr:/usr:ro"]
    show = ["python3", "-c", f"{SHOW[:-1]}, flush=True); import time; time.sleep(600)"]
    java = "-XX:ActiveProcessorCount=1"
    assert runtime.plain(*words, "--cpus=1", "-e", "TIDE_MAX=5", "-e", "JDK_JAVA_OPTIONS=-Da='b c'", IMAGE,
                         *show).returncode == 0
    assert eventually(lambda: runtime.plain("logs", name).stdout)
    assert sizes(json.loads(runtime.plain("logs", name).stdout)) == ["1", "passive", "5", f"{java} -Da='b c'"]
    later = ["python3", "-c", SHOW]
    assert sizes(shown(runtime.plain("exec", name, *later))) == ["1", "passive", "5", f"{java} -Da='b c'"]
    assert sizes(shown(runtime.plain("exec", "-e", "OMP_NUM_THREADS=4", name, *later)))[0] == "4"


def test_runtime_and_docker_tide_run_together_give_one_agent(runtime, names):
    name = names()
    result = runtime.run("-d", "--name", name, "--runtime=tide", IMAGE, "python3", "-c", SLEEP)
    assert result.returncode == 0, result.stderr
    runtime.is_up(name)
    mounts = pathlib.Path(f"/proc/{runtime.inspect(name)['State']['Pid']}/mountinfo").read_text()
    assert mounts.count(f" {AGENT} ") == 1 and mounts.count(f" {CONTROL} ") == 1
    assert not (runtime.dir / "containers" / runtime.inspect(name)["Id"]).exists()


def test_runtime_passes_status_and_noise_through(runtime):
    words = ["run", "--rm", "--runtime=tide", "--network=none", "-v", "/usr:/usr:ro", IMAGE]
    assert runtime.plain(*words, "sh", "-c", "exit 6").returncode == 6
    missing = runtime.plain(*words, "/no/such/program")
    assert missing.returncode == 127 and "no such file" in missing.stderr


def test_runtime_without_agent_starts_the_container_as_it_is(docker, public_dir, names):
    for program in ("tide", "tide-runc"):
        shutil.copy(docker.build / program, public_dir)
    name = names()
    words = ["run", "-d", "--name", name, "--runtime=tide", "--network=none", "-v",
             "/usr:/usr:ro", IMAGE, "python3", "-c", SLEEP]
    assert docker.setup(program=public_dir / "tide").returncode == 0
    try:
        assert docker.plain(*words).returncode == 0
        docker.is_up(name)
        assert "libtide-agent.so" not in docker.maps(name)
        assert "LD_PRELOAD" not in shown(docker.plain("exec", name, "python3", "-c", SHOW))["env"]
    finally:
        assert docker.setup("--undo", program=public_dir / "tide").returncode == 0


# ---- tide setup ----

def test_setup_is_undone_to_the_byte_while_containers_go_on(docker, names):
    name, config = names(), docker.engine.dir / "daemon.json"
    config.write_text('{\n  "labels": ["a=b"],\n  "runtimes": { "other": {"path": "runc"} }\n}')
    config.chmod(0o640)
    before = config.read_bytes()
    first, second = docker.setup(), docker.setup()
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert json.loads(config.read_text())["runtimes"].keys() == {"other", "tide"}
    assert (config.parent / "daemon.json.before-tide").read_bytes() == before
    assert (config.parent / "plugins/docker-tide").resolve() == (docker.build / "tide").resolve()
    words = ["run", "-d", "--name", name, "--runtime=tide", "--network=none", "-v",
             "/usr:/usr:ro", IMAGE, "python3", "-c", SLEEP]
    assert docker.plain(*words).returncode == 0
    docker.is_up(name)
    for _ in range(2):
        assert docker.setup("--undo").returncode == 0
    assert config.read_bytes() == before and stat.S_IMODE(config.stat().st_mode) == 0o640
    assert not list(config.parent.glob("*tide*")) and not list(config.parent.glob(".daemon*"))
    assert not (config.parent / "plugins/docker-tide").exists()
    assert docker.inspect(name)["State"]["Running"]
    assert docker.plain("exec", name, "true").returncode == 0
    assert "tide" not in docker.engine.api("GET", "/info")[1]["Runtimes"]


@pytest.fixture
def setup(docker, tmp_path):
    """setup(*options): of a Docker that does not run, in a directory of its own."""
    def call(*options, **more):
        return docker.call(docker.build / "tide", "setup", "docker", "--config",
                           tmp_path / "etc/docker/daemon.json", "--pidfile", tmp_path / "pid",
                           "--socket", tmp_path / "sock", "--plugins", tmp_path / "plugins",
                           *options, **more)
    return call


def test_setup_makes_the_file_and_undo_removes_it(setup, docker, tmp_path):
    config = tmp_path / "etc/docker/daemon.json"
    assert setup().returncode == 0
    assert json.loads(config.read_text()) == \
        {"runtimes": {"tide": {"path": str((docker.build / "tide-runc").resolve())}}}
    assert setup("--undo").returncode == 0
    assert not config.exists()


def test_undo_keeps_what_others_wrote_meanwhile(setup, tmp_path):
    config = tmp_path / "etc/docker/daemon.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"debug": true}')
    assert setup().returncode == 0
    config.write_text(config.read_text().replace("true", "false"))
    assert setup("--undo").returncode == 0
    assert config.read_text() == '{"debug": false}'


@pytest.mark.parametrize("text, reason", [
    ('{\n"debug": true,\n}', "line 3 is no JSON"),
    ('{"runtimes": 1}', "not a JSON object"),
])
def test_broken_file_is_left_alone(setup, tmp_path, text, reason):
    config = tmp_path / "etc/docker/daemon.json"
    config.parent.mkdir(parents=True)
    config.write_text(text)
    for options in ([], ["--undo"]):
        result = setup(*options)
        assert result.returncode == 1 and reason in result.stderr
        assert config.read_text() == text


def test_default_runtime_is_not_taken_away(setup, tmp_path):
    config = tmp_path / "etc/docker/daemon.json"
    assert setup().returncode == 0
    text = config.read_text().replace("{", '{"default-runtime": "tide", ', 1)
    config.write_text(text)
    result = setup("--undo")
    assert result.returncode == 1 and "'default-runtime' is 'tide'" in result.stderr
    assert config.read_text() == text


def test_setup_of_the_machine_needs_root(docker):
    result = docker.call("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                         docker.build / "tide", "setup", "docker")
    assert result.returncode == 4 and "only root can change" in result.stderr and "--user" in result.stderr


def test_user_gets_the_plugin_alone(docker, tmp_path):
    env = {**docker.env, "DOCKER_CONFIG": str(tmp_path / "own")}
    link = tmp_path / "own/cli-plugins/docker-tide"
    assert docker.call(docker.build / "tide", "setup", "docker", "--user", env=env).returncode == 0
    assert docker.plain("tide", "version", env=env).returncode == 0
    assert link.is_symlink()
    result = docker.call(docker.build / "tide", "setup", "docker", "--user", "--undo", env=env)
    assert result.returncode == 0 and not link.parent.exists()


# ---- with tided ----

TRAP = """import signal, sys
def on_term(number, frame):
    print("asked to end", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, on_term)
print("up", flush=True)
while True:
    signal.pause()"""

UNTIL = """import os, sys, time
print("up", flush=True)
while not os.path.exists("/tmp/go"):
    time.sleep(0.05)
sys.exit(7)"""


@pytest.fixture
def tided(docker, build_dir, tmp_path):
    """Two cores, on which jobs begin when their requests fit; the more urgent ones first."""
    peer = build_dir / conftest.PEER
    docker.dir.mkdir(exist_ok=True)
    daemon = Daemon(docker.build / "tided", peer, docker.dir, tmp_path / "claims", "--engine",
                    docker.engine.socket, "--cpus", "0-1", "--policy", "priority").start()
    yield daemon
    for job in daemon.jobs():
        for pid in job["pids"]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    daemon.end()
    shutil.rmtree(docker.dir / "jobs", ignore_errors=True)


class Submitted:
    """A job of `tide submit` whose program is, or runs, `docker run`."""

    def __init__(self, docker, tided, folder, *words, options=()):
        self.docker, self.tided, self.output = docker, tided, folder / f"{len(os.listdir(folder))}.out"
        self.process = subprocess.Popen(
            [docker.build / "tide", "submit", "--quiet", "--wait", "-o", self.output, "--request", "2",
             *options, "--", *words], env={**docker.env, "DOCKER_HOST": docker.to[2]},
            stdout=subprocess.PIPE, text=True)
        self.id = self.process.stdout.readline().strip()
        assert self.id

    def get(self):
        return next((j for j in self.tided.jobs() if j["id"] == self.id), None)

    def state(self):
        job = self.get()
        return job and job["state"]

    def is_container(self, name):
        """Its job, once the container is part of it."""
        def look():
            status, answer = self.docker.engine.api("GET", f"/containers/{name}/json")
            job = self.get()
            return status == 200 and job and answer["State"]["Pid"] in job["pids"] and job
        return eventually(look)

    def said(self, text):
        return eventually(lambda: self.output.exists() and text in self.output.read_text())

    def ended(self):
        """Its exit status."""
        eventually(lambda: not self.get())
        self.process.stdout.close()
        return self.process.wait(conftest.GUARD_S)


@pytest.fixture
def submit(docker, tided, tmp_path):
    (tmp_path / "out").mkdir()
    return lambda *words, **more: Submitted(docker, tided, tmp_path / "out", *words, **more)


def in_container(name, program, *options, way=("docker", "run")):
    return [*way, "--rm", "--name", name, "--network=none", "-v", "/usr:/usr:ro", *options, IMAGE,
            "python3", "-c", program]


def test_container_is_a_job_with_what_was_asked_for(docker, tided, names):
    name = names()
    result = docker.run("-d", "--name", name, "--max", "3", "--priority", "5", "--cpus=0.5", IMAGE, "python3",
                        "-c", SLEEP)
    assert (result.returncode, result.stderr) == (0, "")
    job = eventually(lambda: next((j for j in tided.jobs() if j["name"] == name), None))
    assert (job["limit"], job["priority"], job["sized"]) == (3, 5, 1 if os.cpu_count() > 1 else None)
    control = pathlib.Path(next(m["Source"] for m in docker.inspect(name)["Mounts"]
                                if m["Destination"] == CONTROL))
    assert eventually((control / "agent.sock").is_socket)
    assert docker.plain("exec", name, "test", "-S", f"{CONTROL}/agent.sock").returncode == 0
    assert name in docker.plain("tide", "ps").stdout


@pytest.mark.parametrize("way", [["docker", "run"], ["docker", "tide", "run"]])
def test_submitted_container_is_one_job(tided, submit, names, way):
    """Asked for once, by both; who comes next waits for one job, which ends as the container does."""
    name = names()
    terms = ["--max", "5"] if "tide" in way else []
    first = submit(*in_container(name, UNTIL, *terms, way=way), options=["--name", "cnn", "--priority", "4"])
    first.said("up")
    job = first.is_container(name)
    assert [j["id"] for j in tided.jobs()] == [first.id]
    assert (job["name"], job["priority"], job["request"]) == ("cnn", 4, 2)
    assert job["limit"] == (5 if terms else None)

    def command():
        return tided.api("GET", f"/v1/history?job={first.id}")[1][0]["command"]
    eventually(lambda: "submit" not in command())  # the first second it is what starts it
    assert f"run --rm --name {name} --network=none" in command()
    assert "threadtide" not in command()  # what was added is not what a person asked for
    second = submit("true")
    assert eventually(lambda: second.state() == "queued")
    assert len(tided.jobs()) == 2
    assert first.docker.plain("exec", name, "touch", "/tmp/go").returncode == 0
    assert first.ended() == 7
    second.ended()


def test_submitted_container_is_paused_resumed_and_cancelled_as_one(tided, submit, names):
    name = names()
    patient = submit(*in_container(name, TRAP))
    patient.said("up")
    patient.is_container(name)
    urgent = submit("sleep", "600", options=["--priority", "10"])
    eventually(lambda: patient.docker.inspect(name)["State"]["Paused"])
    eventually(lambda: (patient.state(), urgent.state() == "queued") == ("paused", False))
    tided.api("DELETE", f"/v1/jobs/{urgent.id}")
    eventually(lambda: not patient.docker.inspect(name)["State"]["Paused"])
    again = submit("sleep", "600", options=["--priority", "10"])
    eventually(lambda: patient.state() == "paused")
    done = patient.docker.call(patient.docker.build / "tide", "cancel", patient.id)  # also like this
    assert done.stdout == f"{patient.id} docker: ended\n", done
    assert patient.output.read_text().count("asked to end") == 1
    assert patient.ended() == 3
    assert again.state() != "queued"


def test_detached_container_goes_on_as_the_job(tided, submit, names):
    name = names()
    job = submit(*in_container(name, TRAP, "--detach"))
    job.is_container(name)
    pid = job.docker.inspect(name)["State"]["Pid"]
    eventually(lambda: job.get()["pids"] == [pid])
    assert [j["id"] for j in tided.jobs()] == [job.id]
    tided.signal(signal.SIGKILL)  # the next daemon knows it, too
    tided.start()
    assert job.is_container(name)["pids"] == [pid] and len(tided.jobs()) == 1
    eventually(lambda: "up" in job.docker.plain("logs", name).stdout)
    assert job.docker.call(job.docker.build / "tide", "cancel", job.id).returncode == 0
    assert not job.get()


def test_script_of_containers_is_one_job_to_its_end(tided, submit, names, tmp_path):
    first, second = names(), names()
    script = tmp_path / "script.sh"
    script.write_text("\n".join(shlex.join(in_container(name, TRAP, way=("docker", "tide", "run")))
                                for name in (first, second)) + "\necho last\nsleep 600\n")
    job = submit("sh", script)
    job.is_container(first)
    eventually(lambda: job.output.read_text().count("up") == 1)
    job.docker.plain("kill", first)
    job.is_container(second)
    assert [j["id"] for j in tided.jobs()] == [job.id]
    eventually(lambda: job.output.read_text().count("up") == 2)
    tided.api("DELETE", f"/v1/jobs/{job.id}")
    job.ended()  # it went on behind its container at most until tided had heard of that one's end


def test_a_label_gets_a_container_into_no_job_without_its_token(docker, tided, submit, names):
    name = names()
    job = submit(*in_container(name, SLEEP))
    job.is_container(name)
    token = docker.inspect(name)["Config"]["Labels"]["io.threadtide.job"]
    assert token not in (job.id, "docker") and len(token) == 32
    before = job.get()["pids"]
    for label in (job.id, "docker", token[:-1], "", token):  # the last: it has a container
        other = names()
        words = in_container(other, SLEEP, "-d", "--label", f"io.threadtide.job={label}")
        assert docker.plain(*words[1:]).returncode == 0
        own = eventually(lambda: next((j for j in tided.jobs() if j["name"] == other), None))
        assert own["id"] != job.id and own["owner"] == "root"
        assert job.get()["pids"] == before
