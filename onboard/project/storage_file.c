#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64 /* files over 2 GiB on 32-bit systems */

#include "storage_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *read_pages(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    const storage_file *file = (const storage_file *)medium;
    const ssize_t length = pread(file->descriptor, memory, bytes, (off_t)offset);
    if (length < 0) {
        return strerror(errno);
    }
    return (size_t)length == bytes ? NULL : "the file ends before these bytes";
}

static const char *write_pages(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    const storage_file *file = (const storage_file *)medium;
    const ssize_t length = pwrite(file->descriptor, memory, bytes, (off_t)offset);
    if (length < 0) {
        return strerror(errno);
    }
    return (size_t)length == bytes ? NULL : "the disk is full";
}

const char *storage_file_open(storage_file *file, const char *path, uint32_t page_bytes,
                              uint64_t bytes) {
    memset(file, 0, sizeof *file);
    file->descriptor = open(path, O_RDWR | O_CREAT | O_DSYNC, S_IRUSR | S_IWUSR);
    if (file->descriptor < 0) {
        return strerror(errno);
    }
    if (ftruncate(file->descriptor, (off_t)bytes) != 0) {
        const char *why = strerror(errno);
        storage_file_close(file);
        return why;
    }
    file->medium.transfer[JW_READ] = read_pages;
    file->medium.transfer[JW_WRITE] = write_pages;
    file->medium.page_bytes = page_bytes;
    file->medium.scratch_bytes = bytes;
    return NULL;
}

void storage_file_close(storage_file *file) {
    close(file->descriptor);
}
