/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes a choice of policy and parameters as text (policy.h shows the form). Pure, as
 * all of the folder; called where a person or a file names a policy: tide, tided, the simulator.
 */
#include "base/distance.h"
#include "policy/core/policy.h"
#include "policy/core/writer.h"

#include <errno.h>
#include <string.h>

#define WORD_SHOWN 31 /* bytes of a wrong word that a message repeats; names are shorter */

/* A part of the text, not terminated. */
struct word {
    const char *text;
    size_t length;
};

struct unit {
    const char *base; /* unit of the parameter */
    const char *name;
    int64_t factor;
    const char *one; /* the word for a value of 1, apart from its number in texts for people */
};

/* For one base, larger units stand behind smaller ones. */
static const struct unit units[] = {
    {"ns", "ns", 1, NULL},
    {"ns", "us", 1000, NULL},
    {"ns", "ms", 1000000, NULL},
    {"ns", "s", 1000000000, NULL},
    {"ns", "min", INT64_C(60000000000), NULL},
    {"ns", "h", INT64_C(3600000000000), NULL},
    {"mcpu", "mcpu", 1, "mcpu"},
    {"mcpu", "cores", POLICY_CORE_MCPU, "core"},
    {"permille", "permille", 1, "permille"},
    {"uW", "uW", 1, NULL},
    {"uW", "mW", 1000, NULL},
    {"uW", "W", 1000000, NULL},
};

#define UNIT_COUNT (sizeof(units) / sizeof(units[0]))

static struct word word_of(const char *text)
{
    struct word word = {.text = text};

    /* without a bound compilers see strlen() in this, which policy code may not import */
    while (word.length < PTRDIFF_MAX && text[word.length])
        word.length++;
    return word;
}

/* Cuts the part up to @end or the end of the text off *rest; the separator goes too. */
static struct word cut(struct word *rest, char end)
{
    struct word word = {.text = rest->text};

    while (word.length < rest->length && rest->text[word.length] != end)
        word.length++;
    rest->text += word.length;
    rest->length -= word.length;
    if (rest->length) {
        rest->text++;
        rest->length--;
    }
    return word;
}

static bool word_is(struct word word, const char *name)
{
    struct word other = word_of(name);

    return word.length == other.length && memcmp(word.text, name, word.length) == 0;
}

static const char *value_name(const struct policy_param *param, int64_t value)
{
    return param->names[value - param->min];
}

/* ---- error messages -------------------------------------------------------------------------- */

static struct writer complain(struct error *err, int code)
{
    if (!err)
        return (struct writer){0};
    err->code = code;
    err->word = code == -ENOENT ? "no-such-policy" : "bad-policy";
    return (struct writer){.buf = err->text, .size = sizeof(err->text)};
}

static void put_quoted(struct writer *w, struct word word)
{
    put_char(w, '"');
    for (size_t i = 0; i < word.length && i < WORD_SHOWN; i++) {
        unsigned char c = (unsigned char)word.text[i];

        put_char(w, c < ' ' || c == 0x7f ? '?' : (char)c);
    }
    put_text(w, word.length > WORD_SHOWN ? "…\"" : "\"");
}

/* Compares a word with names, one by one; then suggests the nearest, if one is near. */
struct near {
    struct word word;
    const char *name;
    unsigned distance;
};

static void near_try(struct near *near, const char *name)
{
    struct word known = word_of(name);
    unsigned d = distance(near->word.text, near->word.length, name, known.length);

    if (d <= 2 && d < known.length && (!near->name || d < near->distance)) {
        near->name = name;
        near->distance = d;
    }
}

static void near_put(struct writer *w, const struct near *near)
{
    if (!near->name)
        return;
    put_text(w, " (did you mean ");
    put_text(w, near->name);
    put_text(w, "?)");
}

static void put_value_names(struct writer *w, const struct policy_param *param)
{
    for (int64_t value = param->min; value <= param->max; value++) {
        put_text(w, value > param->min ? ", " : "");
        put_text(w, value_name(param, value));
    }
}

/* Ends a message: "reassignment: strict, always-attend; quantum=VALUE". */
static void put_choices(struct writer *w, const struct policy *policy)
{
    put_text(w, policy->param_count ? "; it takes " : "; it takes no parameter");
    for (uint32_t i = 0; i < policy->param_count; i++) {
        const struct policy_param *param = &policy->params[i];

        put_text(w, i > 0 ? "; " : "");
        put_text(w, param->name);
        if (!param->names) {
            put_text(w, "=VALUE");
            continue;
        }
        put_text(w, ": ");
        put_value_names(w, param);
    }
}

/* ---- one value ------------------------------------------------------------------------------- */

static const struct unit *unit_find(const struct policy_param *param, struct word name)
{
    static const struct unit own = {.factor = 1};

    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (word_is(word_of(param->unit), units[i].base) &&
            (word_is(name, units[i].name) || (units[i].one && word_is(name, units[i].one))))
            return &units[i];
    return name.length == 0 || word_is(name, param->unit) ? &own : NULL;
}

