/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds runtimes that an executable contains instead of loading them. Any user can make the file,
 * so every offset and size in it is checked, and at most SEARCH_MAX bytes of its sections are read.
 */
#include "host/proc/proc.h"

#include "base/cleanup.h"
#include "host/proc/file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECTIONS_MAX 4096
#define NAMES_MAX    (1u << 16) /* bytes of the sections' names */
#define SEARCH_MAX   (64u << 20)
#define CHUNK        (1u << 16)
#define OVERLAP      64 /* more than the longest text searched for, with a version behind it */

/* linker names → runtimes, in the symbol table of a static program */
static const struct {
    enum proc_runtime runtime;
    const char *symbol;
} symbols[] = {
    {PROC_RUNTIME_GOMP, "GOMP_parallel"},
    {PROC_RUNTIME_LLVM_OMP, "__kmpc_fork_call"},
    {PROC_RUNTIME_OPENBLAS, "openblas_set_num_threads"},
};

struct image {
    int fd;
    uint64_t left; /* bytes that may still be searched */
    Elf64_Ehdr header;
    char names[NAMES_MAX + 1];
    size_t n_names;
    char chunk[OVERLAP + CHUNK + 1];
};

static bool read_at(int fd, void *buf, size_t size, uint64_t at)
{
    return at <= INT64_MAX && pread(fd, buf, size, (off_t)at) == (ssize_t)size;
}

/*
 * Calls @fn with overlapping pieces of a section, each ended by a NUL, until it returns true. A
 * piece may begin in the middle of a text.
 */
static void search(struct image *image, const Elf64_Shdr *section,
                   bool (*fn)(const char *piece, size_t len, struct proc_runtimes *found),
                   struct proc_runtimes *found)
{
    uint64_t left = section->sh_size < image->left ? section->sh_size : image->left;
    uint64_t at = section->sh_offset;
    size_t kept = 0;

    if (section->sh_type == SHT_NOBITS)
        return;
    image->left -= left;
    while (left > 0) {
        size_t n = left < CHUNK ? (size_t)left : CHUNK;

        if (!read_at(image->fd, image->chunk + kept, n, at))
            return;
        image->chunk[kept + n] = '\0';
        if (fn(image->chunk, kept + n, found))
            return;
        at += n;
        left -= n;
        n += kept;
        kept = n < OVERLAP ? n : OVERLAP;
        memmove(image->chunk, image->chunk + n - kept, kept);
    }
}

/* A Rust program names the files of its libraries, for messages: ".../rayon-core-1.13.0/src/…". */
static bool find_rayon(const char *piece, size_t len, struct proc_runtimes *found)
{
    static const char text[] = "/rayon-core-";
    const char *at = memmem(piece, len, text, strlen(text));
    const char *version = at ? at + strlen(text) : NULL;
    size_t n = at ? strspn(version, "0123456789.") : 0;

    if (n == 0 || n >= PROC_VERSION_MAX || version[n] != '/')
        return false;
    found->r[PROC_RUNTIME_RAYON].loaded = true;
    memcpy(found->r[PROC_RUNTIME_RAYON].version, version, n);
    found->r[PROC_RUNTIME_RAYON].version[n] = '\0';
    return true;
}

static bool find_symbols(const char *piece, size_t len, struct proc_runtimes *found)
{
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        char text[OVERLAP] = ""; /* begins with the NUL before it */
        size_t n = strlen(symbols[i].symbol);

        memcpy(text + 1, symbols[i].symbol, n);
        if (memmem(piece, len, text, n + 2))
            found->r[symbols[i].runtime].loaded = true;
    }
    return false;
}

/*
 * debug/buildinfo of Go 1.18 and newer: 14 bytes "\xff Go buildinf:", pointer size, flags; with
 * flag 2 the version stands at 32, its length before it (below 128: one byte). "go1.26.8"
 */
static void read_go(struct image *image, const Elf64_Shdr *section, struct proc_runtimes *found)
{
    static const char magic[] = "\xff Go buildinf:";
    char info[33 + PROC_VERSION_MAX + 2 + 1] = ""; /* with a NUL behind what is read */
    size_t n;

    if (!read_at(image->fd, info, sizeof(info) - 1, section->sh_offset) ||
        memcmp(info, magic, strlen(magic)) != 0)
        return;
    found->r[PROC_RUNTIME_GO].loaded = true;
    n = (unsigned char)info[32];
    if (!(info[15] & 2) || n < 3 || n - 2 >= PROC_VERSION_MAX || memcmp(info + 33, "go", 2) != 0)
        return;
    n = strspn(info + 35, "0123456789.") < n - 2 ? strspn(info + 35, "0123456789.") : n - 2;
    memcpy(found->r[PROC_RUNTIME_GO].version, info + 35, n);
    found->r[PROC_RUNTIME_GO].version[n] = '\0';
}

static bool has_loader(const struct image *image)
{
    Elf64_Phdr program;

    for (unsigned i = 0; i < image->header.e_phnum; i++) {
        if (!read_at(image->fd, &program, sizeof(program),
                     image->header.e_phoff + i * sizeof(program)))
            break;
        if (program.p_type == PT_INTERP)
            return true;
    }
    return false;
}

static bool read_section(const struct image *image, unsigned i, Elf64_Shdr *ret)
{
    return read_at(image->fd, ret, sizeof(*ret), image->header.e_shoff + i * sizeof(*ret));
}

static bool is_named(const struct image *image, const Elf64_Shdr *section, const char *name)
{
    return section->sh_name < image->n_names && strcmp(image->names + section->sh_name, name) == 0;
}

static bool read_image(struct image *image)
{
    Elf64_Ehdr *header = &image->header;
    Elf64_Shdr names;

    if (!read_at(image->fd, header, sizeof(*header), 0) ||
        memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_phentsize != sizeof(Elf64_Phdr))
        return false;
    if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shnum > SECTIONS_MAX ||
        header->e_shstrndx >= header->e_shnum || !read_section(image, header->e_shstrndx, &names)) {
        header->e_shnum = 0;
        return true;
    }
    image->n_names = names.sh_size < NAMES_MAX ? (size_t)names.sh_size : NAMES_MAX;
    if (!read_at(image->fd, image->names, image->n_names, names.sh_offset))
        header->e_shnum = 0;
    image->names[image->n_names] = '\0';
    return true;
}

int proc_parse_program(int fd, struct proc_runtimes *ret)
{
    _cleanup_free_ struct image *image = calloc(1, sizeof(*image));
    struct proc_runtimes found = *ret;

    if (!image)
        return -ENOMEM;
    image->fd = fd;
    image->left = SEARCH_MAX;
    if (!read_image(image))
        return -ENOEXEC;
    found.is_static = !has_loader(image);
    for (unsigned i = 0; i < image->header.e_shnum; i++) {
        Elf64_Shdr section;

        if (!read_section(image, i, &section))
            break;
        if (is_named(image, &section, ".go.buildinfo"))
            read_go(image, &section, &found);
        else if (is_named(image, &section, ".rodata"))
            search(image, &section, find_rayon, &found);
        else if (found.is_static && is_named(image, &section, ".strtab"))
            search(image, &section, find_symbols, &found);
    }
    *ret = found;
    return 0;
}

int proc_read_program(int root, pid_t pid, struct proc_runtimes *ret)
{
    char path[64];
    _cleanup_fd_ int fd = -1;

    snprintf(path, sizeof(path), "proc/%d/exe", (int)pid);
    fd = file_open(root, path, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return fd == -ENOENT ? -ESRCH : fd;
    return proc_parse_program(fd, ret);
}
