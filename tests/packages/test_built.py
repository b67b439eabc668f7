# SPDX-License-Identifier: Apache-2.0
"""The packages' content, without installing them."""
import gzip
import hashlib
import re
import subprocess
import tarfile

import pytest

from conftest import NAMES, ROOT, bill_of, made_twice


def test_the_same_commit_gives_the_same_bytes(packages):
    """In another folder, time zone, language and umask."""
    assert len(made_twice(packages.folder, "*.deb", "*.dsc", "*.tar.*", "*.spdx.json")) > len(NAMES)


def test_the_source_package_has_the_source_of_the_page(packages, tmp_path):
    dsc, = packages.folder.glob("*.dsc")
    subprocess.run(["dpkg-source", "--no-check", "-x", dsc, tmp_path / "source"], check=True, stdout=subprocess.DEVNULL)
    source = tmp_path / "source"
    tracked = subprocess.run(["git", "ls-tree", "-r", "-z", "--name-only", "HEAD", "ui", "src", "debian"], cwd=ROOT,
                             check=True, stdout=subprocess.PIPE, text=True).stdout.strip("\0").split("\0")
    assert "ui/src/main.ts" in tracked
    assert [name for name in tracked if not (source / name).is_file()] == []
    plot = (source / "uplot/dist/uPlot.esm.js").read_text()
    assert "function uPlot(opts" in plot, "not the readable one"


@pytest.mark.parametrize("name", ["threadtide", "threadtide-power", "threadtide-hub"])
def test_the_folder_of_configurations_is_there_whichever_of_them_is_installed(packages, tmp_path, name):
    assert (packages.unpack(tmp_path, name) / "etc/tide").is_dir()


@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_each_has_its_licence_with_that_of_what_is_bundled(packages, tmp_path, name):
    folder = packages.unpack(tmp_path, name)
    text = (folder / f"usr/share/doc/{name}/copyright").read_text()
    assert "License: Apache-2.0" in text and "Leon Sorokin" in text
    assert gzip.open(folder / f"usr/share/doc/{name}/changelog.Debian.gz").read().startswith(b"threadtide (")


@pytest.mark.ci
def test_programs_are_hardened_and_the_agent_fits_into_any_process(packages, tmp_path):
    folder = packages.unpack(tmp_path, *NAMES)
    programs = [file for file in (folder / "usr/bin").iterdir()
                if not file.is_symlink() and file.read_bytes().startswith(b"\x7fELF")]
    assert {"tide", "tided", "tide-hub", "tide-power", "tide-kube", "tide-runc"} <= {file.name for file in programs}
    library, = folder.glob("usr/lib/*/libtide.so.1.*")
    plugin, = folder.glob("usr/lib/*/slurm-wlm/threadtide.so")
    subprocess.run([ROOT / "scripts/check-hardening.sh", *programs, library, plugin], check=True)
    agent = folder / "usr/lib/threadtide/lib/x86_64-linux-gnu/libtide-agent.so"
    subprocess.run([ROOT / "scripts/check-hardening.sh", "--lazy", agent], check=True)
    subprocess.run([ROOT / "scripts/check-agent-elf.sh", agent], check=True)
    for place in ("lib64", "lib32"):
        assert (folder / f"usr/lib/threadtide/{place}/libtide-agent.so").is_file()


@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_the_bill_of_materials_names_every_file_and_dependency(packages, name):
    file = packages.files[name]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
            inside = {entry.name: hashlib.sha256(tar.extractfile(entry).read()).hexdigest()
                      for entry in tar if entry.isreg()}
    bill = bill_of(file, inside)
    needs = subprocess.run(["dpkg-deb", "-f", file, "Depends"], check=True, stdout=subprocess.PIPE, text=True).stdout
    names = {need.split("(")[0].split("|")[0].split(":any")[0].strip() for need in needs.split(",") if need.strip()}
    assert names <= {package["name"].split(":any")[0] for package in bill["packages"]}
    assert [p["versionInfo"] for p in bill["packages"] if p["name"] == name] == [packages.version]


@pytest.mark.ci
def test_the_shipped_configuration_shows_each_key_with_its_default(packages, tmp_path):
    folder = packages.unpack(tmp_path, "threadtide")
    shipped = folder / "etc/tide/tide.conf"

    def settings(name, text):
        file = tmp_path / name
        file.write_text(text)
        said = subprocess.run([folder / "usr/bin/tided", "--config", file, "--check-config"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        return dict(line.split("=", 1) for line in said.splitlines() if re.match("[a-z-]+=", line))
    tmp_path.chmod(0o755)
    nothing = settings("nothing.conf", "[daemon]\n")
    assert settings("shipped.conf", shipped.read_text()) == nothing
    shown = settings("shown.conf", re.sub("^#(?=[a-z-]+=)", "", shipped.read_text(), flags=re.M))
    # These two depend on whose daemon it is, and what was set before.
    own = {"policy": "equal", "engines": "/run/docker.sock /run/podman/podman.sock"}
    assert shown == {**nothing, **own}
    keys = set(re.findall("^#([a-z-]+)=", shipped.read_text(), re.M))
    assert keys == nothing.keys()
