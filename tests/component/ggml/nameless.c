/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama's ggml is compiled without a version, and says so by no text at all. */
#include <stddef.h>

const char *ggml_version(void);

const char *ggml_version(void)
{
    return NULL;
}
