/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds ONNX Runtime's thread pools in its library, which exports nothing of them. Their class has
 * virtual functions, so the library holds the class's name (for typeid) and the table of these
 * functions, which all calls of the two that we need go through. Names and order are those of
 * include/onnxruntime/core/platform/EigenNonBlockingThreadPool.h; read off the wheel 1.32.0, where
 * onnxruntime_pybind11_state and libonnxruntime have the same.
 */
#include "agent/process/objects.h"
#include "agent/processor.h"
#include "agent/runtimes/onnx/onnx.h"

#include <string.h>

#define CLASS "N11onnxruntime11concurrency15ThreadPoolTemplINS_3EnvENS0_20WorkNoCallbackPolicyEEE"
#define BASE  "N11onnxruntime11concurrency27ExtendedThreadPoolInterfaceE"
#define LOOP  "ZN11onnxruntime11concurrency10ThreadPool35ParallelForFixedBlockSizeScheduling"

#define CODE_MIN 16 /* bytes of a function's code that are looked at */

#define STDFUNCTION_TYPE 0 /* an operation: which type is the function object of? */

/* std::type_info as the Itanium C++ ABI has it, and with it a class's one base. */
enum type_word { TYPE_TABLE, TYPE_NAME, TYPE_BASE };

static uintptr_t word_of(uintptr_t object, enum type_word word)
{
    return slot_held(object + word * sizeof(uintptr_t));
}

/* Does [@address, +@size) lie in a segment that has all of @with and none of @without? */
static bool lies_in(const struct dl_phdr_info *info, uintptr_t address, size_t size, uint32_t with,
                    uint32_t without)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + header->p_vaddr;

        if (header->p_type == PT_LOAD && (header->p_flags & with) == with &&
            !(header->p_flags & without) && address >= from && address - from < header->p_memsz &&
            header->p_memsz - (address - from) >= size)
            return true;
    }
    return false;
}

static bool is_code(const struct dl_phdr_info *info, uintptr_t address)
{
    return lies_in(info, address, CODE_MIN, PF_X, PF_W);
}

static bool is_name(const struct dl_phdr_info *info, uintptr_t address, const char *name)
{
    size_t size = strlen(name) + 1;

    return lies_in(info, address, size, PF_R, PF_W) && memcmp(pointer_to(address), name, size) == 0;
}

/* Data that ld.so makes read-only when it is done: types and tables are there. */
struct range {
    uintptr_t from, to;
};

static bool find_range(const struct dl_phdr_info *info, struct range *ret)
{
    uintptr_t word = sizeof(uintptr_t);

    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];

        if (header->p_type != PT_GNU_RELRO)
            continue;
        ret->from = (info->dlpi_addr + header->p_vaddr + word - 1) & -word;
        ret->to = (info->dlpi_addr + header->p_vaddr + header->p_memsz) & -word;
        return true;
    }
    return false;
}

static bool holds(const struct range *r, uintptr_t address, unsigned words)
{
    return address >= r->from && address <= r->to && r->to - address >= words * sizeof(uintptr_t) &&
           address % sizeof(uintptr_t) == 0;
}

/* The std::type_info of the class; 0: none. */
static uintptr_t find_type(const struct dl_phdr_info *info, const struct range *r)
{
    for (uintptr_t at = r->from; holds(r, at, TYPE_BASE + 1); at += sizeof(uintptr_t)) {
        uintptr_t base = word_of(at, TYPE_BASE);

        if (holds(r, base, TYPE_NAME + 1) && is_name(info, word_of(at, TYPE_NAME), CLASS) &&
            is_name(info, word_of(base, TYPE_NAME), BASE))
            return at;
    }
    return 0;
}

/* A table is {0, type, functions…}. Returns where the functions begin; 0: there is none. */
static uintptr_t find_table(const struct dl_phdr_info *info, const struct range *r, uintptr_t type)
{
    for (uintptr_t at = r->from; holds(r, at, 3); at += sizeof(uintptr_t))
        if (slot_held(at) == 0 && word_of(at, 1) == type && is_code(info, word_of(at, 2)))
            return at + 2 * sizeof(uintptr_t);
    return 0;
}

static unsigned count_functions(const struct dl_phdr_info *info, const struct range *r,
                                uintptr_t table)
{
    unsigned n = 0;

    while (n <= ONNX_FUNCTION_MAX && holds(r, table + n * sizeof(uintptr_t), 1) &&
           is_code(info, slot_held(table + n * sizeof(uintptr_t))))
        n++;
    return n;
}

/* ---- functions that only read or write a member, which tell where it is ---- */

#if PROCESSOR_CODE_IS_KNOWN

/* The code behind the mark that indirect calls may come here (endbr64). */
static const unsigned char *code_of(uintptr_t function)
{
    static const unsigned char mark[] = {0xf3, 0x0f, 0x1e, 0xfa};
    const unsigned char *code = pointer_to(function);

    return memcmp(code, mark, sizeof(mark)) == 0 ? code + sizeof(mark) : code;
}

/* "OFFSET(%rdi), %eax" and "ret" behind an instruction's first byte. */
static bool reads_offset(const unsigned char *code, uint32_t *ret_offset)
{
    uint32_t offset;

    if (code[0] == 0x47 && code[2] == 0xc3 && code[1] < 0x80) {
        *ret_offset = code[1];
        return true;
    }
    memcpy(&offset, code + 1, sizeof(offset));
    if (code[0] != 0x87 || code[5] != 0xc3 || offset > INT32_MAX)
        return false;
    *ret_offset = offset;
    return true;
}

