/* SPDX-License-Identifier: Apache-2.0 */
/* The library's version and the sentences for its results. Any thread; constant tables only. */
#include "tide/tide.h"

#include "base/cleanup.h"

#include <errno.h>

const char *tide_version(void)
{
    return TIDE_VERSION;
}

static const struct {
    int result;
    const char *text;
} sentences[] = {
    {0, "done"},
    {-ENOENT, "no agent is loaded into this process: start it with `tide run`"},
    {-EOPNOTSUPP, "the loaded agent is older than libtide and lacks this function"},
    {-ECONNREFUSED, "no daemon is running: `tide run` starts one"},
    {-ECONNRESET, "the daemon ended before it answered; it may have done what was asked"},
    {-ENOTCONN, "not connected to a daemon at the moment"},
    {-ETIMEDOUT, "the daemon did not answer by the deadline"},
    {-EAGAIN, "the daemon is busy; the request was not sent: try again later"},
    {-ESRCH, "no such job: `tide ps` lists them"},
    {-EACCES, "denied: the job or the daemon belongs to another user"},
    {-EBUSY, "the job is pinned, or too many requests wait: try again later"},
    {-ERANGE, "a number of threads or cores is out of range"},
    {-EINVAL, "an argument is not valid"},
    {-ENAMETOOLONG, "the path is too long for a socket"},
    {-EPROTONOSUPPORT, "daemon and libtide speak different versions: restart the older of the two"},
    {-EBADMSG, "the daemon's answer is not valid"},
    {-ENOMEM, "out of memory"},
};

const char *tide_strerror(int result)
{
    if (result > 0)
        return "accepted, but not complete yet";
    for (size_t i = 0; i < ARRAY_LEN(sentences); i++) {
        if (sentences[i].result == result)
            return sentences[i].text;
    }
    return "a system call failed";
}
