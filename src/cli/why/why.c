/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/why/why.h"

#include "base/cleanup.h"
#include "cli/why/messages.h"

#include <string.h>

#define TITLE(title)             {NULL, title, NULL},
#define ENTRY(word, cause, cure) {word, cause, cure},

static const struct why entries[] = {MESSAGES(TITLE, ENTRY)};

const struct why *why_at(size_t index)
{
    return index < ARRAY_LEN(entries) ? &entries[index] : NULL;
}

const char *why_cure(const char *word)
{
    for (size_t i = 0; word && i < ARRAY_LEN(entries); i++)
        if (entries[i].word && strcmp(entries[i].word, word) == 0)
            return entries[i].cure;
    return NULL;
}
