/* SPDX-License-Identifier: Apache-2.0 */
/* The environment in which a job's runtimes size their pools. */
#include "cli/launch/launch.h"

#include "base/startup.h"
#include "host/proc/topology.h"

#include <assert.h>
#include <string.h>

#define ROWS_MAX 32

static const char *lookup(const void *arg, const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL; /* runtimes read an empty value as none */
}

static struct startup asked(const struct launch *l)
{
    const char *spin = lookup(NULL, STARTUP_SPIN);
    struct cpuset usable = {0};
    struct startup s;

    topology_usable(&usable);
    s = startup_of((unsigned)l->threads, (unsigned)member_long(l->terms, "request"),
                   (unsigned)member_long(l->terms, "min"), (unsigned)member_long(l->terms, "max"),
                   cpuset_count(&usable));
    s.spin = l->spin || (spin && strcmp(spin, "0") != 0);
    return s;
}

/* Leaves what the user himself has set. */
static int forget(const struct startup *earlier)
{
    for (size_t i = 0; i < startup_rows; i++) {
        const struct startup_row *row = &startup_table[i];
        const char *present = getenv(row->name), *own = startup_own(row, earlier, present);
        _cleanup_free_ char *kept = own ? strdup(own) : NULL;

        if (own == present)
            continue;
        if (own && !kept)
            return -ENOMEM;
        if (kept ? setenv(row->name, kept, 1) < 0 : unsetenv(row->name) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int set(const struct startup_row *row, const char *value)
{
    const char *own = row->added ? lookup(NULL, row->name) : NULL;
    _cleanup_free_ char *joined = NULL;

    if (!own)
        return setenv(row->name, value, 1) < 0 ? -ENOMEM : 0;
    if (asprintf(&joined, "%s %s", value, own) < 0) {
        joined = NULL;
        return -ENOMEM;
    }
    return setenv(row->name, joined, 1) < 0 ? -ENOMEM : 0;
}

int launch_size(const struct launch *l)
{
    struct startup earlier = {0}, s = asked(l);
    char value[STARTUP_VALUE_MAX], mark[STARTUP_MARK_MAX];
    bool free[ROWS_MAX];
    int r;

    assert(startup_rows <= ROWS_MAX);
    startup_read_mark(getenv(STARTUP_MARK), &earlier);
    r = forget(&earlier);
    for (size_t i = 0; i < startup_rows; i++)
        free[i] = startup_free(&startup_table[i], lookup, NULL);
    for (size_t i = 0; r == 0 && i < startup_rows; i++)
        if (free[i] && startup_value(&startup_table[i], &s, value)) {
            r = set(&startup_table[i], value);
            s.set |= UINT32_C(1) << i;
        }
    startup_mark(&s, mark);
    return r < 0 || setenv(STARTUP_MARK, mark, 1) < 0 ? -ENOMEM : 0;
}
