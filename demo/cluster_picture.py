# SPDX-License-Identifier: Apache-2.0
"""The picture of demo/cluster.py: who had how much of the node, and how long the epochs took; as an SVG
and as text. Runs stand below each other over one time axis."""

import picture

PARTS = ("other workload", "chief", "servers", "workers")
HEIGHT, EPOCHS = 110, 26
COLUMNS, ROWS = 72, 8
MARKS = {"other workload": ".", "chief": "c", "servers": "p", "workers": "W"}


def spans(run):
    """(begin, end, {part: mcpu}) while the training ran."""
    end = run["ends"][-1]
    samples = [(max(0.0, t), used) for t, used in run["samples"] if t <= end]
    for (a, used), (b, _) in zip(samples, [*samples[1:], (end, None)]):
        if b > a:
            yield a, b, used


def draw(runs, node_mcpu):
    seconds = max(run["ends"][-1] for run in runs)
    canvas, grid = picture.Canvas(seconds), picture.Canvas(seconds)
    y = picture.TOP
    for run in runs:
        canvas.text(20, y + 16, f"{run['name']}: {run['ends'][-1]:.1f} s", "head")
        y += picture.PANEL_HEAD
        panel(canvas, run, y, node_mcpu)
        picture.grid_lines(grid, y, y + HEIGHT + EPOCHS)
        y += HEIGHT + EPOCHS + picture.PANEL_GAP
    x = picture.LEFT
    for number, part in enumerate(PARTS):
        canvas.parts.append(f'<rect x="{x}" y="{y}" width="22" height="12" class="{style(number)}"/>')
        canvas.text(x + 29, y + 10, part, "quiet")
        x += 150
    return picture.page(canvas, grid, y + 40, "A training grows into what another workload leaves",
                        "Whose a node's processors were; below, the epochs. Same weights, bit for bit.")


def style(number):
    return ("wait", "job3", "job1", "job0")[number]


def panel(canvas, run, y, node_mcpu):
    base, unit = y + HEIGHT, (HEIGHT - 8) / node_mcpu
    canvas.text(picture.LEFT - 10, y + HEIGHT / 2, "millicores", "end")
    for begin, end, used in spans(run):
        top = base
        for number, part in enumerate(PARTS):
            height = unit * used[part]
            if height:
                top -= height
                canvas.box(begin, end, top, height, style(number), f"{part}: {used[part]}")
    canvas.line(picture.LEFT, base - unit * node_mcpu, picture.WIDTH - picture.RIGHT,
                base - unit * node_mcpu, "cores")
    canvas.text(picture.WIDTH - picture.RIGHT + 5, base - unit * node_mcpu + 4, str(node_mcpu))
    canvas.line(picture.LEFT, base, picture.WIDTH - picture.RIGHT, base, "grid")
    canvas.text(picture.LEFT - 10, base + 18, "epochs", "end")
    begin = 0.0
    for number, end in enumerate(run["ends"], 1):
        canvas.line(canvas.x(end), base + 4, canvas.x(end), base + EPOCHS - 4, "finish")
        if canvas.x(end) - canvas.x(begin) >= picture.MIN_NUMBER:
            canvas.text(canvas.x((begin + end) / 2), base + 18, str(number), "quiet mid")
        begin = end


def text(runs, node_mcpu):
    """The same in letters: a column is a moment, a letter a share of the node."""
    seconds = max(run["ends"][-1] for run in runs)
    lines = []
    for run in runs:
        known = list(spans(run))
        columns = []
        for column in range(COLUMNS):
            t = (column + 0.5) * seconds / COLUMNS
            used = next((u for a, b, u in known if a <= t < b), dict.fromkeys(PARTS, 0))
            letters = "".join(MARKS[p] * round(ROWS * used[p] / node_mcpu) for p in PARTS)
            columns.append(letters.ljust(ROWS)[:ROWS])
        lines += [f"  {run['name']:8}|" + "".join(c[row] for c in columns).rstrip()
                  for row in reversed(range(ROWS))]
        axis = ["-"] * COLUMNS
        for end in run["ends"]:
            axis[min(COLUMNS - 1, int(end / seconds * COLUMNS))] = "+"
        lines += ["  epochs  |" + "".join(axis), ""]
    legend = "  ".join(f"{mark} {part}" for part, mark in MARKS.items())
    return "\n".join([*lines, f"  {legend}; the width is {seconds:.0f} s", ""])
