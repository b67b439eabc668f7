# SPDX-License-Identifier: Apache-2.0
"""Directories that go with this process, however it ends."""
import pathlib
import subprocess
import tempfile

from daemon import GUARD_S

# Waits for the end of its stdin. Those who still write here end with us, but not before us.
SWEEP = """
cat
while [ -e "$0" ] && ! rm -rf "$0"; do sleep 0.1; done
for group; do
    while [ -e "$group" ] && ! find "$group" -depth -type d -exec rmdir {} +; do sleep 0.1; done
done
"""


class Scratch:
    """.path is one. @groups(path): control groups that are removed with it."""

    def __init__(self, prefix, groups=lambda path: ()):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
        self.sweeper = subprocess.Popen(
            ["sh", "-c", SWEEP, self.path, *groups(self.path)], start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self):
        self.sweeper.stdin.close()
        self.sweeper.wait(GUARD_S)
