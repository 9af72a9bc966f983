/* joulewright-harness: runs the windows of a plan on a Linux board and records them.
 *
 *   joulewright-harness describe [--sysfs DIR] [--storage DIR]
 *   joulewright-harness workspace KERNELS
 *   joulewright-harness clock | temperature
 *   joulewright-harness run PLAN RESULTS SAMPLES [DATA DUMP] [--sysfs DIR]
 *
 * `clock` prints the clock of records in nanoseconds, `temperature` millidegrees Celsius, 0 if the
 * board reports none. `workspace` prints the workspace in bytes of each kernel on the lines
 * `kernel kind=... attributes=...` of a file, one number a line. The file begins and ends like a
 * plan. Besides the lines of runner.h a plan has
 *
 *   joulewright-plan 1                                 first, then `arena`
 *   register i2c=/dev/i2c-1 address=64 register=0 value=16679      sets up a sensor
 *   sampler period_ns=10000000                         then a `sample` line for each source
 *                                                      (linux_source.h)
 *   sync chip=/dev/gpiochip0 line=17                   the line that is high in a window
 *   scratch bytes=8388608 directory=/var/tmp           before any transfer; see linux_storage.h
 *   store ... , replay ... , train ... , forget         see linux_replay.h and replay.h
 *   end                                                last
 *
 * `load` reads from the file DATA, `dump` writes to the file DUMP.
 *
 * Every record is flushed when its window is over, after the meter's samples of that window. The
 * files of an interrupted run are therefore complete up to their last lines.
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
#include "linux_replay.h"
#include "linux_sampler.h"
#include "linux_storage.h"
#include "linux_support.h"
#include "linux_sync.h"
#include "plan.h"
#include "platform.h"
#include "runner.h"

#define MOST_PLAN_BYTES (64u << 20)
#define MOST_SECONDS_NS UINT64_C(3600000000000)

typedef struct {
    char *plan, *plan_rest;
    const char *plan_path;
    unsigned long line_number;
    FILE *results, *samples;
    int spare_processor;
    jw_runner runner;
    jw_linux_replay replay;
    jw_source *sources[JW_MAX_SOURCES];
    int source_count;
    uint64_t sample_period_ns;
    jw_sampler *sampler;
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

static _Noreturn void refuse_with(int code, const harness *h, const char *key, const char *error) {
    jw_fail(code, "%s: line %lu: %s%s%s", h->plan_path, h->line_number, key, *key ? " " : "",
            error);
}

static _Noreturn void refuse(const harness *h, const char *key, const char *error) {
    refuse_with(JW_EXIT_PLAN, h, key, error);
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

static void record(harness *h, const jw_record *measured) {
    char line[JW_RECORD_BYTES];
    if (h->sampler) {
        jw_sampler_drain(h->sampler);
        flush(h);
    }
    jw_record_text(line, measured);
    const jw_throttling throttling = jw_read_throttling();
    fprintf(h->results, "%s throttled=%ld cooling=%ld\n", line, throttling.bits,
            throttling.cooling);
    flush(h);
}

static void record_health(harness *h, const char *word) {
    char boot[64];
    jw_read_line(boot, sizeof boot, "/proc/sys/kernel/random/boot_id");
    const jw_throttling throttling = jw_read_throttling();
    fprintf(h->results,
            "%s boot_id=%s clock_ns=%" PRIu64 " steal_ms=%" PRIu64
            " temperature_mc=%ld throttled=%ld cooling=%ld\n",
            word, *boot ? boot : "-", jw_clock_ns(), jw_steal_ms(), jw_temperature_mc(),
            throttling.bits, throttling.cooling);
    flush(h);
}

/* --- resources of windows --------------------------------------------------------------------- */

/* Map the memory that the plan's second line asks for, and room for canaries on both sides. */
static void map_memory(harness *h) {
    char line[64] = "";
    jw_text text;
    sscanf(h->plan_rest, "%63[^\n]", line); /* the runner reads the line too */
    if (strcmp(jw_text_begin(&text, line), "arena") != 0) {
        h->line_number++;
        refuse(h, "", "`arena` is expected here");
    }
    const size_t bytes = (size_t)jw_text_number(&text, "bytes", JW_ALIGNMENT, SIZE_MAX / 2);
    expect(h, jw_text_end(&text), &text);
    unsigned char *memory = mmap(NULL, bytes + 2 * JW_REPLAY_ROOM, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        jw_fail(JW_EXIT_MEMORY, "no memory for an arena of %zu bytes: %s", bytes, strerror(errno));
    }
    h->runner.memory = (jw_arena){memory + JW_REPLAY_ROOM, bytes, 0};
}

