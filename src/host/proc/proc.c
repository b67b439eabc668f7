/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/proc.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "host/proc/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROC_PATH_MAX 96 /* "proc/PID/task/TID/schedstat" and the like */

/* The kernel says ENOENT for a process that is gone, ESRCH for one that goes while we read. */
static int gone(int r)
{
    return r == -ENOENT ? -ESRCH : r;
}

static uint64_t ticks_to_ns(uint64_t ticks)
{
    uint64_t per_s = (uint64_t)sysconf(_SC_CLK_TCK);

    return ticks / per_s * NS_PER_S + ticks % per_s * (NS_PER_S / per_s);
}

/* Fields of stat after the comm, counted as in proc(5). */
enum {
    STAT_STATE = 3,
    STAT_PPID = 4,
    STAT_GROUP = 5,
    STAT_SESSION = 6,
    STAT_UTIME = 14,
    STAT_STIME = 15,
    STAT_CUTIME = 16,
    STAT_CSTIME = 17,
    STAT_THREADS = 20,
    STAT_START = 22,
    STAT_CPU = 39,
};

static void stat_field(struct proc_stat *stat, int field, uint64_t value)
{
    switch (field) {
    case STAT_PPID:
        stat->parent = (pid_t)value;
        break;
    case STAT_GROUP:
        stat->group = (pid_t)value;
        break;
    case STAT_SESSION:
        stat->session = (pid_t)value;
        break;
    case STAT_UTIME:
    case STAT_STIME:
        stat->cpu_ns += ticks_to_ns(value);
        break;
    case STAT_CUTIME:
    case STAT_CSTIME:
        stat->ended_ns += ticks_to_ns(value);
        break;
    case STAT_THREADS:
        stat->threads = (uint32_t)value;
        break;
    case STAT_START:
        stat->start = value;
        break;
    case STAT_CPU:
        stat->last_cpu = (uint32_t)value;
        break;
    default:
        break;
    }
}

int proc_parse_stat(const char *text, size_t len, struct proc_stat *ret)
{
    struct proc_stat stat = {0};
    const char *open = memchr(text, '(', len);
    const char *close = memrchr(text, ')', len); /* a comm may hold parentheses */
    const char *p = text, *end = text + len;
    uint64_t value;
    int field = STAT_PPID;
    size_t n;

    if (!open || !close || close < open || text_scan_u64(&p, &value) < 0 || p + 1 != open ||
        value == 0 || value > INT32_MAX)
        return -EINVAL;
    stat.pid = (pid_t)value;
    n = (size_t)(close - open - 1);
    if (n >= sizeof(stat.comm))
        n = sizeof(stat.comm) - 1;
    memcpy(stat.comm, open + 1, n);
    if (end - close < 4 || close[1] != ' ' || close[3] != ' ')
        return -EINVAL;
    stat.state = close[2];
    for (p = close + 4; p < end && field <= STAT_CPU; field++) {
        p += *p == '-'; /* tty and priority may be negative; we read neither */
        if (text_scan_u64(&p, &value) < 0)
            return -EINVAL;
        stat_field(&stat, field, value);
        if (p < end && *p != ' ' && *p != '\n')
            return -EINVAL;
        p++;
    }
    if (field <= STAT_CPU)
        return -EINVAL;
    *ret = stat;
    return 0;
}

static int read_stat_at(int root, const char *path, struct proc_stat *ret)
{
    char buf[1024];
    int r = file_read(root, path, buf, sizeof(buf));

    return r < 0 ? gone(r) : proc_parse_stat(buf, (size_t)r, ret);
}

int proc_read_stat(int root, pid_t pid, struct proc_stat *ret)
{
    char path[PROC_PATH_MAX];

    snprintf(path, sizeof(path), "proc/%d/stat", (int)pid);
    return read_stat_at(root, path, ret);
}

