/* SPDX-License-Identifier: Apache-2.0 */
#include "tfnode/server.h"

#include "tfnode/options.h"
#include "tfnode/serverdef.h"

#include "base/cleanup.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>

#define ERROR_WORD "replica-not-started"

/* tensorflow/c/tf_status.h, tensorflow/c/c_api.h */
struct tf_status;
struct tf_server;

struct tf_api {
    const char *(*version)(void);
    struct tf_status *(*new_status)(void);
    int (*get_code)(const struct tf_status *);
    const char *(*message)(const struct tf_status *);
    struct tf_server *(*new_server)(const void *def, size_t len, struct tf_status *);
    void (*server_start)(struct tf_server *, struct tf_status *);
    const char *(*server_target)(struct tf_server *);
};

static int find_symbols(void *handle, struct tf_api *ret, struct error *err)
{
    struct {
        const char *name;
        void **to;
    } wanted[] = {
        {"TF_Version", (void **)&ret->version},
        {"TF_NewStatus", (void **)&ret->new_status},
        {"TF_GetCode", (void **)&ret->get_code},
        {"TF_Message", (void **)&ret->message},
        {"TF_NewServer", (void **)&ret->new_server},
        {"TF_ServerStart", (void **)&ret->server_start},
        {"TF_ServerTarget", (void **)&ret->server_target},
    };

    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        *wanted[i].to = dlsym(handle, wanted[i].name);
        if (!*wanted[i].to)
            return error_set(err, -ENOSYS, "TensorFlow's C API lacks %s: install 2.15 or newer",
                             wanted[i].name);
    }
    return 0;
}

static int encode_self(const struct server *s, uint8_t def[SERVERDEF_MAX], size_t *ret_len)
{
    char address[OPTIONS_HOST_MAX + 8];
    struct serverdef self = {.job = s->options->role,
                             .address = address,
                             .index = s->options->index,
                             .intra = s->config_threads,
                             .inter = s->config_threads};

    snprintf(address, sizeof(address), "%s:%u", s->options->host, s->options->port);
    return serverdef_encode(&self, def, ret_len);
}

/* "grpc://10.0.0.7:2222" */
static uint32_t port_of(const char *target)
{
    const char *colon = strrchr(target, ':');

    return colon ? (uint32_t)strtoul(colon + 1, NULL, 10) : 0;
}

static int run(struct server *s)
{
    /* RTLD_LAZY: most of TensorFlow's functions are never called here. */
    void *handle = dlopen(s->library, RTLD_LAZY | RTLD_LOCAL);
    uint8_t def[SERVERDEF_MAX];
    struct tf_server *server;
    struct tf_status *status;
    struct tf_api tf;
    size_t len;
    int r;

    if (!handle)
        return error_set(&s->err, -ENOEXEC, "%s", dlerror());
    r = find_symbols(handle, &tf, &s->err);
    if (r < 0)
        return r;
    snprintf(s->version, sizeof(s->version), "%s", tf.version());
    r = encode_self(s, def, &len);
    if (r < 0)
        return error_set(&s->err, r, "the address in POD_IP is too long");
    status = tf.new_status();
    server = tf.new_server(def, len, status);
    if (tf.get_code(status) == 0)
        tf.server_start(server, status);
    if (tf.get_code(status) != 0)
        return error_set(&s->err, -EIO, "TensorFlow %s did not start on port %u: %s", s->version,
                         s->options->port, tf.message(status));
    s->port = port_of(tf.server_target(server));
    return 0;
}

static void *server_main(void *arg)
{
    struct server *s = arg;

    run(s);
    eventfd_write(s->event_fd, 1);
    return NULL;
}

int server_start(const char *library, const struct options *options, uint32_t config_threads,
                 struct server *ret, struct error *err)
{
    pthread_t thread;
    int r;

    *ret = (struct server){
        .library = library, .options = options, .config_threads = config_threads, .event_fd = -1};
    ret->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ret->event_fd < 0)
        return error_set(err, -errno, "eventfd: %m");
    r = pthread_create(&thread, NULL, server_main, ret);
    if (r != 0)
        return error_set(err, -r, "cannot start a thread for TensorFlow: %s", strerror(r));
    pthread_detach(thread);
    return 0;
}
