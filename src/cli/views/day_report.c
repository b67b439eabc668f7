/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/views/day_report.h"

#include "cli/api.h"
#include "cli/views/job_text.h"
#include "sim/report/svg.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define ROWS_MAX   60 /* jobs of the picture: those that used the most */
#define TABLE_MAX  500
#define USERS_MAX  100
#define REASON_MAX 120

/* The picture, in its own units. */
#define LEFT   150
#define PLOT   (SVG_WIDTH - LEFT - 10)
#define ROW    18
#define CURVE  120
#define AXIS   24
#define HOUR_S 3600

/* Hues that people with any colour blindness tell apart, as on the page of `tide dashboard`. */
static const char *const hues[] = {"#56b4e9", "#e69f00", "#009e73", "#cc79a7",
                                   "#d55e00", "#f0e442", "#3d8fd1"};

struct part {
    double from_s, to_s;
    long threads;
};

struct row {
    const json_t *job;
    double thread_s; /* threads × seconds in the day */
    double begin_s;
    size_t at; /* in the history */
};

struct user {
    const char *name;
    unsigned jobs;
    double thread_s, wait_s;
};

struct report {
    FILE *file;
    const struct day *day;
    const struct day_energy *energy;
    struct row *rows; /* by what they used */
    size_t count;
    struct user users[USERS_MAX];
    size_t user_count;
    double thread_s;
    unsigned ended, lost;
};

/* ---- what happened ---- */

/* The @i-th allocation, the newest is 0, as far as it lies in the day. False: outside of it. */
static bool part_of(const struct day *day, const json_t *job, size_t i, struct part *ret)
{
    const json_t *list = json_object_get(job, "allocations");
    const json_t *one = json_array_get(list, i);
    double ended = member_number(job, "ended");

    ret->from_s = member_number(one, "time");
    ret->to_s = i > 0       ? member_number(json_array_get(list, i - 1), "time")
                : ended > 0 ? ended
                            : day->to_s;
    ret->threads = member_long(one, "threads");
    if (ret->from_s < day->from_s)
        ret->from_s = day->from_s;
    if (ret->to_s > day->to_s)
        ret->to_s = day->to_s;
    return ret->to_s > ret->from_s;
}

static struct user *user_of(struct report *r, const char *name)
{
    for (size_t i = 0; i < r->user_count; i++)
        if (strcmp(r->users[i].name, name) == 0)
            return &r->users[i];
    if (r->user_count == USERS_MAX)
        return NULL;
    r->users[r->user_count] = (struct user){.name = name};
    return &r->users[r->user_count++];
}

static void count_job(struct report *r, const json_t *job, size_t at)
{
    const json_t *list = json_object_get(job, "allocations");
    double submitted = member_number(job, "submitted"), ended = member_number(job, "ended");
    struct row *row = &r->rows[r->count];
    const char *state = member_text(job, "state");
    struct user *user;
    struct part part;

    if (submitted >= r->day->to_s || (ended > 0 && ended < r->day->from_s))
        return;
    *row = (struct row){.job = job, .at = at, .begin_s = submitted};
    for (size_t i = 0; i < json_array_size(list); i++)
        if (part_of(r->day, job, i, &part))
            row->thread_s += (double)part.threads * (part.to_s - part.from_s);
    r->count++;
    r->thread_s += row->thread_s;
    r->ended += ended > 0 && ended < r->day->to_s;
    r->lost += strcmp(state, "lost") == 0;
    user = user_of(r, member_text(job, "owner"));
    if (user) {
        user->jobs++;
        user->thread_s += row->thread_s;
        user->wait_s += member_number(job, "wait_s");
    }
}

static int by_use(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    return x->thread_s != y->thread_s ? (x->thread_s < y->thread_s) - (x->thread_s > y->thread_s)
                                      : (x->at > y->at) - (x->at < y->at);
}

static int by_begin(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    return x->begin_s != y->begin_s ? (x->begin_s > y->begin_s) - (x->begin_s < y->begin_s)
                                    : (x->at < y->at) - (x->at > y->at);
}

static int users_by_use(const void *a, const void *b)
{
    const struct user *x = a, *y = b;

    return x->thread_s != y->thread_s ? (x->thread_s < y->thread_s) - (x->thread_s > y->thread_s)
                                      : strcmp(x->name, y->name);
}

/* ---- pictures ---- */

