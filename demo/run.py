#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo: programs that a server really runs share this machine, as they are and under Threadtide.

    make demo                     once each way, about six minutes on two cores
    demo/run.py --rounds 3        three times each way, the order alternating
    demo/run.py --quick           short trainings: does it work, not how fast
    demo/run.py --mix tensorflow  three TensorFlow trainings instead, whose results are compared with fixed threads
    make demo-docker              those in containers (demo/run.py --docker), as root

The mix is the same both ways: TensorFlow, PyTorch, XGBoost and a forest that arrive one after the other,
`python train.py …` as anybody would start them, and `tide run -- python train.py …`. They cannot be
interleaved, so a pass follows the other. What other programs used meanwhile is measured; a round in which
that differs is not counted and done again, once.
Writes the picture, the figures and every program's output to demo/out/.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("TIDE_BUILD_DIR", ROOT / "build")).resolve()
OUT = ROOT / "demo" / "out"
FIRST_MINUS = 128  # a shell's status of a program that a signal ended

try:
    import digits
    import mix
    import picture
    import reference
    import report
    import screen
    import servers
    import side
except ModuleNotFoundError as missing:
    sys.exit(f"demo: {missing}: this needs the project's Python environment. Run `make demo`.")

UNEQUAL = 0.05  # of the machine: more that other programs used in one pass than in the other

TENSORFLOW = servers.Case(
    specs=(mix.Spec("cnn", 0), mix.Spec("mlp", 12), mix.Spec("attention", 24)),
    quick=(mix.Spec("cnn", 0, 1), mix.Spec("mlp", 2, 2), mix.Spec("attention", 4, 1)),
    mix=mix.Mix, stock=side.Stock, threadtide=side.Threadtide, table=report.job_table, measures=report.MEASURES,
    what="Three TensorFlow trainings", versions=dict,
    how="Each starts with a thread for every core. Threadtide changes the active threads while they train.")


def parse_args():
    p = argparse.ArgumentParser(description="Programs share this machine, with and without Threadtide.")
    p.add_argument("--mix", choices=["servers", "tensorflow"],
                   help="TensorFlow, PyTorch, XGBoost and a forest (default, if they are here), or three TensorFlow trainings")
    p.add_argument("--rounds", type=int, default=1, help="passes each way, order alternating (default 1)")
    p.add_argument("--quick", action="store_true", help="short trainings, to try it out")
    p.add_argument("--digits", choices=digits.SOURCES, help="insist on one source of the digits")
    p.add_argument("--out", type=lambda p: pathlib.Path(p).resolve(), default=OUT, help="where the results go (default demo/out)")
    p.add_argument("--docker", action="store_true", help="every program in a container")
    p.add_argument("--reference", action="store_true",
                   help="measure the results with fixed thread counts instead, about ten minutes")
    args = p.parse_args()
    if args.rounds < 1:
        p.error("--rounds takes a number from 1")
    if args.mix == "servers" and (args.docker or args.reference):
        p.error(f"{'--docker' if args.docker else '--reference'} has the TensorFlow trainings alone")
    return args


def choose_case(args):
    """The mix, and why it is not the usual one."""
    if args.docker or args.reference or args.mix == "tensorflow":
        return TENSORFLOW, ""
    missing = servers.missing()
    if missing and args.mix == "servers":
        sys.exit(f"demo: {missing}")
    return (TENSORFLOW, f"TensorFlow alone: {missing}") if missing else (servers.CASE, "")


def check_set_up():
    missing = [str(BUILD / name) for name in ("tide", "tided", "agent") if not (BUILD / name).exists()]
    if missing:
        sys.exit(f"demo: not built: {', '.join(missing)}. Run `make demo`.")
    if not any((pathlib.Path(p) / "tensorflow").is_dir() for p in sys.path):
        sys.exit(f"demo: {sys.executable} has no TensorFlow. Run `make demo`.")


