#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a virtual machine of the tests boots from: kernel, initial file system, disk, and the project.

usage: image.py [--plant] OUT BUILD_DIR

OUT/vmlinuz      the distribution's kernel for virtual machines, from its package; with --plant its ordinary one,
                 for which tide_plant.ko is built, which is project/build/tide_plant.ko in the machine
OUT/initrd       busybox and the modules that the disk needs
OUT/disk.img     packages of this machine's, copied file by file: systemd, Docker, Python, libraries
OUT/project.tar  the tests, and what was built, as it lies in BUILD_DIR and as it is installed

All but the last are kept as long as the packages keep their versions (OUT/stamp). Nothing is
installed and nothing outside of OUT written: no root is needed for it but for files that only root
may read.
"""
import argparse
import gzip
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tests/plant/module"))

import build_module  # noqa: E402

GUEST = HERE / "guest"
# Metapackages of kernels made for virtual machines, and of ordinary ones: Debian's and Ubuntu's.
KERNELS = ("linux-image-cloud-amd64", "linux-image-virtual", "linux-image-kvm")
ORDINARY = ("linux-image-amd64", "linux-image-generic")
PACKAGES = ("systemd", "dbus", "dbus-user-session", "libpam-systemd", "docker.io", "podman", "crun", "uidmap", "iptables",
            "python3-pytest", "procps", "kmod", "iproute2", "util-linux", "passwd", "busybox-static")
DISK_MODULES = ("virtio_pci", "virtio_blk", "ext4")
DISK_BYTES = 4 << 30  # sparse
# Nobody reads or runs these in there.
LEFT_OUT = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/",
            "/usr/lib/python3/dist-packages/debconf", "/usr/share/bash-completion/", "/dev/", "/proc/",
            "/sys/", "/run/", "/tmp/")
# Not of any package: made when packages were installed.
MADE_HERE = ("/etc/alternatives", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf",
             "/etc/ld.so.cache", "/usr/sbin/iptables", "/usr/sbin/ip6tables",
             *(f"/etc/pam.d/common-{part}" for part in ("account", "auth", "password", "session", "session-noninteractive")))
CACHE_KEY = "image 2"  # raise it when this file makes another disk from the same packages


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def kernel_package(kernels):
    """The package that the metapackage stands for now."""
    for name in kernels:
        found = subprocess.run(["apt-cache", "depends", "--important", name], text=True,
                               capture_output=True, check=False).stdout
        for line in found.splitlines():
            kind, _, package = line.strip().partition(": ")
            if kind == "Depends" and package.startswith("linux-image-"):
                return package
    sys.exit(f"image: apt knows none of the kernels {', '.join(kernels)}: apt-get update?")


def dependencies(names):
    """These packages and all that they need, of those that are installed."""
    text = output("apt-cache", "depends", "--recurse", "--installed", "--no-recommends",
                  "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces",
                  "--no-enhances", *names)
    return {line for line in text.splitlines() if line[:1].isalnum()}


def packages(build):
    """{name: version}: PACKAGES, the essential ones, those of the libraries that our programs use."""
    installed, essential = {}, []
    for line in output("dpkg-query", "-W", "-f",
                       "${db:Status-Status} ${Package} ${Version} ${Essential}\n").splitlines():
        status, name, version, is_essential = line.split(" ")
        if status == "installed":
            installed[name] = version
            essential += [name] * (is_essential == "yes")
    # tided loads libcurl itself; tide-kube is linked with it.
    files = {os.path.realpath(word) for program in ("tide", "tided", "tide-kube", "libtide.so")
             for word in output("ldd", str(build / program)).split() if word.startswith("/")}
    # Packages name some libraries without the /usr that they have since /lib is a link.
    found = subprocess.run(["dpkg-query", "-S", *files, *(f.removeprefix("/usr") for f in files)],
                           text=True, capture_output=True, check=False).stdout
    owners = {line.split(":")[0] for line in found.splitlines()}
    wanted = dependencies([*PACKAGES, *essential, *owners]) | owners
    return {name: installed[name] for name in sorted(wanted & installed.keys())}


def listed(names):
    """Every file of these packages, by the name that it has behind links of directories."""
    paths = set(MADE_HERE)
    for path in output("dpkg-query", "-L", *names).splitlines():
        if path.startswith("/") and path != "/.":
            folder, name = os.path.split(path)
            paths.add(os.path.join(os.path.realpath(folder), name))
    return sorted(p for p in paths if os.path.lexists(p) and not p.startswith(LEFT_OUT))


def make_root(root, names):
    """Copies them: tar keeps owners, links and modes."""
    for link in ("bin", "sbin", "lib", "lib64", "lib32", "libx32"):
        if os.path.islink(f"/{link}"):
            (root / link).symlink_to(os.readlink(f"/{link}"))
    for folder in ("dev", "proc", "sys", "run", "tmp", "root", "var/tmp", "project"):
        (root / folder).mkdir(parents=True)
    with tempfile.NamedTemporaryFile("w", suffix=".list") as names_file:
        names_file.write("\n".join(path[1:] for path in listed(names)))
        names_file.flush()
        with subprocess.Popen(["tar", "-C", "/", "-c", "--no-recursion", "-T", names_file.name],
                              stdout=subprocess.PIPE) as pack:
            subprocess.run(["tar", "-C", root, "-x", "--keep-directory-symlink"], check=True,
                           stdin=pack.stdout)
        if pack.returncode != 0:
            sys.exit("image: files could not be read")
    shutil.copytree(GUEST, root, dirs_exist_ok=True)
    (root / "etc/machine-id").write_text("")
    (root / "etc/hostname").write_text("machine\n")
    (root / "etc/fstab").write_text("")


def fetch_kernel(package, folder):
    """The package's content in FOLDER; its release."""
    with tempfile.TemporaryDirectory(dir=folder) as downloads:
        # On Ubuntu the modules have a package of their own.
        modules = package.replace("linux-image-", "linux-modules-")
        found = output("apt-cache", "--names-only", "search", f"^{modules}$")
        subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package,
                        *([modules] if found else [])], check=True, cwd=downloads)
        for file in pathlib.Path(downloads).glob("*.deb"):
            subprocess.run(["dpkg", "-x", file, folder], check=True)
    release = package.removeprefix("linux-image-")
    subprocess.run(["depmod", "-b", folder, release], check=True)
    return release


