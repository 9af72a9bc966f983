/* joulewright-harness: runs the windows of a plan on a Linux board and records them.
 *
 *   joulewright-harness describe [--sysfs DIR] [--storage DIR]
 *   joulewright-harness workspace KERNELS
 *   joulewright-harness run PLAN RESULTS SAMPLES [--sysfs DIR]
 *
 * `workspace` prints the bytes that the kernels on the lines `kernel kind=... attributes=...` of a
 * file need for themselves, one number a line. The file begins and ends like a plan. Besides the lines of plan.h a plan has
 *
 *   joulewright-plan 1                                 first
 *   arena bytes=67108864                               second
 *   tries count=3                                      of a disturbed window
 *   sampler period_ns=10000000                         with one `sample file=...` for each file
 *   scratch bytes=8388608 directory=/var/tmp           before any transfer
 *   idle id=0 duration_ns=100000000
 *   transfer id=7 method=write-direct bytes=4096 most=16 min_ns=20000000 tail_ns=50000000
 *   end                                                last
 *
 * Every record is flushed when its window is over, after the meter's samples of that window: what
 * a cut leaves behind is complete up to its last line.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "linux_describe.h"
#include "linux_sampler.h"
#include "linux_storage.h"
#include "linux_support.h"
#include "plan.h"
#include "platform.h"

#define MOST_PLAN_BYTES (64u << 20)
#define MOST_SECONDS_NS UINT64_C(3600000000000)

typedef struct {
    char *plan, *plan_rest;
    const char *plan_path;
    unsigned long line_number;
    FILE *results, *samples;
    int spare_processor;
    uint32_t tries;
    jw_arena arena;
    const char *sampled_files[JW_MAX_SAMPLED_FILES];
    int sampled_count;
    uint64_t sample_period_ns;
    jw_sampler *sampler;
    jw_scratch *scratch;
} harness;

/* --- the plan --------------------------------------------------------------------------------- */

static void load_plan(harness *h) {
    static const char last_line[] = "\nend\n";
    FILE *file = fopen(h->plan_path, "rb");
    if (!file) {
        jw_fail(JW_EXIT_PLAN, "%s: %s", h->plan_path, strerror(errno));
    }
    size_t length = 0, capacity = 0;
    do {
        capacity = capacity ? 2 * capacity : 65536;
        h->plan = capacity <= MOST_PLAN_BYTES ? realloc(h->plan, capacity) : NULL;
        if (!h->plan) {
            jw_fail(JW_EXIT_PLAN, "%s: the plan is too large", h->plan_path);
        }
        length += fread(h->plan + length, 1, capacity - 1 - length, file);
    } while (length == capacity - 1);
    fclose(file);
    h->plan[length] = '\0';
    h->plan_rest = h->plan;
    const size_t last = sizeof last_line - 1;
    if (length < last || strcmp(h->plan + length - last, last_line) != 0) {
        jw_fail(JW_EXIT_PLAN, "%s: the plan is cut off: its last line is not `end`", h->plan_path);
    }
}

static char *next_line(harness *h) {
    h->line_number++;
    char *line = jw_text_item(&h->plan_rest, '\n');
    return line ? line : h->plan_rest;
}

static _Noreturn void refuse(const harness *h, const char *key, const char *error) {
    jw_fail(JW_EXIT_PLAN, "%s: line %lu: %s%s%s", h->plan_path, h->line_number, key,
            *key ? " " : "", error);
}

static void expect(const harness *h, bool read_well, const jw_text *text) {
    if (!read_well) {
        refuse(h, text->key, text->error);
    }
}

/* --- records ---------------------------------------------------------------------------------- */

static void flush(const harness *h) {
    if ((h->samples && fflush(h->samples) != 0) || fflush(h->results) != 0) {
        jw_fail(JW_EXIT_RESULTS, "the records cannot be written: %s", strerror(errno));
    }
}

static void record(harness *h, uint32_t id, const jw_window *window, uint64_t tail_end_ns) {
    if (h->sampler) {
        jw_sampler_drain(h->sampler, h->samples);
        flush(h);
    }
    fprintf(h->results,
            "window id=%" PRIu32 " executions=%" PRIu64 " start_ns=%" PRIu64 " end_ns=%" PRIu64
            " tail_end_ns=%" PRIu64 " running_ns=%" PRIu64 " frequency_before_khz=%" PRIu64
            " frequency_after_khz=%" PRIu64 " temperature_mc=%ld tries=%" PRIu32 "\n",
            id, window->executions, window->start_ns, window->end_ns, tail_end_ns,
            window->running_ns, window->frequency_before_khz, window->frequency_after_khz,
            jw_temperature_mc(), window->tries);
    flush(h);
}

static void record_health(harness *h, const char *word) {
    char boot[64];
    jw_read_line(boot, sizeof boot, "/proc/sys/kernel/random/boot_id");
    fprintf(h->results, "%s boot_id=%s clock_ns=%" PRIu64 " steal_ms=%" PRIu64 "\n", word,
            *boot ? boot : "-", jw_clock_ns(), jw_steal_ms());
    flush(h);
}

