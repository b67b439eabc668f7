/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tide-top, the program behind `tide top`: asks the daemon once a second, shows a row for each job
 * and, below, which jobs had the cores in the last seconds. Without a terminal, prints one frame as
 * text.
 */
#include "cli/api.h"
#include "cli/top/top_model.h"
#include "cli/views/job_text.h"

#include "base/clock.h"
#include "base/cpuset.h"
#include "proto/proto.h"

#include <curses.h>
#include <string.h>

#define ERROR_WORD "daemon-silent"

#define REFRESH_MS      1000
#define SET_DEADLINE_MS 200 /* keys must not freeze the screen; the change stays ordered */
#define KEYS_TEXT       "q quit   arrows choose   + - threads   a automatic"

struct top {
    struct top_model model;
    json_t *machine;
    json_t *jobs;
    uint64_t sampled_ns;
    size_t selected;
    bool color;
    char status[ERROR_TEXT_MAX]; /* outcome of the last key, or a fault */
};

/* ---- data ---- */

static int top_get(const char *path, json_t **slot, struct error *err)
{
    struct api_answer answer = {0};
    int r = api_try("GET", path, NULL, API_TIMEOUT_MS, &answer, err);

    if (r < 0)
        return r;
    if (answer.status != 200) {
        r = error_set(err, -EBADMSG, "%s",
                      member_text(json_object_get(answer.body, "error"), "message"));
        api_answer_done(&answer);
        return r;
    }
    json_decref(*slot);
    *slot = answer.body;
    return 0;
}

static int top_sample(struct top *t, struct error *err)
{
    int r = top_get("/v1/machine", &t->machine, err);

    if (r == 0)
        r = top_get("/v1/jobs", &t->jobs, err);
    if (r < 0)
        return r;
    t->sampled_ns = clock_now_ns();
    if (t->selected >= json_array_size(t->jobs))
        t->selected = json_array_size(t->jobs) ? json_array_size(t->jobs) - 1 : 0;
    if (!t->model.owner) {
        long cpus = member_long(t->machine, "cpus");

        cpus = cpus < 1 ? 1 : cpus > CPUSET_MAX_CPUS ? CPUSET_MAX_CPUS : cpus;
        r = top_model_init(&t->model, (unsigned)cpus);
        if (r < 0)
            return error_set(err, r, "out of memory");
    }
    top_model_add(&t->model, t->jobs);
    return 0;
}

static void top_done(struct top *t)
{
    json_decref(t->machine);
    json_decref(t->jobs);
    if (t->model.owner)
        top_model_done(&t->model);
}

/* ---- lines of both screen and text ---- */

static const struct {
    enum job_field field;
    int width;
    bool power; /* only where power is known */
} layout[] = {
    {JOB_ID, 5, false},     {JOB_NAME, 16, false},  {JOB_STATE, 8, false},   {JOB_CORES, 8, false},
    {JOB_TARGET, 6, false}, {JOB_ACTIVE, 6, false}, {JOB_MAX, 4, false},     {JOB_RATE, 9, false},
    {JOB_POWER, 7, true},   {JOB_ENERGY, 9, true},  {JOB_REASON, 60, false},
};

/* Whether anything is known of any job's power. */
static bool knows_power(const struct top *t)
{
    const json_t *job;
    size_t i;

    json_array_foreach (t->jobs, i, job)
        if (json_is_number(json_object_get(job, "energy_uj")))
            return true;
    return false;
}

/* @job NULL: the headings. */
static void format_row(const json_t *job, bool power, char *buf, size_t size)
{
    size_t at = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(layout) && at < size; i++) {
        bool right = job_field_right(layout[i].field);
        char text[128];

        if (layout[i].power && !power)
            continue;
        if (job)
            job_text(job, layout[i].field, text, sizeof(text));
        else
            snprintf(text, sizeof(text), "%s", job_field_title(layout[i].field));
        if (i + 1 == ARRAY_LEN(layout))
            at += (size_t)snprintf(buf + at, size - at, "%s", text);
        else
            at += (size_t)snprintf(buf + at, size - at, right ? "%*.*s  " : "%-*.*s  ",
                                   layout[i].width, layout[i].width, text);
    }
}

static void format_title(const struct top *t, char *buf, size_t size)
{
    size_t jobs = json_array_size(t->jobs), i;
    const json_t *note;
    const char *cap = "";

    json_array_foreach (json_object_get(t->machine, "notes"), i, note)
        if (strncmp(json_string_value(note), "power cap ", 10) == 0)
            cap = json_string_value(note);
    snprintf(buf, size, "tide top: %zu job%s on %ld cores, policy %s, placement %s%s%s", jobs,
             jobs == 1 ? "" : "s", member_long(t->machine, "cpus"),
             member_text(t->machine, "policy"), member_text(t->machine, "placement"),
             *cap ? ", " : "", cap);
}

