# SPDX-License-Identifier: Apache-2.0
"""The container images, in a real Docker Engine and its containerd."""
import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile

import pytest

from box import real_engine
from daemon import GUARD_S, eventually
from engine import IMAGE

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/images.py"
NAMES = ("tide-kube", "tide-node", "tide-pods", "tide-power")


@pytest.fixture(scope="module")
def engine():
    yield from real_engine("docker")


def make(build_dir, folder):
    subprocess.run([sys.executable, SCRIPT, "--build", build_dir, "--to", folder, "--version", "test",
                    *NAMES], check=True, timeout=2 * GUARD_S)


@pytest.fixture(scope="module")
def archives(tmp_path_factory, build_dir):
    folder = tmp_path_factory.mktemp("images")
    make(build_dir, folder)
    return folder


def tag(name):
    return f"threadtide/{name}:test"


@pytest.fixture(scope="module")
def loaded(engine, archives):
    for name in NAMES:
        status, answer = engine.api("POST", "/images/load", raw=(archives / f"{name}.tar").read_bytes())
        assert status == 200 and "Loaded image" in str(answer), answer
    return engine


def run(engine, image, *command, entry=(), user=None, binds=()):
    """(status, output) of a container without network and rights, whose root cannot be written."""
    status, made = engine.api("POST", "/containers/create", {
        "Image": image, "Entrypoint": list(entry) or None, "Cmd": list(command), "User": user or "",
        "HostConfig": {"NetworkMode": "none", "ReadonlyRootfs": True, "CapDrop": ["ALL"],
                       "SecurityOpt": ["no-new-privileges"], "Binds": list(binds)}})
    assert status == 201, made
    path = f"/containers/{made['Id']}"
    try:
        assert engine.api("POST", f"{path}/start")[0] == 204
        status = engine.api("POST", f"{path}/wait")[1]["StatusCode"]
        return status, str(engine.api("GET", f"{path}/logs?stdout=1&stderr=1")[1])
    finally:
        engine.api("DELETE", f"{path}?force=1")


def test_the_same_files_make_the_same_bytes(archives, build_dir, tmp_path):
    make(build_dir, tmp_path)
    for name in NAMES:
        for kind in ("tar", "spdx.json"):
            file = f"{name}.{kind}"
            assert (tmp_path / file).read_bytes() == (archives / file).read_bytes()


def test_the_controller_starts_from_its_image_as_nobody_with_nothing_to_write(loaded):
    status, text = run(loaded, tag("tide-kube"), "--version")
    assert status == 0 and "tide-kube" in text, text
    user = loaded.api("GET", f"/images/{tag('tide-kube')}/json")[1]["Config"]["User"]
    assert user == "65532:65532"  # a number: what else would Kubernetes know of it


def test_the_injector_finds_in_its_image_an_agent_that_fits_into_a_configmap(loaded):
    """It reads the agent first. Here is no cluster, and it says so."""
    status, text = run(loaded, tag("tide-kube"), "inject", "--agent-dir=/opt/threadtide/agent")
    assert status == 1 and ".kube/config" in text, text
    status, text = run(loaded, tag("tide-kube"), "inject", "--agent-dir=/nowhere")
    assert status == 1 and "cannot read the agent in /nowhere" in text, text


def test_the_node_image_gives_another_image_what_a_training_needs(loaded, tmp_path):
    """As an init container with a volume does."""
    tmp_path.chmod(0o777)
    volume = f"{tmp_path}:/to"
    status, text = run(loaded, tag("tide-node"), "-r", "/opt/threadtide/.", "/to", entry=["cp"],
                       binds=[volume])
    assert status == 0, text
    assert (tmp_path / "python/threadtide/tensorflow/__init__.py").exists()
    binds = [f"{tmp_path}:/opt/threadtide:ro", "/usr:/usr:ro"]
    status, text = run(loaded, IMAGE, "--version", entry=["/opt/threadtide/tide-tfnode"],
                       user="65532", binds=binds)
    assert status == 0 and "tide-tfnode" in text, text
    check = "import threadtide.tensorflow as t; print(t.LocalCluster.__name__)"
    status, text = run(loaded, IMAGE, "-c", f"import sys; sys.path[:0] = ['/opt/threadtide/python']; {check}",
                       entry=["/usr/bin/python3"], user="65532", binds=binds)
    assert status == 0 and "LocalCluster" in text, text


