/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of error messages, grouped by program: T(title) and X(word, cause, cure). `tide why`
 * prints them, and `document` writes docs/reference-messages.md. A word is fixed once published,
 * shorter than 32 bytes, and stands as a literal where the error is made: as the class of a file's
 * errors in ERROR_WORD, else in error_word(), request_fail_as(), cli_error_as(), ….
 * tests/component/test_why.py compares both. ASCII; sentences with a full stop.
 */
#pragma once

#include "cli/why/messages_cluster.h"
#include "cli/why/messages_energy.h"

#define MESSAGES(T, X)                                                                             \
    T("tide and tided")                                                                            \
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
    X("bad-gateway-file",                                                                          \
      "~/.config/tide/gateways, with tokens and certificates for https:// machines, is not "       \
      "understood, or others may read it.",                                                        \
      "A line is HOST and token=, ca=, cert= or key=; 'chmod 600' the file. See tide-fleet(1).")   \
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
    X("memory-not-limited", "Only the memory of a container has a limit that can be changed.",     \
      "'tide set JOB --memory' says how much a job needs, for those that wait for memory.")        \
    X("memory-in-use",                                                                             \
      "The container needed more in the last ten minutes than the limit would leave it; a limit "  \
      "that is too low ends its programs.",                                                        \
      "'tide memory JOB' shows the lowest limit. It goes down when the job has needed less for "   \
      "ten minutes.")                                                                              \
    X("memory-unknown",                                                                            \
      "The daemon lowers no limit before it knows what the container needs: for ten minutes it "   \
      "has to read the control group, where the kernel does not keep the highest value itself.",   \
      "Ask again later; 'tide doctor' tells whether control groups can be read.")                  \
    X("memory-of-kubelet", "The container is a pod's, and the kubelet sets its limits.",           \
      "'kubectl patch pod NAME --subresource resize' changes them while it runs, on Kubernetes "   \
      "1.33 and newer; 'tide memory JOB' shows what it needs.")                                    \
    X("memory-above-own", "An owner may have the memory that the container began with, no more.",  \
      "An administrator may give more: docs/permissions.md.")                                      \
    X("memory-taken", "Other jobs were admitted into the memory that the container had left.",     \
      "Use less, or wait until one of them ends; 'tide ps' shows what jobs count with.")           \
    X("no-engine", "No Docker or podman answers on the sockets that the daemon watches.",          \
      "Start the engine; 'engines' in tide.conf(5) names its socket, and the daemon must be "      \
      "allowed to open it. The daemon tries again by itself.")                                     \
    X("setup-needs-root", "Docker's configuration belongs to root.",                               \
      "Use sudo, or 'tide setup docker --user' for 'docker tide' alone.")                          \
    /* the HTTP interface */                                                                       \
    X("bad-request",                                                                               \
      "The request is no JSON object, is too long, or has a field or value that is not possible.", \
      "See docs/http-api.md; a client newer than the daemon may send fields that it does not "     \
      "know.")                                                                                     \
    X("no-such-path", "The daemon has no such path, or not with that method.",                     \
      "See docs/http-api.md; 'tide version' tells the daemon's version.")                          \
    /* more of tide */                                                                             \
    X("usage",                                                                                     \
      "The command line is not one that the program takes: a word is missing, unknown or one too " \
      "many, or a value is not possible.",                                                         \
      "The message says which word it is; 'tide help COMMAND', or the program's own --help, "      \
      "shows what it takes.")                                                                      \
    X("output-failed",                                                                             \
      "What the command prints or writes could not be written: the file, the disk or the program " \
      "at the other end of a pipe does not take it.",                                              \
      "Make room on the disk, or name a file that you may write.")                                 \
    X("broken-installation",                                                                       \
      "A program of Threadtide that tide starts is not where it was installed.",                   \
      "Install the whole package again; in a build tree, build everything.")                       \
    X("process-unreadable",                                                                        \
      "The process has ended, is another user's, or /proc does not show it.",                      \
      "'ps' shows its number and its user; root may look at all processes. In a container, mount " \
      "/proc.")                                                                                    \
    X("nothing-recorded",                                                                          \
      "No job that used a core was seen while tide record ran, or it could not look.",             \
      "Start jobs by 'tide run' while it records, and let it record for longer: --for 10min.")     \
    X("job-refused",                                                                               \
      "The daemon, or the connection to it, did not take the program as a job; where it can, the " \
      "program runs all the same, with the threads that it chooses.",                              \
      "The message quotes the reason; 'tide doctor' looks at the daemon, whose log tells more.")   \
    X("daemon-not-started",                                                                        \
      "tide could not start a daemon: a file of its directory, a process or a socket could not "   \
      "be made.",                                                                                  \
      "The message quotes the system's reason; 'tide doctor' shows the directory. 'tided' by "     \
      "hand shows the rest.")                                                                      \
    X("page-not-served",                                                                           \
      "The page's server could not begin: mostly, another program has the port.",                  \
      "Choose another --port, or leave it out: a free one is found then.")                         \
    X("docker-not-run",                                                                            \
      "The command cannot be given to docker as it stands: mostly because of the path in "         \
      "TIDE_DIR.",                                                                                 \
      "Set TIDE_DIR to an absolute path without a colon, or not at all.")                          \
    X("setup-failed",                                                                              \
      "A file of Docker could not be read, changed or installed, or dockerd did not take the "     \
      "change.",                                                                                   \
      "The message names the file; nothing else was changed. 'journalctl -u docker' tells what "   \
      "dockerd said.")                                                                             \
    X("bad-json-file",                                                                             \
      "A file that tide edits is no JSON, or has a part that is not as it has to be.",             \
      "Correct the file where the message says; its other programs would not take it either.")     \
    X("not-calibrated",                                                                            \
      "The machine was not measured at enough different loads, or calibrating was ended.",         \
      "Let 'tide power calibrate' run through while other programs compute little.")               \
    X("bad-scenario",                                                                              \
      "A scenario, a trace or a file of arrivals is not understood; the message has file, line "   \
      "and field.",                                                                                \
      "Correct it there; tide-sim(1) describes scenarios and traces.")                             \
    X("simulation-failed",                                                                         \
      "The simulation could not go on: jobs never end under this policy, the policy broke its "    \
      "rules, or the machine of the scenario is not possible.",                                    \
      "The message names policy, job and time; --csv FILE shows all jobs until then.")             \
    /* more of tided */                                                                            \
    X("run-directory",                                                                             \
      "The directory for sockets and state (TIDE_DIR, else tide in XDG_RUNTIME_DIR) cannot be "    \
      "made or used: it is another user's, a link, removed, or its disk takes nothing.",           \
      "Make it usable as the message says, or set TIDE_DIR to a directory of your own; tided "     \
      "starts anew then.")                                                                         \
    X("cannot-listen",                                                                             \
      "A socket or a port cannot be opened: another program has it, or its directory cannot be "   \
      "written.",                                                                                  \
      "'ss -lp' shows who listens there; end that program or name another address in the "         \
      "configuration.")                                                                            \
    X("system-refused",                                                                            \
      "The kernel refused what the program needs: a file, process, timer, or random numbers; the " \
      "message quotes why. Mostly a limit was reached, or a sandbox forbids it.",                  \
      "Raise the limit that the message means ('ulimit -a', LimitNOFILE= and TasksMax= of "        \
      "systemd's unit), or allow the call in the sandbox.")                                        \
    X("out-of-memory",                                                                             \
      "The program, or its control group, has no memory left for this; what it did before goes "   \
      "on.",                                                                                       \
      "See 'free' and the group's limit (MemoryMax= of systemd's unit); make room, then try "      \
      "again.")                                                                                    \
    X("bad-packet",                                                                                \
      "What came over agent.sock is not understood or not allowed: agent or program and daemon "   \
      "have different versions, or the order of messages is wrong. The connection is closed, the " \
      "program runs on.",                                                                          \
      "Compare 'tide version' with the daemon's; after an upgrade restart the daemon, and "        \
      "programs when they end.")                                                                   \
    X("too-many-connections",                                                                      \
      "One user's processes have as many connections to the daemon as it allows; further ones "    \
      "are closed, and their programs run without being governed.",                                \
      "Run fewer processes at once, or one job instead of many small ones.")                       \
    X("order-refused",                                                                             \
      "A program's order about a job cannot be carried out: it is not its job, the job is "        \
      "pinned, or a number is not possible.",                                                      \
      "The message says which; 'tide explain JOB' shows the job's state, 'tide set JOB --auto' "   \
      "gives it back to the policy.")                                                              \
    X("state-unusable",                                                                            \
      "A file in which the program keeps its state over a restart is damaged or cannot be "        \
      "written; the message says what is lost by that. It goes on without.",                       \
      "Make room on the disk that the message names, or make it writable; remove a damaged file: " \
      "it is written anew.")                                                                       \
    X("limits-changed",                                                                            \
      "Another program has changed the limits of a container that tided governs.",                 \
      "Let one of them have it: leave the limits to tided, or start the container with the label " \
      "io.threadtide=false.")                                                                      \
    X("no-control-groups",                                                                         \
      "A control group cannot be made or changed: tided may not, the hierarchy is read-only, or "  \
      "the controller is missing. Numbers of threads are governed all the same; weights, quotas "  \
      "and pauses are not.",                                                                       \
      "Run tided as root, or delegate a group to it (Delegate=yes of systemd's unit); in a "       \
      "container mount /sys/fs/cgroup writable.")                                                  \
    X("threads-not-parked",                                                                        \
      "A job did not park its surplus threads within two seconds: a long piece of work runs in "   \
      "one. The change stays ordered, and until then it shares its cores by weight.",              \
      "Usually nothing: 'tide ps' shows no ! any more when it is done. Where it stays, 'tide "     \
      "explain JOB' says what it waits for.")                                                      \
    X("guardian-failed",                                                                           \
      "The process that restores what tided has changed, should tided be killed, cannot be "       \
      "started or watched.",                                                                       \
      "The message quotes the system's reason: mostly a limit of processes or files. tided "       \
      "governs all the same.")                                                                     \
    X("no-decision",                                                                               \
      "The policy gave no plan that can be carried out; threads and cores stay as they are.",      \
      "'tide policy set' names another policy; report the message with 'tide version' if the "     \
      "policy is one of ours.")                                                                    \
    X("decider-fault",                                                                             \
      "The external decider does not answer, or with a plan that is not possible; the policy "     \
      "equal decides meanwhile.",                                                                  \
      "See the decider's log and 'decider' in tide.conf(5); docs/policies.md describes the "       \
      "answer.")                                                                                   \
    X("engine-fault",                                                                              \
      "Docker, podman or tide-pods does not answer, refused a change, or sends what is not "       \
      "understood; containers keep what they have.",                                               \
      "See whether the engine runs ('docker ps') and its log; tided asks again by itself. The "    \
      "oldest versions that tided works with are Docker 20.10 and podman 4.0.")                    \
    X("pod-of-cluster", "The container is a pod's: Kubernetes alone can end it.",                  \
      "'kubectl delete pod NAME'; 'tide set' changes its cores as ever.")                          \
    X("container-directory",                                                                       \
      "The directory by which a container's agent reaches tided cannot be made, or is another "    \
      "container's.",                                                                              \
      "Start the container anew; where containers share a mount of that directory, leave it to "   \
      "the runtime 'tide'.")                                                                       \
    X("bad-sensor",                                                                                \
      "A source of watts named by 'power' in tide.conf is none, or its files cannot be opened.",   \
      "'tide power --sources' lists what was found; tide.conf(5) has the names of sources.")       \
    X("bad-power-model", "'power-model' is no model: points of watts, or a year and sockets.",     \
      "Write one as tide.conf(5) shows, or let 'tide power calibrate' learn one.")                 \
    X("bad-reading",                                                                               \
      "A reading that was handed down has a name, a value or a time that is not possible, or "     \
      "there are too many sources.",                                                               \
      "See docs/http-api.md; send each reading when it is taken, and from as few sources as "      \
      "there are meters.")                                                                         \
    X("cap-not-kept",                                                                              \
      "The machine draws more than its power cap although jobs have shrunk: the rest is of other " \
      "programs or of the idle machine.",                                                          \
      "'tide power' shows the parts; end other programs, or set a cap above what the idle "        \
      "machine draws.")                                                                            \
    X("no-backstop",                                                                               \
      "The hard limit that holds a power cap at once (RAPL, or a quota) cannot be set; the cap "   \
      "rests on jobs' threads alone.",                                                             \
      "Run tided as root on a machine whose processor has such a limit; 'tide power' shows what "  \
      "there is.")                                                                                 \
    T("several programs")                                                                          \
    X("config-error",                                                                              \
      "A line of tide.conf, tide-hub.conf or tide-power.conf, or an option of that name, is not "  \
      "understood; the message has file and line.",                                                \
      "Correct it; tide.conf(5), tide-hub.conf(5) and tide-power.conf(5) list the keys, and "      \
      "'tided --check-config' or 'tide-power --check' tries the file. A running program keeps "    \
      "its former configuration.")                                                                 \
    X("directory-in-use",                                                                          \
      "Another process of the same program runs with the same directory of state.",                \
      "End the other one, or give this one another directory.")                                    \
    X("bad-clock", "TIDE_CLOCK, which tests use, does not name a clock.", "Unset TIDE_CLOCK.")     \
    X("bad-certificate",                                                                           \
      "A certificate or key cannot be read, has ended, belongs to another key, or was not made "   \
      "by the authority that has to be trusted.",                                                  \
      "'openssl x509 -noout -subject -dates -in FILE' shows it; 'tide-power enrol' makes a "       \
      "unit's anew, 'tide-hub broker' the broker's.")                                              \
    X("bad-time-zone", "There is no time zone of that name on this machine.",                      \
      "Write one as Europe/Berlin, and install tzdata.")                                           \
    X("broker-refused",                                                                            \
      "The MQTT broker is not reached, ended the connection, or refused the certificate or "       \
      "password. Records wait on the disk, and the program tries again by itself.",                \
      "Look whether the broker runs ('tide-hub broker', or mosquitto) and whether host, port, "    \
      "ca, cert and key in the configuration are its own; the broker's log says whom it refused.") \
    X("bad-broker-message",                                                                        \
      "A message of the broker is not understood: versions differ, or another program publishes "  \
      "under that name. It is ignored.",                                                           \
      "Bring hub and units to the same version; see who has that name's certificate ('tide-hub "   \
      "unit list').")                                                                              \
    X("two-of-a-name",                                                                             \
      "Two programs with the same name and certificate run: neither gets a lease, and the energy " \
      "of both counts for the name. Energy that comes in turns can also be that of an earlier "    \
      "state directory that was put back: then it is said once, and nothing is wrong.",            \
      "End one of them; enrol it under a name of its own ('tide-hub token NAME').")                \
    X("outbox-failed",                                                                             \
      "The file in which records wait for their receipt is full, damaged, or cannot be written. "  \
      "A damaged one is moved aside.",                                                             \
      "Make room on its disk; 'outbox' in tide-power.conf(5) says how large it may be. Records "   \
      "stay in memory meanwhile.")                                                                 \
    X("certificate-not-renewed",                                                                   \
      "The certificate ends soon and no new one could be asked for or put in its place; the "      \
      "present one holds until its end.",                                                          \
      "Make the folder of the certificate writable for the program, and see the hub's log; "       \
      "'tide-power enrol --force' makes one anew.")                                                \
    MESSAGES_ENERGY(T, X)                                                                          \
    MESSAGES_CLUSTER(T, X)
