/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/object/read.h"

#include "base/minmax.h"

#include "kube/object/quantity.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "bad-object"

#define REAL_MAX 1e18 /* of rates and losses: more is no measurement */

void read_at(struct reader *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(r->where, sizeof(r->where), fmt, ap);
    va_end(ap);
}

void read_fault(struct reader *r, const char *key, const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list ap;

    if (r->err.code || r->lenient)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    error_set(&r->err, -EINVAL, "%.120s%.60s: %s", r->where, key, text);
}

void *read_alloc(struct reader *r, size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);

    if (!memory && !r->err.code)
        error_set(&r->err, -ENOMEM, "out of memory");
    return memory;
}

int read_end(const struct reader *r, struct error *err)
{
    return r->err.code ? error_set(err, r->err.code, "%s", r->err.text) : 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static const json_t *member(const json_t *in, const char *key)
{
    const json_t *value = json_is_object(in) ? json_object_get(in, key) : NULL;

    return json_is_null(value) ? NULL : value;
}

const json_t *read_object(struct reader *r, const json_t *in, const char *key)
{
    const json_t *value = member(in, key);

    if (value && !json_is_object(value)) {
        read_fault(r, key, "is no object");
        return NULL;
    }
    return value;
}

const json_t *read_array(struct reader *r, const json_t *in, const char *key)
{
    const json_t *value = member(in, key);

    if (value && !json_is_array(value)) {
        read_fault(r, key, "is no list");
        return NULL;
    }
    if (json_array_size(value) > KUBE_LIST_MAX) {
        read_fault(r, key, "has %zu entries, at most %d are read", json_array_size(value),
                   KUBE_LIST_MAX);
        return NULL;
    }
    return value;
}

const char *read_string(struct reader *r, const json_t *in, const char *key)
{
    const json_t *value = member(in, key);

    if (!value)
        return NULL;
    if (!json_is_string(value)) {
        read_fault(r, key, "is no string");
        return NULL;
    }
    if (json_string_length(value) > KUBE_TEXT_MAX) {
        read_fault(r, key, "has %zu bytes, at most %d are read", json_string_length(value),
                   KUBE_TEXT_MAX);
        return NULL;
    }
    return json_string_value(value);
}

char *read_copy(struct reader *r, const char *text)
{
    char *copy = text ? read_alloc(r, strlen(text) + 1, 1) : NULL;

    return copy ? strcpy(copy, text) : NULL;
}

char *read_clipped(struct reader *r, const json_t *in, const char *key)
{
    const char *text = json_string_value(member(in, key));
    size_t len = text ? strnlen(text, KUBE_TEXT_MAX) : 0;
    char *copy;

    while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80) /* half a character is no JSON */
        len--;
    copy = text ? read_alloc(r, len + 1, 1) : NULL;
    return copy ? memcpy(copy, text, len) : NULL;
}

char *read_text(struct reader *r, const json_t *in, const char *key)
{
    return read_copy(r, read_string(r, in, key));
}

bool read_bool(struct reader *r, const json_t *in, const char *key, bool otherwise)
{
    const json_t *value = member(in, key);

    if (value && !json_is_boolean(value))
        read_fault(r, key, "is neither true nor false");
    return value ? json_is_true(value) : otherwise;
}

int64_t read_int(struct reader *r, const json_t *in, const char *key, int64_t otherwise,
                 int64_t min, int64_t max)
{
    const json_t *value = member(in, key);

    if (!value)
        return otherwise;
    if (!json_is_integer(value)) {
        read_fault(r, key, "is no whole number");
        return otherwise;
    }
    if (json_integer_value(value) < min || json_integer_value(value) > max) {
        read_fault(r, key, "%lld is not within %" PRId64 " and %" PRId64,
                   (long long)json_integer_value(value), min, max);
        return otherwise;
    }
    return json_integer_value(value);
}

double read_real(struct reader *r, const json_t *in, const char *key, double otherwise)
{
    const json_t *value = member(in, key);
    double number = json_number_value(value);

    if (!value)
        return otherwise;
    if (!json_is_number(value)) {
        read_fault(r, key, "is no number");
        return otherwise;
    }
    if (!(fabs(number) <= REAL_MAX)) {
        read_fault(r, key, "%g is too large", number);
        return otherwise;
    }
    return number;
}

int64_t read_time(struct reader *r, const json_t *in, const char *key)
{
    const char *text = read_string(r, in, key);
    int64_t ns = 0;

    if (text && kube_time(text, &ns))
        read_fault(r, key, "'%.40s' is no time", text);
    return ns;
}

int read_name(struct reader *r, const json_t *in, const char *key, const char *const *names,
              int count, int otherwise)
{
    const char *text = read_string(r, in, key);

    for (int i = 0; text && i < count; i++)
        if (strcmp(names[i], text) == 0)
            return i;
    if (text)
        read_fault(r, key, "'%.40s' is unknown", text);
    return otherwise;
}

