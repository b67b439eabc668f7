/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/command.h"
#include "hub/conf.h"
#include "hub/serve/serve.h"

#include <sys/stat.h>

static const char usage[] =
    "Usage: tide-hub serve [--config FILE] [--KEY VALUE]…\n"
    "\n"
    "Stores the energy that units send through the broker, gives them receipts, and serves the\n"
    "organization's page and its REST interface over HTTPS.\n"
    "\n"
    "Every key of the configuration, tide-hub.conf(5), is an option, too, and counts before it:\n"
    "\n"
    "  --config FILE          default /etc/tide/tide-hub.conf, if there is one\n"
    "  --broker HOST[:PORT]   default 127.0.0.1:8883; its certificate names the host\n"
    "  --state DIR            where 'tide-hub broker' put the hub's certificate; default\n"
    "                         /var/lib/tide-hub\n"
    "  --store PATH           where energy is stored; default DIR/hub.db\n"
    "  --policy FILE          the power policy; default /etc/tide/policy.yaml\n"
    "  --carbon-file FILE     the grid's carbon intensity; default: unknown\n"
    "  --parent HOST[:PORT], --parent-name NAME, --parent-files DIR\n"
    "                         a hub above this one, of which this is an area; default: none\n"
    "  --listen HOST:PORT     of the page; default :8443 (every address); none: no page\n"
    "  --host NAMES           that the page's certificate is for; default: this machine's name\n"
    "  --certificate FILE, --key FILE\n"
    "                         of the organization, for the page, instead of the hub's own\n"
    "  --connections-per-address N\n"
    "                         to the page (64); a proxy before it needs up to 256\n"
    "  --session-idle, --session-end TIME\n"
    "                         when people have to log in again: unused (12h), and at all (7d)\n"
    "  --keep-1s, --keep-1min, --keep-15min TIME\n"
    "                         how long records stay before they are summed up to minutes (7d),\n"
    "                         to quarters of an hour (90d), and before they go (3650d)\n"
    "  --keep-users, --keep-audit TIME\n"
    "                         how long users' energy and the audit log stay (366d each)\n"
    "\n"
    "SIGTERM ends it. It may be killed at any time: what has a receipt is on the disk.\n";

int cmd_serve(int argc, char **argv)
{
    static struct conf conf; /* some kilobytes of paths */
    const struct conf_command command = {.usage = usage, .wrong = HUB_EXIT_USAGE};
    int r = conf_options(&conf, argc, argv, &command);
    struct error err = {0};

    if (r)
        return r < 0 ? 0 : r;
    umask(077);
    return command_end(serve_run(&conf, &err), &err);
}
