#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo of energy: an organization lowers a laboratory's power at 18:00, and three trainings go on.

    make demo-energy              about six minutes on two cores
    demo/energy.py --keep         leaves everything running afterwards, until Enter: as usual on a terminal
    demo/energy.py --quick        shorter passes: does it work, not how well

The same evening three times: without a cap; with the cap divided equally among the trainings for good (static), as
somebody sets it by hand who looks at the meter; and with Threadtide, by tided on this machine. The building — a hub,
a unit in each of three areas, their meters — runs through all three, so that it draws the same each time. The watts are
those of a plant (tests/plant), which turns what this machine's cores really do into a meter's figures: no machine needs
a meter for it.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR", ROOT / "build")).resolve()
OUT = ROOT / "demo" / "out"
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("component", "plant")]
PROGRAMS = ("tide", "tided", "tide-power", "tide-hub", "tests/plant/plant_meter", "tests/plant/plant_points")
SEED, RANGE = "demo", "desktop"
CAP_SHARE = 0.6  # the cap at 18:00, of the way from idle to full power
LOADS = (0, 100, 500, 1000)  # permille
BEFORE_S, AFTER_S = 20, 45
MORNING_S = 3600  # before 18:00: the first two passes
TRIM_S, TRIMS, TRIM_BELOW = 6, 3, 0.98  # somebody sets static limits by the meter, a little below the cap
LEAST_CORES = 0.05
LOOK_S, BUSY_CORES = 3, 0.15  # what else runs here before the demo begins
QUICK = (8, 20)

try:
    import digits
    import energy_building
    import energy_sides as sides
    import rig
    import side
except ModuleNotFoundError as missing:
    sys.exit(f"demo: {missing}: this needs the project's Python environment. Run `make demo-energy`.")


def parse_args():
    p = argparse.ArgumentParser(description="An organization lowers a laboratory's power at 18:00.")
    p.add_argument("--quick", action="store_true", help="short passes, to try it out")
    p.add_argument("--keep", action=argparse.BooleanOptionalAction, default=sys.stdin.isatty() and sys.stdout.isatty(),
                   help="stay until Enter is pressed, with the page open (default on a terminal)")
    p.add_argument("--no-page", action="store_true", help="no pictures of the page")
    p.add_argument("--out", type=lambda p: pathlib.Path(p).resolve(), default=OUT, help="where the results go (default demo/out)")
    return p.parse_args()


def check_set_up():
    gone = [name for name in PROGRAMS if not (BUILD / name).exists()]
    gone += rig.missing() + [name for name in ("openssl", "mosquitto_rr") if not shutil.which(name)]
    if gone:
        sys.exit(f"demo: missing: {', '.join(gone)}. Run `make demo-energy`.")


