/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an object's machine code. Code that cannot be read counts as code that asks. */
#include "agent/runtimes/openmp/openmp.h"

#include <string.h>

#define TEXT_MAX  (64ul << 20) /* bytes of code; a larger object counts as one that asks */
#define STUBS_MAX 8

#ifdef __x86_64__
static int32_t relative(const unsigned char *at)
{
    int32_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

struct callee {
    uintptr_t got;
    uintptr_t stub[STUBS_MAX]; /* entries of the procedure linkage table */
    unsigned n;
};

/* The length of a call at @at, directly or through the table of addresses. 0: no such call. */
static unsigned call_length(const struct callee *callee, const unsigned char *at)
{
    if (at[0] == 0xff && at[1] == 0x15 && (uintptr_t)at + 6 + relative(at + 2) == callee->got)
        return 6;
    if (at[0] != 0xe8)
        return 0;
    for (unsigned i = 0; i < callee->n; i++)
        if ((uintptr_t)at + 5 + relative(at + 1) == callee->stub[i])
            return 5;
    return 0;
}

/* jmp *table(%rip), perhaps behind endbr64 and with a bnd prefix */
static void find_stubs(const struct code *code, struct callee *callee)
{
    static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

    for (size_t i = 5; i + 6 <= code->text_size && callee->n + 3 <= STUBS_MAX; i++) {
        const unsigned char *at = code->text + i;

        if (at[0] != 0xff || at[1] != 0x25 || (uintptr_t)at + 6 + relative(at + 2) != callee->got)
            continue;
        callee->stub[callee->n++] = (uintptr_t)at;
        if (at[-1] == 0xf2)
            at--;
        callee->stub[callee->n++] = (uintptr_t)at;
        if (memcmp(at - 4, endbr64, sizeof(endbr64)) == 0)
            callee->stub[callee->n++] = (uintptr_t)at - 4;
    }
}

static bool is_stub(const struct callee *callee, uintptr_t address)
{
    for (unsigned i = 0; i < callee->n; i++)
        if (address == callee->stub[i])
            return true;
    return false;
}

/* mov %eax, register, or movslq %eax, register. Returns its length; 0: something else. */
static unsigned move_length(const unsigned char *at)
{
    unsigned prefix = at[0] >= 0x40 && at[0] <= 0x4f;
    const unsigned char *op = at + prefix;

    if (op[0] == 0x89 && (op[1] & 0xf8) == 0xc0)
        return prefix + 2; /* source: eax */
    if (op[0] == 0x63 && (op[1] & 0xc7) == 0xc0)
        return prefix + 2;
    return 0;
}

enum mention { MENTION_NONE, MENTION_CALL, MENTION_TABLE, MENTION_OTHER, MENTION_MAX };

/* How an instruction that ends with the four bytes at @at mentions @callee, if they are its
 * distance. */
static enum mention mention_at(const struct callee *callee, const unsigned char *at)
{
    uintptr_t address = (uintptr_t)at + 4 + relative(at);

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

    return move > 0 && call_length(id, at + move) > 0;
}

/* A call of @callee stands at @at, of which nothing else is allowed to be mentioned. */
static enum mention next_call(const struct code *code, const struct callee *callee, size_t *i)
{
    for (; *i + 4 <= code->text_size; ++*i) {
        enum mention mention = mention_at(callee, code->text + *i);

        /* A jump through the table is the linkage table's, or a function's end (-fno-plt). */
        if (mention == MENTION_TABLE && code->linked)
            continue;
        if (mention == MENTION_CALL)
            return *i + 16 <= code->text_size ? MENTION_CALL : MENTION_OTHER;
        if (mention != MENTION_NONE)
            return MENTION_OTHER;
    }
    return MENTION_NONE;
}

bool code_has_only_static_loops(const struct code *code)
{
    struct callee number = {.got = code->number_got};
    struct callee id = {.got = code->id_got};
    unsigned numbers = 0, ids = 0;
    enum mention mention = MENTION_NONE;

    if (!code->text || code->text_size > TEXT_MAX || !code->number_got || !code->id_got)
        return false;
    find_stubs(code, &number);
    find_stubs(code, &id);
    for (size_t i = 2; (mention = next_call(code, &number, &i)) == MENTION_CALL; i++) {
        if (!divides(&id, code->text + i + 4))
            return false;
        numbers++;
    }
    if (mention == MENTION_OTHER)
        return false;
    for (size_t i = 2; (mention = next_call(code, &id, &i)) == MENTION_CALL; i++)
        ids++;
    return mention == MENTION_NONE && numbers > 0 && ids == numbers;
}

bool code_counts_cores(const struct code *code)
{
    /* mov $_SC_NPROCESSORS_CONF or _ONLN, %edi: its argument, which compilers know */
    static const unsigned char argument[][5] = {{0xbf, 83, 0, 0, 0}, {0xbf, 84, 0, 0, 0}};

    return !code->text || code->text_size > TEXT_MAX ||
           memmem(code->text, code->text_size, argument[0], sizeof(argument[0])) ||
           memmem(code->text, code->text_size, argument[1], sizeof(argument[1]));
}
#else
bool code_has_only_static_loops(const struct code *code)
{
    (void)code;
    return false;
}

bool code_counts_cores(const struct code *code)
{
    (void)code;
    return true;
}
#endif
