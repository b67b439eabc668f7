# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's server with a small model, in a program of Python (xllamacpp): it answers requests, and each line of its stdin
is a statement of Python that it runs in between.

    work.py MODEL THREADS [FOR PROMPTS]     says "begun"; `say(…)` in a statement answers
    work.py MODEL digests                   what the answer is with each number of threads from 1 to 6
"""
import hashlib
import pathlib
import sys

import xllamacpp

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from statements import goes_on, lines, listen, say, team  # noqa: E402, F401 (statements use them)

MOST = 6
PROMPT = [1, *(3 + n * 37 % 256 for n in range(60))]


def server(threads, for_prompts=None):
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.n_ctx, params.n_parallel, params.n_batch, params.n_ubatch, params.n_threads_http = 1024, 1, 32, 32, 1
    params.warmup = params.fit_params = params.use_jinja = False
    params.verbosity = 0
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = threads, for_prompts or threads
    return xllamacpp.Server(params)


def answer(tokens=16, prompt=PROMPT):
    """The tokens that the model finds most likely, and how likely."""
    said = serves.handle_completions({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "cache_prompt": False,
                                      "ignore_eos": True, "logprobs": 1})
    found = said["choices"][0]["logprobs"]["content"]
    assert len(found) == tokens, said
    return [(token["id"], token["logprob"]) for token in found]


def digest():
    return hashlib.sha256(repr(answer()).encode()).hexdigest()


def number(work=lambda: answer(16, [1])):
    """With how many threads it computes tokens: beside this one, and the one that the client and the server talk through."""
    return team(work) - 2


def for_prompts():
    return number(lambda: answer(1, [1] * 32))


def digests(until=lambda: not lines.empty()):
    """How many answers there were, and which."""
    found = []
    while not until():
        found.append(digest())
    return len(found), *sorted(set(found))


if sys.argv[2] == "digests":
    found = []
    for n in range(1, MOST + 1):
        serves = server(n)
        assert number() == n
        found.append(digest())
    say(*found)
else:
    serves = server(*map(int, sys.argv[2:]))
    listen()
    answer()
    say("begun")
    while goes_on(globals()):
        answer(4)