class Demo:
    def __init__(self, args, folder, stack, data):
        self.args, self.folder, self.stack, self.data = args, folder, stack, data
        self.before, self.after = QUICK if args.quick else (BEFORE_S, AFTER_S)
        self.begin = time.monotonic()
        self.meter = rig.Meter(BUILD, folder / "plant", SEED, "--psys", kind=RANGE)
        stack.callback(self.meter.end)
        # The packages' power limit would slow the plant's cores, but not the programs: work would cost no watts.
        for file in self.meter.tree.glob("sys/class/powercap/*/constraint_0_power_limit_uw"):
            file.unlink()
        self.points = [max(self.meter.points(BUILD, SEED, LOADS)[:i + 1]) for i in range(len(LOADS))]
        idle, full = self.points[0], self.points[-1]
        self.node_floor = idle + energy_building.FLOOR_SHARE * (full - idle)
        self.cap = round(idle + CAP_SHARE * (full - idle))

    def say(self, text):
        print(f"{time.monotonic() - self.begin:5.0f} s  {text}", flush=True)

    def stock_trainings(self):
        folder = self.folder / "stock"
        folder.mkdir()
        made = []
        for model in sides.MODELS:
            made.append(sides.Training(model, self.data, folder, env=side.without_our_variables()))
            self.stack.callback(made[-1].end)
        return made

    def evening(self, name, trainings, at_six=None, meanwhile=None):
        """A pass. @at_six is called at 18:00, @meanwhile once after it."""
        begin = time.time()
        six, end = begin + self.before, begin + self.before + self.after
        time.sleep(max(0, six - time.time()))
        others = sides.Others(trainings)
        if at_six:
            at_six()
        if meanwhile:
            meanwhile(six, end)
        time.sleep(max(0, end - time.time()))
        for training in trainings:
            training.check()
        found = sides.Evening.of(name, trainings, self.watts, (begin, six, end), self.cap, others.cores())
        self.say(f"{name}: {found.kwh * 1000:.2f} Wh, {found.above_s} s above {self.cap} W")
        return found

    def look_around(self):
        """Nobody can hold back programs that are no jobs: they draw what the cap leaves."""
        others = sides.Others([])
        time.sleep(LOOK_S)
        if others.cores() > BUSY_CORES:
            print(f"demo: other programs keep {others.cores():.2f} of {os.cpu_count()} cores busy. Their power counts, too: "
                  "the figures below tell little.", file=sys.stderr)

    def start_building(self):
        self.clock = energy_building.Clock(self.folder)
        self.clock.set(MORNING_S)
        self.building = energy_building.Building(BUILD, self.folder, self.meter, (self.node_floor, self.cap),
                                                 self.clock.path)
        self.stack.callback(self.building.end)
        self.watts = sides.Watts(self.meter)
        self.watts.start()
        self.stack.callback(self.watts.end)
        self.building.begin()
        self.say(f"hub, broker and units of {', '.join(energy_building.NAMES)} are there: {self.building.link()} (user "
                 f"{energy_building.USER}, password '{energy_building.PASSWORD}')")

    def stock_evenings(self):
        self.say(f"three trainings of TensorFlow start; at 18:00 the laboratory may draw {self.cap} W (idle "
                 f"{self.points[0]:.0f} W, full {self.points[-1]:.0f} W)")
        trainings = self.stock_trainings()
        for training in trainings:
            training.wait_steps(3)
        free = self.evening("no cap", trainings)
        limiter = sides.Limiter(trainings, self.cores_below_cap() / len(trainings))
        limiter.start()
        try:
            self.trim(limiter)
            static = self.evening("static: a third of the cap for each", trainings)
        finally:
            limiter.end()
        for training in trainings:
            training.end()
        return [free, static]

    def cores_below_cap(self):
        """Busy cores that draw the cap, by the machine's data sheet."""
        low = next(i for i, w in enumerate(self.points) if w > self.cap)
        (x, a), (y, b) = ((LOADS[i], self.points[i]) for i in (low - 1, low))
        return (x + (y - x) * (self.cap - a) / (b - a)) / 1000 * os.cpu_count()

    def trim(self, limiter):
        """The limits that keep the cap beside everything else that runs here, found by looking at the meter."""
        per_core = (self.points[-1] - self.points[0]) / os.cpu_count()
        for _ in range(TRIMS):
            begin = time.time()
            time.sleep(TRIM_S)
            mean = self.watts.joules(begin + 1, time.time()) / (time.time() - begin - 1)
            cores = limiter.cores * len(sides.MODELS) + (self.cap * TRIM_BELOW - mean) / per_core
            limiter.set(max(LEAST_CORES, cores) / len(sides.MODELS))
        self.say(f"static limits that keep {self.cap} W: {limiter.cores:.2f} cores for each training")

    def start_node(self):
        folder = self.folder / "tided"
        (folder / "claims").mkdir(parents=True)
        config = folder / "tide.conf"
        config.write_text("[daemon]\npower=powercap\npolicy=power-cap\n"
                          f"power-root={self.meter.tree}\n"
                          f"power-model=points:{','.join(f'{w:.2f}' for w in self.points)}\n")
        self.tide_env = {**side.without_our_variables(), "TIDE_DIR": str(folder / "run"),
                         "TIDE_CLAIMS_DIR": str(folder / "claims")}
        self.tided = energy_building.Program([BUILD / "tided", "--dir", folder / "run", "--engine", "none", "--config",
                                              config], folder / "log", self.tide_env)
        self.stack.callback(self.tided.end)
        self.socket = folder / "run/api.sock"
        energy_building.wait(lambda: self.tided.alive() and self.socket.exists(), "tided answers")

    def tide_trainings(self):
        folder = self.folder / "tide"
        folder.mkdir()
        made = []
        for model in sides.MODELS:
            made.append(sides.Training(model, self.data, folder, (BUILD / "tide", "run", "--name", model, "--"),
                                       self.tide_env))
            self.stack.callback(made[-1].end)
        for training in made:
            training.wait_steps(3)
        return made

    def meanwhile(self, six, end):
        """After 18:00: people leave the office, and the hub dies."""
        building = self.building
        self.say(f"{self.clock.says()}  everybody leaves the office")
        building.leave("office")
        energy_building.wait(lambda: building.lights_on("office") is False, "the office's lights go off")
        self.say(f"{self.clock.says()}  its lights are off; those of the laboratory are "
                 f"{'on' if building.lights_on('lab') else 'OFF'}")
        energy_building.wait(lambda: building.stored().get(("lab", "area"), (None,))[0], "the hub has the laboratory's energy")
        building.kill_hub()
        self.dead = building.stored()
        self.say(f"{self.clock.says()}  the hub is dead (kill -9); areas and node go on by the signed policy")
        time.sleep(max(0, (end - time.time()) / 2))
        building.serve_hub()
        self.say(f"{self.clock.says()}  the hub is back")

    def tide_evening(self):
        self.start_node()
        self.building.link_node(self.socket)
        trainings = self.tide_trainings()
        pids = [training.process.pid for training in trainings]
        self.clock.set(self.before)
        self.say(f"{self.clock.says()}  this machine's tided is a node of the laboratory")
        found = self.evening("Threadtide", trainings, lambda: self.say(f"{self.clock.says()}  the cap is {self.cap} W"),
                             self.meanwhile)
        if pids != [training.process.pid for training in trainings]:
            raise RuntimeError("a training was started anew")
        return found

    def nothing_lost(self):
        """Wh of the laboratory in the hub, and by the plant, between the last record before the hub's death and the newest
        one; and for how many of these seconds the hub has a sum alone."""
        key = ("lab", "area")
        dead = self.dead[key]
        energy_building.wait(lambda: self.building.stored()[key][2] > dead[2] + self.after,
                             "records of the time in which the hub was dead arrive", 90)
        kwh, unknown, until = self.building.stored()[key]
        joules = self.watts.joules(dead[2] - self.clock.shift, until - self.clock.shift)
        return 1000 * (kwh - dead[0]), joules / 3600, unknown - dead[1]


