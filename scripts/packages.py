#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the Debian packages of the last commit, from a source package made of `git archive`.

    scripts/packages.py [--to DIR] [--plus WORD] [--no-lintian] [--binary] [--vary] [--rpm]
                        [--commit COMMIT]

DIR (build/packages) has the packages, the source package, and NAME.spdx.json beside each package, of Debian or RPM:
its files with their hashes, and what it depends on (SPDX 2.3). The same commit gives the same bytes, whatever
the folder. uPlot, which is in the page, is fetched from npm and checked against ui/package-lock.json, and
becomes a part of its own of the source package.

--binary: the packages alone, the same bytes, without the source package, and so without npm. --plus WORD: version
VERSION+WORD, by another entry of debian/changelog (tests of upgrades). --commit: of this one
instead of the last. --rpm: packages for Fedora instead, see dist/rpm/threadtide.spec.
"""
import argparse
import base64
import email.utils
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from images import Layer, bill_of_materials, project_version

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLOT = "uplot"
MADE = re.compile(r"(threadtide|libtide|python3-threadtide|tide-kube).*\.(deb|rpm|dsc|buildinfo|changes|tar\.[gx]z|spdx\.json)|log")


def run(*command, **more):
    return subprocess.run(command, check=True, **more)


def output(*command, **more):
    return run(*command, stdout=subprocess.PIPE, text=True, **more).stdout


def changelog(field, folder=ROOT):
    return output("dpkg-parsechangelog", "-l", folder / "debian/changelog", "-S", field).strip()


def fetch_plot(path):
    """The copy of uPlot that npm has, if it is what the page's lock file says."""
    locked = json.loads((ROOT / "ui/package-lock.json").read_text())["packages"][f"node_modules/{PLOT}"]
    with tempfile.TemporaryDirectory() as folder:
        name = output("npm", "pack", "--silent", f"{PLOT}@{locked['version']}", cwd=folder).strip()
        data = pathlib.Path(folder, name).read_bytes()
    found = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    if found != locked["integrity"]:
        sys.exit(f"packages: {name} is not what ui/package-lock.json pins")
    path.write_bytes(data)


def archive(commit, prefix, *paths):
    data = run("git", "archive", f"--prefix={prefix}/", commit, "--", *paths, cwd=ROOT,
               stdout=subprocess.PIPE).stdout
    return tarfile.open(fileobj=io.BytesIO(data))


def pack(folder, path, epoch):
    """A tar of the folder that does not depend on this machine."""
    run("tar", "-C", folder.parent, "--sort=name", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner",
        "--mode=u=rwX,go=rX", f"--mtime=@{epoch}", "-cf", path, folder.name)
    run("xz", "-T1", "-6", path)


def write_entry(folder, version):
    """One more entry, a second later than the last one."""
    file = folder / "debian/changelog"
    when = email.utils.formatdate(int(changelog("Timestamp")) + 1, localtime=False)
    file.write_text(f"threadtide ({version}-0upstream1) UNRELEASED; urgency=medium\n\n  * Another version, for tests.\n\n"
                    f" -- {changelog('Maintainer')}  {when}\n\n" + file.read_text())


def source_tree(work, plus, binary, commit):
    """The unpacked source package in @work, beside its parts as dpkg-source wants them named, which @binary leaves out."""
    epoch = output("git", "log", "-1", "--format=%ct", commit, cwd=ROOT).strip()
    if output("git", "status", "--porcelain", cwd=ROOT):
        print(f"packages: of the commit {commit[:8]}: changes that are not committed are not in them", flush=True)
    own = project_version(output("git", "show", f"{commit}:meson.build", cwd=ROOT))
    version = own + (f"+{plus}" if plus else "")
    folder = work / f"threadtide-{version}"
    archive(commit, folder.name, ".", ":!debian").extractall(work)
    if plus:
        file = folder / "meson.build"
        file.write_text(file.read_text().replace(f"version: '{own}'", f"version: '{version}'", 1))
    if not binary:
        pack(folder, work / f"threadtide_{version}.orig.tar", epoch)
        plot = work / f"threadtide_{version}.orig-{PLOT}.tar.gz"
        fetch_plot(plot)
        (folder / PLOT).mkdir()
        run("tar", "-C", folder / PLOT, "--strip-components=1", "-xf", plot)
    archive(commit, folder.name, "debian").extractall(work)
    if plus:
        write_entry(folder, version)
    if (found := changelog("Version", folder).rpartition("-")[0]) != version:
        sys.exit(f"packages: debian/changelog says {found}, meson.build {version}")
    return folder


def control(package, field):
    return output("dpkg-deb", "-f", package, field).strip()


def facts_of_deb(package):
    """(name, version, what it needs, a tar of its files)"""
    needs = [re.sub(r"\s+", " ", need.split("|")[0]).strip()
             for need in control(package, "Depends").split(",") if need.strip()]
    return (control(package, "Package"), control(package, "Version"), needs,
            run("dpkg-deb", "--fsys-tarfile", package, stdout=subprocess.PIPE).stdout)


def facts_of_rpm(package):
    """The same, without what rpm asks of itself and of the package."""
    name, version = output("rpm", "-qp", "--qf", "%{NAME} %{VERSION}-%{RELEASE}", package).split()
    needs = {re.sub(r"(\([^()]*\))?\((64bit|x86-64)\)(?= |$)", "", line)
             for line in output("rpm", "-qp", "--requires", package).splitlines()
             if not re.match(r"(rpmlib|config|rtld)\(", line)}
    with open(package, "rb") as file:
        return name, version, sorted(needs), run("rpm2archive", "-", stdin=file, stdout=subprocess.PIPE).stdout


