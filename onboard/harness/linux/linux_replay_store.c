#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* files over 2 GiB on 32-bit systems */
#include "linux_replay_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "linux_direct.h"
#include "linux_file.h"
#include "linux_support.h"

#define WORD_BYTES 4
#define LEAST_BYTES 4096

typedef struct {
    jw_medium medium; /* first: the transfers below get a pointer to it */
    char path[4096 + 32];
    int buffered;
    jw_direct_file direct;
    uint64_t frozen_bytes; /* at the start, which outlast the steps */
    char sentence[160];
} store_file;

/* --- transfers -------------------------------------------------------------------------------- */

static const char *read_words(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    return jw_direct_read(&((store_file *)medium)->direct, offset, memory, bytes);
}

static const char *write_words(jw_medium *medium, uint64_t offset, void *memory, size_t bytes) {
    return jw_direct_write(&((store_file *)medium)->direct, offset, memory, bytes);
}

bool jw_store_file_pages(jw_medium *medium, uint32_t page_bytes) {
    store_file *file = (store_file *)medium;
    file->direct.page_bytes = page_bytes;
    return page_bytes && JW_BOUNCE_BYTES % page_bytes == 0;
}

/* --- the file --------------------------------------------------------------------------------- */

static _Noreturn void fail(const store_file *file, const char *action, int error) {
    jw_fail(JW_EXIT_STORAGE, "storage: cannot %s %s: %s", action, file->path, strerror(error));
}

/* False if the process that had the lock before has removed the file. */
static bool has_its_name(const store_file *file) {
    struct stat opened, named;
    return fstat(file->buffered, &opened) == 0 && stat(file->path, &named) == 0 &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

static void open_locked(store_file *file, bool anew) {
    do {
        file->buffered =
            open(file->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (anew ? O_CREAT : 0), 0600);
        if (file->buffered < 0 && errno == ENOENT && !anew) {
            jw_fail(JW_EXIT_STORAGE,
                    "storage: %s does not exist: no run has left a step to recover", file->path);
        }
        if (file->buffered < 0) {
            fail(file, "open", errno);
        }
        if (flock(file->buffered, LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK) {
                jw_fail(JW_EXIT_STORAGE,
                        "storage: another replay is using %s; wait for it to end, or give another"
                        " storage.path",
                        file->path);
            }
            fail(file, "lock", errno);
        }
    } while (!has_its_name(file) && close(file->buffered) == 0);
}

static void sync_directory(const char *directory) {
    const int descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        fsync(descriptor);
        close(descriptor);
    }
}

/* Check the free space first, so that the disk is not filled up. */
static bool has_room(const store_file *file) {
    struct statvfs system;
    struct stat found;
    if (fstatvfs(file->buffered, &system) != 0 || fstat(file->buffered, &found) != 0) {
        return true;
    }
    const uint64_t taken = (uint64_t)found.st_blocks * 512; /* stat(2) */
    return (uint64_t)system.f_bavail * system.f_frsize + taken >= file->medium.scratch_bytes;
}

/* Give the file its final size, so that check_size accepts it even if the program ends before the
 * file is filled. */
static bool preallocate(const store_file *file) {
    const off_t bytes = (off_t)file->medium.scratch_bytes;
    return fallocate(file->buffered, 0, 0, bytes) == 0 ||
           (errno == EOPNOTSUPP && ftruncate(file->buffered, bytes) == 0);
}

static int fill_anew(const store_file *file) {
    if (ftruncate(file->buffered, (off_t)file->frozen_bytes) != 0) {
        return errno;
    }
    if (!has_room(file)) {
        return ENOSPC;
    }
    const bool filled = preallocate(file) && jw_fill_file(file->buffered, file->frozen_bytes,
                                                          file->medium.scratch_bytes);
    return filled ? 0 : errno;
}

static void make(const store_file *file, const char *directory) {
    const int error = fill_anew(file);
    if (error) {
        unlink(file->path);
        jw_fail(JW_EXIT_STORAGE, "storage: %s has no room for a store of %" PRIu64 " bytes: %s",
                directory, file->medium.scratch_bytes, strerror(error));
    }
    sync_directory(directory);
}

static void check_size(const store_file *file) {
    struct stat found;
    if (fstat(file->buffered, &found) != 0) {
        fail(file, "read the size of", errno);
    }
    if ((uint64_t)found.st_size != file->medium.scratch_bytes) {
        jw_fail(JW_EXIT_STORAGE,
                "storage: %s has %" PRIu64 " bytes instead of %" PRIu64
                ": it belongs to a run of another plan",
                file->path, (uint64_t)found.st_size, file->medium.scratch_bytes);
    }
}

jw_medium *jw_store_file_open(jw_text *text, bool *is_direct) {
    static const char raw_flash[] = "offset=";
    const uint64_t bytes = jw_text_number(text, "bytes", LEAST_BYTES, UINT64_C(1) << 40);
    if (strncmp(text->rest, raw_flash, sizeof raw_flash - 1) == 0) {
        jw_text_fail(text, "store",
                     "must be a file: replays on Linux do not page to raw flash"
                     " partitions; give storage.path");
        return NULL;
    }
    const bool anew = jw_text_number(text, "anew", 0, 1) == 1;
    const uint64_t frozen_bytes = jw_text_number(text, "frozen", 0, bytes);
    const char *directory = jw_text_remainder(text, "directory");
    if (!jw_text_end(text)) {
        return NULL;
    }
    store_file *file = calloc(1, sizeof *file);
    if (!file) {
        jw_fail(JW_EXIT_MEMORY, "no memory for a store");
    }
    snprintf(file->path, sizeof file->path, "%.4096s/.joulewright-store", directory);
    file->medium = (jw_medium){.transfer = {[JW_READ] = read_words, [JW_WRITE] = write_words},
                               .page_bytes = WORD_BYTES,
                               .scratch_bytes = bytes};
    file->frozen_bytes = frozen_bytes;
    open_locked(file, anew);
    if (anew) {
        make(file, directory);
    } else {
        check_size(file);
    }
    if (!jw_direct_open(&file->direct, file->buffered, LEAST_BYTES)) {
        fail(file, "open", errno);
    }
    *is_direct = file->direct.is_direct;
    return &file->medium;
}

const char *jw_store_file_forget(jw_medium *medium) {
    store_file *file = (store_file *)medium;
    if (unlink(file->path) == 0) {
        return NULL;
    }
    snprintf(file->sentence, sizeof file->sentence, "the store cannot be removed: %s",
             strerror(errno));
    return file->sentence;
}
