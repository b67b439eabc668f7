# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that the training does not wait for.

Between two steps the variables are read, which leaves values on their servers that later updates do
not change; a thread then fetches and writes them. A file is complete or not there: it is written
under another name, flushed, and renamed. Of files the newest two stay.
"""

import json
import os
import pathlib
import re
import threading
import time
import zipfile

import numpy as np

from threadtide.tensorflow.cluster import log

_FILE = re.compile(r"step-(\d{12})\.tide$")
FORMAT = 2  # variables are known by name; before that by the number of their creation
KEEP = 2


class Snapshot:
    """Values of all variables after a step, and what the coordinator knew."""

    def __init__(self, meta, load):
        self.meta, self._load = meta, load
        self._number = {row[0]: number for number, row in enumerate(meta["variables"])}

    def check(self, mode, slots):
        """A training goes on as what it was, or the sums would not be the same."""
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

    def others(self, entries):
        """Rows and values of what is no variable of the program yet, to be kept for when it is."""
        known = {entry.name for entry in entries}
        return [(row, _Kept(self._load, number))
                for number, row in enumerate(self.meta["variables"]) if row[0] not in known]


class _Kept:
    """A value in a snapshot, as a tensor gives it."""

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


class Checkpoints:
    """The newest snapshot, and the making of the next one."""

    def __init__(self, directory, interval_s):
        self._directory = pathlib.Path(directory) if directory else None
        self._interval_s = interval_s
        self._began = time.monotonic()
        self._writer = None
        self.wanted = False  # at once, not when it is time
        self.latest = None
        if self._directory:
            self._directory.mkdir(parents=True, exist_ok=True)
            for path in reversed(self._files()):
                try:
                    self.latest = _read(path)
                    break
                except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
                    log(f"{path} cannot be read ({error}): the one before it is taken")

    def _files(self):
        return sorted(p for p in self._directory.iterdir() if _FILE.search(p.name))

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
        self._writer = threading.Thread(target=self._write, args=(meta, values),
                                        name="tide-checkpoint", daemon=True)
        self._writer.start()

    def wait(self):
        """Until the one that was begun is written, or has failed."""
        if self._writer:
            self._writer.join()

    def _write(self, meta, values):
        begin = time.monotonic()
        meta["format"] = FORMAT
        try:
            if self._directory:
                self.latest = self._to_file(meta, values)
            else:
                arrays = [v.numpy() for v in values]
                self.latest = Snapshot(meta, arrays.__getitem__)
        except Exception as error:  # a server that was lost, a full disk: the last one stays
            log(f"checkpoint of step {meta['step']} failed: {str(error).splitlines()[0]}")
            return
        log(f"checkpoint of step {meta['step']} in {time.monotonic() - begin:.2f} s")

    def _to_file(self, meta, values):
        path = self._directory / f"step-{meta['step']:012}.tide"
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                for number, value in enumerate(values):
                    with archive.open(f"{number}.npy", "w", force_zip64=True) as entry:
                        np.lib.format.write_array(entry, value.numpy(), allow_pickle=False)
                archive.writestr("meta.json", json.dumps(meta))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        for old in self._files()[:-KEEP]:
            old.unlink()
        return _read(path)