static double x_of(const struct day *day, double time_s)
{
    /* A day of today is drawn in full: what is to come stays empty. */
    double whole = 24 * HOUR_S;

    if (day->to_s - day->from_s > whole)
        whole = day->to_s - day->from_s; /* the clocks went back */
    return LEFT + PLOT * (time_s - day->from_s) / whole;
}

static void put_axis(struct report *r, double height)
{
    for (int hour = 0; hour <= 24; hour += 3)
        fprintf(r->file,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%.0f\"/>"
                "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%02d:00</text>\n",
                x_of(r->day, r->day->from_s + hour * HOUR_S),
                x_of(r->day, r->day->from_s + hour * HOUR_S), height,
                x_of(r->day, r->day->from_s + hour * HOUR_S), height + 16, hour);
}

static const char *hue_of(const json_t *job)
{
    const char *digits = member_text(job, "id");

    digits += strcspn(digits, "0123456789");
    return hues[(strtoul(digits, NULL, 10) + ARRAY_LEN(hues) - 1) % ARRAY_LEN(hues)];
}

static void put_row(struct report *r, const struct row *row, double y, long most)
{
    const json_t *list = json_object_get(row->job, "allocations");
    const char *name = member_text(row->job, "name");
    struct part part;

    fprintf(r->file, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">", LEFT - 8, y + 13);
    svg_text(r->file, *name ? name : member_text(row->job, "id"));
    fputs("</text>\n", r->file);
    for (size_t i = json_array_size(list); i-- > 0;) {
        double x, height;

        if (!part_of(r->day, row->job, i, &part) || part.threads == 0)
            continue;
        x = x_of(r->day, part.from_s);
        height = fmax(2, (ROW - 3) * (double)part.threads / (double)most);
        fprintf(r->file,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"><title>", x,
                y + ROW - 1 - height, fmax(0.5, x_of(r->day, part.to_s) - x), height,
                hue_of(row->job));
        svg_text(r->file, name);
        fprintf(r->file, ": %ld thread%s</title></rect>\n", part.threads,
                part.threads == 1 ? "" : "s");
    }
}

static long most_threads(const struct report *r)
{
    long most = 1;
    struct part part;

    for (size_t k = 0; k < r->count; k++) {
        const json_t *list = json_object_get(r->rows[k].job, "allocations");

        for (size_t i = 0; i < json_array_size(list); i++)
            if (part_of(r->day, r->rows[k].job, i, &part) && part.threads > most)
                most = part.threads;
    }
    return most;
}

static void put_jobs_picture(struct report *r)
{
    size_t n = r->count < ROWS_MAX ? r->count : ROWS_MAX;
    long most = most_threads(r);

    qsort(r->rows, n, sizeof(*r->rows), by_begin);
    fprintf(r->file,
            "<h2>Jobs over the day</h2>\n<svg viewBox=\"0 0 %d %zu\" role=\"img\" "
            "aria-label=\"Jobs over the day; their height is their threads\">\n",
            SVG_WIDTH, n * ROW + AXIS);
    put_axis(r, (double)(n * ROW));
    for (size_t i = 0; i < n; i++)
        put_row(r, &r->rows[i], (double)(i * ROW), most);
    fputs("</svg>\n", r->file);
    if (n < r->count)
        fprintf(r->file, "<p>Shown are the %zu jobs that used the most; %zu others did run.</p>\n",
                n, r->count - n);
}

struct edge {
    double time_s;
    long threads; /* more or less from then on */
};

static int by_time(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;

    return (x->time_s > y->time_s) - (x->time_s < y->time_s);
}

/* The edges of all parts, in order. Returns their number; NULL without memory. */
static struct edge *find_edges(const struct report *r, size_t *ret_count)
{
    struct edge *edges;
    size_t n = 0;

    for (size_t k = 0; k < r->count; k++)
        n += 2 * json_array_size(json_object_get(r->rows[k].job, "allocations"));
    edges = calloc(n + 1, sizeof(*edges));
    n = 0;
    for (size_t k = 0; edges && k < r->count; k++) {
        const json_t *list = json_object_get(r->rows[k].job, "allocations");
        struct part part;

        for (size_t i = 0; i < json_array_size(list); i++)
            if (part_of(r->day, r->rows[k].job, i, &part)) {
                edges[n++] = (struct edge){part.from_s, part.threads};
                edges[n++] = (struct edge){part.to_s, -part.threads};
            }
    }
    if (edges)
        qsort(edges, n, sizeof(*edges), by_time);
    *ret_count = n;
    return edges;
}

