#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* files over 2 GiB on 32-bit systems */
#include "linux_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.h"

#define FILL_BYTES ((size_t)1 << 20)

int jw_open_direct(int file, int flags, bool *is_direct) {
    char path[64];
    int descriptor = -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file); /* also if it was unlinked */
    if (*is_direct) {
        descriptor = open(path, flags | O_DIRECT | O_CLOEXEC);
        *is_direct = descriptor >= 0 || errno != EINVAL;
    }
    return *is_direct ? descriptor : open(path, flags | O_CLOEXEC);
}

size_t jw_direct_alignment(int file) {
#ifdef STATX_DIOALIGN
    struct statx found;
    if (statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 &&
        found.stx_mask & STATX_DIOALIGN && found.stx_dio_mem_align) {
        return found.stx_dio_mem_align;
    }
#else
    (void)file;
#endif
    return JW_DIRECT_ALIGNMENT;
}

static bool write_chunks(int file, uint64_t begin, uint64_t end, void *memory) {
    const jw_fill noise = {JW_FILL_INDEX, 0.0f, INT32_MAX};
    for (uint64_t done = begin; done < end; done += FILL_BYTES) {
        const size_t part = end - done < FILL_BYTES ? (size_t)(end - done) : FILL_BYTES;
        jw_fill_memory(memory, FILL_BYTES, &noise, (uint32_t)(done / FILL_BYTES) + 1);
        const ssize_t written = pwrite(file, memory, part, (off_t)done);
        if (written != (ssize_t)part) {
            errno = written < 0 ? errno : ENOSPC;
            return false;
        }
    }
    return fdatasync(file) == 0;
}

bool jw_fill_file(int file, uint64_t begin, uint64_t end) {
    void *memory = malloc(FILL_BYTES);
    if (!memory) {
        return false;
    }
    const bool filled = write_chunks(file, begin, end, memory);
    const int error = errno;
    free(memory);
    errno = error;
    return filled;
}
