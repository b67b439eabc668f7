/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/loans.h"

#include "daemon/daemon.h"
#include "daemon/job/job.h"

/* A user's first borrower (@newest: last) in the order of requests that fits, or NULL. */
static struct job *borrower(const struct daemon *d, uid_t uid, bool newest)
{
    struct job *found = NULL;

    for (struct job *j = d->jobs->first; j; j = j->next) {
        bool fits = newest ? j->wanted.borrowed > 0
                           : j->asked.wants > j->wanted.borrowed && j->asked.lent == 0;

        if (j->uid == uid && fits &&
            (!found || (j->asked.borrow_order > found->asked.borrow_order) == newest))
            found = j;
    }
    return found;
}

/* Free lent cores go to the earliest requests; missing ones are taken from the latest. */
static void settle_loans_of(const struct daemon *d, uid_t uid)
{
    unsigned lent = 0, borrowed = 0;
    struct job *j;

    for (j = d->jobs->first; j; j = j->next) {
        lent += j->uid == uid ? j->asked.lent : 0;
        borrowed += j->uid == uid ? j->wanted.borrowed : 0;
    }
    while (borrowed > lent && (j = borrower(d, uid, true))) {
        j->wanted.borrowed--;
        borrowed--;
    }
    while (borrowed < lent && (j = borrower(d, uid, false))) {
        j->wanted.borrowed++;
        borrowed++;
    }
}

void loans_settle(const struct daemon *d)
{
    for (const struct job *j = d->jobs->first; j; j = j->next)
        if (j->asked.lent || j->wanted.borrowed || j->asked.wants)
            settle_loans_of(d, j->uid);
}