static void put_threads_picture(struct report *r)
{
    size_t n;
    _cleanup_free_ struct edge *edges = find_edges(r, &n);
    long sum = 0, most = r->day->cores > 1 ? r->day->cores : 1;

    if (!edges)
        return;
    for (size_t i = 0; i < n; i++) {
        sum += edges[i].threads;
        most = sum > most ? sum : most;
    }
    fprintf(r->file,
            "<h2>Threads</h2>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Threads of all "
            "jobs over the day\">\n",
            SVG_WIDTH, CURVE + AXIS);
    put_axis(r, CURVE);
    fprintf(r->file, "<path class=\"area\" d=\"M%d %d", LEFT, CURVE);
    sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += edges[i].threads;
        if (i + 1 < n && edges[i + 1].time_s <= edges[i].time_s)
            continue;
        fprintf(r->file, "H%.1fV%.1f", x_of(r->day, edges[i].time_s),
                CURVE * (1 - (double)sum / (double)most));
    }
    fprintf(r->file, "V%dZ\"/>\n", CURVE);
    if (r->day->cores > 0)
        fprintf(r->file,
                "<line class=\"cores\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%ld cores</text>\n",
                LEFT, SVG_WIDTH - 10, CURVE * (1 - (double)r->day->cores / (double)most),
                CURVE * (1 - (double)r->day->cores / (double)most), LEFT - 8,
                CURVE * (1 - (double)r->day->cores / (double)most) + 10, r->day->cores);
    fputs("</svg>\n", r->file);
}

/* ---- tables ---- */

static void put_users(struct report *r)
{
    qsort(r->users, r->user_count, sizeof(*r->users), users_by_use);
    fputs("<h2>Users</h2>\n<table><thead><tr><th>User</th><th class=\"n\">Jobs</th><th class=\"n\">"
          "Thread hours</th><th class=\"n\">Share</th><th class=\"n\">Waited, a "
          "job</th></tr></thead><tbody>\n",
          r->file);
    for (size_t i = 0; i < r->user_count; i++) {
        const struct user *u = &r->users[i];
        char waited[32];

        job_text_duration(u->wait_s / u->jobs, waited, sizeof(waited));
        fputs("<tr>", r->file);
        day_cell(r->file, "", u->name);
        fprintf(
            r->file, "<td class=\"n\">%u</td><td class=\"n\">%.1f</td><td class=\"n\">%.0f %%</td>",
            u->jobs, u->thread_s / HOUR_S, r->thread_s > 0 ? 100 * u->thread_s / r->thread_s : 0);
        day_cell(r->file, " class=\"n\"", waited);
        fputs("</tr>\n", r->file);
    }
    fputs("</tbody></table>\n", r->file);
}

static void put_job(struct report *r, const struct row *row)
{
    const json_t *list = json_object_get(row->job, "allocations"),
                 *newest = json_array_get(list, 0);
    char text[64], reason[REASON_MAX];

    fputs("<tr>", r->file);
    day_cell(r->file, "", member_text(row->job, "name"));
    day_cell(r->file, "", member_text(row->job, "id"));
    day_cell(r->file, "", member_text(row->job, "owner"));
    day_cell(r->file, "", member_text(row->job, "state"));
    job_text_time(member_number(row->job, "submitted"), text, sizeof(text));
    day_cell(r->file, "", text);
    job_text_duration(member_number(row->job, "wait_s"), text, sizeof(text));
    day_cell(r->file, " class=\"n\"", text);
    job_text_duration(member_number(row->job, "run_s"), text, sizeof(text));
    day_cell(r->file, " class=\"n\"", text);
    fprintf(r->file, "<td class=\"n\">%.1f</td><td class=\"n\">%zu</td>", row->thread_s / HOUR_S,
            json_array_size(list));
    snprintf(reason, sizeof(reason), "%s", member_text(newest, "reason"));
    day_cell(r->file, "", reason);
    fputs("</tr>\n", r->file);
}

static void put_jobs(struct report *r)
{
    size_t n = r->count < TABLE_MAX ? r->count : TABLE_MAX;

    qsort(r->rows, r->count, sizeof(*r->rows), by_use);
    fputs("<h2>Jobs</h2>\n<table><thead><tr><th>Job</th><th>Id</th><th>Owner</th><th>State</th><th>"
          "Submitted</th><th class=\"n\">Waited</th><th class=\"n\">Ran</th><th class=\"n\">Thread "
          "hours</th><th class=\"n\">Decisions</th><th>Last reason</th></tr></thead><tbody>\n",
          r->file);
    for (size_t i = 0; i < n; i++)
        put_job(r, &r->rows[i]);
    fputs("</tbody></table>\n", r->file);
    if (n < r->count)
        fprintf(r->file, "<p>%zu further jobs are not listed.</p>\n", r->count - n);
}

