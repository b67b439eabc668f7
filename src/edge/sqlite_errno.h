/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite's result codes as -errno. Any thread; used by the outbox, the hub's store and its file of
 * people. */
#pragma once

#include <errno.h>
#include <sqlite3.h>

/* 0 for what is no failure; extended codes count as their first eight bits. */
static inline int sqlite_errno(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return 0;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return -EACCES;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return -EBADMSG;
    default:
        return -EIO;
    }
}
