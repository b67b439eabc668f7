/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl for transfer.c. It brings twenty libraries and three MiB along, so a program that has few
 * transfers or none (tided, tide-power) is built with LIBCURL_LATE: the library is loaded with the
 * first set of transfers. Private to this room; one thread.
 */
#pragma once

#ifdef LIBCURL_LATE

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#define LIBCURL_CALLS(X)                                                                           \
    X(easy_cleanup)                                                                                \
    X(easy_getinfo)                                                                                \
    X(easy_init)                                                                                   \
    X(easy_setopt)                                                                                 \
    X(easy_strerror)                                                                               \
    X(global_cleanup)                                                                              \
    X(global_init)                                                                                 \
    X(multi_add_handle)                                                                            \
    X(multi_cleanup)                                                                               \
    X(multi_info_read)                                                                             \
    X(multi_init)                                                                                  \
    X(multi_remove_handle)                                                                         \
    X(multi_setopt)                                                                                \
    X(multi_socket_action)                                                                         \
    X(slist_append)                                                                                \
    X(slist_free_all)

#define LIBCURL_MEMBER(name) __typeof__(curl_##name) *(name);
struct libcurl {
    LIBCURL_CALLS(LIBCURL_MEMBER)
};
#undef LIBCURL_MEMBER

extern struct libcurl libcurl;

/* Returns 0, or -ELIBACC: there is no such library. It stays until the program ends. */
int libcurl_load(void);

#undef curl_easy_getinfo
#undef curl_easy_setopt
#undef curl_multi_setopt
#define curl_easy_cleanup        libcurl.easy_cleanup
#define curl_easy_getinfo        libcurl.easy_getinfo
#define curl_easy_init           libcurl.easy_init
#define curl_easy_setopt         libcurl.easy_setopt
#define curl_easy_strerror       libcurl.easy_strerror
#define curl_global_cleanup      libcurl.global_cleanup
#define curl_global_init         libcurl.global_init
#define curl_multi_add_handle    libcurl.multi_add_handle
#define curl_multi_cleanup       libcurl.multi_cleanup
#define curl_multi_info_read     libcurl.multi_info_read
#define curl_multi_init          libcurl.multi_init
#define curl_multi_remove_handle libcurl.multi_remove_handle
#define curl_multi_setopt        libcurl.multi_setopt
#define curl_multi_socket_action libcurl.multi_socket_action
#define curl_slist_append        libcurl.slist_append
#define curl_slist_free_all      libcurl.slist_free_all

#else

#include <curl/curl.h>

static inline int libcurl_load(void)
{
    return 0;
}

#endif
