# SPDX-License-Identifier: Apache-2.0
"""`python -m threadtide run -- CMD…`: the program tide, that of the wheel or else that of PATH; `python -m threadtide
kernel install`: a Jupyter kernel whose notebooks are jobs."""

import os
import sys

from threadtide import kernel


def _become(name):
    program = kernel.program(name)
    if program is None:
        sys.exit(f"threadtide: there is no {name}: this is the Python package alone, see docs/install.md")
    os.execv(program, [name, *sys.argv[1:]])


def main():
    if sys.argv[1:2] == ["kernel"]:
        kernel.main(sys.argv[2:])
    else:
        _become("tide")


def tided():
    _become("tided")


if __name__ == "__main__":
    main()
