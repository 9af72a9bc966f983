#define _GNU_SOURCE
#include "linux_storage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "linux_support.h"
#include "platform.h"

#define DIRECT_ALIGNMENT 4096

struct jw_scratch {
    char directory[4096];
    int buffered, direct_read, direct_write;
    bool is_direct;
    size_t bytes;
    unsigned char *memory; /* as large as the file */
    uint32_t random;
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

jw_scratch *jw_scratch_open(const char *directory, size_t bytes) {
    char path[4096 + 32];
    jw_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch || posix_memalign((void **)&scratch->memory, DIRECT_ALIGNMENT, bytes) != 0) {
        jw_fail(JW_EXIT_MEMORY, "no memory for a scratch file of %zu bytes", bytes);
    }
    snprintf(scratch->directory, sizeof scratch->directory, "%s", directory);
    scratch->bytes = bytes;
    scratch->is_direct = true;
    scratch->random = 1;
    const jw_fill noise = {JW_FILL_INDEX, 0.0f, INT32_MAX};
    jw_fill_memory(scratch->memory, bytes, &noise, 1);

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
    for (size_t done = 0; done < bytes;) {
        const size_t part = bytes - done < 1048576 ? bytes - done : 1048576;
        write_whole(scratch, scratch->buffered, scratch->memory + done, part, done);
        done += part;
    }
    if (fdatasync(scratch->buffered) != 0) {
        fail(scratch, "sync the scratch file", errno);
    }
    return scratch;
}

bool jw_scratch_is_direct(const jw_scratch *scratch) {
    return scratch->is_direct;
}

size_t jw_scratch_bytes(const jw_scratch *scratch) {
    return scratch->bytes;
}

static size_t next_offset(jw_scratch *scratch, size_t bytes) {
    const size_t slots = scratch->bytes / bytes;
    scratch->random = scratch->random * 1664525u + 1013904223u; /* Numerical Recipes' LCG */
    return ((uint64_t)scratch->random * slots >> 32) * bytes;
}

static void transfer(jw_scratch *scratch, jw_method method, size_t bytes) {
    const size_t offset = next_offset(scratch, bytes);
    unsigned char *memory = scratch->memory + offset;
    switch (method) {
    case JW_READ_DIRECT: {
        if (!scratch->is_direct) {
            posix_fadvise(scratch->buffered, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
        }
        const ssize_t length = pread(scratch->direct_read, memory, bytes, (off_t)offset);
        if (length != (ssize_t)bytes) {
            fail(scratch, "read a page", length < 0 ? errno : EIO);
        }
        break;
    }
    case JW_WRITE_DIRECT:
        write_whole(scratch, scratch->direct_write, memory, bytes, offset);
        break;
    case JW_WRITE_BUFFERED:
        write_whole(scratch, scratch->buffered, memory, bytes, offset);
        if (fdatasync(scratch->buffered) != 0) {
            fail(scratch, "sync the scratch file", errno);
        }
        break;
    }
}

jw_window jw_scratch_measure(jw_scratch *scratch, jw_method method, size_t bytes, uint64_t most,
                             uint64_t min_ns, uint64_t tail_ns, uint64_t *tail_end_ns) {
    jw_window window = {.tries = 1};
    window.frequency_before_khz = jw_frequency_khz();
    window.start_ns = jw_clock_ns();
    do {
        transfer(scratch, method, bytes);
        window.executions++;
        window.end_ns = jw_clock_ns();
    } while (window.executions < most && window.end_ns - window.start_ns < min_ns);
    window.frequency_after_khz = jw_frequency_khz();
    window.running_ns = window.end_ns - window.start_ns; /* waiting for the medium is the work */
    if (tail_ns) {
        jw_sleep_until(window.end_ns + tail_ns);
    }
    *tail_end_ns = tail_ns ? jw_clock_ns() : window.end_ns;
    return window;
}

void jw_scratch_close(jw_scratch *scratch) {
    close(scratch->buffered);
    close(scratch->direct_read);
    close(scratch->direct_write);
    free(scratch->memory);
    free(scratch);
}