/* Cuts the digits at the beginning off *rest. */
static struct word cut_digits(struct word *rest)
{
    struct word number = {.text = rest->text};

    while (number.length < rest->length && rest->text[number.length] >= '0' &&
           rest->text[number.length] <= '9')
        number.length++;
    rest->text += number.length;
    rest->length -= number.length;
    return number;
}

static bool cut_char(struct word *rest, char c)
{
    if (rest->length == 0 || rest->text[0] != c)
        return false;
    rest->text++;
    rest->length--;
    return true;
}

/* computes value * factor + digit * scale, unless that is too large */
static bool append(int64_t *value, int64_t factor, char digit, int64_t scale)
{
    return !__builtin_mul_overflow(*value, factor, value) &&
           !__builtin_add_overflow(*value, (digit - '0') * scale, value);
}

/* Converts exactly or fails: "1.5s" is 1500000000 ns, "0.5ns" is refused. */
static bool read_number(const struct policy_param *param, struct word word, int64_t *ret_value)
{
    bool negative = cut_char(&word, '-');
    struct word whole = cut_digits(&word), fraction = {0};
    bool point = cut_char(&word, '.');
    const struct unit *unit;
    int64_t value = 0, scale;

    if (point)
        fraction = cut_digits(&word);
    if (word.length > 1)
        cut_char(&word, ' ');
    unit = unit_find(param, word);
    if (!unit || whole.length == 0 || (point && fraction.length == 0))
        return false;
    for (size_t i = 0; i < whole.length; i++)
        if (!append(&value, 10, whole.text[i], 1))
            return false;
    scale = unit->factor;
    if (__builtin_mul_overflow(value, scale, &value))
        return false;
    for (size_t i = 0; i < fraction.length; i++, scale /= 10)
        if ((scale % 10 && fraction.text[i] != '0') ||
            !append(&value, 1, fraction.text[i], scale / 10))
            return false;
    *ret_value = negative ? -value : value;
    return true;
}

/* @people: "2 cores"; else "2cores", one word for a shell. */
static void put_number_of(struct writer *w, const struct policy_param *param, int64_t value,
                          bool people)
{
    struct unit unit = {.name = param->unit, .factor = 1};

    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (word_is(word_of(param->unit), units[i].base) && value % units[i].factor == 0)
            unit = units[i];
    put_number(w, value / unit.factor);
    if (value == 0)
        return;
    put_text(w, people && unit.one ? " " : "");
    put_text(w, people && unit.one && value == unit.factor ? unit.one : unit.name);
}

static void put_value(struct writer *w, const struct policy_param *param, int64_t value,
                      bool people)
{
    if (value < param->min || value > param->max)
        put_char(w, '?');
    else if (param->names)
        put_text(w, value_name(param, value));
    else
        put_number_of(w, param, value, people);
}

static void explain_name(struct writer *w, const struct policy_param *param, struct word word)
{
    struct near near = {.word = word};

    for (int64_t value = param->min; value <= param->max; value++)
        near_try(&near, value_name(param, value));
    put_text(w, " is no value of ");
    put_text(w, param->name);
    near_put(w, &near);
    put_text(w, "; it takes ");
    put_value_names(w, param);
}

static void explain_number(struct writer *w, const struct policy_param *param)
{
    const char *separator = " in ";

    put_text(w, " is no number for ");
    put_text(w, param->name);
    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (word_is(word_of(param->unit), units[i].base)) {
            put_text(w, separator);
            put_text(w, units[i].name);
            separator = ", ";
        }
    put_text(w, "; it takes ");
    put_value(w, param, param->min, true);
    put_text(w, " … ");
    put_value(w, param, param->max, true);
}

static int read_value(const struct policy_param *param, struct word word, int64_t *ret_value,
                      struct error *err)
{
    int64_t value;
    struct writer w;

    for (value = param->min; param->names && value <= param->max; value++)
        if (word_is(word, value_name(param, value))) {
            *ret_value = value;
            return 0;
        }
    if (!param->names && read_number(param, word, &value) && value >= param->min &&
        value <= param->max) {
        *ret_value = value;
        return 0;
    }
    w = complain(err, -EINVAL);
    put_quoted(&w, word);
    if (param->names)
        explain_name(&w, param, word);
    else
        explain_number(&w, param);
    put_end(&w);
    return -EINVAL;
}

int policy_param_parse(const struct policy_param *param, const char *text, int64_t *ret_value,
                       struct error *err)
{
    return read_value(param, word_of(text), ret_value, err);
}

size_t policy_param_text(const struct policy_param *param, int64_t value, char *buf, size_t size)
{
    struct writer w = {.buf = buf, .size = size};

    put_value(&w, param, value, true);
    return put_end(&w);
}

