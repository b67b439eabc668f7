/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a job's promise of latency can be kept, as far as is known; for people and as JSON. */
#include "daemon/api/view.h"

#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/record/promised.h"
#include "daemon/record/shown.h"

#include <stdio.h>

json_t *view_promise(const struct job *j)
{
    struct promised_verdict v;

    if (j->asked.attributes.slo_us == 0)
        return json_null();
    promised_judge(j->daemon, j, j->uid, NULL, 0, &j->asked.attributes, &v);
    return json_pack("{s:s,s:o}", "keepable", promised_keepable_name(v.keepable), "reason",
                     shown_text(v.text));
}

/* Writes the warning where @v says that it cannot be kept. */
static void warn(const struct attributes *asked, const struct promised_verdict *v,
                 char ret[VIEW_NOTE_MAX])
{
    char promise[PROMISE_TEXT_MAX];

    *ret = '\0';
    if (v->keepable == PROMISE_UNKEEPABLE)
        snprintf(ret, VIEW_NOTE_MAX, "its promise %s cannot be kept as far as is known: %s",
                 promise_text(asked->slo_us, promise), v->text);
}

const char *view_promise_note(const struct job *j, char ret[VIEW_NOTE_MAX])
{
    struct promised_verdict v;

    *ret = '\0';
    if (j->asked.attributes.slo_us == 0)
        return ret;
    promised_judge(j->daemon, j, j->uid, NULL, 0, &j->asked.attributes, &v);
    warn(&j->asked.attributes, &v, ret);
    return ret;
}

const char *view_begun(const struct job *j, const struct promised_verdict *v,
                       char ret[VIEW_NOTE_MAX])
{
    const char *quota = j->asked.attributes.placement == PLACEMENT_QUOTA && !j->daemon->weights
                            ? "no quota: that needs a daemon that may write control groups (root); "
                              "threads are limited"
                            : "";
    char promise[VIEW_NOTE_MAX];

    warn(&j->asked.attributes, v, promise);
    snprintf(ret, VIEW_NOTE_MAX, "%s%s%s", quota, *quota && *promise ? "; " : "", promise);
    return ret;
}
