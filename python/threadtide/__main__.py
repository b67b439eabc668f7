# SPDX-License-Identifier: Apache-2.0
"""`python -m threadtide run -- CMD…`: the program tide, that of the wheel or else that of PATH."""

import os
import shutil
import sys


def _become(name):
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    program = own if os.access(own, os.X_OK) else shutil.which(name)
    if program is None:
        sys.exit(f"threadtide: there is no {name}: this is the Python package alone, see docs/install.md")
    os.execv(program, [name, *sys.argv[1:]])


def main():
    _become("tide")


def tided():
    _become("tided")


if __name__ == "__main__":
    main()