int64_t read_quantity(struct reader *r, const json_t *in, const char *key, bool milli,
                      int64_t otherwise)
{
    const json_t *value = member(in, key);
    char number[64];
    const char *text;
    int64_t amount = otherwise;
    int e;

    if (!value)
        return otherwise;
    if (json_is_integer(value))
        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value) && fabs(json_real_value(value)) <= REAL_MAX)
        snprintf(number, sizeof(number), "%.9f", json_real_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof(number), "1e99");
    text = json_is_number(value) ? number : read_string(r, in, key);
    if (!text)
        return otherwise;
    e = milli ? kube_quantity_milli(text, &amount) : kube_quantity_whole(text, &amount);
    if (e == -ERANGE && r->lenient)
        return milli ? KUBE_MCPU_MAX : KUBE_BYTES_MAX;
    if (e == -ERANGE)
        read_fault(r, key, "'%.40s' is more than any machine has", text);
    else if (e)
        read_fault(r, key, "'%.40s' is no amount; write it as 500m, 2 or 1Gi", text);
    return e ? otherwise : amount;
}

void read_resources(struct reader *r, const json_t *in, const char *key, struct kube_amount *ret)
{
    const json_t *list = read_object(r, in, key);

    ret->mcpu = read_quantity(r, list, "cpu", true, -1);
    ret->bytes = read_quantity(r, list, "memory", false, -1);
}

static bool is_extra(const char *name)
{
    return strcmp(name, "cpu") != 0 && strcmp(name, "memory") != 0 && strcmp(name, "pods") != 0;
}

static struct kube_extra *find_extra(struct kube_extras *extras, const char *name)
{
    struct kube_extra *extra = extras->at;

    while (extra < extras->at + extras->count && strcmp(extra->name, name) != 0)
        extra++;
    return extra;
}

void read_extras(struct reader *r, const json_t *in, const char *key, struct kube_extras *ret)
{
    const json_t *list = read_object(r, in, key);
    size_t most = ret->count + json_object_size(list);
    struct kube_extra *more;
    const char *name;
    json_t *value;

    if (most == ret->count || most > KUBE_LIST_MAX)
        return;
    more = realloc(ret->at, most * sizeof(*more));
    if (!more) {
        error_set(&r->err, -ENOMEM, "out of memory");
        return;
    }
    ret->at = more;
    json_object_foreach ((json_t *)list, name, value) {
        struct kube_extra *extra = find_extra(ret, name);
        int64_t amount = json_integer_value(value);

        if (!is_extra(name) ||
            (json_is_string(value) && kube_quantity_whole(json_string_value(value), &amount)))
            continue;
        if (extra == ret->at + ret->count) {
            *extra = (struct kube_extra){.name = read_copy(r, name)};
            if (!extra->name)
                return;
            ret->count++;
        }
        extra->amount = amount > INT64_MAX - extra->amount ? INT64_MAX : extra->amount + amount;
    }
}

void kube_extras_done(struct kube_extras *extras)
{
    for (uint32_t i = 0; i < extras->count; i++)
        free(extras->at[i].name);
    free(extras->at);
}

/* ---- metadata, labels ------------------------------------------------------------------------ */

void read_meta(struct reader *r, const json_t *object, struct kube_meta *ret)
{
    const json_t *meta = read_object(r, object, "metadata");
    bool lenient = r->lenient;

    read_at(r, "metadata.");
    ret->name = read_text(r, meta, "name");
    ret->namespace = read_text(r, meta, "namespace");
    if (!ret->namespace)
        ret->namespace = read_copy(r, "");
    ret->uid = read_text(r, meta, "uid");
    ret->generation = read_int(r, meta, "generation", 0, 0, INT64_MAX);
    ret->created_ns = read_time(r, meta, "creationTimestamp");
    ret->deleted_ns = read_time(r, meta, "deletionTimestamp");
    r->lenient = false; /* without these fields the object has no identity */
    if (!ret->name || !*ret->name || strlen(ret->name) > KUBE_NAME_MAX)
        read_fault(r, "name", "is missing or too long");
    if (!ret->uid || !*ret->uid || strlen(ret->uid) > KUBE_NAME_MAX)
        read_fault(r, "uid", "is missing or too long");
    r->lenient = lenient;
}

void kube_meta_done(struct kube_meta *meta)
{
    free(meta->namespace);
    free(meta->name);
    free(meta->uid);
}

