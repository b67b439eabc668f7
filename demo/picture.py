# SPDX-License-Identifier: Apache-2.0
"""The demo's picture, an SVG written by hand: which training had how many threads, and when.

Two panels over one time axis, stock above Threadtide. A panel has a lane for each job, whose height
is its threads, and below them the threads of all jobs on top of each other against the number of
cores. It carries its own background and colours for light and dark, so it stands on any page.
"""

import math
from xml.sax.saxutils import escape

WIDTH = 900
LEFT, RIGHT = 104, 74  # room for the names, and for what is said at the end of a bar
LANE, LANE_GAP = 34, 10
STRIP = 62
TOP, PANEL_HEAD, PANEL_GAP, AXIS = 62, 34, 36, 72
TICKS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
MAX_TICKS = 12
MIN_LABEL = 62  # a narrower block of threads has only the number written in it, or nothing
MIN_NUMBER = 14

STYLE = """
  .bg { fill: #ffffff } .frame { stroke: #d0d7de; fill: none }
  text { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-size: 18px; font-weight: 600 } .head { font-size: 14px; font-weight: 600 }
  .quiet { fill: #59636e; font-size: 12px } .num { fill: #ffffff; font-size: 12px; font-weight: 600 }
  .end { text-anchor: end } .mid { text-anchor: middle }
  .good { fill: #1a7f37 }
  .grid { stroke: #d0d7de; stroke-width: 1 } .wait { fill: #8c959f; fill-opacity: .35 }
  .cores { stroke: #1f2328; stroke-width: 1.5; stroke-dasharray: 5 3 }
  .finish { stroke: #1f2328; stroke-width: 1.5 }
  .over { fill: url(#hatch) } .hatch { stroke: #cf222e; stroke-width: 2.5 }
  .job0 { fill: #2f6fb3 } .job1 { fill: #b8641a } .job2 { fill: #2f8554 } .job3 { fill: #8250a8 }
  @media (prefers-color-scheme: dark) {
    .bg { fill: #0d1117 } .frame, .grid { stroke: #30363d }
    text { fill: #e6edf3 } .quiet { fill: #9198a1 } .good { fill: #3fb950 } .num { fill: #ffffff }
    .cores, .finish { stroke: #e6edf3 } .hatch { stroke: #ff7b72 }
    .job0 { fill: #3f86d0 } .job1 { fill: #c9762c } .job2 { fill: #3a9c66 } .job3 { fill: #9a6bc4 }
  }
"""


class Canvas:
    """Collects elements; x is in seconds, y in pixels."""

    def __init__(self, seconds):
        self.seconds, self.parts = seconds, []

    def x(self, seconds):
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.seconds

    def text(self, x, y, text, style=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(text)}</text>')

    def line(self, x0, y0, x1, y1, style):
        self.parts.append(f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" class="{style}"/>')

    def box(self, t0, t1, y, height, style, hint="", opacity=1.0):
        faint = f' fill-opacity="{opacity:.2f}"' if opacity < 1 else ""
        self.parts.append(
            f'<rect x="{self.x(t0):.1f}" y="{y:.1f}" width="{self.x(t1) - self.x(t0):.1f}" '
            f'height="{height:.1f}" class="{style}"{faint}><title>{escape(hint)}</title></rect>')


def draw(passes, cores, title, subtitle):
    """`passes` is a list of (heading, remark, job summaries), drawn from top to bottom."""
    everything = [job for _, _, jobs in passes for job in jobs]
    seconds = max(job["finished_s"] for job in everything)
    most = max([n for job in everything for _, n in job["threads"]] + [cores])
    total_most = max([n for _, _, jobs in passes for _, _, n in total(jobs)] + [cores])
    canvas = Canvas(seconds)
    grid = Canvas(seconds)
    y = TOP - PANEL_GAP
    for what in passes:
        top = y + PANEL_GAP
        y = panel(canvas, top, what, (cores, most, total_most))
        grid_lines(grid, top + PANEL_HEAD, y)
    legend(canvas, y + 50, cores)
    return page(canvas, grid, y + AXIS, title, subtitle)


def page(canvas, grid, height, title, subtitle):
    head = Canvas(1)
    head.text(20, 32, title, "title")
    head.text(20, 51, subtitle, "quiet")
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" class="hatch"/></pattern></defs>',
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8" class="bg frame"/>',
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2:.0f}" rx="8" class="bg"/>',
        *head.parts, *grid.parts, *canvas.parts, "</svg>"]) + "\n"