def make_initrd(path, kernel, release):
    """As small as it can be: each module costs time in the machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for part in ("bin", "dev", "proc", "sys", "modules", "root"):
            (folder / part).mkdir()
        shutil.copy("/bin/busybox", folder / "bin")
        shutil.copy(HERE / "initrd.sh", folder / "init")
        (folder / "init").chmod(0o755)
        order = []
        for module in DISK_MODULES:
            lines = output("modprobe", "-d", str(kernel), "-S", release, "--show-depends", module)
            order += [line.split()[1] for line in lines.splitlines() if line.startswith("insmod ")]
        order = list(dict.fromkeys(order))
        for module in order:
            shutil.copy(module, folder / "modules")
        (folder / "modules/order").write_text("".join(f"{pathlib.Path(m).name}\n" for m in order))
        names = "\n".join(str(p.relative_to(folder)) for p in [folder, *sorted(folder.rglob("*"))])
        archive = subprocess.run(["/bin/busybox", "cpio", "-o", "-H", "newc"], cwd=folder, check=True,
                                 input=names.encode(), stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL).stdout
        path.write_bytes(gzip.compress(archive, 1))


def make_machine(out, package, names):
    with tempfile.TemporaryDirectory(dir=out) as folder:
        kernel, root = pathlib.Path(folder, "kernel"), pathlib.Path(folder, "root")
        kernel.mkdir()
        root.mkdir(mode=0o755)
        release = fetch_kernel(package, kernel)
        shutil.copy(kernel / "boot" / f"vmlinuz-{release}", out / "vmlinuz")
        make_initrd(out / "initrd", kernel, release)
        make_root(root, names)
        shutil.copytree(kernel / "lib/modules", root / "usr/lib/modules", symlinks=True)
        disk = out / "disk.img"
        disk.unlink(missing_ok=True)
        with open(disk, "wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", root, disk], check=True)


def make_module(out, release):
    """tide_plant.ko; the kernel's headers are kept in OUT/headers/RELEASE."""
    headers = out / "headers" / release
    if not headers.exists():
        shutil.rmtree(out / "headers", ignore_errors=True)
        unfinished = out / "headers" / "unfinished"
        unfinished.mkdir(parents=True)
        build_module.fetch(release, unfinished, headers)
        unfinished.rename(headers)
    return build_module.build(headers, release, out / "module")


def make_project(path, build, more):
    """Below project/ the tests and what they use of the tree, the rest as it is installed. @more: built files."""
    with tempfile.TemporaryDirectory() as staging:
        os.chmod(staging, 0o755)  # it becomes the machine's root
        subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir",
                        staging], check=True)
        with tarfile.open(path, "w") as tar:
            tar.add(staging, ".")
            for file in more:
                tar.add(file, f"project/build/{file.name}")
            for folder in ("tests/component", "tests/cluster", "tests/plant", "bench", "scripts", "src", "dist"):
                tar.add(ROOT / folder, f"project/{folder}", filter=lambda entry: (
                    None if "__pycache__" in entry.name or "bench/results" in entry.name else entry))
            for program in (*build.glob("tide*"), *build.glob("libtide*.so*")):
                if program.is_file():
                    tar.add(program, f"project/build/{program.name}")
            for name in ("agent", "examples", "tests/component/fake_peer", "tests/component/pool"):
                tar.add(build / name, f"project/build/{name}", filter=lambda entry: (
                    None if entry.name.endswith(".o") else entry))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--plant", action="store_true", help="the ordinary kernel and the plant's module")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    options = parser.parse_args()
    out, build = options.out.resolve(), options.build.resolve()
    out.mkdir(parents=True, exist_ok=True)
    package, names = kernel_package(ORDINARY if options.plant else KERNELS), packages(build)
    guest = "".join(p.read_text() for p in sorted([HERE / "initrd.sh", *GUEST.rglob("*")])
                    if p.is_file())
    stamp, wanted = out / "stamp", f"{CACHE_KEY}\n{package}\n{names}\n{guest}"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"image: {package} and {len(names)} packages", flush=True)
        stamp.unlink(missing_ok=True)
        make_machine(out, package, names)
        stamp.write_text(wanted)
    more = [make_module(out, package.removeprefix("linux-image-"))] if options.plant else []
    make_project(out / "project.tar", build, more)


if __name__ == "__main__":
    main()
