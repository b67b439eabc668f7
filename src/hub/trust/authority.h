/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub's authority: which units are who they say they are, and what the hub has signed. It lies
 * in a directory of the hub alone (mode 0700) and is made there at the first start:
 *
 *     ca.crt, ca.key       signs certificates of units and of the hub's servers (ECDSA, 10 years)
 *     seal.key, seal.pub   signs policies and commands (Ed25519)
 *     units                every certificate signed: "NAME SERIAL signed|revoked TIME" a line
 *     areas                which units have a broker of their own (area_broker.h): their
 * certificates are for its host, too
 *     revoked.crl          the list of revoked certificates, which brokers and servers read; it
 * ends after IDENTITY_LIST_DAYS and is made again when it is older than the records or than a day
 *
 * Every file is replaced as a whole, so a crash leaves the old or the new one. Event loop's thread.
 */
#pragma once

#include "base/error.h"
#include "host/trust/identity.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define AUTHORITY_UNITS_MAX   65536      /* certificates on record */
#define AUTHORITY_RENEWED_MAX 8          /* certificates that a unit may have signed in a day */
#define AUTHORITY_HUB         "tide-hub" /* the hub's own name as a client: no unit may have it */

struct authority;

/* Opens the directory @dir, which it makes if it is absent, and makes what is missing in it. */
int authority_open(const char *dir, const char *org, int64_t now_s, struct authority **ret,
                   struct error *err);

/*
 * The records alone, for authority_units(), authority_newest() and authority_revoked(): no key is
 * read and nothing is written, so no lock is needed. authority_looked() tells of the records' file,
 * by which a change is noticed; all zero: there is none yet.
 */
int authority_read(const char *dir, struct authority **ret, struct error *err);
int authority_looked(const char *dir, struct stat *ret, struct error *err);
struct authority *authority_free(struct authority *a); /* takes NULL, returns NULL */

/* PEM texts and paths, borrowed. */
const char *authority_ca(const struct authority *a);
const char *authority_seal_public(const struct authority *a);
const char *authority_seal_key(const struct authority *a); /* private: for sealed_make() alone */
const char *authority_ca_path(const struct authority *a);
const char *authority_list_path(const struct authority *a); /* revoked.crl */

/* Whether a unit may have that name: 1 to 63 of [a-z0-9-], no dash first or last, as in topics. */
bool authority_name_good(const char *name);

/*
 * Signs a unit's request. Several certificates of one name may stand side by side, as one is
 * renewed before it ends. Returns 0 and the certificate, -EINVAL (name, request), -EKEYREVOKED
 * (the name was revoked: authority_admit() first), -ENOSPC, or what writing says.
 */
int authority_sign(struct authority *a, const char *request, const char *name, int64_t now_s,
                   char **ret_cert, struct error *err);

/*
 * The same for a unit that asks by itself: -EAGAIN after AUTHORITY_RENEWED_MAX of a day, so that
 * one that asks without end does not fill the records of all.
 */
int authority_renew(struct authority *a, const char *request, const char *name, int64_t now_s,
                    char **ret_cert, struct error *err);

/* The hub's own key and certificate as a client, for IDENTITY_CLIENT_DAYS. */
int authority_hub(struct authority *a, int64_t now_s, struct identity_pem *ret, struct error *err);

/*
 * The same in the name of a unit, for an hour and without a record: with it the hub takes over the
 * connection of a unit that was revoked.
 */
int authority_in_name(struct authority *a, const char *name, int64_t now_s,
                      struct identity_pem *ret, struct error *err);

/* A server's certificate for @hosts, as of identity_issue(). */
int authority_issue(struct authority *a, const char *const *hosts, size_t n, int64_t now_s,
                    struct identity_pem *ret, struct error *err);

/*
 * Revokes every certificate of the name and refuses it from now on. Returns 0, -ENOENT (no such
 * unit, or already revoked), or what writing says.
 */
int authority_revoke(struct authority *a, const char *name, int64_t now_s, struct error *err);

/* Lets a revoked name have certificates again; the old ones stay revoked. */
int authority_admit(struct authority *a, const char *name, int64_t now_s, struct error *err);

bool authority_revoked(const struct authority *a, const char *name);

struct authority_unit {
    char name[IDENTITY_NAME_MAX], serial[IDENTITY_SERIAL_MAX];
    bool revoked;
    int64_t time_s; /* when it was signed or revoked */
};
size_t authority_units(const struct authority *a, const struct authority_unit **ret);

/*
 * The newest record of each name, by name; borrowed until the
 * next change. Returns their number, 0 also without memory.
 */
size_t authority_newest(struct authority *a, const struct authority_unit **ret);

/* For bsearch() in these: a name and a struct authority_unit. */
int authority_compare_name(const void *name, const void *unit);
