#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* files over 2 GiB on 32-bit systems */
#include "linux_storage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "linux_direct.h"
#include "linux_file.h"
#include "linux_mtd.h"
#include "linux_support.h"

#define SECTOR_BYTES 512

typedef struct {
    jw_medium medium; /* first: the transfers below get a pointer to it */
    char directory[4096];
    int buffered;
    jw_direct_file direct;
} scratch_file;

static _Noreturn void fail(const scratch_file *file, const char *action, int error) {
    jw_fail(JW_EXIT_STORAGE, "storage: cannot %s in %s: %s", action, file->directory,
            strerror(error));
}

/* --- transfers -------------------------------------------------------------------------------- */

/* The measuring core has no sentence for storage that fails: the program ends. */
static const char *expect(const scratch_file *file, const char *action, const char *error) {
    if (error) {
        jw_fail(JW_EXIT_STORAGE, "storage: cannot %s in %s: %s", action, file->directory, error);
    }
    return NULL;
}

static const char *read_pages(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    scratch_file *file = (scratch_file *)medium;
    return expect(file, "read a page", jw_direct_read(&file->direct, offset, memory, bytes));
}

static const char *write_pages(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    scratch_file *file = (scratch_file *)medium;
    return expect(file, "write a page", jw_direct_write(&file->direct, offset, memory, bytes));
}

static const char *write_buffered(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    const scratch_file *file = (scratch_file *)medium;
    const ssize_t written = pwrite(file->buffered, memory, bytes, (off_t)offset);
    if (written != (ssize_t)bytes) {
        fail(file, "write a page", written < 0 ? errno : ENOSPC);
    }
    if (fdatasync(file->buffered) != 0) {
        fail(file, "sync the scratch file", errno);
    }
    return NULL;
}

/* --- the scratch file ------------------------------------------------------------------------- */

static jw_medium *open_file(const char *directory, uint64_t bytes, bool *is_direct) {
    char path[4096 + 32];
    scratch_file *file = calloc(1, sizeof *file);
    if (!file) {
        jw_fail(JW_EXIT_MEMORY, "no memory for a scratch file");
    }
    snprintf(file->directory, sizeof file->directory, "%s", directory);
    file->medium = (jw_medium){.transfer = {[JW_READ] = read_pages,
                                            [JW_WRITE] = write_pages,
                                            [JW_WRITE_BUFFERED] = write_buffered},
                               .page_bytes = SECTOR_BYTES,
                               .scratch_bytes = bytes,
                               .random = 1};
    snprintf(path, sizeof path, "%s/.joulewright-XXXXXX", file->directory);
    file->buffered = mkostemp(path, O_CLOEXEC);
    if (file->buffered < 0) {
        fail(file, "create a scratch file", errno);
    }
    const bool is_open = jw_direct_open(&file->direct, file->buffered, SECTOR_BYTES);
    const int error = errno;
    unlink(path); /* not earlier: network file systems do not open unlinked files */
    if (!is_open) {
        fail(file, "open the scratch file", error);
    }
    if (!jw_fill_file(file->buffered, 0, bytes)) {
        fail(file, "fill the scratch file", errno);
    }
    *is_direct = file->direct.is_direct;
    return &file->medium;
}

/* --- the line of the plan --------------------------------------------------------------------- */

jw_medium *jw_scratch_open(jw_text *text, bool *is_direct) {
    static const char raw_flash[] = "offset=";
    const uint64_t bytes = jw_text_number(text, "bytes", SECTOR_BYTES, UINT64_C(1) << 40);
    *is_direct = true; /* raw flash has no cache */
    if (strncmp(text->rest, raw_flash, sizeof raw_flash - 1) != 0) {
        const char *directory = jw_text_remainder(text, "directory");
        return jw_text_end(text) ? open_file(directory, bytes, is_direct) : NULL;
    }
    jw_mtd_stretch stretch = {.bytes = bytes};
    stretch.offset = jw_text_number(text, "offset", 0, UINT64_C(1) << 48);
    stretch.page_bytes = (uint32_t)jw_text_number(text, "page_bytes", 1, UINT32_MAX);
    stretch.erase_block_bytes = (uint32_t)jw_text_number(text, "erase_block_bytes", 1, UINT32_MAX);
    stretch.device = jw_text_value(text, "mtd");
    stretch.name = jw_text_remainder(text, "name");
    return jw_text_end(text) ? jw_mtd_open(&stretch) : NULL;
}
