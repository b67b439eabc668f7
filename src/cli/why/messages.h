/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of error messages: X(word, cause, cure). `tide why` prints them, and `document` writes
 * docs/reference-messages.md. A word is fixed once published, shorter than 32 bytes, and stands as
 * a literal where the error is made: in error_word(), request_fail_as(), cli_error_as(), ….
 * tests/component/test_why.py compares both. ASCII; sentences with a full stop.
 */
#pragma once

#define MESSAGES(X)                                                                                \
    /* the daemon */                                                                               \
    X("no-daemon", "No tided listens in the directory where tide looks for one.",                  \
      "Start a job: 'tide run -- COMMAND' starts a daemon of your own. For the whole machine: "    \
      "'sudo systemctl start tided'. If one runs, it and tide need the same TIDE_DIR and "         \
      "XDG_RUNTIME_DIR.")                                                                          \
    X("daemon-of-another",                                                                         \
      "The daemon's socket belongs to another user, and you may not open it.",                     \
      "Unset TIDE_DIR to reach your own or the machine's daemon, or ask its owner.")               \
    X("unsafe-directory",                                                                          \
      "The daemon's directory can be written by another user, who could answer "                   \
      "in the daemon's place.",                                                                    \
      "Set TIDE_DIR or XDG_RUNTIME_DIR to a directory that only you may write.")                   \
    X("daemon-silent", "A daemon listens but did not answer in time.",                             \
      "Look whether it is stopped or the machine is overloaded; its log is tided.log in its "      \
      "directory, or 'journalctl -u tided'. Jobs go on meanwhile with what they have.")            \
    X("bad-answer", "The program on the daemon's socket is no tided that this tide understands.",  \
      "Compare 'tide version' of both: after an upgrade, restart the daemon. See what else "       \
      "listens on that socket.")                                                                   \
    X("directory-too-long",                                                                        \
      "A Unix socket's path has at most 107 bytes, and TIDE_DIR or "                               \
      "XDG_RUNTIME_DIR makes it longer.",                                                          \
      "Set TIDE_DIR to a shorter directory, for the daemon and for tide.")                         \
    X("no-daemon-program", "tide found no tided that it could start.",                             \
      "Install the whole package; or let TIDE_DAEMON name the program.")                           \
    X("daemon-ended", "tided was started and ended at once; the message quotes its log.",          \
      "Cure what it says: 'tided --check-config' examines the configuration without starting.")    \
    X("daemon-runs", "Another tided runs in the same directory: one of them is enough.",           \
      "Use the one that runs, end it first, or give the second one another TIDE_DIR.")             \
    X("config-error",                                                                              \
      "A line of tide.conf or an option of tided is not understood; the message "                  \
      "has file and line.",                                                                        \
      "Correct it, then try 'tided --check-config'; tide.conf(5) lists the keys. A running "       \
      "daemon keeps "                                                                              \
      "its former configuration.")                                                                 \
    X("config-unsafe", "Somebody other than root may write a file that root's daemon obeys.",      \
      "'chown root FILE' and 'chmod go-w FILE', also for the directory.")                          \
    X("too-many-requests",                                                                         \
      "A user's requests took more of the daemon's time than a user has, or "                      \
      "two searches ran at once.",                                                                 \
      "Ask less often: follow 'tide events --follow' instead of polling. The HTTP header "         \
      "Retry-After says when the next request may come.")                                          \
    X("too-many-streams", "As many programs follow the daemon's events as it can serve.",          \
      "End a 'tide events --follow' or a page that is no longer read.")                            \
    X("admin-only",                                                                                \
      "The order concerns everybody's jobs; only root, the daemon's user and the "                 \
      "group of administrators (for power also the power group) may give it.",                     \
      "Use sudo, or ask to be a member: 'admin-group' and 'power-group' in tide.conf(5).")         \
    X("not-your-daemon", "The daemon of another user serves only its own user.",                   \
      "'tide run' starts one of your own; unset TIDE_DIR if it names the other's.")                \
    /* other machines */                                                                           \
    X("host-unreachable",                                                                          \
      "The other machine could not be asked; the message quotes ssh, the "                         \
      "program there, or what TLS says of a gateway.",                                             \
      "Try what tide does: 'ssh HOST tide dial </dev/null' says nothing where all is well. See "   \
      "tide-fleet(1).")                                                                            \
    X("bad-host", "--host or TIDE_HOST is neither an address nor a name of the inventory.",        \
      "An address is ssh://[USER@]HOST[:PORT] or https://HOST[:PORT]; 'tide fleet' lists the "     \
      "names.")                                                                                    \
    X("not-with-host",                                                                             \
      "The command concerns processes, files or containers of the machine where "                  \
      "it is called, and no daemon can do it.",                                                    \
      "Call it there: 'ssh HOST tide ...'. Unset TIDE_HOST for this machine.")                     \
    X("no-inventory", "No file tells which machines there are.",                                   \
      "Write lines of NAME ADDRESS into ~/.config/tide/fleet or /etc/tide/fleet; tide-fleet(1) "   \
      "says how.")                                                                                 \
    X("no-machine",                                                                                \
      "No machine of the inventory can take the job: none was reached, or none has "               \
      "as many cores as --request asks for.",                                                      \
      "'tide fleet' shows the machines, their cores, and why some are not reached.")               \
    X("bad-inventory", "A line of the inventory is not understood; the message has its number.",   \
      "A line is NAME ADDRESS, dns:NAME [ADDRESS] or kubernetes:SELECTOR [ADDRESS].")              \
    /* jobs */                                                                                     \
    X("no-such-job",                                                                               \
      "No job that you may see has that id, name or process; perhaps it has ended.",               \
      "'tide ps' lists the jobs, 'tide history' those that ended. A pid must be of the job's "     \
      "own processes.")                                                                            \
    X("ambiguous-name",                                                                            \
      "Several jobs belong to that Compose service, so its name does not say which one.",          \
      "Name one of them by its id (j1), as 'tide ps' shows it.")                                   \
    X("name-taken", "A job with that name runs or waits already.",                                 \
      "Choose another --name, or leave it out: a free one is found then.")                         \
    X("bad-name",                                                                                  \
      "A job's name has letters, digits and . _ + : @ - only, does not look like an "              \
      "id or a pid, and does not begin with -.",                                                   \
      "Choose such a name: cnn-2 is one, j1 and 42 are none.")                                     \
    X("not-your-job",                                                                              \
      "Another user's job: only its owner, root and administrators may change it.",                \
      "Ask its owner, use sudo, or ask to be of the group of administrators.")                     \
    X("not-the-gateway",                                                                           \
      "A request named another user by the header Tide-User, which only the user of "              \
      "'gateway-user' in tide.conf(5) may do, for a user who is not root.",                        \
      "Leave the header out: the daemon knows who you are. For a gateway: tide-gate(8).")          \
    X("not-known-to-gateway",                                                                      \
      "The gateway was shown no token and no certificate that it knows, or its user "              \
      "may not come in by it.",                                                                    \
      "Write the token or the certificate into ~/.config/tide/gateways; tide-fleet(1) says how. "  \
      "Who may come in stands in the gateway's gate.conf: tide-gate(8).")                          \
    X("not-your-process", "A process can be registered as a job by its own user and root alone.",  \
      "Register it as that user.")                                                                 \
    X("mixed-rights",                                                                              \
      "The process has the rights of two users (a setuid program, as sudo is): "                   \
      "the daemon does not let one user steer what another one owns.",                             \
      "Put sudo in front of tide: 'sudo tide run -- COMMAND', not 'tide run -- sudo COMMAND'.")    \
    X("special-process",                                                                           \
      "The process is the daemon itself, a part of the machine, or in a job "                      \
      "already.",                                                                                  \
      "Start the program with 'tide run'.")                                                        \
    X("no-such-process", "There is no process of that number, or it has ended.",                   \
      "'tide ps' lists jobs and their processes, 'ps' the others.")                                \
    X("too-many-jobs", "The daemon, or one user, has as many jobs as the limits allow.",           \
      "Wait until some end or cancel them; an administrator may raise 'user-jobs' in "             \
      "tide.conf(5).")                                                                             \
    X("share-exceeded",                                                                            \
      "More threads were asked for by hand than the user's share of the cores: "                   \
      "they would take those of other users.",                                                     \
      "Ask for at most the share that the message names, or ask an administrator; 'tide set JOB "  \
      "--auto' leaves the number to the policy.")                                                  \
    X("cores-pinned", "A job of another user is pinned to some of these cores.",                   \
      "Name other cores, or leave out --cores: 'tide pin JOB' keeps those that the job has.")      \
    X("priority-too-high", "The priority is above what users may give their jobs.",                \
      "Use a lower --priority; 'user-priority' in tide.conf(5) is the limit.")                     \
    X("min-above-max", "--min asks for more threads than --max allows.",                           \
      "Raise --max or lower --min.")                                                               \
    X("value-out-of-range", "A value is no number, or outside of what the option takes.",          \
      "Use a value as the message says; 'tide help COMMAND' explains each option.")                \
    X("bad-promise", "A promise of latency is a percentile and a time from 1 ms to 60 s.",         \
      "Write --slo p99=50ms; docs/promises.md says what can be kept.")                             \
    X("promise-refused", "A promise of latency cannot be kept as far as earlier runs tell.",       \
      "Promise more time or ask an administrator: 'promises' in tide.conf(5). The message says "   \
      "what is known.")                                                                            \
    X("bad-time", "A time is not understood, has passed, or lies too far ahead.",                  \
      "Write 90s, 10min, 2h or 1h30min (from now), or 18:30.")                                     \
    X("bad-memory",                                                                                \
      "An amount of memory is not understood or below 1 MiB: most often the unit "                 \
      "is missing.",                                                                               \
      "Write 512M or 1.5G; 'tide help run' has --memory.")                                         \
    X("bad-devices",                                                                               \
      "A list of devices is not understood: each kind once, with a number of them.",               \
      "Write --devices nvidia=1 or nvidia=2,uverbs=1; kinds are nvidia, render, accel, uverbs "    \
      "and "                                                                                       \
      "vfio.")                                                                                     \
    X("devices-exceed-machine",                                                                    \
      "The job wants more devices of a kind than the machine has, so it would wait for ever.",     \
      "Ask for fewer, or set 'devices' in tide.conf(5) where tided does not find all of them.")    \
    X("memory-exceeds-machine",                                                                    \
      "The job wants more memory than all jobs may have together, so it "                          \
      "would wait for ever.",                                                                      \
      "Lower --memory, or raise 'memory' in tide.conf(5) if the machine has more.")                \
    X("bad-cores",                                                                                 \
      "The list of cores is malformed, or names cores that this machine or its "                   \
      "daemon does not have.",                                                                     \
      "Write --cores 0-1,4 with cores that 'tide top' shows.")                                     \
    X("placement-fixed", "Where a job is placed is decided when it starts.",                       \
      "Start it anew with --placement; 'tide pin JOB --cores LIST' fences one that runs.")         \
    X("cannot-be-paused",                                                                          \
      "The job runs, and its processes cannot be stopped for a while: the message says why.",      \
      "Shrink it instead: 'tide set JOB --threads 1 --weight 1'.")                                 \
    X("queue-disk-full",                                                                           \
      "A queued job must outlive the daemon, and could not be written to disk.",                   \
      "Make room in the directory that the message names, or make its disk writable, then "        \
      "submit it again; 'tide run' needs no disk.")                                                \
    X("still-runs", "A cancelled job did not end within the time that it had.",                    \
      "It may be saving its state: look again with 'tide ps'. 'kill -KILL PID' ends it without "   \
      "that.")                                                                                     \
    X("no-signal-handler",                                                                         \
      "No process of the job listens for the resize signal, which would end "                      \
      "it.",                                                                                       \
      "Start the program with 'tide run' and without TIDE_SIGNAL=0, and wait for its first pool "  \
      "of threads; 'tide set' needs no signal.")                                                   \
    /* starting programs */                                                                        \
    X("no-program", "The program was not found in PATH, or its file does not exist.",              \
      "Write its path; for what your shell knows alone (aliases, functions): 'tide run -- bash "   \
      "-ic COMMAND'.")                                                                             \
    X("program-cannot-run", "The file is no program, or you may not execute it.",                  \
      "'chmod +x FILE', or start it by its interpreter: 'tide run -- python FILE'.")               \
    X("no-agent",                                                                                  \
      "libtide-agent.so is not where tide looks for it, so the program keeps its "                 \
      "number of threads.",                                                                        \
      "Install the whole package; or let TIDE_AGENT_DIR name the directory.")                      \
    X("agent-path",                                                                                \
      "The loader splits LD_PRELOAD at blanks, colons and $, and the path of the "                 \
      "agent has one of them.",                                                                    \
      "Install Threadtide, or its wheel's environment, in a path without them.")                   \
    /* policies and power */                                                                       \
    X("no-such-policy", "There is no policy of that name.", "'tide policy list' explains them.")   \
    X("bad-policy", "A parameter of the policy is unknown, or its value is not possible.",         \
      "'tide policy show NAME' lists the parameters with their ranges.")                           \
    X("no-watts",                                                                                  \
      "Nothing tells this machine's watts: it has no sensor that can be read, and no "             \
      "model is named. Caps and policies by watts need them.",                                     \
      "Name a source ('power') or a model ('power-model') in tide.conf(5); 'tide power "           \
      "--sources' "                                                                                \
      "shows what was found. Sensors of the processor are root's alone.")                          \
    X("bad-cap", "The power cap is no amount of watts that a machine can have.",                   \
      "Write 'tide power set-cap 120W', or 1.2kW.")                                                \
    X("stale-lease", "A newer lease of power came before this one.",                               \
      "Send the newest one; two brokers for one machine make this happen again and again.")        \
    X("machine-in-use",                                                                            \
      "Calibrating measures the machine at known loads, but other programs keep cores busy.",      \
      "Calibrate when the machine is idle; --force does it anyway, less exactly.")                 \
    X("no-history", "The daemon keeps no history, or cannot read it.",                             \
      "'history' in tide.conf(5) switches it on; the log says why a file could not be used. Jobs " \
      "are not affected.")                                                                         \
    X("search-too-long", "The search would take too much of the daemon's time.",                   \
      "Ask for a shorter time with --since.")                                                      \
    /* containers */                                                                               \
    X("no-container", "No container engine that the daemon watches has such a container.",         \
      "'docker ps' or 'podman ps' lists those that run, for the user who owns the daemon.")        \
    X("ambiguous-container", "Several containers match.", "Write more of the id.")                 \
    X("container-not-running", "Only a running container can become a job.",                       \
      "Start the container, then adopt it.")                                                       \
    X("container-is-job", "The container is a job already.", "'tide set' changes it.")             \
    X("container-refuses", "The label io.threadtide=false says that it shall not become a job.",   \
      "Start the container anew without that label.")                                              \
    X("container-of-labels", "A container with io.threadtide labels is a job as long as it runs.", \
      "Start it anew without the labels; only what 'tide adopt' took can be given back.")          \
    X("no-engine", "No Docker or podman answers on the sockets that the daemon watches.",          \
      "Start the engine; 'engines' in tide.conf(5) names its socket, and the daemon must be "      \
      "allowed to open it. The daemon tries again by itself.")                                     \
    X("setup-needs-root", "Docker's configuration belongs to root.",                               \
      "Use sudo, or 'tide setup docker --user' for 'docker tide' alone.")                          \
    /* the HTTP interface */                                                                       \
    X("bad-request", "The request is no JSON object, has an unknown field, or is too long.",       \
      "See docs/http-api.md; a client newer than the daemon may send fields that it does not "     \
      "know.")                                                                                     \
    X("no-such-path", "The daemon has no such path, or not with that method.",                     \
      "See docs/http-api.md; 'tide version' tells the daemon's version.")
