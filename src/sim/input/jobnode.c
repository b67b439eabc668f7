/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/input/jobnode.h"

#include "base/cleanup.h"

#include <assert.h>
#include <string.h>

#define ERROR_WORD "bad-scenario"

#define SIGMA_MAX 10000  /* of a lognormal distribution, in thousandths */
#define ALPHA_MAX 100000 /* of a Pareto distribution, in thousandths */
#define SHARE_MAX 1000000000

static const struct value_type sigma_type = {VALUE_FACTOR, 0, SIGMA_MAX, NULL, 0};
static const struct value_type alpha_type = {VALUE_FACTOR, 1, ALPHA_MAX, NULL, 0};
static const struct value_type share_type = {VALUE_FACTOR, 0, SHARE_MAX, NULL, 0};

/* ---- distributions --------------------------------------------------------------------------- */

static int read_member(const struct node *object, const char *key, const struct value_type *type,
                       double *ret, struct error *err)
{
    struct node node = node_member(object, key);
    int64_t value;
    int r;

    if (!node.value)
        return node_error(object, err, "%s is missing", key);
    r = node_value(&node, type, &value, err);
    if (r == 0)
        *ret = (double)value;
    return r;
}

/* A mean or a deviation may be less than the smallest value that can be drawn. */
static struct value_type from_zero(const struct value_type *type)
{
    struct value_type result = *type;

    result.words = NULL;
    result.min = result.min < 0 ? result.min : 0;
    return result;
}

static int read_uniform(const struct node *node, const struct value_type *type, struct dist *dist,
                        struct error *err)
{
    int64_t end[2];
    int r = node_array(node, 2, 2, err);

    for (size_t i = 0; r == 0 && i < 2; i++) {
        struct node element = node_element(node, i);

        r = node_value(&element, type, &end[i], err);
    }
    if (r < 0)
        return r;
    if (end[0] > end[1])
        return node_error(node, err, "begins above its end");
    dist->a = (double)end[0];
    dist->b = (double)end[1];
    return 0;
}

static int list_init(struct dist *dist, size_t count)
{
    dist->value = calloc(count, sizeof(*dist->value));
    dist->share = calloc(count, sizeof(*dist->share));
    dist->count = count;
    return dist->value && dist->share ? 0 : -ENOMEM;
}

static int read_list(const struct node *node, const struct value_type *type, struct dist *dist,
                     struct error *err)
{
    int r = node_array(node, 1, DIST_LIST_MAX, err);

    if (r < 0)
        return r;
    if (list_init(dist, json_array_size(node->value)) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < dist->count; i++) {
        struct node element = node_element(node, i);
        int64_t value;

        r = node_value(&element, type, &value, err);
        if (r < 0)
            return r;
        dist->value[i] = (double)value;
        dist->share[i] = (double)(i + 1);
    }
    return 0;
}

/* {"rigid": 1, "malleable": 3}: the keys are the values. */
static int read_shares(const struct node *node, const struct value_type *type, struct dist *dist,
                       struct error *err)
{
    size_t count = json_object_size(node->value), i = 0;
    struct error reason;
    const char *key;
    json_t *json;
    double sum = 0;

    if (!json_is_object(node->value) || count == 0 || count > DIST_LIST_MAX)
        return node_error(node, err, "must be an object: {\"value\": share, … }");
    if (list_init(dist, count) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    json_object_foreach (node->value, key, json) {
        struct node member = node_member(node, key);
        int64_t value, share;
        int r = value_from_text(type, key, &value, &reason);

        if (r < 0)
            return node_error(&member, err, "%s", reason.text);
        r = node_value(&member, &share_type, &share, err);
        if (r < 0)
            return r;
        sum += (double)share;
        dist->value[i] = (double)value;
        dist->share[i++] = sum;
    }
    return sum > 0 ? 0 : node_error(node, err, "all shares are 0");
}

static int read_normal(const struct node *node, const struct value_type *type, struct dist *dist,
                       struct error *err)
{
    const struct value_type wide = from_zero(type);
    int r = node_object(node, (const char *const[]){"mean", "sd", NULL}, err);

    r = r < 0 ? r : read_member(node, "mean", &wide, &dist->a, err);
    return r < 0 ? r : read_member(node, "sd", &wide, &dist->b, err);
}

static int read_lognormal(const struct node *node, const struct value_type *type, struct dist *dist,
                          struct error *err)
{
    const struct value_type wide = from_zero(type);
    int r = node_object(node, (const char *const[]){"mean", "sigma", NULL}, err);

    r = r < 0 ? r : read_member(node, "mean", &wide, &dist->a, err);
    r = r < 0 ? r : read_member(node, "sigma", &sigma_type, &dist->b, err);
    dist->b /= 1000;
    return r;
}

static int read_exponential(const struct node *node, const struct value_type *type,
                            struct dist *dist, struct error *err)
{
    const struct value_type wide = from_zero(type);
    int r = node_object(node, (const char *const[]){"mean", NULL}, err);

