/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"
#include "agent/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static bool is_ours(const void *address)
{
    Dl_info theirs;
    Dl_info ours;

    return dladdr(address, &theirs) && dladdr((const void *)resolve_next, &ours) &&
           theirs.dli_fbase == ours.dli_fbase;
}

/* Keeps the handle open, because the library must stay loaded while we hold its pointer. */
static void *find_in(const char *library, const char *symbol)
{
    void *handle = library ? dlopen(library, RTLD_LAZY | RTLD_NOLOAD) : NULL;

    return handle ? dlsym(handle, symbol) : NULL;
}

void *resolve_next(const char *symbol, const void *caller, const char *soname)
{
    int saved = errno;
    void *found = dlsym(RTLD_NEXT, symbol);
    Dl_info info;

    if (!found && dladdr(caller, &info))
        found = find_in(info.dli_fname, symbol);
    if (!found) /* generated code belongs to no object */
        found = find_in(soname, symbol);
    if (found && is_ours(found))
        found = NULL;
    errno = saved;
    return found;
}

/* Some sandboxes and emulators lack the system call. */
static long peek_by_file(const void *from, void *to, size_t size)
{
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? pread(fd, to, size, (off_t)(uintptr_t)from) : -1;

    if (fd >= 0)
        close(fd);
    return n;
}

bool resolve_peek(const void *from, void *to, size_t size)
{
    struct iovec local = {.iov_base = to, .iov_len = size};
    struct iovec remote = {.iov_base = (void *)from, .iov_len = size};
    int saved = errno;
    /* The sixth argument lies on the stack, where an int leaves half a register undefined. */
    long n = syscall(SYS_process_vm_readv, getpid(), &local, 1l, &remote, 1l, 0l);

    if (n < 0 && errno != EFAULT)
        n = peek_by_file(from, to, size);
    errno = saved;
    return n == (long)size;
}
