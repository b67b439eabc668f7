/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `kubectl tide`: what people ask of trainings, by the API server alone; the controller need not
 * run. One command a process; called by main.c. kubectl_request.c asks and waits, kubectl_text.c
 * prints, kubectl.c reads the command line.
 */
#pragma once

#include "kube/api/client.h"

#include <stdio.h>

#define KUBECTL_COLUMNS_MAX 12
#define KUBECTL_TEXT_MAX    512

int kubectl_main(int argc, char **argv);

/* The arguments of every command. */
struct kubectl {
    const char *kubeconfig, *context;
    const char *name_space; /* after kubectl_connect() never NULL */
    bool all_spaces, json;
    bool asked_space; /* by --namespace */
    long port;        /* of dashboard */
    bool no_open;
    sd_event *event;
    struct client *client;
};

/* ---- kubectl_request.c: each returns 0 or -errno, and says on stderr what was wrong ---- */

int kubectl_connect(struct kubectl *k);
void kubectl_done(struct kubectl *k);

/* @body may be NULL. The answer is the caller's. */
int kubectl_ask(struct kubectl *k, enum client_verb verb, const char *path, const json_t *body,
                json_t **ret);

/* Gets an ElasticTrainingJob; @name NULL: the list of the namespace, or of all. */
int kubectl_get(struct kubectl *k, const char *name, json_t **ret);
int kubectl_path(const struct kubectl *k, const char *name, char *ret, size_t size);

/* ---- kubectl_text.c ---- */

/* Columns as wide as what stands in them, three blanks between, as kubectl has it. */
struct table {
    size_t columns, rows;
    char *(*cells)[KUBECTL_COLUMNS_MAX]; /* owned */
};

/* @cells: `columns` texts. 0 or -ENOMEM. */
int table_add(struct table *t, const char *const *cells);
void table_print(const struct table *t, FILE *to);
void table_done(struct table *t);

/* Finds a member of an object by the names on the way to it, ended by NULL. */
const json_t *kubectl_at(const json_t *object, ...) __attribute__((sentinel));

/* "5m", "3h", "2d" since a time as the API server writes it; "<unknown>". */
void kubectl_age(const char *time, char *ret, size_t size);

void kubectl_print_status(const json_t *etjs, bool with_namespace, FILE *to);
void kubectl_print_explanation(const json_t *etj, const json_t *pods, const json_t *events,
                               FILE *to);
