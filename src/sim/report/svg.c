/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/report/svg.h"

#include "sim/report/report.h"

#include <math.h>
#include <string.h>

#define LEFT        130 /* left end of plots, behind the names */
#define RIGHT       20
#define PLOT        (SVG_WIDTH - LEFT - RIGHT)
#define TOP         22 /* height of a panel's title */
#define AXIS        24 /* height below a plot */
#define LINE_HEIGHT 80
#define BAR_HEIGHT  20
#define BAR_NUMBER  120  /* room for the figure behind a bar */
#define BAR_LEFT    400  /* maximum width of the names before bars */
#define LETTER      7    /* approximate width of one */
#define ROWS_HEIGHT 1000 /* height of the bars of many jobs, together */
#define NAME_SHOWN  20
#define FILE_HEAD   36
#define CHART_HEAD  26

/* Spells out the colours for both screens: not every viewer of SVG knows variables. */
#define COLOURS(paper, ink, soft, grid, bar, area, wait, pause, mark)                              \
    "svg{background:" paper "}svg text{fill:" ink "}svg .soft{fill:" soft                          \
    "}svg .grid{stroke:" grid "}svg .bar{fill:" bar "}svg .area{fill:" area                        \
    "}svg .wait{fill:" wait "}svg .pause{fill:" pause "}svg .mark{stroke:" mark "}\n"

const char svg_style[] =
    "svg{font:12px system-ui,sans-serif}svg .mark{fill:none}svg .end{text-anchor:end}"
    "svg .mid{text-anchor:middle}svg .head{font-weight:600}\n" COLOURS(
        "#fff", "#1b1f24", "#667080", "#d9dde3", "#2a6fb0", "#a9c5df", "#c3c8d0", "#d08a2e",
        "#c0392b") "@media(prefers-color-scheme:dark){" COLOURS("#14171a", "#e6e8eb", "#9aa3ad",
                                                                "#33393f", "#5aa2e6", "#2d4f70",
                                                                "#4b525b", "#e0a24f",
                                                                "#ff7b6b") "}\n";

void svg_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default:
            putc(*text, file);
        }
    }
}

static void begin(FILE *file, int y, int height)
{
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" y=\"%d\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\">\n",
            y, SVG_WIDTH, height, SVG_WIDTH, height);
}

static void label(FILE *file, double x, double y, const char *class, const char *text)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    svg_text(file, text);
    fputs("</text>\n", file);
}

/* Writes the first @most bytes of it, cut between characters of UTF-8. */
static void short_label(FILE *file, double x, double y, const char *class, const char *text,
                        size_t most)
{
    char cut[BAR_LEFT];
    size_t length = strlen(text);

    most = most < sizeof(cut) ? most : sizeof(cut) - 1;
    if (length > most)
        for (length = most; length > 0 && (text[length] & 0xc0) == 0x80;)
            length--;
    memcpy(cut, text, length);
    cut[length] = '\0';
    label(file, x, y, class, cut);
}

/* ---- axes ------------------------------------------------------------------------------------ */

/* Returns 1, 2 or 5 times a power of ten, so that about @steps of them make @range. */
static double nice_step(double range, int steps)
{
    double rough = range / steps, power = pow(10, floor(log10(rough))), mantissa = rough / power;

    return power * (mantissa <= 1 ? 1 : mantissa <= 2 ? 2 : mantissa <= 5 ? 5 : 10);
}

/* Draws an axis of time below a plot that ends at @bottom. */
static void time_axis(FILE *file, uint64_t end_ns, int top, int bottom)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"s", 1e9}, {"min", 6e10}, {"h", 3.6e12}, {"d", 8.64e13}};
    double range, step;
    size_t u = 0;

    while (u + 1 < sizeof(units) / sizeof(units[0]) && (double)end_ns >= 3 * units[u + 1].ns)
        u++;
    range = (double)end_ns / units[u].ns;
    step = nice_step(range, 8);
    for (int i = 0; i * step <= range; i++) {
        double x = LEFT + PLOT * (i * step / range);
        char text[48];

        snprintf(text, sizeof(text), "%g %s", i * step, units[u].name);
        fprintf(file, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n", x, top, bottom);
        label(file, x, bottom + 15, "soft mid", text);
    }
}

/* ---- timelines ------------------------------------------------------------------------------- */

