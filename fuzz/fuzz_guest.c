/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heads of a browser's request that say who it is: a line each of Host, Origin and Cookie. What
 * is let in must be what it looks like: loopback alone, the page's own origin, a cookie of its
 * name.
 */
#include "host/net/guest.h"
#include "input.h"

#define NAME "tide-8350"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *rest = text, *host, *origin, *cookies;
    char value[GUEST_SECRET_LEN + 1] = "";

    CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    host = strsep(&rest, "\n");
    origin = strsep(&rest, "\n");
    cookies = strsep(&rest, "\n");
    if (guest_host(host)) {
        size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");

        CHECK(n == 5 || n == 9); /* "[::1]", "localhost", "127.0.0.1" */
        CHECK(strlen(host) - n <= 6 && (host[n] == '\0' || host[n] == ':'));
    }
    if (guest_origin(origin, host))
        CHECK(strlen(origin) == strlen("http://") + strlen(host));
    if (guest_cookie(cookies, NAME, value, sizeof(value))) {
        CHECK(strlen(value) <= GUEST_SECRET_LEN && !strpbrk(value, "; "));
        CHECK(strstr(cookies, NAME "="));
        CHECK(!guest_knows(value, "00000000000000000000000000000000") ||
              strcmp(value, "00000000000000000000000000000000") == 0);
    }
    free(text);
    return 0;
}