/* "mov OFFSET(%rdi), %eax" */
static bool is_getter(uintptr_t function, uint32_t *ret_offset)
{
    const unsigned char *code = code_of(function);

    return code[0] == 0x8b && reads_offset(code + 1, ret_offset);
}

/* "xor %eax, %eax" or "mov $1, %eax", and "xchg %eax, OFFSET(%rdi)" */
static bool is_setter(uintptr_t function, bool value, uint32_t *ret_offset)
{
    static const unsigned char zero[] = {0x31, 0xc0, 0x87}, one[] = {0xb8, 1, 0, 0, 0, 0x87};
    const unsigned char *code = code_of(function), *begin = value ? one : zero;
    size_t size = value ? sizeof(one) : sizeof(zero);

    return memcmp(code, begin, size) == 0 && reads_offset(code + size, ret_offset);
}

static bool find_members(struct onnx_copy *copy)
{
    uint32_t spin_at, doze_at;

    if (!is_getter(slot_held(onnx_entry(copy, ONNX_NUM_THREADS)), &copy->threads_at) ||
        !is_setter(slot_held(onnx_entry(copy, ONNX_SPIN)), true, &spin_at) ||
        !is_setter(slot_held(onnx_entry(copy, ONNX_DOZE)), false, &doze_at) || spin_at != doze_at)
        return false;
    copy->spins_at = spin_at;
    return true;
}

#else

static bool find_members(struct onnx_copy *copy)
{
    (void)copy;
    return false;
}

#endif

/* ---- */

uintptr_t onnx_entry(const struct onnx_copy *copy, enum onnx_function function)
{
    return copy->table + function * sizeof(uintptr_t);
}

bool onnx_find_class(const struct dl_phdr_info *info, struct onnx_copy *ret)
{
    uintptr_t type, table = 0;
    struct range r;

    if (find_range(info, &r) && (type = find_type(info, &r)) != 0)
        table = find_table(info, &r, type);
    ret->table = table;
    if (table == 0 || count_functions(info, &r, table) != ONNX_FUNCTION_MAX || !find_members(ret))
        return false;
    ret->run = (onnx_run_fn)pointer_to(slot_held(onnx_entry(ret, ONNX_RUN)));
    ret->run_more = (onnx_section_fn)pointer_to(slot_held(onnx_entry(ret, ONNX_RUN_MORE)));
    ret->spin = (void (*)(void *))pointer_to(slot_held(onnx_entry(ret, ONNX_SPIN)));
    ret->doze = (void (*)(void *))pointer_to(slot_held(onnx_entry(ret, ONNX_DOZE)));
    return true;
}

/* ---- the table of the C API ---- */

/* OrtApiBase */
struct api_base {
    const void *(*get)(uint32_t version); /* all versions begin alike, and have one table */
    const char *(*version)(void);
};

/* Both functions only return an address. */
static uintptr_t ask_for_api(const struct dl_phdr_info *info, const struct range *r,
                             const struct object *o)
{
    uintptr_t function = object_defines(o, "OrtGetApiBase");
    const struct api_base *base;

    if (!is_code(info, function))
        return 0;
    base = ((const struct api_base *(*)(void))pointer_to(function))();
    if (!holds(r, (uintptr_t)base, sizeof(*base) / sizeof(uintptr_t)) ||
        !is_code(info, (uintptr_t)base->get))
        return 0;
    return (uintptr_t)base->get(1);
}

uintptr_t onnx_find_api(const struct dl_phdr_info *info, const struct object *o)
{
    uintptr_t table;
    struct range r;

    if (!find_range(info, &r) || (table = ask_for_api(info, &r, o)) == 0 ||
        !holds(&r, table, ONNX_API_MAX))
        return 0;
    return table;
}

bool onnx_api_is_stock(const struct dl_phdr_info *info, uintptr_t table)
{
    for (unsigned i = 0; i < ONNX_API_MAX; i++)
        if (!is_code(info, slot_held(table + i * sizeof(uintptr_t))))
            return false;
    return true;
}

/* ---- the first call of a stub ---- */

static bool is_in(const struct onnx_copy *copy, uintptr_t address)
{
    return address >= copy->start && address < copy->end;
}

/* The type of the function object says in which function it was written. */
bool onnx_is_loop(const struct onnx_copy *copy, const struct onnx_body *body)
{
    struct onnx_body seen;
    uintptr_t type = 0, name = 0;
    char text[sizeof(LOOP)] = "";

    if (!resolve_peek(body, &seen, sizeof(seen)) || !is_in(copy, (uintptr_t)seen.manage) ||
        !is_in(copy, (uintptr_t)seen.invoke))
        return false;
    seen.manage(&type, body, STDFUNCTION_TYPE);
    if (!is_in(copy, type) ||
        !resolve_peek(pointer_to(type + sizeof(uintptr_t)), &name, sizeof(name)) ||
        !is_in(copy, name) || !resolve_peek(pointer_to(name), text, sizeof(text)))
        return false;
    /* A type that no other object may know has a mark before its name. */
    return memcmp(text + (text[0] == '*'), LOOP, sizeof(LOOP) - 2) == 0;
}