void read_labels(struct reader *r, const json_t *in, const char *key, struct kube_labels *ret)
{
    const json_t *labels = read_object(r, in, key);
    const char *name;
    json_t *value;
    size_t count = json_object_size(labels);

    if (count == 0)
        return;
    if (count > KUBE_LIST_MAX) {
        read_fault(r, key, "has %zu entries, at most %d are read", count, KUBE_LIST_MAX);
        return;
    }
    ret->at = read_alloc(r, count, sizeof(ret->at[0]));
    if (!ret->at)
        return;
    json_object_foreach ((json_t *)labels, name, value) {
        struct kube_label *label = &ret->at[ret->count];

        if (!json_is_string(value) || json_string_length(value) > KUBE_TEXT_MAX ||
            strlen(name) > KUBE_TEXT_MAX) {
            read_fault(r, key, "'%.40s' is no short string", name);
            continue;
        }
        label->key = read_copy(r, name);
        label->value = read_copy(r, json_string_value(value));
        ret->count++;
        if (!label->key || !label->value)
            return;
    }
}

void kube_labels_done(struct kube_labels *labels)
{
    for (uint32_t i = 0; i < labels->count; i++) {
        free(labels->at[i].key);
        free(labels->at[i].value);
    }
    free(labels->at);
}

/* ---- places ---------------------------------------------------------------------------------- */

static void read_values(struct reader *r, const json_t *in, struct kube_requirement *ret)
{
    const json_t *values = read_array(r, in, "values");
    json_t *value;
    size_t i;

    if (json_array_size(values) == 0)
        return;
    ret->values = read_alloc(r, json_array_size(values), sizeof(char *));
    if (!ret->values)
        return;
    json_array_foreach (values, i, value) {
        if (!json_is_string(value) || json_string_length(value) > KUBE_TEXT_MAX) {
            read_fault(r, "values", "has an entry that is no short string");
            continue;
        }
        ret->values[ret->value_count] = read_copy(r, json_string_value(value));
        if (!ret->values[ret->value_count++])
            return;
    }
}

