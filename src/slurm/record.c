/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm/record.h"

#include <string.h>

int record_whole(const char *text, size_t size)
{
    /* The last record's NUL and the empty one's; an answer without changes is the latter alone. */
    return size > 0 && text[size - 1] == '\0' && (size == 1 || text[size - 2] == '\0');
}

int record_next(char **at, char **ret_name, char **ret_value)
{
    while (**at) {
        char *name = *at, *equals;

        *at += strlen(name) + 1;
        equals = strchr(name, '=');
        if (equals == name)
            continue;
        if (equals)
            *equals = '\0';
        *ret_name = name;
        *ret_value = equals ? equals + 1 : NULL;
        return 1;
    }
    return 0;
}