def bill(package):
    """The bill of materials of a package, in the form of the images' ones."""
    facts, kind = (facts_of_rpm, "rpm/fedora") if package.suffix == ".rpm" else (facts_of_deb, "deb/debian")
    name, version, needs, data = facts(package)
    layer = Layer()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for entry in tar:
            if entry.isreg() or entry.islnk():
                layer.put(entry.name.removeprefix("./"), tar.extractfile(entry).read())
    digest = "sha256:" + hashlib.sha256(package.read_bytes()).hexdigest()
    return bill_of_materials(name, version, [layer], digest, tool="scripts/packages.py", product=name, needs=needs, kind=kind)


def surroundings(work, vary):
    """Environment and umask of a build. --vary: with all that must not matter different."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(work), "LC_ALL": "C.UTF-8", "TZ": "UTC",
           "DEB_BUILD_OPTIONS": f"parallel={os.cpu_count()}"}
    if vary:
        env.update(LC_ALL="C", TZ="Pacific/Kiritimati", DEB_BUILD_OPTIONS="parallel=1", USER="somebody")
    return env, 0o027 if vary else 0o022


def build_rpm(folder, version, vary):
    """Makes packages by dist/rpm/threadtide.spec; Debian's rpm does not know what is installed, hence --nodeps.
    Debian's flags of its own packages keep the folder out of the programs; rpm's do so on Fedora alone."""
    work = folder.parent
    env, umask = surroundings(work, vary)
    (work / f"threadtide_{version}.orig.tar.xz").rename(work / f"threadtide-{version}.tar.xz")
    epoch = output("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    macros = {"_topdir": f"{work}/rpm", "_sourcedir": work, "_buildhost": "localhost", "use_source_date_epoch_as_buildtime": 1,
              "clamp_mtime_to_source_date_epoch": 1}
    env.update(SOURCE_DATE_EPOCH=epoch, CPPFLAGS=f"-ffile-prefix-map={work}/rpm/BUILD=.")
    with open(work / "log", "wb") as log:
        # The source package names the folder that it was made in; made together with it, the others would have its hash.
        for what, more in (("-bs", {"_builddir": "/tmp"}), ("-bb", {})):
            defined = [word for name, value in {**macros, **more}.items() for word in ("--define", f"{name} {value}")]
            done = subprocess.run(["rpmbuild", what, "--nodeps", *defined, folder / "dist/rpm/threadtide.spec"], env=env, umask=umask,
                                  stdout=log, stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                break
    if done.returncode:
        print(*(work / "log").read_text(errors="replace").splitlines()[-60:], sep="\n")
        sys.exit(f"packages: rpmbuild ended with {done.returncode}")
    for file in (*work.glob("rpm/RPMS/*/*.rpm"), *work.glob("rpm/SRPMS/*.rpm")):
        shutil.move(file, work)


def build(folder, options):
    env, umask = surroundings(folder.parent, options.vary)
    log = folder.parent / "log"
    with open(log, "wb") as file:
        done = subprocess.run(["dpkg-buildpackage", "-us", "-uc", *(["-b"] if options.binary else [])], cwd=folder, env=env, stdout=file,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, umask=umask, check=False)
    if done.returncode:
        print(*log.read_text(errors="replace").splitlines()[-60:], sep="\n")
        sys.exit(f"packages: dpkg-buildpackage ended with {done.returncode}")
    if not options.no_lintian:
        lint(next(folder.parent.glob("*.changes")))


def lint(changes):
    """Errors and warnings fail; debian/*.lintian-overrides say why one is none."""
    as_root = ["--allow-root"] if os.geteuid() == 0 else []
    done = subprocess.run(["lintian", *as_root, "--fail-on", "error,warning", "--tag-display-limit", "0", changes],
                          check=False)
    if done.returncode:
        sys.exit("packages: lintian is not content, see above")


def clear(folder):
    """Removes what an earlier run has made, and nothing else of a folder that may be anybody's."""
    for file in folder.iterdir():
        if MADE.fullmatch(file.name):
            file.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "build/packages", help="DIR (build/packages)")
    parser.add_argument("--plus", help="version VERSION+WORD", metavar="WORD")
    parser.add_argument("--commit", default="HEAD", help="instead of the last one")
    parser.add_argument("--no-lintian", action="store_true")
    parser.add_argument("--binary", action="store_true", help="no source package")
    parser.add_argument("--rpm", action="store_true", help="RPM packages, by dist/rpm/threadtide.spec")
    parser.add_argument("--vary", action="store_true", help="another folder, language, time zone and umask")
    options = parser.parse_args()
    commit = output("git", "rev-parse", "--verify", f"{options.commit}^{{commit}}", cwd=ROOT).strip()
    to = options.to.resolve()
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent, prefix="packages-") as name:
        work = pathlib.Path(name, "elsewhere" if options.vary else "")
        work.mkdir(exist_ok=True)
        folder = source_tree(work, options.plus, options.binary, commit)
        if options.rpm:
            build_rpm(folder, folder.name.rpartition("-")[2], options.vary)
        else:
            build(folder, options)
        clear(to)
        for file in sorted(work.iterdir()):
            if file.is_file():
                shutil.move(file, to)
    for package in sorted((*to.glob("*.deb"), *to.glob("*.rpm"))):
        if not re.search(r"-dbgsym_|-debug(info|source)-|\.src\.rpm$", package.name):
            text = json.dumps(bill(package), indent=1, sort_keys=True) + "\n"
            (to / f"{package.stem}.spdx.json").write_text(text)
            print(f"{package.stat().st_size / 1e6:6.2f} MB  {package}")


if __name__ == "__main__":
    main()