/* Returns the value of "Key:\t…" if @line starts so, else NULL. */
static const char *status_value(const char *line, const char *key)
{
    size_t n = strlen(key);

    if (strncmp(line, key, n) != 0 || line[n] != ':')
        return NULL;
    return line + n + 1 + strspn(line + n + 1, "\t ");
}

static int scan_hex(const char *p, uint64_t *ret)
{
    char *end;

    if (strspn(p, "0123456789abcdefABCDEF") == 0)
        return -EINVAL;
    errno = 0;
    *ret = strtoull(p, &end, 16);
    return errno || (*end && *end != '\n') ? -EINVAL : 0;
}

static int scan_cpus(const char *p, struct cpuset *ret)
{
    char list[CPUSET_TEXT_MAX];
    size_t n = strcspn(p, "\n");

    if (n >= sizeof(list))
        return -EINVAL;
    memcpy(list, p, n);
    list[n] = '\0';
    return cpuset_parse(list, ret);
}

/* Reads "real effective saved filesystem". */
static int scan_uids(const char *p, struct proc_status *status)
{
    uid_t *const each[] = {&status->real_uid, &status->uid, &status->saved_uid};
    uint64_t value;

    for (size_t i = 0; i < ARRAY_LEN(each); i++) {
        if (text_scan_u64(&p, &value) < 0 || value > UINT32_MAX)
            return -EINVAL;
        *each[i] = (uid_t)value;
        p += strspn(p, "\t ");
    }
    return 0;
}

static int scan_u32(const char *p, uint32_t *ret)
{
    uint64_t value;

    if (text_scan_u64(&p, &value) < 0 || value > UINT32_MAX)
        return -EINVAL;
    *ret = (uint32_t)value;
    return 0;
}

enum {
    STATUS_TGID = 1 << 0,
    STATUS_UID = 1 << 1,
    STATUS_THREADS = 1 << 2,
    STATUS_ALLOWED = 1 << 3,
    STATUS_CAUGHT = 1 << 4,
    STATUS_ALL = (1 << 5) - 1,
};

/* Returns the field's bit, 0 for a field that does not matter, or -EINVAL. */
static int status_line(const char *line, struct proc_status *status)
{
    const char *p;
    uint32_t number;

    if ((p = status_value(line, "Tgid"))) {
        if (scan_u32(p, &number) < 0 || number > INT32_MAX)
            return -EINVAL;
        status->tgid = (pid_t)number;
        return STATUS_TGID;
    }
    if ((p = status_value(line, "Uid")))
        return scan_uids(p, status) < 0 ? -EINVAL : STATUS_UID;
    if ((p = status_value(line, "Threads")))
        return scan_u32(p, &status->threads) < 0 ? -EINVAL : STATUS_THREADS;
    if ((p = status_value(line, "Cpus_allowed_list")))
        return scan_cpus(p, &status->allowed) < 0 ? -EINVAL : STATUS_ALLOWED;
    if ((p = status_value(line, "SigCgt")))
        return scan_hex(p, &status->sig_caught) < 0 ? -EINVAL : STATUS_CAUGHT;
    if ((p = status_value(line, "ShdPnd")))
        return scan_hex(p, &status->sig_pending) < 0 ? -EINVAL : 0;
    if ((p = status_value(line, "SigIgn")))
        return scan_hex(p, &status->sig_ignored) < 0 ? -EINVAL : 0;
    if ((p = status_value(line, "SigBlk")))
        return scan_hex(p, &status->sig_blocked) < 0 ? -EINVAL : 0;
    return 0;
}

int proc_parse_status(const char *text, size_t len, struct proc_status *ret)
{
    struct proc_status status = {0};
    int seen = 0;

    if (memchr(text, '\0', len))
        return -EINVAL;
    for (const char *line = text; line && *line;) {
        int r = status_line(line, &status);

        if (r < 0)
            return r;
        seen |= r;
        line = strchr(line, '\n');
        if (line)
            line++;
    }
    if (seen != STATUS_ALL)
        return -EINVAL;
    *ret = status;
    return 0;
}

