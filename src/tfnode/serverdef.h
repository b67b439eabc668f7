/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes the ServerDef (tensorflow/core/protobuf/tensorflow_server.proto) of a TensorFlow node. It
 * names only itself; the chief names the others when it connects. Pure; called once by server.c.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SERVERDEF_MAX 1024 /* bytes of an encoded ServerDef */

struct serverdef {
    const char *job;     /* TensorFlow's job name: "ps" or "worker" */
    const char *address; /* host:port */
    uint32_t index;
    uint32_t intra; /* threads of default_session_config, 0: TensorFlow's own choice */
    uint32_t inter;
};

/*
 * Encodes @def in protobuf's wire format, fields in their order, as TensorFlow's own encoder does.
 * Returns 0, or -EMSGSIZE (names too long for SERVERDEF_MAX).
 */
int serverdef_encode(const struct serverdef *def, uint8_t ret_data[SERVERDEF_MAX], size_t *ret_len);