/* A job's sign in the strip, without colours: j1 is 1, j10 is a, j36 is 0 again. */
static char sign_of(int number)
{
    static const char signs[] = "0123456789abcdefghijklmnopqrstuvwxyz";

    return number > 0 ? signs[number % 36] : '.';
}

/* ---- text ---- */

static int print_frame(const struct top *t)
{
    const json_t *job;
    bool power = knows_power(t);
    char line[512];
    size_t i;

    format_title(t, line, sizeof(line));
    printf("%s\n\n", line);
    format_row(NULL, power, line, sizeof(line));
    printf("%s\n", line);
    json_array_foreach (t->jobs, i, job) {
        format_row(job, power, line, sizeof(line));
        printf("%s\n", line);
    }
    printf("\ncores  ");
    for (unsigned slot = 0; slot < top_slots(&t->model); slot++)
        printf("%s%c", slot && slot % t->model.per_cpu == 0 ? " " : "",
               sign_of(top_model_owner(&t->model, 0, slot)));
    printf("   (a group for each core; 1 is j1, a dot is free)\n");
    return CLI_OK;
}

/* ---- screen ---- */

static const short palette[] = {COLOR_GREEN,   COLOR_BLUE, COLOR_YELLOW,
                                COLOR_MAGENTA, COLOR_CYAN, COLOR_RED};

static void screen_start(struct top *t)
{
    initscr();
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    t->color = cli_color() && has_colors();
    if (!t->color)
        return;
    start_color();
    use_default_colors(); /* keep the terminal's own background */
    for (size_t i = 0; i < ARRAY_LEN(palette); i++)
        init_pair((short)(i + 1), COLOR_BLACK, palette[i]);
}

static attr_t attr_of(const struct top *t, int number)
{
    if (!t->color || number <= 0)
        return A_NORMAL;
    return COLOR_PAIR(1 + (unsigned)(number - 1) % ARRAY_LEN(palette));
}

static void draw_line(int y, attr_t attr, const char *text)
{
    if (y >= LINES)
        return;
    attrset(attr);
    mvaddnstr(y, 0, text, COLS);
    attrset(A_NORMAL);
}

/* Draws at most @rows jobs, the selected one among them. Returns the rows used. */
static int draw_jobs(const struct top *t, int y, int rows)
{
    size_t n = json_array_size(t->jobs);
    size_t first = 0;
    char line[512];
    int used = 0;

    if (rows < 1)
        return 0;
    if (t->selected >= (size_t)rows)
        first = t->selected - (size_t)rows + 1;
    for (size_t i = first; i < n && used < rows; i++, used++) {
        const json_t *job = json_array_get(t->jobs, i);

        format_row(job, knows_power(t), line, sizeof(line));
        draw_line(y + used, i == t->selected ? A_REVERSE : A_NORMAL, line);
        attrset(attr_of(t, top_job_number(job)) | A_BOLD);
        if (COLS > 5)
            mvaddch(y + used, 5, (chtype)sign_of(top_job_number(job)));
        attrset(A_NORMAL);
    }
    if (n == 0)
        draw_line(y + used++, A_NORMAL, "No jobs. Start one: tide run -- python train.py");
    return used;
}

/* Prefers whole cores, so that each has as many rows as its neighbour. */
static int strip_rows(const struct top_model *m, int available)
{
    int slots = (int)top_slots(m);
    int cpus = (int)m->cpus;

    if (available > slots)
        available = slots;
    return available > cpus ? available - available % cpus : available;
}

static void draw_strip(const struct top *t, int y, int available)
{
    const struct top_model *m = &t->model;
    int rows = strip_rows(m, available - 1);
    int width = COLS - 9 < TOP_SAMPLES ? COLS - 9 : TOP_SAMPLES;
    char line[64];

    if (rows < 1 || width < 10)
        return;
    for (int row = 0; row < rows; row++) {
        unsigned slot = (unsigned)row * top_slots(m) / (unsigned)rows;

        if (row == 0 || rows <= (int)m->cpus || row % (rows / (int)m->cpus) == 0) {
            snprintf(line, sizeof(line), "core %-3u", slot / m->per_cpu);
            draw_line(y + row, A_DIM, line);
        }
        for (int x = 0; x < width; x++) {
            int number = top_model_owner(m, (unsigned)(width - 1 - x), slot);

            attrset(number ? attr_of(t, number) : A_DIM);
            mvaddch(y + row, 9 + x, number < 0 ? ' ' : (chtype)sign_of(number));
        }
    }
    attrset(A_NORMAL);
    snprintf(line, sizeof(line), "%d s ago", width * REFRESH_MS / 1000);
    attrset(A_DIM);
    mvaddstr(y + rows, 9, line);
    mvaddstr(y + rows, 9 + width - 3, "now");
    attrset(A_NORMAL);
}

