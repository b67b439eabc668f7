# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/permissions.md, which tests read to ask for each cell."""
from conftest import ROOT


def table_behind(text):
    """The first table behind this text of the document: (first cell, {column: cell}) of each row."""
    lines = iter((ROOT / "docs/permissions.md").read_text().split(text)[1].splitlines())
    header = None
    for line in lines:
        if not line.startswith("|"):
            if header:
                return
            continue
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if header is None:
            header = cells
        elif set(name + "".join(cells)) != {"-"}:
            assert len(cells) == len(header), line
            yield name, dict(zip(header, cells))
