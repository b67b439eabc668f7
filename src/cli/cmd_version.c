/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/api.h"

/* Prints the daemon's version if one runs; a missing daemon is no failure here. */
static int version_run(int argc, char **argv)
{
    _cleanup_answer_ struct api_answer answer = {0};
    struct error err;

    option_none(&command_version, argc, argv, 0, 0);
    printf("tide %s\n", TIDE_VERSION);
    if (api_try("GET", "/v1/machine", NULL, API_TIMEOUT_MS, &answer, &err) == 0 &&
        answer.status == 200)
        printf("tided %s (pid %ld)\n", member_text(answer.body, "version"),
               member_long(answer.body, "pid"));
    return CLI_OK;
}

const struct command command_version = {
    .name = "version",
    .usage = "",
    .brief = "print the version of tide and of the daemon that runs",
    .help = "Example:\n"
            "  tide version\n",
    .far = FAR_GOES,
    .run = version_run,
};