/* --- windows ---------------------------------------------------------------------------------- */

static void run_op(harness *h, jw_text *text) {
    uint32_t id;
    jw_limits limits;
    jw_op op;
    jw_op_run prepared;
    expect(h, jw_plan_op(text, &id, &limits, &op), text);
    const char *error = jw_op_prepare(&prepared, &op, &h->arena);
    if (error) {
        refuse(h, "", error);
    }
    const jw_window window = jw_measure(jw_op_execute, &prepared, &limits, h->tries);
    record(h, id, &window, window.end_ns);
}

static void read_step_lines(harness *h, jw_step *step) {
    while (!jw_step_complete(step)) {
        jw_text text;
        const char *error;
        const char *word = jw_text_begin(&text, next_line(h));
        if (strcmp(word, "buffer") == 0) {
            size_t bytes;
            jw_fill fill;
            expect(h, jw_plan_buffer(&text, &bytes, &fill), &text);
            error = jw_step_buffer(step, bytes, &fill);
        } else if (strcmp(word, "call") == 0) {
            jw_step_call call;
            expect(h, jw_plan_call(&text, &call), &text);
            error = jw_step_add(step, &call);
        } else {
            error = "a buffer or a call is expected here";
        }
        if (error) {
            refuse(h, "", error);
        }
    }
}

static void run_step(harness *h, jw_text *text) {
    uint32_t id, buffers, calls;
    jw_limits limits;
    jw_step step;
    expect(h, jw_plan_step(text, &id, &limits, &buffers, &calls), text);
    const char *error = jw_step_begin(&step, &h->arena, buffers, calls);
    if (!error) {
        read_step_lines(h, &step);
        error = jw_step_end(&step);
    }
    if (error) {
        refuse(h, "", error);
    }
    const jw_window window = jw_measure(jw_step_execute, &step, &limits, h->tries);
    record(h, id, &window, window.end_ns);
}

static void run_idle(harness *h, jw_text *text) {
    jw_window window = {.executions = 1, .tries = 1};
    const uint32_t id = (uint32_t)jw_text_number(text, "id", 0, UINT32_MAX);
    const uint64_t duration_ns = jw_text_number(text, "duration_ns", 1, MOST_SECONDS_NS);
    expect(h, jw_text_end(text), text);
    window.start_ns = jw_clock_ns();
    jw_sleep_until(window.start_ns + duration_ns);
    window.end_ns = jw_clock_ns();
    window.running_ns = window.end_ns - window.start_ns;
    record(h, id, &window, window.end_ns);
}

static void run_transfer(harness *h, jw_text *text) {
    static const char *const methods[] = {"read-direct", "write-direct", "write-buffered"};
    const uint32_t id = (uint32_t)jw_text_number(text, "id", 0, UINT32_MAX);
    const char *name = jw_text_value(text, "method");
    size_t method = 0;
    while (method < 3 && strcmp(name, methods[method]) != 0) {
        method++;
    }
    if (method == 3) {
        jw_text_fail(text, "method", "is none that is known");
    }
    const size_t bytes = (size_t)jw_text_number(text, "bytes", 512, SIZE_MAX / 64);
    const uint64_t most = jw_text_number(text, "most", 1, UINT32_MAX);
    const uint64_t min_ns = jw_text_number(text, "min_ns", 0, MOST_SECONDS_NS);
    const uint64_t tail_ns = jw_text_number(text, "tail_ns", 0, MOST_SECONDS_NS);
    expect(h, jw_text_end(text), text);
    if (!h->scratch || bytes > jw_scratch_bytes(h->scratch)) {
        refuse(h, "", "the scratch file is missing or smaller than the transfer");
    }
    uint64_t tail_end_ns;
    const jw_window window = jw_scratch_measure(h->scratch, (jw_method)method, bytes, most, min_ns,
                                                tail_ns, &tail_end_ns);
    record(h, id, &window, tail_end_ns);
}

/* --- what windows need ------------------------------------------------------------------------ */

static void map_arena(harness *h, jw_text *text) {
    const size_t bytes = (size_t)jw_text_number(text, "bytes", JW_ALIGNMENT, SIZE_MAX / 64);
    expect(h, jw_text_end(text), text);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        jw_fail(JW_EXIT_MEMORY, "no memory for an arena of %zu bytes: %s", bytes, strerror(errno));
    }
    h->arena = (jw_arena){memory, bytes, 0};
}

static void read_sampled_file(harness *h, jw_text *text) {
    const char *file = jw_text_remainder(text, "file");
    expect(h, jw_text_end(text), text);
    if (h->sampled_count == JW_MAX_SAMPLED_FILES || !h->sample_period_ns || h->sampler) {
        refuse(h, "", "a sampled file belongs behind `sampler`; there are too many or none now");
    }
    h->sampled_files[h->sampled_count++] = file;
}

