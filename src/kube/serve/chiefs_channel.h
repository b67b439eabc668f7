/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server for chiefs: POST /v1/jobs/NAMESPACE/NAME/report over TLS takes a report and answers
 * with the members. The API server identifies the sender by its token (TokenReview with our
 * audience): the pod, its UID and a namespace, which must be the path's. Its verdict holds for
 * CHANNEL_TRUST_S. Before a verdict the channel keeps little of what a connection sends, and
 * nothing if the token's own claims do not fit. Event loop's thread; called by main.c; its consumer
 * is controller.c.
 */
#pragma once

#include "kube/api/client.h"
#include "kube/object/object.h"

#define CHANNEL_AUDIENCE        "threadtide"
#define CHANNEL_BODY_MAX        (256u << 10) /* bytes of a report … */
#define CHANNEL_BODIES_MAX      (32u << 20)  /* … and of all large ones under way */
#define CHANNEL_CONNECTIONS_MAX 2048
#define CHANNEL_ADDRESS_MAX     512  /* connections from one address */
#define CHANNEL_IDLE_S          30   /* a connection that sends nothing is closed */
#define CHANNEL_TRUST_S         60   /* how long the verdict on a good token holds */
#define CHANNEL_REFUSE_S        5    /* how long the verdict on an unknown token holds */
#define CHANNEL_TOKENS_MAX      4096 /* remembered */
#define CHANNEL_TOKEN_MAX       8192 /* bytes of one */
#define CHANNEL_POD_RATE        10   /* reports of a pod in a second … */
#define CHANNEL_POD_BURST       20   /* … and at once */
#define CHANNEL_REVIEW_RATE     10   /* questions a second about unknown tokens, all together … */
#define CHANNEL_REVIEW_BURST    100  /* … and at once */
#define CHANNEL_ADDRESS_RATE    2    /* the same for one address; recently known tokens … */
#define CHANNEL_ADDRESS_BURST   20   /* … are asked about in any case */

struct channel;

/*
 * Takes @report over; its namespace, job, chief_uid and at_ns are set. Returns the HTTP status: 200
 * with *ret_members, or another one with the text in *err.
 */
typedef unsigned channel_report(void *arg, struct kube_report *report, json_t **ret_members,
                                struct error *err);

int channel_new(struct client *client, sd_event *event, const char *address, channel_report *report,
                void *arg, struct channel **ret, struct error *err);
struct channel *channel_free(struct channel *c); /* takes NULL, returns NULL */

unsigned channel_port(const struct channel *c);
uint64_t channel_reports(const struct channel *c); /* accepted reports */
uint64_t channel_refused(const struct channel *c); /* requests answered with another status */
uint64_t channel_reviews(const struct channel *c); /* questions about tokens */
