/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads an object's machine code and constants. What cannot be read counts as what asks.
 *
 * Reading takes up to a second, so it is done in pieces, without the loader's list: a copy of each
 * piece is taken through /proc/self/mem, which fails where memory is gone. Whoever asked compares
 * afterwards whether something was unloaded meanwhile.
 */
#include "agent/processor.h"
#include "agent/runtimes/openmp/openmp.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define PIECE  (64u << 10)
#define BEFORE 8  /* bytes before a place that tell what it belongs to */
#define BEHIND 32 /* … and behind it; more than a text of ours has */

/* A piece of an object: the places from @from up to @to are looked at, with what is around them. */
struct window {
    unsigned char bytes[BEFORE + PIECE + BEHIND];
    uintptr_t address; /* of bytes[0] */
    size_t size;       /* that were read */
    size_t from, to;
};

static struct window window; /* control thread */

static bool window_read(const struct span *span, size_t at)
{
    _cleanup_fd_ int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    size_t before = at < BEFORE ? at : BEFORE;
    size_t rest = span->size - at, size = before + (rest < PIECE ? rest : PIECE + BEHIND);

    if (size > before + rest)
        size = before + rest;
    window.address = span->start + at - before;
    window.size = size;
    window.from = before;
    window.to = before + (rest < PIECE ? rest : PIECE);
    return fd >= 0 && pread(fd, window.bytes, size, (off_t)window.address) == (ssize_t)size;
}

/* ---- texts ---- */

static bool window_has(const void *bytes, size_t size)
{
    return memmem(window.bytes, window.size, bytes, size) != NULL;
}

static void find_texts(struct reading *r)
{
    static const char *const texts[] = {"OMP_NUM_THREADS", "THREAD_LIMIT"};

    for (size_t i = 0; i < ARRAY_LEN(texts) && !r->text; i++)
        if (window_has(texts[i], strlen(texts[i])))
            r->text = texts[i];
}

#if PROCESSOR_CODE_IS_KNOWN
/* ---- calls ---- */