/* Draws a stepped area, with @mark as a line across unless it is 0. */
static void area(FILE *file, int top, const struct timeline *timeline, double mark,
                 const char *title)
{
    double value[TIMELINE_BINS], most = mark > 0 ? mark : 1;
    uint32_t count = timeline_values(timeline, value);
    double width = PLOT * (double)timeline->bin_ns / (double)timeline->end_ns;
    char text[32];

    for (uint32_t i = 0; i < count; i++)
        most = fmax(most, value[i]);
    label(file, LEFT, top - 6, "head", title);
    snprintf(text, sizeof(text), "%.4g", most);
    label(file, LEFT - 6, top + 10, "soft end", text);
    label(file, LEFT - 6, top + LINE_HEIGHT, "soft end", "0");
    fprintf(file, "<path class=\"area\" d=\"M%d %d", LEFT, top + LINE_HEIGHT);
    for (uint32_t i = 0; i < count; i++)
        fprintf(file, "V%.1fH%.1f", top + LINE_HEIGHT * (1 - value[i] / most),
                LEFT + fmin((i + 1) * width, PLOT));
    fprintf(file, "V%dz\"/>\n", top + LINE_HEIGHT);
    if (mark > 0)
        fprintf(file, "<path class=\"mark\" stroke-dasharray=\"4 3\" d=\"M%d %.1fh%d\"/>\n", LEFT,
                top + LINE_HEIGHT * (1 - mark / most), PLOT);
    time_axis(file, timeline->end_ns, top, top + LINE_HEIGHT);
}

static int timelines_height(const struct chart *chart)
{
    bool empty = chart->held.end_ns == 0 || chart->present.end_ns == 0;

    return empty ? 0 : 2 * (TOP + LINE_HEIGHT + AXIS);
}

int svg_timelines(FILE *file, int y, const struct chart *chart, uint32_t cores)
{
    const int height = timelines_height(chart), panel = height / 2;

    if (height == 0)
        return 0;
    begin(file, y, height);
    area(file, TOP, &chart->held, cores, "cores allocated to jobs (line: cores of the machine)");
    area(file, panel + TOP, &chart->present, 0, "jobs present (waiting, paused, running)");
    fputs("</svg>\n", file);
    return height;
}

/* ---- Gantt charts ---------------------------------------------------------------------------- */

struct gantt {
    const struct chart *chart;
    double per_ns;                   /* pixels */
    double row;                      /* height */
    double fill;                     /* height of the bar in it */
    int64_t most;                    /* most mcpu of any job */
    double drawn_to[CHART_JOBS_MAX]; /* pixels up to which its row is drawn */
};

static uint64_t gantt_end(const struct chart *chart)
{
    uint64_t end_ns = 1;

    for (uint32_t i = 0; i < chart->job_count; i++)
        if (chart->job[i].finish_ns != POLICY_NEVER && chart->job[i].finish_ns > end_ns)
            end_ns = chart->job[i].finish_ns;
    for (uint32_t i = 0; i < chart->segment_count; i++)
        end_ns = chart->segment[i].end_ns > end_ns ? chart->segment[i].end_ns : end_ns;
    return end_ns;
}

static double row_height(const struct chart *chart)
{
    return fmin(16, fmax(5, (double)ROWS_HEIGHT / chart->job_count));
}

static int gantt_height(const struct chart *chart)
{
    return chart->job_count ? TOP + (int)ceil(row_height(chart) * chart->job_count) + AXIS : 0;
}

/* Leaves the element open: a title follows. */
static void bar(FILE *file, const struct gantt *g, uint32_t job, uint64_t begin_ns, uint64_t end_ns,
                const char *class, double opacity)
{
    double x = (double)begin_ns * g->per_ns, width = (double)(end_ns - begin_ns) * g->per_ns;

    fprintf(file,
            "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" "
            "fill-opacity=\"%.2f\">",
            class, LEFT + x, TOP + job * g->row, fmax(width, 0.3), g->fill, opacity);
}

static void rows(FILE *file, const struct gantt *g)
{
    for (uint32_t i = 0; i < g->chart->job_count; i++) {
        const struct chart_job *job = &g->chart->job[i];

        if (g->row >= 11)
            short_label(file, LEFT - 6, TOP + i * g->row + g->fill - 1, "soft end", job->name,
                        NAME_SHOWN);
        if (job->start_ns != POLICY_NEVER && job->start_ns > job->arrival_ns) {
            bar(file, g, i, job->arrival_ns, job->start_ns, "wait", 0.5);
            fprintf(file, "<title>waits %.6g s</title></rect>\n",
                    (double)(job->start_ns - job->arrival_ns) / 1e9);
        }
    }
}

