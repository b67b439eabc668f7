/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What chiefs talk to: POST /v1/jobs/NAMESPACE/NAME/report over TLS, a report in, the members out.
 * Who reports is what the API server says of the token (TokenReview, with our audience): the pod
 * and its UID, and a namespace that has to be the path's. An answer of it counts for
 * CHANNEL_TRUST_S. Before that little is kept of what a peer sends, and nothing of one whose token
 * says itself that it is for others. Event loop's thread; called by main.c; its consumer is
 * controller.c.
 */
#pragma once

#include "kube/api/client.h"
#include "kube/object/object.h"

#define CHANNEL_AUDIENCE        "threadtide"
#define CHANNEL_BODY_MAX        (256u << 10) /* bytes of a report … */
#define CHANNEL_BODIES_MAX      (32u << 20)  /* … and of all large ones that are under way */
#define CHANNEL_CONNECTIONS_MAX 2048
#define CHANNEL_ADDRESS_MAX     512  /* connections from one address */
#define CHANNEL_TRUST_S         60   /* after that the API server is asked about a token again */
#define CHANNEL_REFUSE_S        5    /* the same of a token that it did not know */
#define CHANNEL_TOKENS_MAX      4096 /* remembered */
#define CHANNEL_TOKEN_MAX       8192 /* bytes of one */
#define CHANNEL_POD_RATE        10   /* reports of a pod in a second … */
#define CHANNEL_POD_BURST       20   /* … and at once */
#define CHANNEL_REVIEW_RATE     10   /* unknown tokens that the API server is asked about, … */
#define CHANNEL_REVIEW_BURST    100  /* … whoever sends them; */
#define CHANNEL_ADDRESS_RATE    2    /* those of one address. Who was known a while ago … */
#define CHANNEL_ADDRESS_BURST   20   /* … is asked about in any case */

struct channel;

/*
 * Takes @report over, whose namespace, job, chief_uid and at_ns are set. Returns the HTTP status:
 * 200 with *ret_members, or another one with a text.
 */
typedef unsigned channel_report(void *arg, struct kube_report *report, json_t **ret_members,
                                struct error *err);

int channel_new(struct client *client, sd_event *event, const char *address, channel_report *report,
                void *arg, struct channel **ret, struct error *err);
struct channel *channel_free(struct channel *c); /* takes NULL, returns NULL */

unsigned channel_port(const struct channel *c);
uint64_t channel_reports(const struct channel *c); /* that were accepted … */
uint64_t channel_refused(const struct channel *c); /* … and answered with another status */
uint64_t channel_reviews(const struct channel *c); /* questions about tokens */