def warm_up():
    """Loads TensorFlow once, as servers.missing() the others: else the first pass alone would read it from the disk."""
    answer = subprocess.run([sys.executable, str(mix.TRAIN), "--help"], env=side.without_our_variables(),
                            capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise mix.JobFailed(f"TensorFlow does not load:\n{answer.stderr}")


def run_pass(how, case, args, data, view, count):
    """One pass of the mix; returns its job summaries, and how much of the machine other programs used."""
    view.headline(f"{how.title}{count}")
    try:
        runner = case.mix(case.quick if args.quick else case.specs, args.out)
        return runner.run(how, data, view), runner.others
    finally:
        how.close()


def run_rounds(args, case, makers, data, view):
    """A list of {side: summaries}, and of those that do not count; the first of @makers is the stock one."""
    rounds, left_out = [], []
    while len(rounds) < args.rounds:
        count = f", round {len(rounds) + 1} of {args.rounds}" if args.rounds > 1 else ""
        done, others = {}, {}
        for make in makers if (len(rounds) + len(left_out)) % 2 == 0 else reversed(makers):
            key = "stock" if make is makers[0] else "threadtide"
            done[key], others[key] = run_pass(make(), case, args, data, view, count)
        if None in others.values():
            rounds.append(done)
            continue
        done["others"] = others
        if abs(others["stock"] - others["threadtide"]) <= UNEQUAL:
            rounds.append(done)
        elif left_out and left_out[-1]["round"] == len(rounds):
            print(f"\n{report.others_text(others)}: again more in one pass than in the other. Read the figures with that in mind.")
            rounds.append(done)
        else:
            print(f"\n{report.others_text(others)}: more in one pass than in the other. This round does not count, and is done again.")
            left_out.append({**done, "round": len(rounds)})
    return rounds, left_out


def compare(args, case, data, view):
    """Both ways, as processes or as containers."""
    if not args.docker:
        return run_rounds(args, case, [case.stock, lambda: case.threadtide(BUILD)], data, view)
    import container_side
    container_side.check()
    engine = container_side.start_engine()
    try:
        return run_rounds(args, case, [lambda: container_side.Stock(engine, args.out),
                                       lambda: container_side.Threadtide(BUILD, engine, args.out)], data, view)
    finally:
        engine.end()


def show(rounds, case, source, view):
    fixed, note = reference.load(source, {job["name"]: job["steps"] for job in rounds[-1]["stock"]})

    def bold(line):
        return view.paint(line, "1")
    print()
    report.print_table(report.speed_table(rounds, case.measures), bold)
    if "others" in rounds[-1]:
        print(f"  {report.others_text(rounds[-1]['others'])}.")
    print()
    report.print_table(case.table(rounds), bold)
    print()
    report.print_table(report.result_table(rounds, fixed), bold, left=2)
    if fixed or case is TENSORFLOW:
        print(f"  fixed threads: {note}.")
    if fixed:
        print("  " + reference.WORDS)


def write_results(rounds, left_out, args, case, source, cores):
    (args.out / "result.json").write_text(json.dumps(
        {"cores": cores, "digits": source, "quick": args.quick, "mix": case.what, **reference.versions(), **case.versions(),
         "rounds": rounds, "left_out": left_out}, indent=1) + "\n")
    last = rounds[-1]
    stock, tide = report.measures(last["stock"]), report.measures(last["threadtide"])
    gain = stock["makespan"] / tide["makespan"]
    word = f"{gain:.2f}x faster" if gain >= 1.005 else f"{1 / gain:.2f}x slower" if gain < .995 else "the same"
    path = args.out / "demo.svg"
    path.write_text(picture.draw(
        [("Stock, uncontrolled", f"all done after {stock['makespan']:.0f} s", last["stock"]),
         ("The same programs under Threadtide", f"all done after {tide['makespan']:.0f} s: {word}",
          last["threadtide"])],
        cores, f"{case.what} share {cores} cores",
        case.how))
    print(f"\n  picture: {path}\n  figures: {args.out / 'result.json'}")


def end_on_signals():
    """Every polite request to stop takes the way of Ctrl-C, so that the programs are ended too."""
    def stop(number, frame):
        raise KeyboardInterrupt(number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def main():
    args = parse_args()
    check_set_up()
    end_on_signals()
    try:
        case, why = choose_case(args)
        data, description = digits.prepare(ROOT / "demo" / ".cache", args.digits)
        source = data.stem
        cores = len(os.sched_getaffinity(0))
        print(f"digits: {description}")
        args.out.mkdir(parents=True, exist_ok=True)
        if args.reference:
            reference.measure(case.quick if args.quick else case.specs, data, source, args.out)
            return 0
        if why:
            print(why)
        warm_up()
        view = screen.Screen(cores)
        rounds, left_out = compare(args, case, data, view)
        show(rounds, case, source, view)
        write_results(rounds, left_out, args, case, source, cores)
    except KeyboardInterrupt as e:
        print("\ndemo: stopped; its programs have been ended.", file=sys.stderr)
        return FIRST_MINUS + (e.args[0] if e.args else signal.SIGINT)
    except digits.NoData as e:
        print(f"demo: no handwritten digits to be had:\n{e}", file=sys.stderr)
        return 1
    except (mix.JobFailed, OSError, subprocess.SubprocessError) as e:
        print(f"\ndemo: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
