/* SPDX-License-Identifier: Apache-2.0 */
/* tide-tfnode's command line. */
#include "tfnode/locate.h"
#include "tfnode/node.h"
#include "tfnode/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ERROR_WORD "replica-not-started"

#define EXIT_USAGE 2

static const char usage[] =
    "Usage: tide-tfnode --role ps|worker [OPTION]...\n"
    "A parameter server or worker of an elastic TensorFlow training: TensorFlow's gRPC server of\n"
    "the installed wheel, with the agent inside, and a control port for its chief.\n"
    "\n"
    "  --job NAME           the training's name (TIDE_JOB; training)\n"
    "  --role ROLE          ps or worker (TIDE_ROLE)\n"
    "  --index I            its number in that role (TIDE_INDEX; 0)\n"
    "  --port PORT          TensorFlow's; 0: any that is free (TIDE_PORT; %u)\n"
    "  --control-port PORT  for the chief and for probes (TIDE_CONTROL_PORT; %u)\n"
    "  --bind ADDRESS       listen at this address alone; 0.0.0.0 or :: for all (TIDE_BIND;\n"
    "                       127.0.0.1, or all if POD_IP is set)\n"
    "  --threads N          active threads at first; 0: as many as its CPU limit allows\n"
    "                       (TIDE_THREADS; 0)\n"
    "  --grace SECONDS      how long it still serves after SIGTERM (TIDE_GRACE; %u)\n"
    "  --tensorflow DIR     directory with " LOCATE_LIBRARY " (TIDE_TENSORFLOW; the one\n"
    "                       of the Python in use)\n"
    "  --lifeline           end when standard input ends\n"
    "  --help, --version\n"
    "\n"
    "It ends with status 0 when its chief releases it; see tide-tfnode(1).\n";

static int find_library(const struct options *options, struct located *ret)
{
    if (locate_tensorflow(options->tensorflow, "", ret) == 0)
        return 0;
    fprintf(stderr,
            "tide-tfnode: TensorFlow is not installed: there is no " LOCATE_LIBRARY " in\n%s"
            "Install it (pip install tensorflow), or name its directory: --tensorflow DIR" ERROR_WHY
            "\n",
            ret->looked);
    return -ENOENT;
}

int main(int argc, char **argv)
{
    static struct located located;
    static struct options options;
    struct error err = {0};
    int verdict = options_parse(argc, argv, &options, &err);

    if (verdict < 0) {
        error_print(error_why(&err), "tide-tfnode: %s\nTry 'tide-tfnode --help'.", err.text);
        return EXIT_USAGE;
    }
    if (verdict == OPTIONS_HELP)
        printf(usage, OPTIONS_PORT, OPTIONS_CONTROL_PORT, OPTIONS_GRACE_S);
    if (verdict == OPTIONS_VERSION)
        puts("tide-tfnode " TIDE_VERSION);
    if (verdict != OPTIONS_RUN)
        return EXIT_SUCCESS;
    if (find_library(&options, &located) < 0)
        return EXIT_FAILURE;
    /* Makes a call to a TensorFlow node that is gone fail, instead of waiting for its return. */
    setenv("GRPC_FAIL_FAST", "use_caller", 0);
    if (node_run(&options, located.library, &err) < 0) {
        error_print(error_why(&err), "tide-tfnode: %s", err.text);
        fflush(NULL);
        _exit(EXIT_FAILURE);
    }
    fflush(NULL);
    _exit(EXIT_SUCCESS); /* runs no destructors, because TensorFlow's threads still work */
}
