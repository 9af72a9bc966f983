#define _GNU_SOURCE
#include "linux_storage.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "linux_support.h"
#include "platform.h"

struct jw_scratch {
    char directory[4096];
    int buffered, direct_read, direct_write;
    bool is_direct;
    jw_medium medium;
};

static _Noreturn void fail(const jw_scratch *scratch, const char *action, int error) {
    jw_fail(JW_EXIT_STORAGE, "storage: cannot %s in %s: %s", action, scratch->directory,
            strerror(error));
}

static int open_again(jw_scratch *scratch, const char *path, int flags) {
    int descriptor = -1;
    if (scratch->is_direct) {
        descriptor = open(path, flags | O_DIRECT | O_CLOEXEC);
        if (descriptor < 0 && errno == EINVAL) {
            scratch->is_direct = false;
        }
    }
    if (!scratch->is_direct) {
        descriptor = open(path, flags | O_CLOEXEC);
    }
    return descriptor;
}

static void write_whole(const jw_scratch *scratch, int descriptor, const unsigned char *memory,
                        size_t bytes, size_t offset) {
    const ssize_t written = pwrite(descriptor, memory, bytes, (off_t)offset);
    if (written != (ssize_t)bytes) {
        fail(scratch, "write a page", written < 0 ? errno : ENOSPC);
    }
}

static const jw_scratch *of_medium(const jw_medium *medium) {
    return (const jw_scratch *)((const char *)medium - offsetof(jw_scratch, medium));
}

static const char *read_direct(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    const jw_scratch *scratch = of_medium(medium);
    if (!scratch->is_direct) {
        posix_fadvise(scratch->buffered, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
    }
    const ssize_t length = pread(scratch->direct_read, memory, bytes, (off_t)offset);
    if (length != (ssize_t)bytes) {
        fail(scratch, "read a page", length < 0 ? errno : EIO);
    }
    return NULL;
}

static const char *write_direct(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    const jw_scratch *scratch = of_medium(medium);
    write_whole(scratch, scratch->direct_write, memory, bytes, offset);
    return NULL;
}

static const char *write_buffered(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    const jw_scratch *scratch = of_medium(medium);
    write_whole(scratch, scratch->buffered, memory, bytes, offset);
    if (fdatasync(scratch->buffered) != 0) {
        fail(scratch, "sync the scratch file", errno);
    }
    return NULL;
}

/* The whole file, so that no transfer meets a hole. */
static void fill(const jw_scratch *scratch, size_t bytes) {
    const size_t most = 1048576;
    unsigned char *memory = malloc(most);
    if (!memory) {
        jw_fail(JW_EXIT_MEMORY, "no memory to fill the scratch file");
    }
    const jw_fill noise = {JW_FILL_INDEX, 0.0f, INT32_MAX};
    for (size_t done = 0; done < bytes;) {
        const size_t part = bytes - done < most ? bytes - done : most;
        jw_fill_memory(memory, part, &noise, (uint32_t)(done / most));
        write_whole(scratch, scratch->buffered, memory, part, done);
        done += part;
    }
    free(memory);
    if (fdatasync(scratch->buffered) != 0) {
        fail(scratch, "sync the scratch file", errno);
    }
}

jw_scratch *jw_scratch_open(const char *directory, size_t bytes) {
    char path[4096 + 32];
    jw_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch) {
        jw_fail(JW_EXIT_MEMORY, "no memory for a scratch file of %zu bytes", bytes);
    }
    snprintf(scratch->directory, sizeof scratch->directory, "%s", directory);
    scratch->is_direct = true;
    scratch->medium = (jw_medium){
        .transfer = {[JW_READ] = read_direct,
                     [JW_WRITE] = write_direct,
                     [JW_WRITE_BUFFERED] = write_buffered},
        .page_bytes = 512,
        .scratch_bytes = bytes,
        .random = 1,
    };

    snprintf(path, sizeof path, "%s/.joulewright-XXXXXX", scratch->directory);
    scratch->buffered = mkostemp(path, O_CLOEXEC);
    if (scratch->buffered < 0) {
        fail(scratch, "make a scratch file", errno);
    }
    scratch->direct_read = open_again(scratch, path, O_RDONLY);
    scratch->direct_write = open_again(scratch, path, O_WRONLY | O_DSYNC);
    const int error = errno;
    unlink(path);
    if (scratch->direct_read < 0 || scratch->direct_write < 0) {
        fail(scratch, "open the scratch file", error);
    }
    fill(scratch, bytes);
    return scratch;
}

bool jw_scratch_is_direct(const jw_scratch *scratch) {
    return scratch->is_direct;
}

jw_medium *jw_scratch_medium(jw_scratch *scratch) {
    return &scratch->medium;
}

void jw_scratch_close(jw_scratch *scratch) {
    close(scratch->buffered);
    close(scratch->direct_read);
    close(scratch->direct_write);
    free(scratch);
}