def show(evenings):
    rows = sides.table(evenings)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print()
    for row in rows:
        print("  " + "  ".join(f"{cell:<{w}}" if i == 0 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths))))
    print("\n  Work: the mean of the three trainings' speeds, of their speeds without a cap. Seconds above the cap: in\n"
          "  windows of ten seconds from three seconds after 18:00 on. Other programs: cores that everything but the\n"
          "  trainings kept busy after 18:00. Watts are a plant's (tests/plant), work is real.")


def pictures(demo, out):
    """The page as people see it, if a browser is here."""
    chromium = next((p for p in (os.environ.get("TIDE_CHROMIUM"), "/usr/bin/chromium", "/usr/bin/google-chrome")
                     if p and os.path.exists(p)), None)
    if not chromium or not shutil.which("node") or not (ROOT / "ui/node_modules/puppeteer-core").exists():
        print("  no pictures of the page: `scripts/setup.sh ui` installs a browser and what drives it")
        return
    done = subprocess.run(["node", ROOT / "demo/energy_page.mjs", demo.building.link(), energy_building.USER,
                           energy_building.PASSWORD, out, f"{energy_building.ORG}/lab"], cwd=ROOT / "ui", capture_output=True, text=True,
                          timeout=120, check=False)
    print("".join(f"  picture: {line}\n" for line in done.stdout.splitlines()), end="")
    if done.returncode:
        print(f"  no pictures of the page could be taken:\n{done.stderr}", file=sys.stderr)


def run(args, folder, stack):
    data, description = digits.prepare(ROOT / "demo" / ".cache", None)
    print(f"digits: {description}")
    demo = Demo(args, folder, stack, data)
    demo.look_around()
    demo.start_building()
    evenings = demo.stock_evenings()
    evenings.append(demo.tide_evening())
    stored, counted, coarse = demo.nothing_lost()
    show(evenings)
    print(f"\n  From before the hub's death until now the laboratory used {stored:.2f} Wh by the hub, {counted:.2f} Wh by the plant.\n"
          f"  For {coarse:.0f} s of that time the hub has only the sum.")
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.no_page:
        pictures(demo, args.out)
    print(f"  page: {demo.building.link()}  user {energy_building.USER}, password '{energy_building.PASSWORD}'")
    if args.keep:
        input("  Enter ends the demo. ")
    return 0


def main():
    args = parse_args()
    check_set_up()

    def stop(number, frame):
        raise KeyboardInterrupt(number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tide-demo-"))
    try:
        with contextlib.ExitStack() as stack:
            status = run(args, folder, stack)
    except KeyboardInterrupt:
        print("\ndemo: stopped; its programs have been ended.", file=sys.stderr)
        status = 130
    except (sides.Failed, RuntimeError, TimeoutError, OSError, subprocess.SubprocessError, digits.NoData) as e:
        print(f"\ndemo: {e}\n  what its programs said is kept in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
