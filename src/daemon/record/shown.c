/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/record/shown.h"

#include "daemon/job/job.h"
#include "proto/proto.h"

json_t *shown_text(const char *s)
{
    json_t *json = json_string(s);
    char copy[PROTO_TEXT_MAX];
    size_t i;

    if (json)
        return json;
    for (i = 0; s[i] && i < sizeof(copy) - 1; i++)
        copy[i] = (unsigned char)s[i] < 0x80 ? s[i] : '?';
    copy[i] = '\0';
    return json_string(copy);
}

json_t *shown_cpuset(const struct cpuset *set)
{
    char buf[CPUSET_TEXT_MAX];

    return json_string(cpuset_format(set, buf, sizeof(buf)) >= 0 ? buf : "");
}

json_t *shown_cores(const struct job *j)
{
    struct cpuset cores;

    job_cores(j, &cores);
    return shown_cpuset(&cores);
}
