/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/energy/cap_file.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/muldiv.h"
#include "daemon/daemon.h"
#include "daemon/energy/cap.h"
#include "host/proc/file.h"
#include "power/model/stand_in.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ERROR_WORD "state-unusable"

#define TEMPORARY CAP_FILE ".new"
#define FIT_FILE  "power-fit"
#define BOOT_ID   "proc/sys/kernel/random/boot_id"
#define BOOT_MAX  40
#define TEXT_MAX  1024

/*
 * A line for the boot, one for the two clocks when it was written, and one for each cap:
 *   boot ID
 *   time BOOTTIME_ns REALTIME_ms
 *   cap SOURCE uW FLOOR_uW UNTIL_ns KIND
 */
static size_t write_text(const struct caps *caps, const char *boot, char ret[TEXT_MAX])
{
    size_t len = (size_t)snprintf(ret, TEXT_MAX, "boot %.*s\ntime %" PRIu64 " %" PRIu64 "\n",
                                  BOOT_MAX, boot, clock_boot_ns(), clock_real_ms());

    for (unsigned s = 0; s < CAP_SOURCE_MAX; s++) {
        const struct cap *c = &caps->of[s];

        if (c->held && s != CAP_CONFIG)
            len += (size_t)snprintf(ret + len, TEXT_MAX - len,
                                    "cap %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n", s, c->uw,
                                    c->floor_uw, c->until_ns, c->kind);
    }
    return len;
}

static void read_boot(const struct daemon *d, char ret[BOOT_MAX])
{
    if (file_read(d->root, BOOT_ID, ret, BOOT_MAX) < 0)
        ret[0] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
}

static int write_whole(int dir_fd, const char *name, const char *text, size_t len)
{
    _cleanup_fd_ int fd =
        openat(dir_fd, TEMPORARY, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    ssize_t n;

    if (fd < 0)
        return -errno;
    n = write(fd, text, len);
    if (n != (ssize_t)len)
        return n < 0 ? -errno : -ENOSPC;
    if (fsync(fd) < 0 || renameat(dir_fd, TEMPORARY, dir_fd, name) < 0)
        return -errno;
    /* Without this a power cut after the rename could undo it. */
    return fsync(dir_fd) < 0 ? -errno : 0;
}

int cap_file_save(const struct daemon *d, const struct caps *caps)
{
    char text[TEXT_MAX], boot[BOOT_MAX];
    int r;

    read_boot(d, boot);
    r = write_whole(d->state_fd, CAP_FILE, text, write_text(caps, boot, text));
    if (r < 0)
        unlinkat(d->state_fd, TEMPORARY, 0);
    return r;
}

/* When and in which boot a file was written. */
struct written {
    bool same_boot;
    uint64_t boot_ns, real_ms; /* 0: an older tided wrote it */
};

/*
 * The end of a cap that was set in another boot, by this boot's clock. Time off counts, if the wall
 * clock has gone on since; a clock that begins in the past lets the cap last, never end early.
 */
static uint64_t end_now(const struct written *w, unsigned source, uint64_t until_ns)
{
    uint64_t left, off = sub_sat(clock_real_ms(), w->real_ms) * NS_PER_MS;

    if (until_ns == CAP_NO_END)
        return until_ns;
    left = sub_sat(until_ns, w->boot_ns);
    if (source != CAP_PERSON || w->real_ms == 0 || left <= off)
        return 0;
    return clock_boot_ns() + left - off;
}

static bool read_line(const char *line, struct written *w, struct caps *ret)
{
    struct cap c = {.held = true};
    unsigned source;
    int end = 0;

    if (sscanf(line, "time %" SCNu64 " %" SCNu64 "%n", &w->boot_ns, &w->real_ms, &end) == 2)
        return line[end] == '\0';
    if (sscanf(line, "cap %u %" SCNu64 " %" SCNu64 " %" SCNu64 " %u%n", &source, &c.uw, &c.floor_uw,
               &c.until_ns, &c.kind, &end) != 5 ||
        line[end] != '\0' || source == CAP_CONFIG || source >= CAP_SOURCE_MAX ||
        c.kind >= CAP_KIND_MAX || c.uw == 0 || c.uw > POWER_UW_MAX || c.floor_uw > c.uw)
        return false;
    if (!w->same_boot)
        c.until_ns = end_now(w, source, c.until_ns);
    ret->of[source] = c;
    return true;
}

void cap_file_load(const struct daemon *d, struct caps *ret)
{
    char text[TEXT_MAX] = "", boot[BOOT_MAX], *line, *rest = text;
    struct caps caps = {0};
    int r = file_read(d->state_fd, CAP_FILE, text, sizeof(text));
    struct written written = {0};

    if (r == -ENOENT)
        return;
    read_boot(d, boot);
    line = strsep(&rest, "\n");
    written.same_boot = strncmp(line, "boot ", 5) == 0 && *boot && strcmp(line + 5, boot) == 0;
    if (r >= 0 && strncmp(line, "boot ", 5) != 0)
        r = -EBADMSG;
    while (r >= 0 && rest && *rest)
        if (!read_line(strsep(&rest, "\n"), &written, &caps))
            r = -EBADMSG;
    if (r < 0)
        daemon_err("%s/" CAP_FILE " is ignored: %s; set the power cap again", d->state_dir,
                   strerror(-r));
    else
        *ret = caps;
}

/* Another source, or another version of us, means another fit. */
struct fit_record {
    char power[CONFIG_POWER_MAX], root[CONFIG_POWER_MAX];
    uint32_t version, basis, below_permille, above_permille, beside, reserved;
    struct watts_fit fit;
};

void cap_fit_save(const struct daemon *d, const struct stand_in *learnt)
{
    struct fit_record record;

    if (learnt->fit.samples == 0)
        return;
    memset(&record, 0, sizeof(record));
    snprintf(record.power, sizeof(record.power), "%s", d->config.power);
    snprintf(record.root, sizeof(record.root), "%s", d->config.power_root);
    record.version = WATTS_FIT_VERSION;
    record.basis = learnt->basis;
    record.below_permille = learnt->below_permille;
    record.above_permille = learnt->above_permille;
    record.beside = learnt->beside;
    record.fit = learnt->fit;
    if (write_whole(d->state_fd, FIT_FILE, (const char *)&record, sizeof(record)) < 0)
        unlinkat(d->state_fd, TEMPORARY, 0);
}

void cap_fit_load(const struct daemon *d, struct stand_in *ret)
{
    struct fit_record record;
    char bytes[sizeof(record) + 1];
    struct stand_in learnt;

    if (file_read(d->state_fd, FIT_FILE, bytes, sizeof(bytes)) != (int)sizeof(record))
        return;
    memcpy(&record, bytes, sizeof(record));
    if (strncmp(record.power, d->config.power, sizeof(record.power)) != 0 ||
        strncmp(record.root, d->config.power_root, sizeof(record.root)) != 0 ||
        record.version != WATTS_FIT_VERSION)
        return;
    learnt = (struct stand_in){.fit = record.fit,
                               .basis = record.basis,
                               .below_permille = record.below_permille,
                               .above_permille = record.above_permille,
                               .beside = record.beside,
                               .away = STAND_IN_AWAY}; /* it may be another meter now */
    if (stand_in_check(&learnt) == 0)
        *ret = learnt;
}
