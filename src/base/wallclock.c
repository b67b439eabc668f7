/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wallclock.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define ERROR_WORD "bad-clock"

#define TEXT_MAX   128
#define YEAR_10000 253402300800.0

struct spec {
    double start_s, factor, began_s;
    bool unsynced;
};

static struct {
    char path[TEXT_MAX]; /* "": the spec does not change */
    struct spec spec;
    double begun_s; /* real time of wallclock_begin() */
    bool set;
} fake;

static double real_s(void)
{
    return (double)clock_real_ms() / 1000;
}

static bool read_second(const char **text, double most, double *ret)
{
    char *end;

    *ret = strtod(*text, &end);
    if (end == *text || !isfinite(*ret) || *ret < 0 || *ret > most)
        return false;
    *text = *end == ',' ? end + 1 : end;
    return *end == ',' || *end == '\0' || *end == '\n';
}

static int parse(const char *text, struct spec *ret)
{
    struct spec s = {.began_s = fake.begun_s};

    if (!read_second(&text, YEAR_10000, &s.start_s) || !read_second(&text, 100000, &s.factor))
        return -EINVAL;
    if (*text >= '0' && *text <= '9' && !read_second(&text, YEAR_10000, &s.began_s))
        return -EINVAL;
    s.unsynced = strncmp(text, "unsynchronised", strlen("unsynchronised")) == 0;
    if (s.unsynced)
        text += strlen("unsynchronised");
    if (text[-1] == ',' || text[strspn(text, "\n")] != '\0')
        return -EINVAL;
    *ret = s;
    return 0;
}

static int read_file(struct spec *ret)
{
    _cleanup_fd_ int fd = open(fake.path, O_RDONLY | O_CLOEXEC);
    char text[TEXT_MAX];
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (n < 0)
        return -errno;
    text[n] = '\0';
    return parse(text, ret);
}

/* A file that is being written says what it said before. */
static struct spec now_spec(void)
{
    struct spec s = fake.spec;

    if (fake.path[0])
        (void)read_file(&s);
    return s;
}

int wallclock_begin(struct error *err)
{
    const char *text = getenv("TIDE_CLOCK");
    int r;

    if (!text || !*text)
        return 0;
    fake.begun_s = real_s();
    if (*text == '/' && strlen(text) < sizeof(fake.path))
        strcpy(fake.path, text);
    r = fake.path[0] ? read_file(&fake.spec) : parse(text, &fake.spec);
    if (r < 0)
        return error_set(err, -EINVAL,
                         "TIDE_CLOCK=%.80s is no clock: START,FACTOR or START,FACTOR,BEGAN in "
                         "seconds since 1970, or the path of a file with it",
                         text);
    fake.set = true;
    return 1;
}

uint64_t wallclock_ms(void)
{
    struct spec s;
    double at_s;

    if (!fake.set)
        return clock_real_ms();
    s = now_spec();
    at_s = s.start_s + (real_s() - s.began_s) * s.factor;
    return at_s < 0            ? 0
           : at_s > YEAR_10000 ? (uint64_t)YEAR_10000 * 1000
                               : (uint64_t)(at_s * 1000 + 0.5);
}

bool wallclock_synced(void)
{
    struct timex t = {0};

    if (fake.set)
        return !now_spec().unsynced;
    return adjtimex(&t) >= 0 && !(t.status & STA_UNSYNC);
}
