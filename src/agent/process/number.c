/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/number.h"

#include "base/cleanup.h"
#include "base/startup.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Is the variable's value a size that tide chose for runtimes which keep theirs? Ours may grow. */
static bool sized_by_tide(const char *name, const char *number)
{
    const struct startup_row *row = startup_row_of(name);
    struct startup ours;
    char value[STARTUP_VALUE_MAX];

    return row && startup_read_mark(getenv(STARTUP_MARK), &ours) && startup_is_set(&ours, row) &&
           startup_value(row, &ours, value) && strcmp(value, number) == 0;
}

uint32_t number_of_variable(const char *name, bool *ret_by_user)
{
    const char *text = getenv(name);
    uint32_t number = text ? (uint32_t)strtoul(text, NULL, 10) : 0;

    *ret_by_user = number > 0 && !sized_by_tide(name, text);
    return number;
}

uint32_t number_of_environment(bool *ret_by_user)
{
    return number_of_variable("OMP_NUM_THREADS", ret_by_user);
}

bool number_threads_are_bound(void)
{
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                        "KMP_AFFINITY"};
    static const char *const none[] = {"", "false", "none", "disabled"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *value = getenv(names[i]);
        bool binds = value != NULL;

        for (size_t k = 0; value && k < ARRAY_LEN(none); k++)
            binds = binds && strcasecmp(value, none[k]) != 0;
        if (binds)
            return true;
    }
    return false;
}
