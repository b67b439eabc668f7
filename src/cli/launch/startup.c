/* SPDX-License-Identifier: Apache-2.0 */
/* The environment in which a job's runtimes size their pools. */
#include "cli/launch/launch.h"

#include "base/startup.h"
#include "host/proc/topology.h"

#include <string.h>

static const char *lookup(const void *arg, const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL; /* runtimes read an empty value as none */
}

static struct startup asked(const struct launch *l)
{
    struct cpuset usable = {0};
    struct startup s;

    topology_usable(&usable);
    s = startup_of((unsigned)l->threads, (unsigned)member_long(l->terms, "request"),
                   (unsigned)member_long(l->terms, "min"), (unsigned)member_long(l->terms, "max"),
                   cpuset_count(&usable));
    s.spin = l->spin || startup_spins(getenv(STARTUP_SPIN));
    return s;
}

/* The value that the user has set; @arg: the variables of an earlier start, which are not his. */
static const char *lookup_own(const void *arg, const char *name)
{
    return startup_own_of(name, arg, lookup(NULL, name));
}

unsigned launch_sized(const struct launch *l)
{
    struct startup earlier = {0};

    startup_read_mark(getenv(STARTUP_MARK), &earlier);
    return startup_free(startup_row_of("OMP_NUM_THREADS"), lookup_own, &earlier) ? asked(l).size
                                                                                 : 0;
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

static int set(void *none, const char *name, const char *value)
{
    return setenv(name, value, 1) < 0 ? -ENOMEM : 0;
}

int launch_size(const struct launch *l)
{
    struct startup earlier = {0}, s = asked(l);
    int r;

    startup_read_mark(getenv(STARTUP_MARK), &earlier);
    r = forget(&earlier);
    return r < 0 ? r : startup_apply(&s, lookup, set, NULL);
}
