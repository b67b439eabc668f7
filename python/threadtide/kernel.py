# SPDX-License-Identifier: Apache-2.0
"""Notebooks as jobs.

``python -m threadtide kernel install`` writes a Jupyter kernel of this interpreter. Each kernel that Jupyter then
starts is a job: its launcher (``python -m threadtide.kernel -f FILE``) becomes ``tide run -- python -m
ipykernel_launcher -f FILE``, or the kernel alone where there is no tide. In a notebook, ``%load_ext threadtide`` gives
the line magic ``%tide``. Standard library only.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

NAME = "threadtide"
TITLE = "Python (Threadtide)"
MAGIC_SECONDS = 30


def program(name="tide"):
    """The path of the wheel's own program, or of that of PATH, or None."""
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    return own if os.access(own, os.X_OK) else shutil.which(name)


# ---- the launcher ----


def job_name():
    """The notebook's name, if Jupyter tells it, and the pid: a name that is taken would keep the kernel from running."""
    notebook = os.path.basename(os.environ.get("JPY_SESSION_NAME", "")).partition(".")[0]
    return f"{re.sub('[^A-Za-z0-9_]+', '_', notebook)[:40] or 'notebook'}-{os.getpid()}"


def command(words, tide):
    """The words that run a kernel with these arguments, as a job where there is a tide."""
    kernel = [sys.executable, "-m", "ipykernel_launcher", *words]
    return [tide, "run", "--name", job_name(), "--", *kernel] if tide else kernel


def launch(words):
    tide, alone = program(), command(words, None)
    if tide:
        try:
            os.execv(tide, command(words, tide))
        except OSError as why:
            print(f"threadtide: the kernel runs, but not as a job: {tide}: {why.strerror}", file=sys.stderr)
    os.execv(alone[0], alone)


# ---- the kernel's specification ----


def data_directory(user, prefix):
    """Where Jupyter looks: a user's directory, or share/jupyter below a prefix."""
    if prefix:
        return os.path.join(prefix, "share", "jupyter")
    if not user:
        return os.path.join(sys.prefix, "share", "jupyter")
    own = os.environ.get("JUPYTER_DATA_DIR")
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return own or os.path.join(data, "jupyter")


def specification(title):
    return {"argv": [sys.executable, "-m", "threadtide.kernel", "-f", "{connection_file}"], "display_name": title,
            "language": "python", "metadata": {"debugger": True}}


def install(words):
    parser = argparse.ArgumentParser(prog="python -m threadtide kernel install",
                                     description="Write a Jupyter kernel of this interpreter whose kernels are jobs.")
    parser.add_argument("--name", default=NAME, help="of the kernel, as `jupyter kernelspec list` shows it (%(default)s)")
    parser.add_argument("--display-name", default=TITLE, help="as a notebook shows it (%(default)s)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user; without it, for this interpreter's environment")
    where.add_argument("--prefix", help="in share/jupyter below this directory")
    options = parser.parse_args(words)
    if not options.name.replace("-", "").replace("_", "").replace(".", "").isalnum() or not options.name.isascii():
        parser.error(f"--name: '{options.name}' is no name of a kernel: letters, digits, '-', '.' and '_'")
    folder = os.path.join(data_directory(options.user, options.prefix), "kernels", options.name.lower())
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "kernel.json"), "w", encoding="utf-8") as file:
            json.dump(specification(options.display_name), file, indent=1)
            file.write("\n")
    except OSError as why:
        sys.exit(f"threadtide: cannot write {folder}: {why.strerror}: use --user or --prefix")
    print(f"installed kernel {options.name} in {folder}")


def main(words):
    """`python -m threadtide kernel …`"""
    if words[:1] != ["install"]:
        sys.exit("Usage: python -m threadtide kernel install [--name NAME] [--user | --prefix DIRECTORY]")
    install(words[1:])


# ---- the magic ----


def order(line, job):
    """The arguments of tide for the words behind %tide: `set` and `explain` without a job mean this one."""
    words = shlex.split(line) or ["explain"]
    if words[0] == "explain" and len(words) == 1:
        return ["explain", job]
    if words[0] == "set":
        rest = words[1:]
        # A number is that of threads: %tide set 2
        if len(rest) == 1 and rest[0].isdigit():
            rest = ["--threads", rest[0]]
        return ["set", job, *rest] if not rest or rest[0].startswith("-") else ["set", *rest]
    return words


def magic(line):
    """Runs tide and prints what it says, or one line that tells why not; never raises."""
    tide, job = program(), os.environ.get("TIDE_JOB_ID", "")
    try:
        words = order(line, job)
    except ValueError as why:
        print(f"tide: {why}")
        return
    if not tide:
        print("tide: there is no program tide: see docs/install.md")
    elif "" in words:
        print("tide: this kernel is no job: start it with the kernel of `python -m threadtide kernel install`")
    else:
        try:
            done = subprocess.run([tide, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace", timeout=MAGIC_SECONDS,
                                  check=False)
            print(done.stdout, end="")
        except (OSError, subprocess.SubprocessError) as why:
            print(f"tide: {why}")


def load_ipython_extension(shell):
    shell.register_magic_function(magic, magic_kind="line", magic_name="tide")


if __name__ == "__main__":
    launch(sys.argv[1:])