    return r < 0 ? r : read_member(node, "mean", &wide, &dist->a, err);
}

static int read_pareto(const struct node *node, const struct value_type *type, struct dist *dist,
                       struct error *err)
{
    int r = node_object(node, (const char *const[]){"min", "max", "alpha", NULL}, err);

    r = r < 0 ? r : read_member(node, "min", type, &dist->a, err);
    r = r < 0 ? r : read_member(node, "max", type, &dist->b, err);
    r = r < 0 ? r : read_member(node, "alpha", &alpha_type, &dist->c, err);
    if (r < 0)
        return r;
    dist->c /= 1000;
    return dist->a > 0 && dist->a <= dist->b ? 0 : node_error(node, err, "needs 0 < min <= max");
}

static const struct reader {
    const char *name;
    enum dist_kind kind;
    int (*read)(const struct node *node, const struct value_type *type, struct dist *dist,
                struct error *err);
} readers[] = {
    {"uniform", DIST_UNIFORM, read_uniform},
    {"list", DIST_LIST, read_list},
    {"shares", DIST_LIST, read_shares},
    {"normal", DIST_NORMAL, read_normal},
    {"lognormal", DIST_LOGNORMAL, read_lognormal},
    {"exponential", DIST_EXPONENTIAL, read_exponential},
    {"pareto", DIST_PARETO, read_pareto},
};

static const struct reader *find_reader(const struct node *node, struct error *err)
{
    const char *names[ARRAY_LEN(readers) + 1] = {NULL};

    for (size_t i = 0; i < ARRAY_LEN(readers); i++)
        names[i] = readers[i].name;
    if (node_object(node, names, err) < 0)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(readers); i++)
        if (json_object_size(node->value) == 1 && json_object_get(node->value, readers[i].name))
            return &readers[i];
    node_error(node, err,
               "needs one distribution: uniform, list, shares, normal, lognormal, "
               "exponential or pareto");
    return NULL;
}

int dist_node_read(const struct node *node, const struct value_type *type, struct dist *ret_dist,
                   struct error *err)
{
    struct dist dist = {0};
    const struct reader *reader;
    struct node inner;
    int64_t value;
    int r;

    if (!json_is_object(node->value)) {
        r = node_value(node, type, &value, err);
        if (r == 0)
            *ret_dist = (struct dist){.kind = DIST_FIXED, .a = (double)value};
        return r;
    }
    reader = find_reader(node, err);
    if (!reader)
        return -EINVAL;
    dist.kind = reader->kind;
    inner = node_member(node, reader->name);
    if (type->kind == VALUE_WORD && dist.kind != DIST_LIST)
        return node_error(&inner, err, "words have no such distribution: use list or shares");
    r = reader->read(&inner, type, &dist, err);
    if (r < 0) {
        dist_done(&dist);
        return r;
    }
    *ret_dist = dist;
    return 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static int read_field(const struct node *node, const struct job_context *context, enum job_key key,
                      struct job_spec *spec, struct error *err)
{
    struct error reason;
    int64_t value;
    int r;

    if (json_is_string(node->value)) {
        r = job_spec_set(spec, context, key, json_string_value(node->value), &reason);
        return r < 0 ? node_error(node, err, "%s", reason.text) : 0;
    }
    if (key == JOB_KEY_NAME)
        return node_error(node, err, "must be a string");
    r = node_value(node, job_key_type(key), &value, err);
    if (r == 0)
        job_spec_put(spec, key, value);
    return r;
}

static int read_draw(const struct node *node, enum job_key key, struct job_draws *draws,
                     struct error *err)
{
    int r;

    if (!draws || key == JOB_KEY_NAME || key == JOB_KEY_ARRIVAL)
        return node_error(node, err, "must be a plain value here");
    r = dist_node_read(node, job_key_type(key), &draws->draw[draws->count].dist, err);
    if (r == 0)
        draws->draw[draws->count++].key = key;
    return r;
}

int job_node_read(const struct node *object, const char *const *more,
                  const struct job_context *context, struct job_spec *spec, struct job_draws *draws,
                  struct error *err)
{
    const char *names[JOB_KEY_MAX + 8] = {NULL};
    size_t count = JOB_KEY_MAX;
    uint32_t own = 0;
    int r;

    for (int key = 0; key < JOB_KEY_MAX; key++)
        names[key] = job_key_name(key);
    for (; more && *more; more++) {
        assert(count + 1 < ARRAY_LEN(names));
        names[count++] = *more;
    }
    r = node_object(object, names, err);
    for (int key = 0; key < JOB_KEY_MAX; key++)
        own |= json_object_get(object->value, names[key]) ? UINT32_C(1) << key : 0;
    job_spec_displace(spec, own);
    for (int key = 0; r == 0 && key < JOB_KEY_MAX; key++) {
        struct node node = node_member(object, names[key]);

        if (json_is_object(node.value))
            r = read_draw(&node, key, draws, err);
        else if (node.value)
            r = read_field(&node, context, key, spec, err);
    }
    return r;
}

void job_draws_done(struct job_draws *draws)
{
    for (size_t i = 0; i < draws->count; i++)
        dist_done(&draws->draw[i].dist);
    draws->count = 0;
}
