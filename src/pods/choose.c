/* SPDX-License-Identifier: Apache-2.0 */
#include "pods/choose.h"

#include "base/container.h"
#include "proto/attribute.h"
#include "proto/proto.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELASTIC  CHOOSE_PREFIX "elastic"
#define INJECT   CHOOSE_PREFIX "inject"
#define EXCEPT   CHOOSE_PREFIX "inject-except"
#define TRAINING CHOOSE_PREFIX "job" /* tide-kube's, which sizes its pods itself */

#define VALUE_MAX 256 /* of a note that becomes a label */

static_assert(CHOOSE_NAME_MAX == PROTO_NAME_MAX, "a job's name");

static const char *const qos_words[] = {
    [QOS_GUARANTEED] = "guaranteed",
    [QOS_BURSTABLE] = "burstable",
    [QOS_BEST_EFFORT] = "besteffort",
};
static_assert(sizeof(qos_words) / sizeof(*qos_words) == QOS_MAX, "a word for each class");

static bool says(const struct nri_pod *pod, const char *key, const char *word)
{
    struct span value;

    return nri_note(pod->whole, key, &value) && span_is(value, word);
}

static bool contains(struct span text, const char *word)
{
    return text.len > 0 && memmem(text.at, text.len, word, strlen(word)) != NULL;
}

/* The kubelet names the class in the pod's control group; a guaranteed pod's lies above the rest.
 */
enum qos choose_qos(const struct nri_pod *pod)
{
    return contains(pod->cgroup_parent, qos_words[QOS_BEST_EFFORT]) ? QOS_BEST_EFFORT
           : contains(pod->cgroup_parent, qos_words[QOS_BURSTABLE]) ? QOS_BURSTABLE
                                                                    : QOS_GUARANTEED;
}

int choose_qos_parse(const char *word, enum qos *ret)
{
    for (unsigned i = 0; i < QOS_MAX; i++) {
        if (strcasecmp(word, qos_words[i]) != 0)
            continue;
        *ret = (enum qos)i;
        return 0;
    }
    return -EINVAL;
}

/* Whether @name is in a list like "proxy, log". */
static bool in_list(struct span list, struct span name)
{
    for (size_t i = 0, n; i < list.len; i += n + 1) {
        while (i < list.len && (list.at[i] == ' ' || list.at[i] == ','))
            i++;
        for (n = 0; i + n < list.len && list.at[i + n] != ' ' && list.at[i + n] != ',';)
            n++;
        if (n == name.len && n > 0 && memcmp(list.at + i, name.at, n) == 0)
            return true;
    }
    return false;
}

static bool is_ours(const struct choice *choice, const struct nri_pod *pod)
{
    static const char *const system[] = {"kube-system", "kube-public", "kube-node-lease"};
    struct span ignored;

    for (size_t i = 0; i < sizeof(system) / sizeof(*system); i++)
        if (span_is(pod->name_space, system[i]))
            return true;
    return (choice->own && span_is(pod->name_space, choice->own)) ||
           nri_note(pod->whole, TRAINING, &ignored);
}

static bool is_chosen(const struct choice *choice, const struct nri_pod *pod)
{
    for (unsigned i = 0; i < choice->n_namespaces; i++)
        if (span_is(pod->name_space, choice->namespaces[i]))
            return true;
    return choice->qos >> choose_qos(pod) & 1;
}

struct chosen choose(const struct choice *choice, const struct nri_pod *pod, struct span container)
{
    struct chosen c = {.ours = is_ours(choice, pod)};
    struct span list;

    if (c.ours)
        return c;
    c.refused = says(pod, ELASTIC, "false") ||
                (nri_note(pod->whole, EXCEPT, &list) && in_list(list, container));
    c.job = !c.refused && (says(pod, ELASTIC, "true") || is_chosen(choice, pod));
    c.inject = !c.refused && !says(pod, INJECT, "false") &&
               (says(pod, INJECT, "true") || (c.job && choice->inject));
    return c;
}

static bool put_label(json_t *labels, const char *name, struct span value)
{
    char key[64], text[VALUE_MAX];

    snprintf(key, sizeof(key), CONTAINER_LABEL "%s%s", *name ? "." : "", name);
    /* Bytes that are no UTF-8 make no JSON: the label is left out. */
    return json_object_set_new_nocheck(labels, key,
                                       json_string(span_text(value, text, sizeof(text)))) == 0;
}

json_t *choose_labels(const struct chosen *chosen, const struct nri_pod *pod)
{
    json_t *labels = json_object();
    const char *word = chosen->job ? "true" : chosen->refused ? "false" : NULL;
    struct span value;

    if (!labels)
        return NULL;
    if (word)
        put_label(labels, "", (struct span){(const unsigned char *)word, strlen(word)});
    if (!chosen->job)
        return labels;
    for (each_attribute(a)) {
        char key[64];

        snprintf(key, sizeof(key), CHOOSE_PREFIX "%s", a->key);
        if (nri_note(pod->whole, key, &value))
            put_label(labels, a->key, value);
    }
    return labels;
}

unsigned choose_number(const struct nri_pod *pod, const char *name)
{
    const struct attribute *a = attribute_find(name, strlen(name));
    char key[64], text[VALUE_MAX];
    struct span value;
    int64_t number;

    snprintf(key, sizeof(key), CHOOSE_PREFIX "%s", name);
    if (!a || !nri_note(pod->whole, key, &value) ||
        attribute_parse(a, span_text(value, text, sizeof(text)), &number) < 0)
        return 0;
    return (unsigned)number;
}

const char *choose_name(const struct nri_pod *pod, struct span container, char buf[CHOOSE_NAME_MAX])
{
    char space[254], name[254], part[254], whole[3 * 254 + 3];
    const char *at = whole;
    size_t len;

    snprintf(whole, sizeof(whole), "%s.%s.%s", span_text(pod->name_space, space, sizeof(space)),
             span_text(pod->name, name, sizeof(name)), span_text(container, part, sizeof(part)));
    len = strlen(whole);
    if (len >= CHOOSE_NAME_MAX) /* the end tells replicas of one deployment apart */
        at += len - (CHOOSE_NAME_MAX - 1);
    snprintf(buf, CHOOSE_NAME_MAX, "%s", at + strspn(at, ".-"));
    return buf;
}
