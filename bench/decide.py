#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long policies think: runs bench/policy_decide.c and keeps what it says."""

import json
import subprocess

import harness


def main():
    done = subprocess.run([str(harness.BUILD / "bench" / "policy_decide"), "--json"], check=True,
                          stdout=subprocess.PIPE, text=True, timeout=600)
    rows = json.loads(done.stdout)
    for row in rows:
        row["verdict"] = "met" if row["high_us"] <= row["goal_us"] else "missed"
        print(*row.values())
    harness.save("policy-decide", rows)


if __name__ == "__main__":
    main()
