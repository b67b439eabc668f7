# SPDX-License-Identifier: Apache-2.0
"""The lines that show the trainings while they run: redrawn on a terminal, else one now and then."""

import os
import shutil
import sys

PLAIN_EVERY_S = 5.0
BAR = 16
COLOURS = {"cnn": "34", "mlp": "33", "transformer": "33", "attention": "32", "xgboost": "32", "forest": "35"}


class Screen:
    def __init__(self, cores, out=sys.stdout):
        self.out, self.cores = out, cores
        self.redraws = out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.colours = self.redraws and not os.environ.get("NO_COLOR")
        self.drawn, self.last, self.shown = 0, None, {}

    def headline(self, text):
        self.drawn, self.last, self.shown = 0, None, {}
        print(f"\n{self.paint(text, '1')}", file=self.out, flush=True)

    def draw(self, now, jobs):
        if self.redraws:
            width = shutil.get_terminal_size().columns
            up = f"\x1b[{self.drawn}A" if self.drawn else ""
            lines = [self.line(now, job, width) for job in jobs] + [self.total(now, jobs, width)]
            self.out.write(up + "".join(f"\x1b[2K{line}\n" for line in lines))
            self.drawn = len(lines)
            self.out.flush()
            return
        for job in jobs:
            state = self.state(job)
            # A change of state or threads is told at once, mere progress every few seconds.
            changed = self.shown.get(job.name) != state
            if changed or (job.running and self.due(now)):
                print(self.line(now, job, 200, why=changed), file=self.out, flush=True)
            self.shown[job.name] = state
        if self.due(now):
            self.last = now

    def due(self, now):
        return self.last is None or now - self.last >= PLAIN_EVERY_S

    @staticmethod
    def state(job):
        return (job.process is not None, job.finished is not None, job.seen.get("threads"))

    def line(self, now, job, width, why=True):
        name = f"{job.name:<12}"
        text = self.words(now, job)
        if why and job.running and job.seen.get("reason"):
            text += f"  ({job.seen['reason']})"
        room = max(0, width - 1 - len(f"{now:5.0f} s  {name}"))
        return f"{now:5.0f} s  {self.paint(name, COLOURS.get(job.name, '0'))}{text[:room]}"

    @staticmethod
    def words(now, job):
        if job.process is None:
            return f"arrives in {max(0, job.spec.arrival_s - now):.0f} s"
        if job.finished is not None:
            if not job.result:
                return "failed"
            return (f"{bar(1)} done in {job.finished - job.started:.1f} s, "
                    f"loss {job.result['train_loss']:.4f}, accuracy {job.result['accuracy']:.1%}")
        threads = job.seen.get("threads")
        on = f"  {threads} thread{'s' * (threads != 1)} on cores {job.seen['cores']}" if threads else ""
        if not job.steps:
            return f"{bar(0)} starts{on}"
        text = f"{bar(job.step / job.steps)} {job.step:4d}/{job.steps} steps"
        rate = job.rate()
        speed = "its test" if job.step == job.steps else f"{rate:6.1f}/s" if rate is not None else "–"
        return f"{text} {speed:>8}{on}"

    def total(self, now, jobs, width):
        active = [job.seen["threads"] for job in jobs if job.running and job.seen]
        text = f"{now:5.0f} s  {'together':<12}{sum(active)} threads for {self.cores} cores"
        # A program has one thread at least: only what is beyond that need not have been.
        return self.paint(text[:width - 1], "31" if sum(active) > max(self.cores, len(active)) else "2")

    def paint(self, text, code):
        return f"\x1b[{code}m{text}\x1b[0m" if self.colours else text


def bar(share):
    full = min(BAR, int(share * BAR))
    return "█" * full + "░" * (BAR - full)
