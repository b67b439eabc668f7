/* SPDX-License-Identifier: Apache-2.0 */
/* Kubeconfig files, the user's or an attacker's: refused with a reason, or resolved. */
#include "input.h"
#include "kube/api/access.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct kubeconfig_file file = {"/dir/config", (const char *)data, size};
    struct access a = {0};
    struct error err = {0};

    if (kubeconfig_resolve(&file, 1, NULL, &a, &err) < 0) {
        CHECK(err.text[0] && !a.server);
        return 0;
    }
    CHECK(strncmp(a.server, "https://", 8) == 0 && a.server[8] && a.name_space);
    CHECK((a.cert.text || a.cert.file) == (a.key.text || a.key.file));
    access_done(&a);
    return 0;
}
