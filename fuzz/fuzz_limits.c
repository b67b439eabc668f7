/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The restore journal of containers' limits. With 's' as the first byte the target corrects the
 * records' checksums, as an attacker who can write the file would. An accepted record is complete,
 * and the next daemon finds the same.
 */
#include "daemon/confine/journal.c"

#include "input.h"

static char directory[32];

static char file[64]; /* in the directory */

static void leave_directory(void)
{
    unlink(file);
    rmdir(directory);
}

/* Makes the directory where syncing costs nothing, if there is such a place. */
static void make_directory(void)
{
    if (*directory)
        return;
    strcpy(directory, "/dev/shm/tide-fuzz-XXXXXX");
    if (!mkdtemp(directory)) {
        strcpy(directory, "/tmp/tide-fuzz-XXXXXX");
        CHECK(mkdtemp(directory));
    }
    snprintf(file, sizeof(file), "%s/" JOURNAL_FILE, directory);
    atexit(leave_directory);
}

static void write_input(unsigned char *bytes, size_t size, bool sums)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    for (size_t at = SLOT_BYTES; sums && at + sizeof(struct record) <= size; at += SLOT_BYTES) {
        struct record r;

        memcpy(&r, bytes + at, sizeof(r));
        r.sum = sum_of(&r);
        memcpy(bytes + at, &r, sizeof(r));
    }
    CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

/* Checks every record in force. Returns how many there are. */
static unsigned count(struct journal *k)
{
    unsigned n = 0;

    for (unsigned i = 0; i < JOURNAL_CONTAINERS_MAX; i++) {
        if (atomic_load(&k->entry[i].state) == FREE)
            continue;
        CHECK(i < k->top && atomic_load(&k->entry[i].state) == LEFT);
        CHECK(valid(&k->entry[i].record) && find(k, k->entry[i].record.id));
        n++;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = input_text(data, size);
    struct engine_result none = {0};
    struct journal *k, *again;
    unsigned n;

    make_directory();
    if (size > 0)
        write_input((unsigned char *)bytes + 1, size - 1, bytes[0] == 's');
    CHECK(journal_new(directory, &k) == 0 && k->on_disk);
    n = count(k);
    k->fd = close_fd(k->fd);
    CHECK(journal_new(directory, &again) == 0 && again->on_disk && count(again) == n);
    for (unsigned i = 0; i < k->top; i++)
        CHECK(memcmp(&k->entry[i].record, &again->entry[i].record, sizeof(struct record)) == 0);
    for (unsigned i = 0; i < k->top; i++)
        journal_sweep(again, k->entry[i].record.path, &none);
    CHECK(count(again) == 0);
    journal_free(again);
    journal_free(k);
    free(bytes);
    return 0;
}
