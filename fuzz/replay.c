/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a target on the files of the given directories: on its seeds, in a build without
 * libFuzzer. */
#include "input.h"

#include <dirent.h>
#include <stdio.h>

static void replay(const char *directory, const char *name)
{
    static uint8_t data[1 << 20];
    char path[4096];
    uint8_t *copy;
    size_t size;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    f = fopen(path, "re");
    CHECK(f);
    size = fread(data, 1, sizeof(data), f);
    CHECK(!ferror(f) && feof(f));
    fclose(f);
    copy = malloc(size ? size : 1); /* of the exact size, for AddressSanitizer */
    CHECK(copy);
    memcpy(copy, data, size);
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

int main(int argc, char **argv)
{
    unsigned n = 0;

    for (int i = 1; i < argc; i++) {
        DIR *directory = opendir(argv[i]);
        const struct dirent *entry;

        CHECK(directory);
        while ((entry = readdir(directory)))
            if (entry->d_name[0] != '.') {
                replay(argv[i], entry->d_name);
                n++;
            }
        closedir(directory);
    }
    printf("%u inputs\n", n);
    return n == 0;
}
