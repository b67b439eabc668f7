/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data for the page of a cluster: lists of the API server become one JSON text with trainings,
 * the sizes that they had, and the free cores of each node. Lists come in pieces, and each is
 * summed up at once, so that a cluster with tens of thousands of pods needs no copy of them. Pure
 * but for allocation; used by cluster_page.c.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

struct cluster_look {
    json_t *trainings, *nodes; /* arrays; NULL: not known, or not allowed to be */
    json_t *by_name;           /* the entries of @nodes */
    json_t *problems;          /* texts: what could not be read, and why */
};

int cluster_look_begin(struct cluster_look *l); /* 0 or -ENOMEM */
void cluster_look_done(struct cluster_look *l);

/* Items of a list as the API server has it; each may be called several times, nodes before pods. */
void cluster_look_trainings(struct cluster_look *l, const json_t *items);
void cluster_look_nodes(struct cluster_look *l, const json_t *items, int64_t wall_ns);
void cluster_look_pods(struct cluster_look *l, const json_t *items);

void cluster_look_problem(struct cluster_look *l, const char *what, const char *why);

/* The whole; to be freed. NULL: out of memory. */
char *cluster_look_text(struct cluster_look *l, int64_t wall_ns);