void read_term(struct reader *r, const json_t *in, const char *key, bool field,
               struct kube_term *term)
{
    static const char *const operators[] = {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"};
    const json_t *list = read_array(r, in, key);
    struct kube_requirement *at;
    json_t *entry;
    size_t i;

    if (json_array_size(list) == 0)
        return;
    at = realloc(term->at, (term->count + json_array_size(list)) * sizeof(*at));
    if (!at) {
        error_set(&r->err, -ENOMEM, "out of memory");
        return;
    }
    term->at = at;
    json_array_foreach (list, i, entry) {
        struct kube_requirement *to = &at[term->count++];

        *to = (struct kube_requirement){.field = field};
        to->key = read_text(r, entry, "key");
        to->op = (enum kube_operator)read_name(r, entry, "operator", operators, KUBE_OPERATOR_MAX,
                                               KUBE_OPERATOR_MAX);
        if (!to->key || to->op == KUBE_OPERATOR_MAX)
            read_fault(r, key, "has an entry without key or operator");
        if (!to->key)
            to->key = read_copy(r, "");
        read_values(r, entry, to);
    }
}

static void read_affinity(struct reader *r, const json_t *spec, struct kube_place *ret)
{
    const json_t *node = read_object(r, read_object(r, spec, "affinity"), "nodeAffinity");
    const json_t *required = read_object(r, node, "requiredDuringSchedulingIgnoredDuringExecution");
    const json_t *terms = read_array(r, required, "nodeSelectorTerms");
    json_t *term;
    size_t i;

    if (json_array_size(terms) == 0)
        return;
    ret->terms = read_alloc(r, json_array_size(terms), sizeof(ret->terms[0]));
    if (!ret->terms)
        return;
    json_array_foreach (terms, i, term) {
        struct kube_term *to = &ret->terms[ret->term_count++];

        read_term(r, term, "matchExpressions", false, to);
        read_term(r, term, "matchFields", true, to);
    }
}

static void read_tolerations(struct reader *r, const json_t *spec, struct kube_place *ret)
{
    static const char *const effects[] = {"NoSchedule", "PreferNoSchedule", "NoExecute", ""};
    static const char *const operators[] = {"Equal", "Exists"};
    const json_t *list = read_array(r, spec, "tolerations");
    json_t *entry;
    size_t i;

    if (json_array_size(list) == 0)
        return;
    ret->tolerations = read_alloc(r, json_array_size(list), sizeof(ret->tolerations[0]));
    if (!ret->tolerations)
        return;
    json_array_foreach (list, i, entry) {
        struct kube_toleration *to = &ret->tolerations[ret->toleration_count++];
        const char *key = read_string(r, entry, "key"), *value = read_string(r, entry, "value");

        to->key = read_copy(r, key ? key : "");
        if (read_name(r, entry, "operator", operators, 2, 0) == 0)
            to->value = read_copy(r, value ? value : "");
        to->effect = (enum kube_effect)read_name(r, entry, "effect", effects, KUBE_EFFECT_MAX,
                                                 KUBE_EFFECT_ANY);
    }
}

void read_place(struct reader *r, const json_t *spec, struct kube_place *ret)
{
    read_labels(r, spec, "nodeSelector", &ret->selector);
    read_affinity(r, spec, ret);
    read_tolerations(r, spec, ret);
    ret->node_name = read_text(r, spec, "nodeName");
}

void kube_term_done(struct kube_term *term)
{
    for (uint32_t i = 0; i < term->count; i++) {
        for (uint32_t v = 0; v < term->at[i].value_count; v++)
            free(term->at[i].values[v]);
        free(term->at[i].values);
        free(term->at[i].key);
    }
    free(term->at);
}

void kube_place_done(struct kube_place *place)
{
    kube_labels_done(&place->selector);
    for (uint32_t i = 0; i < place->term_count; i++)
        kube_term_done(&place->terms[i]);
    free(place->terms);
    for (uint32_t i = 0; i < place->toleration_count; i++) {
        free(place->tolerations[i].key);
        free(place->tolerations[i].value);
    }
    free(place->tolerations);
    free(place->node_name);
}

/* ---- what pods ask for ----------------------------------------------------------------------- */

static void add(struct kube_amount *to, const struct kube_amount *more)
{
    to->mcpu += larger(more->mcpu, 0);
    to->bytes += larger(more->bytes, 0);
}

static void raise_to(struct kube_amount *to, const struct kube_amount *other)
{
    to->mcpu = larger(to->mcpu, other->mcpu);
    to->bytes = larger(to->bytes, other->bytes);
}

/* A container without a request requests its limit, as the API server has it. */
static void read_container(struct reader *r, const json_t *resources, struct kube_amount *request,
                           struct kube_amount *limit)
{
    *request = *limit = (struct kube_amount){0};
    read_resources(r, resources, "requests", request);
    read_resources(r, resources, "limits", limit);
    request->mcpu = request->mcpu < 0 ? larger(limit->mcpu, 0) : request->mcpu;
    request->bytes = request->bytes < 0 ? larger(limit->bytes, 0) : request->bytes;
}

struct sums {
    struct kube_amount request, limit; /* of the containers that run all the time */
    struct kube_amount peak;           /* at the start, one init container after the other */
};

static void sum_init(struct reader *r, const json_t *spec, struct sums *sums)
{
    struct kube_amount request, limit;
    json_t *container;
    size_t i;

    json_array_foreach (read_array(r, spec, "initContainers"), i, container) {
        const char *restart = read_string(r, container, "restartPolicy");

        read_container(r, read_object(r, container, "resources"), &request, &limit);
        if (restart && strcmp(restart, "Always") == 0) {
            add(&sums->request, &request);
            add(&sums->limit, &limit);
            raise_to(&sums->peak, &sums->request);
        } else {
            add(&request, &sums->request);
            raise_to(&sums->peak, &request);
        }
    }
}

void read_pod_request(struct reader *r, const json_t *spec, const json_t *own,
                      struct kube_amount *ret_request, struct kube_amount *ret_limit,
                      int64_t *ret_mcpu, int64_t *ret_limit_mcpu)
{
    struct kube_amount request, limit, overhead = {0};
    struct sums sums = {0};
    bool found = false;
    json_t *container;
    size_t i;

    *ret_mcpu = *ret_limit_mcpu = 0;
    sum_init(r, spec, &sums);
    json_array_foreach (read_array(r, spec, "containers"), i, container) {
        const char *name = read_string(r, container, "name");
        bool ours = name && strcmp(name, KUBE_CONTAINER) == 0;

        read_container(r, ours && own ? own : read_object(r, container, "resources"), &request,
                       &limit);
        add(&sums.request, &request);
        add(&sums.limit, &limit);
        if (ours) {
            *ret_mcpu = request.mcpu;
            *ret_limit_mcpu = larger(limit.mcpu, 0);
        }
        found |= ours;
    }
    if (!found && own) {
        read_container(r, own, &request, &limit);
        add(&sums.request, &request);
        add(&sums.limit, &limit);
        *ret_mcpu = request.mcpu;
        *ret_limit_mcpu = larger(limit.mcpu, 0);
    }
    raise_to(&sums.request, &sums.peak);
    /* resources of the pod as a whole stand for those of its containers */
    read_container(r, read_object(r, spec, "resources"), &request, &limit);
    sums.request.mcpu = request.mcpu ? request.mcpu : sums.request.mcpu;
    sums.request.bytes = request.bytes ? request.bytes : sums.request.bytes;
    read_resources(r, spec, "overhead", &overhead);
    add(&sums.request, &overhead);
    add(&sums.limit, &overhead);
    *ret_request = sums.request;
    *ret_limit = sums.limit;
    ret_request->pods = ret_limit->pods = 1;
}