static void segments(FILE *file, struct gantt *g)
{
    for (uint32_t i = 0; i < g->chart->segment_count; i++) {
        const struct chart_segment *s = &g->chart->segment[i];
        double end = (double)s->end_ns * g->per_ns, *drawn_to = &g->drawn_to[s->job];

        /* Less than a quarter of a pixel beyond the drawn part is invisible. */
        if (end < *drawn_to + 0.25)
            continue;
        *drawn_to = end;
        bar(file, g, s->job, s->begin_ns, s->end_ns, s->mcpu ? "bar" : "pause",
            s->mcpu ? 0.2 + 0.8 * sqrt((double)s->mcpu / (double)g->most) : 1);
        fputs("<title>", file);
        svg_text(file, g->chart->job[s->job].name);
        fprintf(file, ": %.4g cores, %.6g to %.6g s</title></rect>\n",
                (double)s->mcpu / POLICY_CORE_MCPU, (double)s->begin_ns / 1e9,
                (double)s->end_ns / 1e9);
    }
}

int svg_gantt(FILE *file, int y, const struct chart *chart)
{
    static const char legend[] = "jobs (grey: waits; orange: paused; the fewer cores, the "
                                 "paler)";
    uint64_t end_ns = gantt_end(chart);
    const int height = gantt_height(chart);
    struct gantt g = {.chart = chart, .per_ns = PLOT / (double)end_ns, .row = row_height(chart)};

    if (height == 0)
        return 0;
    g.fill = g.row > 8 ? g.row - 3 : g.row - 1;
    for (uint32_t i = 0; i < chart->segment_count; i++)
        g.most = chart->segment[i].mcpu > g.most ? chart->segment[i].mcpu : g.most;
    begin(file, y, height);
    label(file, LEFT, TOP - 8, "head", legend);
    time_axis(file, end_ns, TOP, height - AXIS);
    rows(file, &g);
    segments(file, &g);
    fputs("</svg>\n", file);
    return height;
}

/* ---- bars ------------------------------------------------------------------------------------ */

/* Returns where bars begin, so that the longest name has room before them. */
static int names_width(const char *const *names, uint32_t count)
{
    size_t width = LEFT;

    for (uint32_t i = 0; i < count; i++)
        if (LETTER * strlen(names[i]) + 12 > width)
            width = LETTER * strlen(names[i]) + 12;
    return width < BAR_LEFT ? (int)width : BAR_LEFT;
}

int svg_bars(FILE *file, int y, const char *unit, const char *const *names,
             const struct sim_estimate *estimates, uint32_t count)
{
    const int height = 8 + BAR_HEIGHT * (int)count, left = names_width(names, count);
    const int plot = SVG_WIDTH - left - RIGHT - BAR_NUMBER;
    double most = 0;

    for (uint32_t i = 0; i < count; i++)
        if (estimates[i].count)
            most = fmax(most,
                        fmax(estimates[i].mean, isnan(estimates[i].high) ? 0 : estimates[i].high));
    begin(file, y, height);
    for (uint32_t i = 0; i < count; i++) {
        const struct sim_estimate *e = &estimates[i];
        double at = 4 + i * BAR_HEIGHT, middle = at + BAR_HEIGHT / 2.0 - 2, scale = plot / most;
        char text[64] = "-", number[REPORT_NUMBER_MAX];

        short_label(file, left - 6, at + 13, "end", names[i], (size_t)(left - 12) / LETTER);
        if (e->count)
            snprintf(text, sizeof(text), "%s%s%s", report_number(e->mean, number), *unit ? " " : "",
                     unit);
        if (e->count && most > 0) {
            fprintf(file,
                    "<rect class=\"bar\" x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>\n",
                    left, at, e->mean * scale, BAR_HEIGHT - 4);
            if (!isnan(e->low))
                fprintf(file, "<path class=\"mark\" stroke-width=\"1.5\" d=\"M%.1f %.1fH%.1f\"/>\n",
                        left + fmax(e->low, 0) * scale, middle, left + e->high * scale);
        }
        label(file, left + plot + 10, at + 13, "soft", text);
    }
    fputs("</svg>\n", file);
    return height;
}

/* ---- files of their own ---------------------------------------------------------------------- */

void svg_file(FILE *file, const char *title, const char *const *names, struct chart *const *charts,
              uint32_t count, uint32_t cores)
{
    int height = FILE_HEAD, y = FILE_HEAD;

    for (uint32_t i = 0; i < count; i++)
        height += CHART_HEAD + timelines_height(charts[i]) + gantt_height(charts[i]);
    begin(file, 0, height);
    fprintf(file, "<style>\n%s</style>\n<title>", svg_style);
    svg_text(file, title);
    fputs("</title>\n", file);
    label(file, 10, 24, "head", title);
    for (uint32_t i = 0; i < count; i++) {
        label(file, 10, y + 16, "head", names[i]);
        y += CHART_HEAD;
        y += svg_timelines(file, y, charts[i], cores);
        y += svg_gantt(file, y, charts[i]);
    }
    fputs("</svg>\n", file);
}
