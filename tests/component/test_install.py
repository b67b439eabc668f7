# SPDX-License-Identifier: Apache-2.0
"""The files that `make install DESTDIR=…` leaves are complete: programs, agent, library, package, documents."""
import fnmatch
import importlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import zipfile

import pytest

import conftest


BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR") or conftest.ROOT / "build").resolve()


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """The prefix below a DESTDIR, filled from the build tree."""
    destination = tmp_path_factory.mktemp("destination")
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet"], check=True,
                   timeout=120, env={**os.environ, "DESTDIR": str(destination)})
    options = json.loads((BUILD / "meson-info/intro-buildoptions.json").read_text())
    name = next(option["value"] for option in options if option["name"] == "prefix")
    return pathlib.Path(f"{destination}{name}")


@pytest.mark.parametrize("file", [
    "bin/tide", "bin/tided", "bin/tide-dashboard", "bin/tide-gate", "bin/tide-tls", "bin/tide-top", "bin/tide-runc", "bin/tide-tfnode",
    "libexec/docker/cli-plugins/docker-tide",
    "lib/threadtide/lib*/libtide-agent.so", "lib/**/libtide.so.1",
    "lib/**/pkgconfig/threadtide.pc", "include/tide/tide.h", "lib/**/threadtide/keras.py",
    "share/man/man1/tide-run.1", "share/man/man1/tide-tfnode.1", "share/man/man8/tided.8",
    "share/man/man8/tide-runc.8",
    "share/man/man5/tide.conf.5", "bin/tide-hub", "share/man/man8/tide-hub.8", "share/man/man5/tide-policy-file.5",
    "share/doc/threadtide/energy.md", "share/doc/threadtide/README.md", "share/doc/threadtide/CHANGELOG.md",
    "share/doc/threadtide/first-hour.md", "share/doc/threadtide/glossary.md", "share/doc/threadtide/troubleshooting.md",
    "share/doc/threadtide/comparison.md", "share/doc/threadtide/install.md",
    "share/doc/threadtide/http-api.md", "share/doc/threadtide/permissions.md",
    "bin/tide-pods", "share/man/man8/tide-pods.8", "share/threadtide/kubernetes/pods.yaml",
    "bin/kubectl-tide", "bin/kubectl_complete-tide", "share/threadtide/kubernetes/rbac.yaml", "share/threadtide/helm/threadtide/crd.yaml",
    "share/bash-completion/completions/tide", "share/zsh/site-functions/_tide",
    "share/locale/es/LC_MESSAGES/threadtide.mo",
    "share/fish/vendor_completions.d/tide.fish", "share/bash-completion/completions/tide-hub",
    "share/zsh/site-functions/_tide-hub", "share/fish/vendor_completions.d/tide-hub.fish",
])
def test_file_is_installed(prefix, file):
    assert list(prefix.glob(file)), file


def without_comments(file):
    """The text of a C, Python or scdoc source, its comments left out as far as they name documents."""
    text = file.read_text()
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S) if file.suffix in (".c", ".h") else re.sub(r"^\s*#.*", "", text, flags=re.M)


def test_texts_that_are_installed_name_documents_that_are_installed(prefix):
    """A manual page, a message or an answer that sends its reader to docs/NAME.md sends nobody to a file that is not there."""
    installed = {file.name for file in (prefix / "share/doc/threadtide").iterdir()}
    sources = [file for folder, kind in (("man", "*.scd"), ("src", "*.[ch]"), ("python", "*.py"), ("include", "*.h"))
               for file in (conftest.ROOT / folder).rglob(kind)]
    named = {(name, file.name) for file in sources
             for name in re.findall(r"docs/([\w.-]+\.(?:md|yaml))", without_comments(file))}
    assert {"containers.md", "policies.md", "promises.md"} <= {name for name, _ in named}
    assert not {(name, file) for name, file in named if name not in installed}


