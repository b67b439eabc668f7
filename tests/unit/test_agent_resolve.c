/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that may not be there is read without a fault, also where the kernel lacks the call. */
#include "agent/agent.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static bool lacks;

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __real_syscall(long number, ...);

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (lacks && number == SYS_process_vm_readv) {
        errno = ENOSYS;
        return -1;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

static void what_is_there_is_read_and_what_is_not_is_no_fault(void **state)
{
    static const char text[] = "what is there";
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *gone = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(gone, MAP_FAILED);
    assert_int_equal(munmap(gone, page), 0);
    for (int i = 0; i < 2; i++) {
        char seen[sizeof(text)] = "";

        lacks = i > 0;
        errno = EILSEQ;
        assert_true(resolve_peek(text, seen, sizeof(seen)));
        assert_string_equal(seen, text);
        assert_false(resolve_peek(gone, seen, sizeof(seen)));
        assert_int_equal(errno, EILSEQ); /* the program's */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_there_is_read_and_what_is_not_is_no_fault),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