int proc_read_status(int root, pid_t pid, struct proc_status *ret)
{
    char path[PROC_PATH_MAX];
    _cleanup_free_ char *text = NULL; /* the line of groups may be long */
    size_t len;
    int r;

    snprintf(path, sizeof(path), "proc/%d/status", (int)pid);
    r = file_read_all(root, path, &text, &len);
    return r < 0 ? gone(r) : proc_parse_status(text, len, ret);
}

bool proc_all_of(const struct proc_status *status, uid_t uid)
{
    return status->real_uid == uid && status->uid == uid && status->saved_uid == uid;
}

bool proc_has_handler(const struct proc_status *status, int signal)
{
    return signal >= 1 && signal <= 64 && (status->sig_caught >> (signal - 1) & 1);
}

/* "cpu  user nice system idle iowait irq softirq steal …", in ticks */
int proc_parse_busy(const char *text, uint64_t *ret_busy_ns)
{
    enum { IDLE = 3, IOWAIT = 4, STEAL = 7 };
    uint64_t ticks = 0, value;

    if (strncmp(text, "cpu ", 4) != 0)
        return -EINVAL;
    text += 3;
    for (int field = 0; field <= STEAL; field++) {
        text += strspn(text, " ");
        if (text_scan_u64(&text, &value) < 0)
            return -EINVAL;
        if (field != IDLE && field != IOWAIT)
            ticks += value;
    }
    *ret_busy_ns = ticks_to_ns(ticks);
    return 0;
}

int proc_read_busy(int root, uint64_t *ret_busy_ns)
{
    char text[256]; /* of the first line */
    int r = file_read(root, "proc/stat", text, sizeof(text));

    return r < 0 ? r : proc_parse_busy(text, ret_busy_ns);
}

int proc_parse_statm(const char *text, uint64_t *ret_pages)
{
    uint64_t number[3];

    for (size_t i = 0; i < ARRAY_LEN(number); i++)
        if (text_scan_u64(&text, &number[i]) < 0 || *text++ != ' ')
            return -EINVAL;
    *ret_pages = number[1] > number[2] ? number[1] - number[2] : 0;
    return 0;
}

int proc_read_own_memory(int root, pid_t pid, uint64_t *ret_bytes)
{
    char path[PROC_PATH_MAX], text[128];
    uint64_t pages;
    int r;

    snprintf(path, sizeof(path), "proc/%d/statm", (int)pid);
    r = file_read(root, path, text, sizeof(text));
    if (r < 0)
        return gone(r);
    r = proc_parse_statm(text, &pages);
    if (r == 0)
        *ret_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return r;
}

int proc_read_memory_total(int root, uint64_t *ret_bytes)
{
    char text[256]; /* of the first lines */
    int r = file_read(root, "proc/meminfo", text, sizeof(text));
    const char *value = r < 0 ? NULL : status_value(text, "MemTotal");
    uint64_t kib;

    if (r < 0)
        return r;
    if (!value || text_scan_u64(&value, &kib) < 0 || strncmp(value, " kB", 3) != 0)
        return -EINVAL;
    *ret_bytes = kib * 1024;
    return 0;
}

int proc_parse_switches(const char *text, struct proc_switches *ret)
{
    struct proc_switches found;
    const char *value;
    int seen = 0;

    for (const char *line = text; line && *line;) {
        if ((value = status_value(line, "voluntary_ctxt_switches")))
            seen |= text_scan_u64(&value, &found.voluntary) < 0 ? 0 : 1;
        else if ((value = status_value(line, "nonvoluntary_ctxt_switches")))
            seen |= text_scan_u64(&value, &found.involuntary) < 0 ? 0 : 2;
        line = strchr(line, '\n');
        if (line)
            line++;
    }
    if (seen != 3)
        return -EINVAL;
    *ret = found;
    return 0;
}