def test_containerd_imports_them_under_the_names_that_kubelets_use(loaded, archives):
    """Docker's own containerd serves anybody, in a namespace of their own."""
    socket = loaded.dir / "exec/containerd/containerd.sock"
    eventually(socket.exists)

    def ctr(*words):
        done = subprocess.run(["ctr", "--address", socket, "--namespace", "k8s.io", *words],
                              capture_output=True, text=True, timeout=2 * GUARD_S)
        assert done.returncode == 0, done.stderr
        return done.stdout
    for name in NAMES:
        ctr("images", "import", "--no-unpack", str(archives / f"{name}.tar"))
    assert set(ctr("images", "list", "--quiet").split()) >= {f"docker.io/{tag(n)}" for n in NAMES}


def test_an_image_holds_no_more_than_ours_and_the_libraries(archives):
    for name in NAMES:
        with tarfile.open(archives / f"{name}.tar") as tar:
            manifest = json.load(tar.extractfile("manifest.json"))[0]
            for layer in manifest["Layers"]:
                with tarfile.open(fileobj=tar.extractfile(layer)) as inner:
                    for entry in inner:
                        assert (entry.uid, entry.gid, entry.mtime) == (0, 0, 0)
                        assert entry.isdir() or entry.name.split("/")[0] in (
                            "bin", "etc", "lib", "lib64", "opt", "usr"), entry.name
                        assert not entry.mode & 0o6000


def test_the_power_image_knows_time_zones_and_public_authorities(archives):
    """A policy's windows go by zones, and a hub's page may have a certificate of a public authority."""
    inside = {}
    with tarfile.open(archives / "tide-power.tar") as tar:
        for layer in json.load(tar.extractfile("manifest.json"))[0]["Layers"]:
            with tarfile.open(fileobj=tar.extractfile(layer)) as inner:
                inside |= {entry.name: inner.extractfile(entry).read() for entry in inner if entry.isreg()}
    for zone in ("America/Argentina/Buenos_Aires", "Europe/Berlin", "UTC"):
        assert inside[f"usr/share/zoneinfo/{zone}"] == pathlib.Path("/usr/share/zoneinfo", zone).read_bytes()
    assert not [name for name in inside if name.startswith("usr/share/zoneinfo/") and name.split("/")[3] in ("posix", "right", "localtime")]
    assert inside["etc/ssl/certs/ca-certificates.crt"].count(b"-----BEGIN CERTIFICATE-----") > 50


@pytest.mark.parametrize("name", NAMES)
def test_the_bill_of_materials_names_every_file_with_its_hash_and_package(archives, name):
    bill = json.loads((archives / f"{name}.spdx.json").read_text())
    inside = {}
    with tarfile.open(archives / f"{name}.tar") as tar:
        manifest = json.load(tar.extractfile("manifest.json"))[0]
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=tar.extractfile(layer)) as inner:
                inside |= {f"./{e.name}": hashlib.sha256(inner.extractfile(e).read()).hexdigest()
                           for e in inner if e.isreg()}
    listed = {f["fileName"]: {c["algorithm"]: c["checksumValue"] for c in f["checksums"]}["SHA256"]
              for f in bill["files"]}
    assert listed == inside
    assert any(path.endswith("/libcurl.so.4") for path in inside) == (name != "tide-node")
    assert manifest["Config"].rpartition("/")[2] in bill["documentNamespace"]
    names = {f["SPDXID"]: f["fileName"] for f in bill["files"]}
    owners = {names[r["relatedSpdxElement"]]: r["spdxElementId"] for r in bill["relationships"]
              if r["relationshipType"] == "CONTAINS"}
    versions = {p["SPDXID"]: p["versionInfo"] for p in bill["packages"]}
    libc, = (owner for file, owner in owners.items() if file.endswith("/libc.so.6"))
    installed = subprocess.run(["dpkg-query", "--show", "-f", "${Version}", "libc6"], capture_output=True,
                               text=True, check=True).stdout
    assert (libc, versions[libc]) == ("SPDXRef-Package-libc6", installed)
    ours = [file for file in owners if "threadtide" in file or file.endswith(("/tide-kube", "/tided"))]
    assert ours and {versions[owners[file]] for file in ours} == {"test"}