/* ---- the whole choice ------------------------------------------------------------------------ */

static const struct policy *find_policy(struct word name, struct error *err)
{
    struct near near = {.word = name};
    struct writer w;

    for (size_t i = 0; i < policy_count(); i++)
        if (word_is(name, policy_at(i)->name))
            return policy_at(i);
    w = complain(err, -ENOENT);
    put_text(&w, "there is no policy ");
    put_quoted(&w, name);
    for (size_t i = 0; i < policy_count(); i++)
        near_try(&near, policy_at(i)->name);
    near_put(&w, &near);
    put_text(&w, "; there are ");
    for (size_t i = 0; i < policy_count(); i++) {
        put_text(&w, i > 0 ? ", " : "");
        put_text(&w, policy_at(i)->name);
    }
    put_end(&w);
    return NULL;
}

/* Counts parameters that have a value of this name, and returns the last one. */
static int find_value(const struct policy *policy, struct word name, uint32_t *ret_param)
{
    int found = 0;

    for (uint32_t i = 0; i < policy->param_count; i++) {
        const struct policy_param *param = &policy->params[i];

        for (int64_t value = param->min; param->names && value <= param->max; value++)
            if (word_is(name, value_name(param, value))) {
                *ret_param = i;
                found++;
            }
    }
    return found;
}

static int unknown_word(const struct policy *policy, struct word word, bool named, int found,
                        struct error *err)
{
    struct near near = {.word = word};
    struct writer w = complain(err, -EINVAL);

    put_quoted(&w, word);
    put_text(&w, found > 1 ? " is a value of more than one parameter of "
                 : named   ? " is no parameter of "
                           : " is no value of a parameter of ");
    put_text(&w, policy->name);
    for (uint32_t i = 0; i < policy->param_count; i++) {
        const struct policy_param *param = &policy->params[i];

        if (named)
            near_try(&near, param->name);
        for (int64_t value = param->min; !named && param->names && value <= param->max; value++)
            near_try(&near, value_name(param, value));
    }
    if (found == 0)
        near_put(&w, &near);
    put_choices(&w, policy);
    put_end(&w);
    return -EINVAL;
}

static int read_word(struct policy_spec *spec, struct word word, uint32_t *given, struct error *err)
{
    struct word value = word, name = cut(&value, '=');
    bool named = name.length < word.length;
    uint32_t index = 0;
    int found;

    if (named) {
        while (index < spec->policy->param_count &&
               !word_is(name, spec->policy->params[index].name))
            index++;
        found = index < spec->policy->param_count;
    } else {
        value = word;
        found = find_value(spec->policy, word, &index);
    }
    if (found != 1)
        return unknown_word(spec->policy, name, named, found, err);
    if (*given & 1u << index) {
        struct writer w = complain(err, -EINVAL);

        put_quoted(&w, word);
        put_text(&w, " sets ");
        put_text(&w, spec->policy->params[index].name);
        put_text(&w, " a second time: leave one out");
        put_end(&w);
        return -EINVAL;
    }
    *given |= 1u << index;
    return read_value(&spec->policy->params[index], value, &spec->params[index], err);
}

int policy_spec_parse(const char *text, struct policy_spec *ret_spec, struct error *err)
{
    struct word rest = word_of(text), name = cut(&rest, '/');
    struct policy_spec spec = {.policy = find_policy(name, err)};
    bool more = text[name.length] == '/';
    uint32_t given = 0;

    if (!spec.policy)
        return -ENOENT;
    for (uint32_t i = 0; i < spec.policy->param_count; i++)
        spec.params[i] = spec.policy->params[i].def;
    while (more) {
        struct word word = cut(&rest, '/');
        int r = read_word(&spec, word, &given, err);

        if (r < 0)
            return r;
        more = word.text[word.length] == '/';
    }
    *ret_spec = spec;
    return 0;
}

const char *policy_spec_simulated(const struct policy_spec *spec)
{
    for (uint32_t i = 0; i < spec->policy->param_count; i++)
        if (spec->policy->params[i].simulated && spec->params[i] != spec->policy->params[i].def)
            return spec->policy->params[i].name;
    return NULL;
}

size_t policy_spec_text(const struct policy_spec *spec, char *buf, size_t size)
{
    struct writer w = {.buf = buf, .size = size};

    put_text(&w, spec->policy->name);
    for (uint32_t i = 0; i < spec->policy->param_count; i++) {
        const struct policy_param *param = &spec->policy->params[i];
        uint32_t index;

        if (spec->params[i] == param->def)
            continue;
        put_char(&w, '/');
        if (!param->names ||
            find_value(spec->policy, word_of(value_name(param, spec->params[i])), &index) != 1) {
            put_text(&w, param->name);
            put_char(&w, '=');
        }
        put_value(&w, param, spec->params[i], false);
    }
    return put_end(&w);
}