def panel(canvas, y, what, scale):
    """One run of the mix; returns where it ends."""
    heading, remark, jobs = what
    cores, most, total_most = scale
    canvas.text(20, y + 20, heading, "head")
    canvas.text(WIDTH - 20, y + 20, remark, "end head good" if "faster" in remark else "end head")
    y += PANEL_HEAD
    for number, job in enumerate(jobs):
        lane(canvas, y, job, number % 4, most)
        y += LANE + LANE_GAP
    strip(canvas, y, jobs, (cores, total_most))
    return y + STRIP


def lane(canvas, y, job, colour, most):
    base = y + LANE
    canvas.text(LEFT - 10, base - LANE / 2 + 4, job["name"], "end")
    canvas.line(LEFT, base, WIDTH - RIGHT, base, "grid")
    blocks = list(spans(job))
    first = blocks[0][0] if blocks else job["finished_s"]
    canvas.box(job["arrival_s"], first, base - 6, 6, "wait", "the program starts")
    for begin, end, threads in blocks:
        height = LANE * threads / most
        label = f"{threads} thread{'s' * (threads != 1)}"
        canvas.box(begin, end, base - height, height, f"job{colour}",
                   f"{job['name']}: {label}, {begin:.1f} to {end:.1f} s", .6 + .4 * threads / most)
        width = canvas.x(end) - canvas.x(begin)
        text = label if width >= MIN_LABEL else str(threads) if width >= MIN_NUMBER else ""
        if text and height >= 14:
            canvas.text(canvas.x((begin + end) / 2), base - height / 2 + 4.5, text, "num mid")
    end = canvas.x(job["finished_s"])
    canvas.line(end, y - 2, end, base, "finish")
    canvas.text(end + 5, base - 3, f"{job['finished_s']:.0f} s")


def strip(canvas, y, jobs, scale):
    """The threads of all jobs, stacked; what is above the number of cores is hatched."""
    cores, most = scale
    base, unit = y + STRIP, (STRIP - 6) / most
    canvas.text(LEFT - 10, base - STRIP / 2 + 1, "threads", "end")
    canvas.text(LEFT - 10, base - STRIP / 2 + 16, "together", "end")
    for begin, end, _ in total(jobs):
        top = base
        for number, job in enumerate(jobs):
            height = unit * threads_at(job, (begin + end) / 2)
            if height:
                top -= height
                canvas.box(begin, end, top, height, f"job{number % 4}")
    for begin, end, threads in total(jobs):
        if threads > cores:
            canvas.box(begin, end, base - unit * threads, unit * (threads - cores), "over",
                       f"{threads} threads for {cores} cores, {begin:.1f} to {end:.1f} s")
    canvas.line(LEFT, base - unit * cores, WIDTH - RIGHT, base - unit * cores, "cores")
    canvas.text(WIDTH - RIGHT + 5, base - unit * cores + 4, f"{cores} cores")
    canvas.line(LEFT, base, WIDTH - RIGHT, base, "grid")


def grid_lines(canvas, top, bottom):
    step = next((t for t in TICKS if canvas.seconds / t <= MAX_TICKS), TICKS[-1])
    for t in range(0, math.floor(canvas.seconds) + 1, step):
        canvas.line(canvas.x(t), top, canvas.x(t), bottom, "grid")
        canvas.text(canvas.x(t), bottom + 18, f"{t} s" if t == 0 else str(t), "quiet mid")


def legend(canvas, y, cores):
    x = LEFT
    for style, text, room in (
            ("wait", "the program starts", 138), ("job0", "active threads (height)", 172),
            ("over", f"more threads than the {cores} cores can run", 0)):
        canvas.parts.append(f'<rect x="{x}" y="{y - 10}" width="22" height="12" class="{style}"/>')
        canvas.text(x + 29, y, text, "quiet")
        x += 29 + room


def spans(job):
    """(begin, end, threads) of the times in which the job had any."""
    marks = [*job["threads"], [job["finished_s"], 0]]
    for (begin, threads), (end, _) in zip(marks, marks[1:]):
        if threads and end > begin:
            yield begin, end, threads


def threads_at(job, t):
    return next((n for begin, end, n in spans(job) if begin <= t < end), 0)


def total(jobs):
    """(begin, end, threads of all jobs) between any two changes."""
    times = sorted({t for job in jobs for begin, end, _ in spans(job) for t in (begin, end)})
    return [(a, b, sum(threads_at(job, (a + b) / 2) for job in jobs)) for a, b in zip(times, times[1:])]