static void open_scratch(harness *h, jw_text *text) {
    const size_t bytes = (size_t)jw_text_number(text, "bytes", 512, SIZE_MAX / 64);
    const char *directory = jw_text_remainder(text, "directory");
    expect(h, jw_text_end(text), text);
    if (h->scratch) {
        refuse(h, "", "there is a scratch file already");
    }
    h->scratch = jw_scratch_open(directory, bytes);
    fprintf(h->results, "scratch direct=%d\n", jw_scratch_is_direct(h->scratch));
    flush(h);
}

static void start_sampler(harness *h) {
    if (h->sampled_count && !h->sampler) {
        h->sampler = jw_sampler_start(h->sampled_files, h->sampled_count, h->sample_period_ns,
                                      h->spare_processor);
    }
}

/* --- the program ------------------------------------------------------------------------------ */

static bool run_line(harness *h) {
    jw_text text;
    const char *word = jw_text_begin(&text, next_line(h));
    if (strcmp(word, "sample") == 0) {
        read_sampled_file(h, &text);
        return true;
    }
    if (strcmp(word, "sampler") == 0) {
        h->sample_period_ns = jw_text_number(&text, "period_ns", 10000, MOST_SECONDS_NS);
        expect(h, jw_text_end(&text), &text);
        return true;
    }
    if (strcmp(word, "tries") == 0) {
        h->tries = (uint32_t)jw_text_number(&text, "count", 1, 1000);
        expect(h, jw_text_end(&text), &text);
        return true;
    }
    if (strcmp(word, "scratch") == 0) {
        open_scratch(h, &text);
        return true;
    }
    start_sampler(h);
    if (strcmp(word, "op") == 0) {
        run_op(h, &text);
    } else if (strcmp(word, "step") == 0) {
        run_step(h, &text);
    } else if (strcmp(word, "idle") == 0) {
        run_idle(h, &text);
    } else if (strcmp(word, "transfer") == 0) {
        run_transfer(h, &text);
    } else if (strcmp(word, "end") == 0) {
        expect(h, jw_text_end(&text), &text);
        return false;
    } else {
        refuse(h, word, "is no line that is known");
    }
    return true;
}

static void check_version(harness *h) {
    load_plan(h);
    if (strcmp(next_line(h), "joulewright-plan 1") != 0) {
        refuse(h, "", "this harness reads joulewright-plan 1; build both from the same release");
    }
}

static FILE *create(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file) {
        jw_fail(JW_EXIT_RESULTS, "%s: %s", path, strerror(errno));
    }
    return file;
}

static void run(harness *h, const char *results_path, const char *samples_path) {
    jw_text text;
    check_version(h);
    if (strcmp(jw_text_begin(&text, next_line(h)), "arena") != 0) {
        refuse(h, "", "`arena` is expected here");
    }
    map_arena(h, &text);
    h->tries = 1;
    h->results = create(results_path);
    h->samples = create(samples_path);
    fputs("joulewright-results 1\n", h->results);
    record_health(h, "start");
    while (run_line(h)) {
    }
    if (h->sampler) {
        jw_sampler_stop(h->sampler, h->samples);
    }
    if (h->scratch) {
        jw_scratch_close(h->scratch);
    }
    record_health(h, "end");
    free(h->plan);
    if (fclose(h->samples) != 0 || fclose(h->results) != 0) {
        jw_fail(JW_EXIT_RESULTS, "the records cannot be written: %s", strerror(errno));
    }
}

static void print_workspaces(harness *h) {
    jw_text text;
    check_version(h);
    for (const char *word; strcmp(word = jw_text_begin(&text, next_line(h)), "end") != 0;) {
        size_t bytes;
        if (strcmp(word, "kernel") != 0) {
            refuse(h, word, "is no line that is known");
        }
        expect(h, jw_plan_workspace(&text, &bytes), &text);
        printf("%zu\n", bytes);
    }
    free(h->plan);
}

static const char *take_option(int *argc, char **argv, const char *name) {
    for (int i = 2; i + 1 < *argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            const char *value = argv[i + 1];
            memmove(&argv[i], &argv[i + 2], (size_t)(*argc - i - 1) * sizeof *argv);
            *argc -= 2;
            return value;
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    const char *sysfs = take_option(&argc, argv, "--sysfs");
    const char *storage = take_option(&argc, argv, "--storage");
    harness h = {.spare_processor = jw_spare_processor()};
    const int processor = jw_pin_processor();
    if (sysfs) {
        jw_set_sysfs(sysfs);
    }
    if (argc == 2 && strcmp(argv[1], "describe") == 0) {
        jw_describe(processor, storage);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "workspace") == 0 && !storage) {
        h.plan_path = argv[2];
        print_workspaces(&h);
        return 0;
    }
    if (argc == 5 && strcmp(argv[1], "run") == 0 && !storage) {
        h.plan_path = argv[2];
        run(&h, argv[3], argv[4]);
        return 0;
    }
    jw_fail(JW_EXIT_PLAN, "usage: describe [--sysfs DIR] [--storage DIR]"
                          " | workspace KERNELS | run PLAN RESULTS SAMPLES [--sysfs DIR]");
}
