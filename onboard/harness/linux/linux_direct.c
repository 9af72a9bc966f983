#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* files over 2 GiB on 32-bit systems */
#include "linux_direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "linux_file.h"

#define MOST_READ ((size_t)1 << 30) /* Linux reads 2 GiB at most at once */

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t whole_pages(const jw_direct_file *file, size_t bytes) {
    return (bytes + file->page_bytes - 1) / file->page_bytes * file->page_bytes;
}

/* Error message for a system call that returned `length`; NULL if all bytes were transferred. */
static const char *explain(jw_direct_file *file, const char *what, ssize_t length, size_t wanted) {
    if (length == (ssize_t)wanted) {
        return NULL;
    }
    if (length < 0) {
        return strerror(errno);
    }
    snprintf(file->sentence, sizeof file->sentence, "short %s, %zd of %zu bytes only", what, length,
             wanted);
    return file->sentence;
}

static const char *read_through_buffer(jw_direct_file *file, uint64_t offset, unsigned char *memory,
                                       size_t bytes) {
    const char *error = NULL;
    for (size_t done = 0; done < bytes && !error; done += JW_BOUNCE_BYTES) {
        const size_t part = smaller(bytes - done, JW_BOUNCE_BYTES);
        const size_t pages = whole_pages(file, part);
        const ssize_t length = pread(file->direct, file->bounce, pages, (off_t)(offset + done));
        error = explain(file, "read", length, pages);
        if (!error) {
            memcpy(memory + done, file->bounce, part);
        }
    }
    return error;
}

/* Whole pages are read at once, to the first address within the tensor that O_DIRECT accepts, and
 * then moved; only the last ones pass through the buffer. */
const char *jw_direct_read(jw_direct_file *file, uint64_t offset, void *memory, size_t bytes) {
    unsigned char *to = memory;
    const size_t aside = (size_t)(-(uintptr_t)memory % file->alignment);
    if (!file->is_direct) {
        posix_fadvise(file->buffered, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
    }
    size_t whole = bytes > aside ? (bytes - aside) / file->page_bytes * file->page_bytes : 0;
    if (whole <= JW_BOUNCE_BYTES) {
        whole = 0; /* the buffer takes them in one read, or nearly so */
    }
    for (size_t done = 0; done < whole; done += MOST_READ) {
        const size_t part = smaller(whole - done, MOST_READ);
        const ssize_t length = pread(file->direct, to + aside + done, part, (off_t)(offset + done));
        const char *error = explain(file, "read", length, part);
        if (error) {
            return error;
        }
    }
    if (aside && whole) {
        memmove(to, to + aside, whole);
    }
    return read_through_buffer(file, offset + whole, to + whole, bytes - whole);
}

/* Bytes that fit into the buffer are written by one synced write. */
const char *jw_direct_write(jw_direct_file *file, uint64_t offset, const void *memory,
                            size_t bytes) {
    const bool is_one = bytes <= JW_BOUNCE_BYTES;
    const char *error = NULL;
    for (size_t done = 0; done < bytes && !error; done += JW_BOUNCE_BYTES) {
        const size_t part = smaller(bytes - done, JW_BOUNCE_BYTES);
        const size_t pages = whole_pages(file, part);
        memcpy(file->bounce, (const unsigned char *)memory + done, part);
        memset(file->bounce + part, 0, pages - part);
        const ssize_t length = pwrite(is_one ? file->direct_synced : file->direct, file->bounce,
                                      pages, (off_t)(offset + done));
        error = explain(file, "write", length, pages);
    }
    if (!error && !is_one && fdatasync(file->direct) != 0) {
        error = strerror(errno);
    }
    return error;
}

bool jw_direct_open(jw_direct_file *file, int buffered, size_t page_bytes) {
    void *bounce;
    if (posix_memalign(&bounce, JW_DIRECT_ALIGNMENT, JW_BOUNCE_BYTES) != 0) {
        errno = ENOMEM;
        return false;
    }
    *file = (jw_direct_file){
        .buffered = buffered, .is_direct = true, .page_bytes = page_bytes, .bounce = bounce};
    file->direct = jw_open_direct(buffered, O_RDWR, &file->is_direct);
    if (file->direct < 0) {
        return false;
    }
    file->direct_synced = jw_open_direct(buffered, O_WRONLY | O_DSYNC, &file->is_direct);
    if (file->direct_synced < 0) {
        return false;
    }
    file->alignment = file->is_direct ? jw_direct_alignment(buffered) : 1;
    return true;
}
