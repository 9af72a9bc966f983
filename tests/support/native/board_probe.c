/*
 * Measures an emulated Linux board from inside, for test_lab_linux.py:
 *
 *     board-probe flash /dev/mtdN          three lines: medians, in nanoseconds, of a block's
 *                                          erase, a page's write and a page's read
 *     board-probe power FILE PERIOD_NS S.. samples FILE during stretches of S seconds: idle, busy,
 *                                          idle ... A line is NANOSECONDS 0 or 1 for busy, VALUE.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <mtd/mtd-user.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define MAX_PAGES 4096
#define ERASES 5

static int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static _Noreturn void fail(const char *what) {
    perror(what);
    exit(1);
}

static int by_size(const void *one, const void *other) {
    const int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static int64_t median(int64_t *values, size_t count) {
    qsort(values, count, sizeof *values, by_size);
    return values[count / 2];
}

static int flash(const char *path) {
    static int64_t erase_ns[ERASES], write_ns[MAX_PAGES], read_ns[MAX_PAGES];
    struct mtd_info_user info;
    const int descriptor = open(path, O_RDWR);
    if (descriptor < 0 || ioctl(descriptor, MEMGETINFO, &info) != 0) {
        fail(path);
    }
    const size_t pages = info.erasesize / info.writesize;
    unsigned char *written = malloc(info.writesize), *read_back = malloc(info.writesize);
    struct erase_info_user block = {0, info.erasesize};
    for (size_t turn = 0; turn < ERASES; turn++) {
        const int64_t start_ns = clock_ns();
        if (ioctl(descriptor, MEMERASE, &block) != 0) {
            fail("erase");
        }
        erase_ns[turn] = clock_ns() - start_ns;
    }
    for (size_t page = 0; page < pages; page++) {
        const off_t offset = (off_t)(page * info.writesize);
        memset(written, (int)page, info.writesize);
        int64_t start_ns = clock_ns();
        if (pwrite(descriptor, written, info.writesize, offset) != (ssize_t)info.writesize) {
            fail("write");
        }
        write_ns[page] = clock_ns() - start_ns;
        start_ns = clock_ns();
        if (pread(descriptor, read_back, info.writesize, offset) != (ssize_t)info.writesize) {
            fail("read");
        }
        read_ns[page] = clock_ns() - start_ns;
        if (memcmp(written, read_back, info.writesize) != 0) {
            fprintf(stderr, "page %zu does not read as written\n", page);
            return 1;
        }
    }
    printf("%" PRId64 "\n%" PRId64 "\n%" PRId64 "\n", median(erase_ns, ERASES),
           median(write_ns, pages), median(read_ns, pages));
    return 0;
}

static atomic_bool is_busy, is_over;

static void *work(void *nothing) {
    volatile double sum = 1.0;
    const struct timespec moment = {0, 1000000};
    while (!atomic_load(&is_over)) {
        if (atomic_load(&is_busy)) {
            sum = sqrt(sum + 2.0);
        } else {
            nanosleep(&moment, NULL);
        }
    }
    return nothing;
}

static int power(const char *path, int64_t period_ns, char **stretches) {
    const struct sched_param above_work = {1};
    sched_setscheduler(0, SCHED_FIFO, &above_work);
    pthread_t worker;
    pthread_attr_t ordinary;
    const struct sched_param none = {0};
    pthread_attr_init(&ordinary);
    pthread_attr_setinheritsched(&ordinary, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&ordinary, SCHED_OTHER);
    pthread_attr_setschedparam(&ordinary, &none);
    const int descriptor = open(path, O_RDONLY);
    if (descriptor < 0 || pthread_create(&worker, &ordinary, work, NULL) != 0) {
        fail(path);
    }
    for (; *stretches; stretches++) {
        int64_t next_ns = clock_ns();
        const int64_t end_ns = next_ns + (int64_t)(atof(*stretches) * 1e9);
        for (; next_ns < end_ns; next_ns += period_ns) {
            char text[32] = "";
            const struct timespec until = {next_ns / 1000000000, next_ns % 1000000000};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
            const int64_t now_ns = clock_ns();
            if (pread(descriptor, text, sizeof text - 1, 0) <= 0) {
                fail("read");
            }
            printf("%" PRId64 " %d %s", now_ns, atomic_load(&is_busy), text);
        }
        atomic_store(&is_busy, !atomic_load(&is_busy));
    }
    atomic_store(&is_over, true);
    return pthread_join(worker, NULL);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "flash") == 0) {
        return flash(argv[2]);
    }
    if (argc > 4 && strcmp(argv[1], "power") == 0) {
        return power(argv[2], atoll(argv[3]), argv + 4);
    }
    return 2;
}