static void put_summary(struct report *r)
{
    double hours = (r->day->to_s - r->day->from_s) / HOUR_S;

    fprintf(r->file,
            "<dl><div><dt>Jobs</dt><dd>%zu</dd></div><div><dt>of which ended</dt><dd>%u</dd></div>"
            "<div><dt>Users</dt><dd>%zu%s</dd></div><div><dt>Thread hours</dt><dd>%.1f</dd></div>",
            r->count, r->ended, r->user_count, r->user_count == USERS_MAX ? "+" : "",
            r->thread_s / HOUR_S);
    if (r->day->cores > 0 && hours > 0)
        fprintf(r->file, "<div><dt>of the cores' hours</dt><dd>%.0f %%</dd></div>",
                100 * r->thread_s / HOUR_S / hours / (double)r->day->cores);
    day_energy_summary(r->file, r->energy);
    fputs("</dl>\n", r->file);
    if (r->lost)
        fprintf(r->file, "<p>%u job%s ended while no daemon ran.</p>\n", r->lost,
                r->lost == 1 ? "" : "s");
    if (r->day->cut_jobs)
        fprintf(
            r->file,
            "<p><strong>%u job%s changed more often than one answer holds: what %s first in the "
            "day is missing, and thread hours are too low.</strong></p>\n",
            r->day->cut_jobs, r->day->cut_jobs == 1 ? "" : "s",
            r->day->cut_jobs == 1 ? "it had" : "they had");
    if (r->day->cut)
        fputs("<p><strong>The history had more jobs than one answer holds: the oldest are "
              "missing.</strong></p>\n",
              r->file);
}

static const char style[] =
    ":root{--p:#fff;--t:#16202a;--f:#556270;--l:#dce2e8;--a:#0072b2}"
    "@media(prefers-color-scheme:dark){:root{--p:#12181e;--t:#e6edf3;--f:#9aa8b5;--l:#2a3640;--a:"
    "#56b4e9}}"
    "body{font:14px/1.45 system-ui,sans-serif;max-width:1000px;margin:24px auto;padding:0 16px;"
    "background:var(--p);color:var(--t);font-variant-numeric:tabular-nums}"
    "h1{font-size:22px;margin:0}h2{font-size:16px;margin:26px 0 8px}p{color:var(--f)}"
    "dl{display:flex;flex-wrap:wrap;gap:8px 28px}dt{font-size:12px;color:var(--f)}dd{margin:0;"
    "font-size:22px;font-weight:600}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:4px 10px 4px 0;"
    "border-bottom:1px solid var(--l);vertical-align:top}th{font-size:12px;color:var(--f)}"
    ".n{text-align:right}svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;"
    "fill:var(--f)}.grid{stroke:var(--l)}.area{fill:var(--a);fill-opacity:.35;stroke:var(--a)}"
    ".cores{stroke:var(--f);stroke-dasharray:5 4}"
    "@media print{body{max-width:none}}";

void day_report_html(FILE *file, const struct day *day, const json_t *history,
                     const struct day_energy *energy)
{
    struct report r = {.file = file, .day = day, .energy = energy};
    const json_t *job;
    size_t i;

    r.rows = calloc(json_array_size(history) + 1, sizeof(*r.rows));
    if (!r.rows) {
        fputs("out of memory\n", file);
        return;
    }
    json_array_foreach (history, i, job)
        count_job(&r, job, i);
    qsort(r.rows, r.count, sizeof(*r.rows), by_use);

    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
          "name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>",
          file);
    svg_text(file, day->host);
    fputs(", ", file);
    svg_text(file, day->name);
    fprintf(file, "</title><style>%s</style></head><body>\n<h1>", style);
    svg_text(file, day->host);
    fputs("</h1>\n<p>", file);
    svg_text(file, day->name);
    fputs("</p>\n", file);
    put_summary(&r);
    if (r.count > 0) {
        put_jobs_picture(&r);
        put_threads_picture(&r);
        put_users(&r);
        put_jobs(&r);
    } else {
        fputs("<p>No job ran on this day.</p>\n", file);
    }
    day_energy_tables(file, energy);
    fputs("<p>Made by tide report.</p>\n</body></html>\n", file);
    free(r.rows);
}
