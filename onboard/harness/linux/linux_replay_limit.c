#define _GNU_SOURCE
#include "linux_replay_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "joulewright.h"
#include "linux_support.h"

#define STACK_BYTES ((size_t)256 << 10) /* for the kernels and the C library */

/* Rows, input and output features of a product too large for a BLAS's path for small matrices. */
enum { BLAS_SIDE = 192 };

/* Heap for the path for small matrices: OpenBLAS calls malloc there for a copy of an operand, and
 * writes to it unchecked. It takes that path up to a million products, so up to a million floats. */
enum { BLAS_HEAP_BYTES = 4 << 20, BLAS_HEAP_SPARE_BYTES = 1 << 20 };

static rlim_t unlimited; /* the limit before jw_limit_memory; 0 if it is in force */

static __attribute__((noinline)) void touch_stack(void) {
    volatile unsigned char bytes[STACK_BYTES];
    for (size_t i = 0; i < sizeof bytes; i += 1024) {
        bytes[i] = 0;
    }
}

/* Call the BLAS once: it keeps the buffers that it allocates in its first call. */
static void touch_blas(void) {
    static const int32_t attributes[] = {BLAS_SIDE, BLAS_SIDE, BLAS_SIDE, 0};
    const size_t matrix_bytes = sizeof(float) * BLAS_SIDE * BLAS_SIDE;
    const jw_kernel *kernel = jw_find_kernel("linear.forward");
    if (strcmp(jw_matmul_name, "cblas") != 0 || !kernel) {
        return;
    }
    unsigned char *memory =
        mmap(NULL, 3 * matrix_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        jw_fail(JW_EXIT_MEMORY, "no memory to call the BLAS once: %s", strerror(errno));
    }
    const void *const reads[] = {memory, memory + matrix_bytes};
    void *const writes[] = {memory + 2 * matrix_bytes};
    const jw_call call = {attributes, NULL, reads, writes, NULL};
    kernel->run(&call);
    munmap(memory, 3 * matrix_bytes);
}

/* Grow the heap once, and let it keep what is freed. */
static void touch_heap(void) {
    if (strcmp(jw_matmul_name, "cblas") != 0) {
        return;
    }
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 2 * BLAS_HEAP_BYTES);
    mallopt(M_TRIM_THRESHOLD, 4 * BLAS_HEAP_BYTES);
#endif
    void *volatile memory = malloc(BLAS_HEAP_BYTES + BLAS_HEAP_SPARE_BYTES);
    if (!memory) {
        jw_fail(JW_EXIT_MEMORY, "no memory for the heap of the BLAS: %s", strerror(errno));
    }
    free(memory);
}

static void forget_peak(void) {
    const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (file >= 0) {
        const ssize_t written = write(file, "5", 1); /* proc(5): VmHWM becomes VmRSS */
        (void)written;
        close(file);
    }
}

static uint64_t address_space_bytes(void) {
    char line[128];
    uint64_t pages = 0;
    jw_read_line(line, sizeof line, "/proc/self/statm");
    if (sscanf(line, "%" SCNu64, &pages) != 1) {
        jw_fail(JW_EXIT_MEMORY, "/proc/self/statm does not report the memory in use");
    }
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Set the limit; returns the one before. */
static rlim_t set_limit(rlim_t bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0) {
        jw_fail(JW_EXIT_MEMORY, "the limit of memory cannot be read: %s", strerror(errno));
    }
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = bytes;
    if (setrlimit(RLIMIT_AS, &limit) != 0) {
        jw_fail(JW_EXIT_MEMORY, "memory cannot be limited to %" PRIu64 " bytes: %s",
                (uint64_t)bytes, strerror(errno));
    }
    return before;
}

uint64_t jw_limit_memory(void) {
    touch_stack();
    touch_blas();
    touch_heap();
    forget_peak();
    const uint64_t bytes = address_space_bytes();
    unlimited = set_limit((rlim_t)bytes);
    return bytes;
}

void jw_unlimit_memory(void) {
    if (unlimited) {
        set_limit(unlimited);
        unlimited = 0;
    }
}

uint64_t jw_peak_resident_bytes(void) {
    static const char key[] = "\nVmHWM:";
    char status[8192]; /* it contains lists of groups and processors */
    jw_read_text(status, sizeof status, "/proc/self/status");
    const char *line = strstr(status, key);
    return line ? (uint64_t)strtoull(line + sizeof key - 1, NULL, 10) << 10 : 0;
}
