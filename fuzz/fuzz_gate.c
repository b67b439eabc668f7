/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's files: gate.conf where the first byte is even, else tokens. */
#include "gate/conf.h"
#include "gate/tokens.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_conf(const char *text)
{
    struct gate_conf conf = {0};
    struct error err = {0};

    if (gate_conf_parse(&conf, "gate.conf", text, &err) < 0 && !*err.text)
        abort(); /* somebody has to mend it */
    for (size_t i = 0; i < conf.users; i++)
        if (*conf.user[i].subject &&
            gate_conf_certified(&conf, conf.user[i].subject) != &conf.user[i])
            abort(); /* a subject is one user's */
    gate_conf_done(&conf);
}

static void read_tokens(char *text)
{
    struct tokens tokens = {0};
    struct error err = {0};

    if (gate_tokens_parse(text, &tokens, &err) < 0 && !*err.text)
        abort();
    for (size_t i = 0; i < tokens.n; i++)
        if (strlen(tokens.of[i].id) != TOKEN_ID_LEN || strlen(tokens.of[i].hash) != SECRET_LEN ||
            gate_tokens_find(&tokens, tokens.of[i].hash, 0))
            abort(); /* a hash is no token */
    gate_tokens_done(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (size && data[0] % 2)
        read_tokens(text + 1);
    else if (size)
        read_conf(text + 1);
    free(text);
    return 0;
}
