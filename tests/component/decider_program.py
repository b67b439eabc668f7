# SPDX-License-Identifier: Apache-2.0
"""A decider of eight cores: decider_program.py SOCKET UID. The first job gets most of them."""
import json
import os
import socket
import sys


def divide(question):
    jobs = sorted((job for job in question["jobs"] if job["choice"]), key=lambda job: job["id"])
    cores = {1: [8], 2: [6, 2], 3: [5, 2, 1]}[len(jobs)] if jobs else []
    plan = [{"job": j["id"], "cores": min(max(n, j["min"]), j["max"])} for j, n in zip(jobs, cores)]
    return json.dumps({"snapshot": question["snapshot"], "plan": plan}).encode() + b"\n"


def main(path, uid):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chmod(path, 0o666)
        if uid:
            os.setuid(uid)
        listener.listen()
        print(flush=True)
        while True:
            with listener.accept()[0].makefile("rwb") as stream:
                for line in stream:
                    stream.write(divide(json.loads(line)))
                    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
