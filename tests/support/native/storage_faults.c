/* Injects faults into a store's file when preloaded. Call number FAULT_AT (from 0) of FAULT_CALL
 * (pread or pwrite) on a file named .joulewright-store fails with ENOSPC, is half as long, or ends
 * the process, as FAULT_KIND says (full, short, kill). With FAULT_KIND=kill no file system
 * preallocates.
 *
 * Without FAULT_CALL, it checks syncs: data written without O_DSYNC must be synced before the next
 * write with O_DSYNC and before the program ends. Otherwise the program ends with exit code 43. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static bool unsynced;

static __attribute__((destructor)) void require_synced(void) {
    if (unsynced) {
        _exit(43);
    }
}

static bool is_store(int file) {
    static const char name[] = "/.joulewright-store";
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    const char *found = strstr(path, name);
    return found && !found[sizeof name - 1];
}

static bool is_struck(const char *call, int file) {
    static int count;
    const char *wanted = getenv("FAULT_CALL"), *at = getenv("FAULT_AT");
    return wanted && at && strcmp(wanted, call) == 0 && is_store(file) && count++ == atoi(at);
}

static int is_kind(const char *wanted) {
    const char *kind = getenv("FAULT_KIND");
    return kind && strcmp(kind, wanted) == 0;
}

int fallocate64(int file, int mode, off64_t offset, off64_t bytes) {
    static int (*real)(int, int, off64_t, off64_t);
    if (is_kind("kill")) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "fallocate64");
    }
    return real(file, mode, offset, bytes);
}

ssize_t pread64(int file, void *memory, size_t bytes, off64_t offset) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "pread64");
    }
    return real(file, memory, is_struck("pread", file) ? bytes / 2 : bytes, offset);
}

ssize_t pwrite64(int file, const void *memory, size_t bytes, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite64");
    }
    if (is_store(file) && fcntl(file, F_GETFL) & O_DSYNC) {
        require_synced();
    } else if (is_store(file) && !getenv("FAULT_CALL")) {
        unsynced = true;
    }
    if (!is_struck("pwrite", file)) {
        return real(file, memory, bytes, offset);
    }
    if (is_kind("kill")) {
        raise(SIGKILL);
    }
    if (is_kind("short")) {
        return real(file, memory, bytes / 2, offset);
    }
    errno = ENOSPC;
    return -1;
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    }
    unsynced = unsynced && !is_store(file);
    return real(file);
}

ssize_t pread(int file, void *memory, size_t bytes, off_t offset) {
    return pread64(file, memory, bytes, offset);
}

ssize_t pwrite(int file, const void *memory, size_t bytes, off_t offset) {
    return pwrite64(file, memory, bytes, offset);
}