static void open_source(harness *h, jw_text *text) {
    if (h->source_count == JW_MAX_SOURCES || !h->sample_period_ns || h->sampler) {
        refuse(h, "",
               "`sample` must follow `sampler`, at most 8 times and before the first window");
    }
    jw_source *source = jw_source_open(text);
    expect(h, source != NULL, text);
    h->sources[h->source_count++] = source;
}

static void open_scratch(harness *h, jw_text *text) {
    bool is_direct;
    if (h->runner.medium) {
        refuse(h, "", "the plan has a second `scratch` line");
    }
    h->runner.medium = jw_scratch_open(text, &is_direct);
    expect(h, h->runner.medium, text);
    fprintf(h->results, "scratch direct=%d\n", is_direct);
    flush(h);
}

static void open_sync_line(harness *h, jw_text *text) {
    const char *chip = jw_text_value(text, "chip");
    const uint32_t line = (uint32_t)jw_text_number(text, "line", 0, UINT32_MAX);
    expect(h, jw_text_end(text), text);
    jw_sync_open(chip, line);
}

static void start_sampler(harness *h) {
    if (h->source_count && !h->sampler) {
        h->sampler = jw_sampler_start(h->sources, h->source_count, h->sample_period_ns,
                                      h->spare_processor, h->samples);
    }
}

/* --- the program ------------------------------------------------------------------------------ */

/* Carry out the next line; false after the last one. */
static bool run_line(harness *h) {
    jw_text text;
    jw_record measured;
    const char *word = jw_text_begin(&text, next_line(h));
    if (strcmp(word, "end") == 0) {
        expect(h, jw_text_end(&text), &text);
        return false;
    }
    if (strcmp(word, "sample") == 0) {
        open_source(h, &text);
        return true;
    }
    if (strcmp(word, "register") == 0) {
        expect(h, jw_write_register(&text), &text);
        return true;
    }
    if (strcmp(word, "sampler") == 0) {
        h->sample_period_ns = jw_text_number(&text, "period_ns", 10000, MOST_SECONDS_NS);
        expect(h, jw_text_end(&text), &text);
        return true;
    }
    if (strcmp(word, "scratch") == 0) {
        open_scratch(h, &text);
        return true;
    }
    if (strcmp(word, "sync") == 0) {
        open_sync_line(h, &text);
        return true;
    }
    if (jw_runner_measures(&h->runner, word) || strcmp(word, "replay") == 0) {
        start_sampler(h); /* after `replay` there is no memory for it */
    }
    jw_line_result result = jw_runner_line(&h->runner, word, &text, &measured);
    if (result == JW_LINE_FOREIGN) {
        result = jw_linux_replay_line(&h->replay, &h->runner, word, &text, &measured);
        flush(h);
    }
    switch (result) {
    case JW_LINE_RECORDED:
        record(h, &measured);
        break;
    case JW_LINE_REFUSED:
        refuse_with(jw_linux_replay_exit_code(word), h, text.key, text.error);
    case JW_LINE_FOREIGN:
        refuse(h, word, "is not a known line");
    case JW_LINE_READ:
        break;
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

/* Run a plan. `paths` are those of results and samples, and for a replay of data and dump. */
static void run(harness *h, char *const *paths) {
    check_version(h);
    map_memory(h);
    h->runner.tries = 1;
    h->results = create(paths[0]);
    h->samples = create(paths[1]);
    const bool has_data = paths[2] != NULL;
    jw_linux_replay_begin(&h->replay, h->results, paths[2], has_data ? paths[3] : NULL);
    fputs("joulewright-results 1\n", h->results);
    record_health(h, "start");
    while (run_line(h)) {
    }
    if (h->sampler) {
        jw_sampler_stop(h->sampler);
    }
    record_health(h, "end");
    jw_linux_replay_end(&h->replay);
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
            refuse(h, word, "is not a known line");
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
    if (argc == 2 && strcmp(argv[1], "clock") == 0) {
        printf("%" PRIu64 "\n", jw_clock_ns());
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "temperature") == 0) {
        printf("%ld\n", jw_temperature_mc());
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "workspace") == 0 && !storage) {
        h.plan_path = argv[2];
        print_workspaces(&h);
        return 0;
    }
    if ((argc == 5 || argc == 7) && strcmp(argv[1], "run") == 0 && !storage) {
        h.plan_path = argv[2];
        run(&h, &argv[3]);
        return 0;
    }
    jw_fail(JW_EXIT_PLAN, "usage: describe [--sysfs DIR] [--storage DIR]"
                          " | workspace KERNELS | clock | temperature"
                          " | run PLAN RESULTS SAMPLES [DATA DUMP] [--sysfs DIR]");
}