def test_every_document_that_is_installed_is_in_a_package(prefix):
    """Debian's packages refuse a file that no list has (dh_missing); Debian takes CHANGELOG.md from the source itself."""
    lists = [*(conftest.ROOT / "debian").glob("*.install"), conftest.ROOT / "debian/not-installed"]
    patterns = [line.split()[0].split("/")[-1] for file in lists for line in file.read_text().splitlines()
                if line.startswith("usr/share/doc/threadtide/")]
    installed = [file.name for file in (prefix / "share/doc/threadtide").iterdir()]
    assert not [name for name in installed if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    assert not [p for p in patterns if p != "slurm.md" and not any(fnmatch.fnmatch(name, p) for name in installed)]
    assert "%{_datadir}/doc/threadtide\n" in (conftest.ROOT / "dist/rpm/threadtide.spec").read_text()  # the whole folder


@pytest.mark.parametrize("file", ["lib/systemd/system/tided.service",
                                  "lib/systemd/system/tided.socket",
                                  "lib/sysusers.d/threadtide.conf",
                                  "lib/sysusers.d/threadtide-hub.conf"])
def test_the_service_is_installed_where_there_is_systemd(prefix, file):
    options = json.loads((BUILD / "meson-info/intro-buildoptions.json").read_text())
    asked = next(o["value"] for o in options if o["name"] == "systemd-unit-dir")
    if asked or subprocess.run(["pkg-config", "--exists", "systemd"], check=False).returncode:
        pytest.skip("built without systemd's own directories")
    text = (prefix / file).read_text()
    assert not re.search("@[A-Z_]+@", text)
    if file.endswith(".service"):
        assert f"ExecStart=/{'/'.join(prefix.parts[-2:])}/bin/tided" in text


def test_every_source_of_the_package_is_installed(prefix):
    installed = next(prefix.glob("lib/**/threadtide/_lib.py")).parent
    sources = (conftest.ROOT / "python/threadtide").glob("*.py")
    assert sorted(f.name for f in sources) == sorted(f.name for f in installed.glob("*.py"))
    sources = (conftest.ROOT / "python/threadtide/tensorflow").glob("*.py")
    assert sorted(f.name for f in sources) == sorted(
        f.name for f in (installed / "tensorflow").glob("*.py"))


def test_installed_package_finds_the_installed_library(prefix, tmp_path):
    package = next(prefix.glob("lib/**/threadtide/_lib.py")).parent
    env = {**conftest.plain_env(), "PYTHONPATH": str(package.parent), "TIDE_DIR": str(tmp_path / "d"),
           "TIDE_CLAIMS_DIR": str(tmp_path / "claims"), "PYTHONDONTWRITEBYTECODE": "1",
           "TIDE_AGENT_DIR": str(prefix / "lib/threadtide")}  # compiled in: the place without DESTDIR
    script = "import threadtide as t; print(t.__file__, t.available(), t._lib.library._name)"
    done = subprocess.run([prefix / "bin/tide", "run", "--", "/usr/bin/python3", "-c", script],
                          env=env, stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    file, available, library = done.stdout.split()
    assert (file, available) == (f"{package}/__init__.py", "True")
    assert library == f"{prefix}/$LIB/libtide.so.1"


def test_every_file_says_the_version_that_meson_says():
    version = re.search(r"version: '([^']+)'", (conftest.ROOT / "meson.build").read_text())[1]
    for file, pattern in (("python/threadtide/__init__.py", r'^__version__ = "(.*)"'),
                          ("debian/changelog", r"\Athreadtide \((.*)-[^-]*\) "), ("python/pyproject.toml", r'^version = "(.*)"'),
                          ("dist/helm/threadtide/Chart.yaml", "^version: (.*)"),
                          ("dist/helm/threadtide/Chart.yaml", "^appVersion: (.*)"),
                          ("dist/rpm/threadtide.spec", r"^Version: +(.*)"), ("CHANGELOG.md", r"^## (?:Unreleased \()?([0-9][^) ]*)")):
        assert re.search(pattern, (conftest.ROOT / file).read_text(), re.M)[1] == version, file


def test_what_is_bundled_into_the_page_is_named_with_its_licence():
    bundled = json.loads((conftest.ROOT / "ui/package.json").read_text())["dependencies"]
    page = (conftest.ROOT / "ui/dist/page.js").read_text()[:500]
    text = (conftest.ROOT / "debian/copyright").read_text()
    assert bundled
    for name, version in bundled.items():
        assert re.search(rf"{name} {re.escape(version)}\b", text, re.I) and re.search(name, page, re.I), name


def test_configuration_shipped_for_the_service_shows_every_key():
    named = set(re.findall(r'^    \{"([a-z-]+)", .*set_\w+\},$', (conftest.ROOT / "src/daemon/config.c").read_text(), re.M))
    assert "power-group" in named
    assert set(re.findall("^#([a-z-]+)=", (conftest.ROOT / "dist/tide.conf").read_text(), re.M)) == named


@pytest.mark.parametrize("script, ours, others", [
    ("packages", ("threadtide_0.9.0-0upstream1_amd64.deb", "libtide-dev_0.9.0-0upstream1_amd64.spdx.json",
                  "threadtide_0.9.0.orig-uplot.tar.gz", "python3-threadtide-0.9.0-1.x86_64.rpm", "log"),
     ("thesis.tex", "other_1.deb", "threadtide", "tide-kube.kubeconfig")),
    ("wheel", ("threadtide-0.9.0-py3-none-manylinux_2_34_x86_64.whl", "threadtide-0.9.0-py3-none-manylinux_2_34_x86_64.spdx.json"),
     ("thesis.tex", "numpy-2.0-py3-none-any.whl"))])
def test_a_folder_for_what_is_made_keeps_all_that_is_somebody_elses(monkeypatch, tmp_path, script, ours, others):
    monkeypatch.syspath_prepend(conftest.ROOT / "scripts")
    for name in (*ours, *others):
        (tmp_path / name).write_text(name)
    importlib.import_module(script).clear(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(others)


def test_the_bill_of_a_wheel_names_the_packages_of_its_libraries_shared_or_linked_in(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(conftest.ROOT / "scripts")
    wheel = importlib.import_module("wheel")
    file, library = tmp_path / "threadtide-1-py3-none-any.whl", pathlib.Path("/lib/x86_64-linux-gnu/libz.so.1")
    name, _, number = library.resolve().name.partition(".")
    with zipfile.ZipFile(file, "w") as archive:
        for path in ("threadtide/", "threadtide/bin/tide", f"threadtide.libs/{name}-0123abcd.{number}"):
            archive.writestr(path, b"x" * (path[-1] != "/"))
    bill = wheel.bill(file, "1", [library], wheel.linked())
    said = {(r["relationshipType"], r["relatedSpdxElement"].removeprefix("SPDXRef-Package-")) for r in bill["relationships"]}
    assert {("DEPENDS_ON", "zlib1g"), ("STATIC_LINK", "libjansson-dev"), ("STATIC_LINK", "systemd")} <= said
    owner = {r["relatedSpdxElement"]: r["spdxElementId"] for r in bill["relationships"] if r["relationshipType"] == "CONTAINS"}
    assert {f["fileName"]: owner[f["SPDXID"]] for f in bill["files"]} == {
        "./threadtide/bin/tide": "SPDXRef-Package-threadtide", f"./threadtide.libs/{name}-0123abcd.{number}": "SPDXRef-Package-zlib1g"}


@pytest.mark.skipif(os.geteuid() != 0, reason="installs as root what another user has built")
def test_root_that_installs_builds_as_the_owner_of_the_build_tree():
    """Files of root's in there would stop the owner's next make."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder, build = pathlib.Path(name), pathlib.Path(name, "build")
        folder.chmod(0o755)
        build.mkdir()
        (build / "build.ninja").write_text("")
        for program in ("meson", "ninja", "ldconfig"):
            (folder / program).write_text(f"#!/bin/sh\necho {program} $(id -un) $1\n")
            (folder / program).chmod(0o755)

        def install():
            done = subprocess.run(["make", "-s", "install", f"BUILD={build}"], cwd=conftest.ROOT, check=True, text=True, timeout=60,
                                  env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}, stdout=subprocess.PIPE)
            return done.stdout.splitlines()
        os.chown(build, 65534, 65534)
        assert install() == ["ninja nobody -C", "meson nobody configure", "ninja nobody -C", "meson root install", "ldconfig root"]
        os.chown(build, 0, 0)
        assert install() == ["ninja root -C", "meson root configure", "ninja root -C", "meson root install", "ldconfig root"]


@pytest.mark.parametrize("target, more", [("wheel", ()), ("wheel-old", ("gperf",))])
def test_what_makes_a_wheel_installs_what_makes_virtual_environments(tmp_path, target, more):
    """As on a fresh Debian, where python3 is there and its venv module is not. This python3 fails, so that nothing is made."""
    for name, text in (("python3", "exit 1"), ("id", "echo 0"), ("apt-get", f'echo "$*" >>{tmp_path}/asked'), ("dpkg-query", """
            for name; do case $name in python3-venv|gperf) ;; *) echo "installed $name" ;; esac; done""")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(["make", "-s", target, f"BUILD={tmp_path}/build"], cwd=conftest.ROOT, timeout=60, check=False,
                          env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"})
    install = (tmp_path / "asked").read_text().splitlines()[-1].split()
    assert done.returncode and install[install.index("install"):][-1 - len(more):] == ["python3-venv", *more]