static void draw(const struct top *t)
{
    char line[512];
    int y = 0;

    erase();
    format_title(t, line, sizeof(line));
    draw_line(y++, A_BOLD, line);
    y++;
    format_row(NULL, knows_power(t), line, sizeof(line));
    draw_line(y++, A_UNDERLINE, line);
    y += draw_jobs(t, y, LINES - y - (LINES > 14 ? 8 : 2)) + 1;
    draw_strip(t, y, LINES - y - 2);
    if (LINES > 4) {
        draw_line(LINES - 2, A_NORMAL, t->status);
        draw_line(LINES - 1, A_DIM, KEYS_TEXT);
    }
    refresh();
}

/* ---- keys ---- */

static void show_outcome(struct top *t, const json_t *answer)
{
    const char *status = member_text(answer, "status");
    char how[64] = "ordered, not acknowledged yet";
    char change[64];

    if (strcmp(status, "done") == 0)
        snprintf(how, sizeof(how), "acknowledged in %.1f ms",
                 member_number(answer, "latency_us") / 1000);
    else if (strcmp(status, "pending") == 0)
        snprintf(how, sizeof(how), "takes effect with its first thread pool");
    job_text_change(answer, change, sizeof(change));
    snprintf(t->status, sizeof(t->status), "%s %s: %s, %s", member_text(answer, "id"),
             member_text(answer, "name"), change, how);
}

static void order(struct top *t, json_t *body)
{
    const json_t *job = json_array_get(t->jobs, t->selected);
    _cleanup_answer_ struct api_answer answer = {0};
    struct error err = {0};
    char path[API_PATH_MAX];

    json_object_set_new(body, "deadline_ms", json_integer(SET_DEADLINE_MS));
    if (api_job_path(&command_top, member_text(job, "id"), "", path) != CLI_OK)
        return;
    if (api_try("PATCH", path, body, API_TIMEOUT_MS, &answer, &err) < 0)
        snprintf(t->status, sizeof(t->status), "%s", err.text);
    else if (answer.status >= 400)
        snprintf(t->status, sizeof(t->status), "%s",
                 member_text(json_object_get(answer.body, "error"), "message"));
    else
        show_outcome(t, answer.body);
}

static void change_threads(struct top *t, long by)
{
    const json_t *job = json_array_get(t->jobs, t->selected);
    _cleanup_json_ json_t *body = NULL;
    long threads = member_long(job, "target") + by;

    if (!job || threads < 1 || threads > PROTO_THREADS_MAX)
        return;
    body = json_pack("{s:I}", "threads", (json_int_t)threads);
    order(t, body);
}

static void change_auto(struct top *t)
{
    _cleanup_json_ json_t *body = NULL;

    if (!json_array_get(t->jobs, t->selected))
        return;
    body = json_pack("{s:b}", "auto", 1);
    order(t, body);
}

/* Returns false to quit; *ret_changed: ask the daemon at once. */
static bool handle_key(struct top *t, int key, bool *ret_changed)
{
    *ret_changed = key == '+' || key == '=' || key == '-' || key == 'a';
    switch (key) {
    case 'q':
        return false;
    case KEY_UP:
    case 'k':
        t->selected -= t->selected > 0;
        break;
    case KEY_DOWN:
    case 'j':
        t->selected += t->selected + 1 < json_array_size(t->jobs);
        break;
    case '+':
    case '=':
        change_threads(t, 1);
        break;
    case '-':
        change_threads(t, -1);
        break;
    case 'a':
        change_auto(t);
        break;
    default: /* such as KEY_RESIZE: the screen is drawn again in any case */
        break;
    }
    return true;
}

static int wait_ms(const struct top *t)
{
    uint64_t passed = (clock_now_ns() - t->sampled_ns) / NS_PER_MS;

    return passed >= REFRESH_MS ? 0 : (int)(REFRESH_MS - passed);
}

static void loop(struct top *t)
{
    bool changed = false;
    struct error err;
    int key;

    for (;;) {
        draw(t);
        timeout(wait_ms(t));
        key = getch();
        if (key != ERR && !handle_key(t, key, &changed))
            return;
        if (key != ERR && changed)
            top_get("/v1/jobs", &t->jobs, &err);
        if (wait_ms(t) > 0)
            continue;
        /* A daemon that has ended may return, so tide says so and goes on asking. */
        if (top_sample(t, &err) < 0) {
            snprintf(t->status, sizeof(t->status), "%s", err.text);
            t->sampled_ns = clock_now_ns();
        }
    }
}

static int watch(int argc, char **argv)
{
    _cleanup_(top_done) struct top t = {0};
    struct error err = {0};
    int r;

    option_none(&command_top, argc, argv, 0, 0);
    r = api_host(&command_top);
    if (r != CLI_OK)
        return r;
    r = top_sample(&t, &err);
    if (r < 0)
        return api_unreachable(&command_top, r, &err);
    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
        return print_frame(&t);
    cli_locale();
    screen_start(&t);
    loop(&t);
    endwin();
    return CLI_OK;
}

int main(int argc, char **argv)
{
    return cli_end(&command_top, watch(argc, argv));
}