static int32_t relative(const unsigned char *at)
{
    int32_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

static uintptr_t address_of(const unsigned char *at)
{
    return window.address + (uintptr_t)(at - window.bytes);
}

static bool is_stub(const struct callee *callee, uintptr_t address)
{
    for (unsigned i = 0; i < callee->n; i++)
        if (address == callee->stub[i])
            return true;
    return false;
}

/* The length of a call at @at, directly or through the table of addresses. 0: no such call. */
static unsigned call_length(const struct callee *callee, const unsigned char *at)
{
    if (at[0] == 0xff && at[1] == 0x15 && address_of(at) + 6 + relative(at + 2) == callee->got)
        return 6;
    return at[0] == 0xe8 && is_stub(callee, address_of(at) + 5 + relative(at + 1)) ? 5 : 0;
}

/* jmp *table(%rip), perhaps behind endbr64 and with a bnd prefix */
static void find_stubs(struct reading *r, struct callee *callee)
{
    static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

    for (size_t i = window.from < 5 ? 5 : window.from; i < window.to && i + 6 <= window.size; i++) {
        const unsigned char *at = window.bytes + i;

        if (at[0] != 0xff || at[1] != 0x25 || address_of(at) + 6 + relative(at + 2) != callee->got)
            continue;
        if (callee->n + 3 > CODE_STUBS_MAX) {
            r->other = true;
            return;
        }
        callee->stub[callee->n++] = address_of(at);
        if (at[-1] == 0xf2)
            at--;
        callee->stub[callee->n++] = address_of(at);
        if (memcmp(at - 4, endbr64, sizeof(endbr64)) == 0)
            callee->stub[callee->n++] = address_of(at) - 4;
    }
}

/* mov %eax, register, or movslq %eax, register, or mov %eax, to the stack. Returns its length; 0:
 * something else. */
static unsigned move_length(const unsigned char *at)
{
    unsigned prefix = at[0] >= 0x40 && at[0] <= 0x4f;
    const unsigned char *op = at + prefix;

    if (op[0] == 0x89 && (op[1] & 0xf8) == 0xc0)
        return prefix + 2; /* source: eax */
    if (op[0] == 0x63 && (op[1] & 0xc7) == 0xc0)
        return prefix + 2;
    if (at[0] != 0x89 || (at[1] & 0x38) != 0)
        return 0;
    switch (at[1]) {
    case 0x45: /* 8 bits from %rbp */
        return 3;
    case 0x85: /* 32 bits from %rbp */
        return 6;
    case 0x44: /* 8 bits from %rsp */
        return at[2] == 0x24 ? 4 : 0;
    case 0x84: /* 32 bits from %rsp */
        return at[2] == 0x24 ? 7 : 0;
    default:
        return 0;
    }
}

enum mention { MENTION_NONE, MENTION_CALL, MENTION_TABLE, MENTION_OTHER, MENTION_MAX };

/* How an instruction that ends with the four bytes at @at mentions @callee, if they are its
 * distance. */
static enum mention mention_at(const struct callee *callee, const unsigned char *at)
{
    uintptr_t address = address_of(at) + 4 + relative(at);

    if (address == callee->got) {
        if (at[-2] != 0xff)
            return MENTION_OTHER;
        return at[-1] == 0x15 ? MENTION_CALL : at[-1] == 0x25 ? MENTION_TABLE : MENTION_OTHER;
    }
    if (!is_stub(callee, address))
        return MENTION_NONE;
    if (at[-1] == 0xe8)
        return MENTION_CALL;
    /* jmp, a conditional jump, lea; other bytes are of two instructions */
    return at[-1] == 0xe9 || (at[-2] == 0x0f && (at[-1] & 0xf0) == 0x80) ||
                   (at[-2] == 0x8d && (at[-1] & 0xc7) == 0x05)
               ? MENTION_OTHER
               : MENTION_NONE;
}

/* A static loop goes on behind the call that ends at @at: its number, and then the thread's index
 * is asked for. */
static bool divides(const struct callee *id, const unsigned char *at)
{
    unsigned move = move_length(at);

    if (move > 0) /* the stack, too, where registers are short */
        move += move_length(at + move);
    return move > 0 && call_length(id, at + move) > 0;
}

/* Nothing but calls of @callee may be mentioned; each is counted. */
static void count_calls(struct reading *r, const struct callee *callee, unsigned *calls)
{
    bool number = callee == &r->number;

    for (size_t i = window.from < 2 ? 2 : window.from; i < window.to && i + 4 <= window.size; i++) {
        const unsigned char *at = window.bytes + i;
        enum mention mention = mention_at(callee, at);

        /* A jump through the table is the linkage table's, or a function's end (-fno-plt). */
        if (mention == MENTION_NONE || (mention == MENTION_TABLE && r->linked))
            continue;
        if (mention != MENTION_CALL || i + 26 > window.size || (number && !divides(&r->id, at + 4)))
            r->other = true;
        ++*calls;
    }
}

/* mov $_SC_NPROCESSORS_CONF or _ONLN, %edi: sysconf()'s argument, which compilers know */
static void find_sysconf(struct reading *r)
{
    static const unsigned char argument[][5] = {{0xbf, 83, 0, 0, 0}, {0xbf, 84, 0, 0, 0}};

    for (size_t i = 0; i < ARRAY_LEN(argument); i++)
        r->cores |= window_has(argument[i], sizeof(argument[i]));
}

static void read_code(struct reading *r)
{
    if (r->pass == PASS_STUBS) {
        find_stubs(r, &r->number);
        find_stubs(r, &r->id);
        return;
    }
    if (r->wants & CODE_LOOPS) {
        count_calls(r, &r->number, &r->numbers);
        count_calls(r, &r->id, &r->ids);
    }
    if (r->wants & CODE_CORES)
        find_sysconf(r);
}
#else
static void read_code(struct reading *r)
{
    r->unread = true;
}
#endif

/* ---- the way through an object ---- */

static bool is_asked(const struct reading *r)
{
    switch (r->pass) {
    case PASS_STUBS:
        return r->wants & CODE_LOOPS;
    case PASS_CODE:
        return r->wants & (CODE_LOOPS | CODE_CORES);
    default:
        return r->wants & CODE_TEXT;
    }
}

/* The next span of this pass, or of the next one. */
static const struct span *next_span(struct reading *r)
{
    for (; r->pass < PASS_MAX; r->pass++, r->span = 0, r->at = 0)
        for (; is_asked(r) && r->span < r->n_spans; r->span++, r->at = 0) {
            const struct span *span = &r->spans[r->span];

            if (r->at < span->size && (span->is_code || r->pass == PASS_TEXT))
                return span;
        }
    return NULL;
}

bool reading_goes_on(struct reading *r, size_t *left)
{
    const struct span *span;

    while (!r->unread && (span = next_span(r))) {
        if (*left < PIECE)
            return true;
        *left -= PIECE;
        if (!window_read(span, r->at))
            r->unread = true;
        else if (r->pass == PASS_TEXT)
            find_texts(r);
        else
            read_code(r);
        r->at += PIECE;
    }
    return false;
}

bool reading_only_loops(const struct reading *r)
{
    return !r->unread && !r->other && r->numbers > 0 && r->ids == r->numbers;
}
