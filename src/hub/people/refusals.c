/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/people/refusals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NULL: no memory. There are no more than users, since a quiet one goes. */
static struct refusal *find(struct refusals *r, const char *user)
{
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->of[i].user, user) == 0)
            return &r->of[i];
    if (r->count == r->room) {
        size_t room = r->room ? 2 * r->room : 8;
        struct refusal *of = realloc(r->of, room * sizeof(*of));

        if (!of)
            return NULL;
        r->of = of;
        r->room = room;
    }
    r->of[r->count] = (struct refusal){0};
    snprintf(r->of[r->count].user, sizeof(r->of[0].user), "%s", user);
    return &r->of[r->count++];
}

bool refusals_row(struct refusals *r, const char *user, const char *from)
{
    struct refusal *one = find(r, user);

    if (!one)
        return true;
    if (one->rows < REFUSALS_ROWS) {
        one->rows++;
        return true;
    }
    snprintf(one->from, sizeof(one->from), "%s", from);
    one->more++;
    return false;
}

void refusals_tell(struct refusals *r, void (*tell)(void *arg, const struct refusal *refusal),
                   void *arg)
{
    for (size_t i = r->count; i-- > 0;) {
        struct refusal *one = &r->of[i];

        if (one->more) {
            tell(arg, one);
            one->more = 0;
        } else if (--one->rows == 0) {
            *one = r->of[--r->count];
        }
    }
}

void refusals_done(struct refusals *r)
{
    free(r->of);
    *r = (struct refusals){0};
}
