# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that the training does not wait for.

Between two steps the variables are read. Their values stay on their servers, and later updates do
not change them; a thread then fetches and writes them. A file is complete or not there: it is
written under another name, flushed, and renamed. The newest two files stay.

A directory belongs to one chief at a time, which locks it. A checkpoint that cannot be written
(the disk is full, the directory is another training's) stays in memory, where it serves as well
against the loss of parameter servers: the training goes on, says so, and tries again with the next
checkpoint.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import re
import secrets
import socket
import threading
import time
import zipfile

import numpy as np

from threadtide.tensorflow.log import first_line, log

_FILE = re.compile(r"step-(\d{12})\.tide$")
FORMAT = 2  # variables are known by name; before that by the number of their creation
KEEP = 2
LOCK_S = 120.0  # the last chief may be about to end; NFS keeps a lost machine's lock for 90 s


class Snapshot:
    """Values of all variables after a step, and what the coordinator knew."""

    def __init__(self, meta, load):
        self.meta, self._load = meta, load
        self._number = {row[0]: number for number, row in enumerate(meta["variables"])}

    def check(self, mode, slots):
        """ValueError unless mode and slots are those that the checkpoint was written with: with
        others the sums would not be the same."""
        if self.meta.get("format") != FORMAT:
            raise ValueError("the checkpoint was written by another version of Threadtide: go on with "
                             "that one, or use another checkpoint_dir")
        for name, now in (("mode", mode), ("slots", slots)):
            if self.meta[name] != now:
                raise ValueError(f"the checkpoint was written with {name} {self.meta[name]}, not "
                                 f"{now}: use the same, or another checkpoint_dir")

    def has(self, entry):
        return entry.name in self._number

    def value(self, entry):
        """The value of a variable; ValueError when the program's is another now."""
        if entry.name not in self._number:
            raise ValueError(f"the checkpoint has no {entry.name}")
        number = self._number[entry.name]
        was, now = self.meta["variables"][number], entry.row()
        if was != now:
            raise ValueError(f"the checkpoint has {was} where the program has {now}: it is another "
                             "program's, use another checkpoint_dir; or variables of the same name "
                             "are created in another order: give them names of their own")
        value = self._load(number)
        if value.dtype.kind == "V":  # a type that NumPy's files do not know: bfloat16
            value = value.view(entry.dtype.as_numpy_dtype)
        return value

    def assigned(self, entry):
        """How often the program assigned it itself between the snapshot's step and the snapshot."""
        return self.meta["assigned"].get(entry.name, 0)

    def others(self, entries):
        """Rows and values of variables that the program has not created yet. They are kept until it
        does."""
        known = {entry.name for entry in entries}
        return [(row, _Kept(self._load, number))
                for number, row in enumerate(self.meta["variables"]) if row[0] not in known]


class _Kept:
    """A value in a snapshot. It has numpy(), as a tensor has."""

    def __init__(self, load, number):
        self._load, self._number = load, number

    def numpy(self):
        return self._load(self._number)


def _read(path):
    """The snapshot in a file."""
    archive = zipfile.ZipFile(path)
    meta = json.loads(archive.read("meta.json"))

    def load(number):
        with archive.open(f"{number}.npy") as file:
            return np.lib.format.read_array(file, allow_pickle=False)

    return Snapshot(meta, load)


class DirectoryInUse(RuntimeError):
    """Another chief writes its checkpoints there."""


class _Directory:
    """The checkpoint files of one training. Methods raise OSError when the directory cannot be
    used."""

    def __init__(self, path):
        self._path = pathlib.Path(path)
        self._run = secrets.token_hex(4)
        self._lock = None
        self._files = []  # that are ours to remove, oldest first

    def lock(self, wait_s=0.0):
        """Waits up to @wait_s for the lock; raises DirectoryInUse when another process keeps it.
        The lock ends with this process, however that ends; children do not inherit it."""
        if self._lock is not None:
            return
        self._path.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(fd, time.monotonic() + wait_s)
        except BaseException:
            os.close(fd)
            raise
        self._lock = fd
        with contextlib.suppress(OSError):  # a full disk: the words are for people only
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} of {socket.gethostname()}".encode(), 0)
        for partial in self._path.glob("*.partial"):  # of chiefs that were killed
            with contextlib.suppress(OSError):
                partial.unlink()

    def _take(self, fd, end):
        told = False
        while True:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    log(f"{self._path} cannot be locked ({error.strerror}): see that no other "
                        "training uses it")
                    return
            holder = os.pread(fd, 256, 0).decode(errors="replace") or "another process"
            if not told:
                log(f"waiting for {holder}, which writes checkpoints to {self._path}")
                told = True
            if time.monotonic() > end:
                raise DirectoryInUse(f"{self._path} is in use: {holder} writes its checkpoints there. "
                                     "End that training, or use another checkpoint_dir")
            time.sleep(0.1)

    def newest(self):
        """The newest snapshot that can be read, or None."""
        files = sorted(p for p in self._path.iterdir() if _FILE.search(p.name))
        for path in reversed(files):
            try:
                found = _read(path)
            except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
                log(f"{path} cannot be read ({error}): the one before it is taken")
            else:
                self._files = files
                return found
        return None

    def write(self, meta, values):
        """Writes a snapshot and returns it. It can still be read when its file has been removed."""
        self.lock()
        path = self._path / f"step-{meta['step']:012}.tide"
        partial = path.with_suffix(f".{self._run}.partial")
        try:
            with open(partial, "wb") as file:
                with zipfile.ZipFile(file, "w") as archive:
                    for number, value in enumerate(values):
                        with archive.open(f"{number}.npy", "w", force_zip64=True) as entry:
                            np.lib.format.write_array(entry, value.numpy(), allow_pickle=False)
                    archive.writestr("meta.json", json.dumps(meta))
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise
        self._flush()
        self._files = [*(f for f in self._files if f != path), path]
        while len(self._files) > KEEP:
            with contextlib.suppress(OSError):
                self._files[0].unlink()
            del self._files[0]
        return _read(path)

    def _flush(self):
        """Waits until the file's name is on the disk, too, where file systems can be asked that of a
        directory. Elsewhere the file counts as it is."""
        fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        finally:
            os.close(fd)

    def close(self):
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class Checkpoints:
    """The newest snapshot, and the making of the next one."""

    def __init__(self, directory, interval_s):
        self._directory = _Directory(directory) if directory else None
        self._interval_s = interval_s
        self._began = time.monotonic()
        self._writer = None
        self.wanted = False  # at once, not when it is time
        self.latest = None
        self.error = None  # why the last one is not where it should be
        if self._directory:
            try:
                self._directory.lock(LOCK_S)
            except OSError as error:
                self._failed("checkpoints stay in memory", error)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self.latest = self._directory.newest()

    @property
    def in_directory(self):
        """Whether they are files, and not only in the chief's memory."""
        return self._directory is not None

    @property
    def busy(self):
        """Whether one is being written."""
        return bool(self._writer and self._writer.is_alive())

    def due(self):
        """Whether it is time for the next one, and the last is written."""
        late = time.monotonic() - self._began >= self._interval_s
        return (self.wanted or late) and not self.busy

    def begin(self, meta, values):
        """@values have numpy(), as tensors wherever they are; returns at once."""
        self._began = time.monotonic()
        meta["format"] = FORMAT
        self._writer = threading.Thread(target=self._write, args=(meta, values),
                                        name="tide-checkpoint", daemon=True)
        self._writer.start()

    def wait(self):
        """Until the one that was begun is written, or has failed."""
        if self._writer:
            self._writer.join()

    def close(self):
        if self._directory:
            self._directory.close()

    def _write(self, meta, values):
        begin = time.monotonic()
        try:
            error = self._save(meta, values)
        except Exception as lost:  # a server: the last one stays
            self._failed(f"checkpoint of step {meta['step']} failed", lost)
            return
        if error:
            self._failed(f"checkpoint of step {meta['step']} stays in memory", error)
            return
        self.error = None
        log(f"checkpoint of step {meta['step']} in {time.monotonic() - begin:.2f} s")

    def _save(self, meta, values):
        """Why it was not written, if it was not and had to be kept in memory."""
        error = None
        if self._directory:
            try:
                self.latest = self._directory.write(meta, values)
                return None
            except (OSError, DirectoryInUse) as reason:
                error = reason
        arrays = [v.numpy() for v in values]
        self.latest = Snapshot(meta, arrays.__getitem__)
        return error

    def _failed(self, text, error):
        self.error = error
        log(f"{text}: {first_line(error)}")