int proc_read_switches(int root, pid_t pid, pid_t tid, struct proc_switches *ret)
{
    char path[PROC_PATH_MAX];
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r;

    snprintf(path, sizeof(path), "proc/%d/task/%d/status", (int)pid, (int)tid);
    r = file_read_all(root, path, &text, &len);
    return r < 0 ? gone(r) : proc_parse_switches(text, ret);
}

int proc_parse_schedstat(const char *text, uint64_t *ret_cpu_ns, uint64_t *ret_wait_ns)
{
    uint64_t cpu, wait;

    if (text_scan_u64(&text, &cpu) < 0 || *text++ != ' ' || text_scan_u64(&text, &wait) < 0)
        return -EINVAL;
    *ret_cpu_ns = cpu;
    *ret_wait_ns = wait;
    return 0;
}

static int compare_pid(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

    return (x > y) - (x < y);
}

/* Returns the numeric names in a directory of /proc, ascending. */
static int list_ids(int root, const char *path, size_t max, pid_t **ret, size_t *ret_n)
{
    _cleanup_free_ pid_t *ids = NULL;
    size_t n = 0, size = 0;
    int fd = file_open(root, path, O_RDONLY | O_DIRECTORY), r = 0;
    DIR *dir;

    if (fd < 0)
        return gone(fd);
    dir = fdopendir(fd);
    if (!dir) {
        r = -errno;
        close_fd(fd);
        return r;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *p = entry->d_name;
        uint64_t id;

        if (text_scan_u64(&p, &id) < 0 || *p || id == 0 || id > INT32_MAX)
            continue;
        if (n == size) {
            pid_t *bigger =
                n < max ? realloc(ids, (size = size ? size * 2 : 64) * sizeof(*ids)) : NULL;

            if (!bigger) {
                r = n < max ? -ENOMEM : -E2BIG;
                break;
            }
            ids = bigger;
        }
        ids[n++] = (pid_t)id;
    }
    closedir(dir);
    if (r < 0)
        return r;
    if (n == 0)
        return -ESRCH;
    qsort(ids, n, sizeof(*ids), compare_pid);
    *ret = TAKE_PTR(ids);
    *ret_n = n;
    return 0;
}

int proc_list(int root, pid_t **ret, size_t *ret_n)
{
    return list_ids(root, "proc", PROC_PIDS_MAX, ret, ret_n);
}

int proc_list_threads(int root, pid_t pid, pid_t **ret, size_t *ret_n)
{
    char path[PROC_PATH_MAX];

    snprintf(path, sizeof(path), "proc/%d/task", (int)pid);
    return list_ids(root, path, PROC_THREADS_MAX, ret, ret_n);
}

static int read_thread(int root, pid_t pid, pid_t tid, struct proc_thread *ret)
{
    char path[PROC_PATH_MAX], buf[128];
    struct proc_stat stat;
    int r;

    snprintf(path, sizeof(path), "proc/%d/task/%d/stat", (int)pid, (int)tid);
    r = read_stat_at(root, path, &stat);
    if (r < 0)
        return r;
    *ret = (struct proc_thread){
        .tid = tid, .state = stat.state, .last_cpu = stat.last_cpu, .cpu_ns = stat.cpu_ns};
    snprintf(ret->comm, sizeof(ret->comm), "%.*s", PROC_TASK_COMM_MAX - 1, stat.comm);
    snprintf(path, sizeof(path), "proc/%d/task/%d/schedstat", (int)pid, (int)tid);
    if (file_read(root, path, buf, sizeof(buf)) > 0)
        proc_parse_schedstat(buf, &ret->cpu_ns, &ret->wait_ns);
    return 0;
}

