/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/trust/enrol.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/wholefile.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define ERROR_WORD "bad-token"

#define ADDRESSES 256
#define LIST_MAX  (16 << 20) /* bytes of the list of revoked certificates */
#define WINDOW_NS (ENROL_WINDOW_S * NS_PER_S)

/* Wrong tokens of the present window; the process's, as there is one hub in it. */
static struct {
    uint64_t begin_ns;
    unsigned all, used;
    struct {
        unsigned char address[16];
        unsigned wrong;
    } of[ADDRESSES];
} tries;

static unsigned *wrong_of(const unsigned char address[16])
{
    uint64_t now = clock_now_ns();

    if (now - tries.begin_ns > WINDOW_NS) {
        memset(&tries, 0, sizeof(tries));
        tries.begin_ns = now;
    }
    for (unsigned i = 0; i < tries.used; i++)
        if (memcmp(tries.of[i].address, address, 16) == 0)
            return &tries.of[i].wrong;
    if (tries.used == ADDRESSES)
        return &tries.all; /* of all together */
    memcpy(tries.of[tries.used].address, address, 16);
    return &tries.of[tries.used++].wrong;
}

/* Where units reach the broker, as `tide-hub broker` was told. */
static void read_broker(const struct state *s, struct enrol_answer *ret)
{
    _cleanup_free_ char *text = NULL;
    char path[PATH_MAX];
    struct stat status;
    size_t len;

    if (state_path(s, STATE_BROKER_ADDRESS, path, sizeof(path), NULL) < 0 ||
        wholefile_read(path, sizeof(ret->broker) - 1, &text, &len, &status) < 0)
        return;
    text[strcspn(text, "\n")] = '\0';
    snprintf(ret->broker, sizeof(ret->broker), "%s", text);
}

/* The token's words on brokers are on record before the certificate, which depends on it. */
static int place(const struct state *s, const struct token *token, struct enrol_answer *ret,
                 struct error *err)
{
    char trust[PATH_MAX];
    struct stat status;
    size_t len;
    int r = state_path(s, "trust", trust, sizeof(trust), err);

    if (r >= 0)
        r = area_broker_put_machine(trust, token->name, token->unit, err);
    if (r >= 0 && (*token->broker || *token->unit)) /* a unit that became a machine serves nobody */
        r = area_broker_put(trust, token->name, token->broker, err);
    if (r < 0)
        return r;
    strcpy(ret->unit, token->unit);
    if (*token->unit) {
        r = area_broker_of_unit(trust, token->unit, ret->broker);
        return r < 0 ? error_set(err, r, "unit %.63s has no broker any more", token->unit) : 0;
    }
    read_broker(s, ret);
    r = area_broker_of_unit(trust, token->name, ret->local);
    if (r == 0)
        r = wholefile_read(authority_list_path(s->authority), LIST_MAX, &ret->revoked, &len,
                           &status);
    return r == -ENOENT ? 0
           : r < 0
               ? error_set(err, r, "cannot read the list of revoked certificates: %s", strerror(-r))
               : 0;
}

static int sign(const struct state *s, const char *secret, const char *request,
                struct enrol_answer *ret, struct error *err)
{
    struct token token;
    struct error ignored;
    int r = tokens_take(s->dir, secret, time(NULL), &token, err);

    if (r < 0)
        return r;
    r = place(s, &token, ret, err);
    if (r >= 0)
        r = authority_sign(s->authority, request, token.name, time(NULL), &ret->certificate, err);
    if (r < 0) {
        tokens_restore(s->dir, secret, &token, &ignored);
        return r;
    }
    strcpy(ret->name, token.name);
    strcpy(ret->area, token.area);
    ret->ca = strdup(authority_ca(s->authority));
    ret->seal = strdup(authority_seal_public(s->authority));
    return ret->ca && ret->seal ? 0 : error_set(err, -ENOMEM, "out of memory");
}

int enrol_take(const char *dir, const char *token, const char *request,
               const unsigned char address[16], struct enrol_answer *ret, struct error *err)
{
    unsigned *wrong = wrong_of(address);
    struct enrol_answer answer = {0};
    struct enrol_token read;
    struct state s;
    int r;
    bool readable = enrol_token_read(token, &read) == 0;

    /* Nobody guesses 256 bits: the limits are for the log's sake, and a good token passes them. */
    if ((*wrong >= ENROL_WRONG_MAX || tries.all >= ENROL_WRONG_ALL) &&
        !(readable && tokens_has(dir, read.secret, time(NULL))))
        return error_set(err, -EAGAIN, "too many wrong tokens: wait a minute");
    if (strlen(request) > ENROL_REQUEST_MAX)
        return error_set(err, -EINVAL, "the request is longer than %d bytes", ENROL_REQUEST_MAX);
    if (!readable) {
        r = error_set(err, -EACCES, "this is no token: use one of 'tide-hub token NAME', whole");
    } else {
        r = state_open(dir, &s, err);
        if (r < 0)
            return r;
        r = sign(&s, read.secret, request, &answer, err);
        state_close(&s);
    }
    if (r == -EACCES) {
        ++*wrong;
        tries.all += wrong != &tries.all;
    }
    if (r < 0)
        enrol_answer_done(&answer);
    else
        *ret = answer;
    return r;
}

void enrol_answer_done(struct enrol_answer *a)
{
    free(a->certificate);
    free(a->ca);
    free(a->seal);
    free(a->revoked);
    *a = (struct enrol_answer){0};
}
