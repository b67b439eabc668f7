/* SPDX-License-Identifier: Apache-2.0 */
#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "host/net/libcurl.h"

#define LIBRARY "libcurl.so.4"

struct libcurl libcurl;

static int find(void *library, const char *name, void *ret)
{
    void *call = dlsym(library, name);

    memcpy(ret, &call, sizeof(call)); /* ISO C converts no pointer to data into one to code */
    return call ? 0 : -ELIBACC;
}

int libcurl_load(void)
{
    void *library;
    int r = 0;

    if (libcurl.easy_init)
        return 0;
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return -ELIBACC;
#define LIBCURL_FIND(call) r = r ? r : find(library, "curl_" #call, &libcurl.call);
    LIBCURL_CALLS(LIBCURL_FIND)
    if (r < 0)
        memset(&libcurl, 0, sizeof(libcurl));
    return r;
}