int proc_read_threads(int root, pid_t pid, struct proc_threads *ret)
{
    _cleanup_free_ pid_t *tids = NULL;
    _cleanup_free_ struct proc_thread *threads = NULL;
    size_t n_tids, n = 0;
    int r = proc_list_threads(root, pid, &tids, &n_tids);

    if (r < 0)
        return r;
    threads = calloc(n_tids, sizeof(*threads));
    if (!threads)
        return -ENOMEM;
    for (size_t i = 0; i < n_tids; i++) {
        r = read_thread(root, pid, tids[i], &threads[n]);
        if (r == 0)
            n++;
        else if (r != -ESRCH) /* a thread that has ended meanwhile is left out */
            return r;
    }
    if (n == 0)
        return -ESRCH;
    *ret = (struct proc_threads){.thread = TAKE_PTR(threads), .n = n};
    return 0;
}

void proc_threads_done(struct proc_threads *threads)
{
    free(threads->thread);
    *threads = (struct proc_threads){0};
}

int proc_read_cmdline(int root, pid_t pid, char **ret, size_t *ret_len)
{
    char path[PROC_PATH_MAX];
    _cleanup_free_ char *text = malloc(PROC_CMDLINE_MAX + 1);
    int r;

    if (!text)
        return -ENOMEM;
    snprintf(path, sizeof(path), "proc/%d/cmdline", (int)pid);
    r = file_read(root, path, text, PROC_CMDLINE_MAX);
    if (r < 0)
        return gone(r);
    if (r > 0 && text[r - 1] != '\0') /* the text is cut, or the program rewrote it */
        r++;                          /* file_read has put a NUL there */
    *ret = TAKE_PTR(text);
    *ret_len = (size_t)r;
    return 0;
}

int proc_read_environ(int root, pid_t pid, const char *name, char **ret)
{
    char path[PROC_PATH_MAX];
    _cleanup_free_ char *text = NULL;
    size_t len, n = strlen(name);
    int r;

    snprintf(path, sizeof(path), "proc/%d/environ", (int)pid);
    r = file_read_all(root, path, &text, &len);
    if (r < 0)
        return gone(r);
    for (const char *p = text; p < text + len; p += strlen(p) + 1) {
        if (strncmp(p, name, n) == 0 && p[n] == '=') {
            char *value = strdup(p + n + 1);

            if (!value)
                return -ENOMEM;
            *ret = value;
            return 0;
        }
    }
    return -ENODATA;
}

/* True if the comma-separated @list of @len bytes names @item. */
static bool list_names(const char *list, size_t len, const char *item)
{
    size_t n = strlen(item);

    if (n == 0) /* v2's line has an empty list */
        return len == 0;
    while (len > 0) {
        const char *comma = memchr(list, ',', len);
        size_t word = comma ? (size_t)(comma - list) : len;

        if (word == n && memcmp(list, item, n) == 0)
            return true;
        list += word + !!comma;
        len -= word + !!comma;
    }
    return false;
}

int proc_parse_cgroup(const char *text, const char *controller, char *ret_path, size_t size)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        const char *list = memchr(text, ':', len);
        const char *path = list ? memchr(list + 1, ':', len - (size_t)(list + 1 - text)) : NULL;

        if (path && list_names(list + 1, (size_t)(path - list - 1), controller)) {
            size_t n = len - (size_t)(++path - text);

            if (n >= size)
                return -ENAMETOOLONG;
            if (n == 0 || *path != '/')
                return -EINVAL;
            memcpy(ret_path, path, n);
            ret_path[n] = '\0';
            return 0;
        }
        text += len + (text[len] == '\n');
    }
    return -ENOENT;
}

int proc_read_cgroup(int root, pid_t pid, const char *controller, char *ret_path, size_t size)
{
    char path[PROC_PATH_MAX];
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r;

    if (pid == 0)
        snprintf(path, sizeof(path), "proc/self/cgroup");
    else
        snprintf(path, sizeof(path), "proc/%d/cgroup", (int)pid);
    r = file_read_all(root, path, &text, &len);
    if (r < 0)
        return gone(r);
    return proc_parse_cgroup(text, controller, ret_path, size);
}
