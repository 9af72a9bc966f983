/* Example that trains on a computer and shows how to use the executor.
 *
 *     ./train [STEPS [TRAINING [STORAGE]]]        defaults: 10, training.bin, storage.bin
 *
 * A plan that pages continues after the last step of the previous run, if its storage still exists;
 * delete the file to start again. Every step is watched, so that checksums show whether another
 * machine computes the same bits. Firmware need not watch.
 *
 * training.bin consists of little-endian 32-bit words: "JWT2", plan_fingerprint, the number of
 * batches, two words of the key of the frozen values; the values of frozen tensors, in the order of
 * jw_plan.frozen, and of frozen tables; the initial values of kept tensors, in the order of
 * jw_plan.kept; the batches, each with its inputs in the order of plan_inputs.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checksum.h"
#include "executor.h"
#include "plan_addresses.h"
#include "plan_values.h"
#include "storage_file.h"

#if JW_SMALL_MEMORY /* the least that kernels need */
#define WITH_ENOUGH_WORKSPACE "profile this machine, solve and export again"
#else
#define WITH_ENOUGH_WORKSPACE                                                                      \
    "build with small tiles, for any machine: make clean, then make"                               \
    " CFLAGS='-O2 -DJW_SMALL_MEMORY=1'"
#endif

#define DATA_MAGIC 0x3254574au
#define STORED_STEPS 8 /* at least two */

static unsigned char arena[JW_ARENA_BYTES] __attribute__((aligned(64)));

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* End the program with a message, unless `why` is NULL. */
static void require(const char *what, const char *why) {
    if (why) {
        fprintf(stderr, "%s: %s\n", what, why);
        exit(EXIT_FAILURE);
    }
}

/* --- training.bin ------------------------------------------------------------------------- */

typedef struct {
    FILE *file;
    const char *path;
    long kept;                 /* offset of the initial values */
    long batches, batch_bytes; /* offset of the batches, size of each */
    uint32_t batch_count;
    uint64_t frozen_key;
} training_data;

#define HEADER_WORDS 5

static void load(const training_data *data, long at, void *memory, size_t bytes) {
    const bool is_read =
        fseek(data->file, at, SEEK_SET) == 0 && fread(memory, 1, bytes, data->file) == bytes;
    require(data->path, is_read ? NULL : "ends too early");
}

/* The table of a kept tensor; NULL if it is no table. */
static const jw_table *table_of(const jw_plan *plan, uint16_t kept) {
    for (uint16_t i = 0; i < plan->table_count; i++) {
        if (plan->tables[i].kept == kept) {
            return &plan->tables[i];
        }
    }
    return NULL;
}

static long bytes_of(const jw_table *table) {
    return (long)table->row_bytes * (long)table->row_count;
}

/* Bytes of a kept tensor, with all rows if it is a table. */
static long whole_bytes(const jw_plan *plan, uint16_t kept) {
    const jw_table *table = table_of(plan, kept);
    return table ? bytes_of(table) : (long)(plan->kept[kept].words * JW_PLACE_BYTES);
}

static training_data open_training(const char *path, const jw_plan *plan) {
    training_data data = {.file = fopen(path, "rb"), .path = path};
    require(path, data.file ? NULL : strerror(errno));
    uint32_t header[HEADER_WORDS];
    load(&data, 0, header, sizeof header);
    const bool is_ours = header[0] == DATA_MAGIC && header[1] == plan_fingerprint && header[2] > 0;
    require(path, is_ours ? NULL : "is not for this plan");
    data.batch_count = header[2];
    data.frozen_key = (uint64_t)header[4] << 32 | header[3];
    data.kept = sizeof header;
    for (uint16_t i = 0; i < plan->frozen_count; i++) {
        data.kept += (long)plan->frozen[i].bytes;
    }
    for (uint16_t i = 0; i < plan->table_count; i++) {
        data.kept += plan->tables[i].kept == JW_NOT_KEPT ? bytes_of(&plan->tables[i]) : 0;
    }
    data.batches = data.kept;
    for (uint16_t i = 0; i < plan->kept_count; i++) {
        data.batches += whole_bytes(plan, i);
    }
    for (const plan_value *input = plan_inputs; input->name; input++) {
        data.batch_bytes += (long)input->bytes;
    }
    return data;
}

static void load_batch(const training_data *data, uint32_t step) {
    long at = data->batches + (long)(step % data->batch_count) * data->batch_bytes;
    for (const plan_value *input = plan_inputs; input->name; input++) {
        load(data, at, arena + input->address, input->bytes);
        at += (long)input->bytes;
    }
}

/* --- initial values ----------------------------------------------------------------------- */

/* Load a table in pieces that fit into the arena. */
static void load_table(const training_data *data, const jw_executor *executor,
                       const jw_table *table, const char *name, long at) {
    const uint16_t number = (uint16_t)(table - executor->plan->tables);
    const uint32_t most = jw_store_rows_in(executor->store, number, JW_ARENA_BYTES);
    for (uint32_t first = 0; first < table->row_count; first += most) {
        const uint32_t left = table->row_count - first;
        const uint32_t count = left < most ? left : most;
        load(data, at, arena, (size_t)count * table->row_bytes);
        at += (long)count * (long)table->row_bytes;
        require(name,
                jw_store_keep_rows(executor->store, number, first, count, arena, JW_ARENA_BYTES));
    }
}

/* Read the frozen values that the storage holds; if any was overwritten, it holds none then. */
static void verify_frozen(const jw_executor *executor) {
    const jw_plan *plan = executor->plan;
    for (uint16_t i = 0; i < plan->frozen_count; i++) {
        require(plan_frozen_names[i], jw_store_verify_frozen(executor->store, i, arena));
    }
    for (uint16_t i = 0; i < plan->table_count; i++) {
        const jw_table *table = &plan->tables[i];
        const uint32_t most = jw_store_rows_in(executor->store, i, JW_ARENA_BYTES);
        const uint32_t rows = table->kept == JW_NOT_KEPT ? table->row_count : 0;
        for (uint32_t first = 0; first < rows; first += most) {
            const uint32_t left = rows - first;
            require("frozen table",
                    jw_store_verify_rows(executor->store, i, first, left < most ? left : most,
                                         arena, JW_ARENA_BYTES));
        }
    }
}

/* Write the frozen values to the storage, unless it holds them already. */
static void load_frozen(const training_data *data, const jw_executor *executor) {
    const jw_plan *plan = executor->plan;
    long at = HEADER_WORDS * sizeof(uint32_t);
    if (!plan->frozen_bytes) {
        return;
    }
    require("storage", jw_store_begin_frozen(executor->store, data->frozen_key));
    verify_frozen(executor);
    if (executor->store->is_frozen) {
        return;
    }
    for (uint16_t i = 0; i < plan->frozen_count; i++) {
        load(data, at, arena, plan->frozen[i].bytes);
        at += (long)plan->frozen[i].bytes;
        require(plan_frozen_names[i], jw_store_freeze(executor->store, i, arena, JW_ARENA_BYTES));
    }
    for (uint16_t i = 0; i < plan->table_count; i++) {
        if (plan->tables[i].kept == JW_NOT_KEPT) {
            load_table(data, executor, &plan->tables[i], "frozen table", at);
            at += bytes_of(&plan->tables[i]);
        }
    }
}

static void load_kept(const training_data *data, const jw_executor *executor, bool in_storage) {
    const jw_plan *plan = executor->plan;
    long at = data->kept;
    for (uint16_t i = 0; i < plan->kept_count; i++) {
        const jw_kept *kept = &plan->kept[i];
        const bool has_home_in_storage = kept->address == JW_NO_PLACE;
        if (has_home_in_storage && in_storage && table_of(plan, i)) {
            load_table(data, executor, table_of(plan, i), plan_kept_names[i], at);
        } else if (has_home_in_storage == in_storage) {
            const uint32_t address = has_home_in_storage ? 0 : kept->address * JW_PLACE_BYTES;
            load(data, at, arena + address, kept->words * JW_PLACE_BYTES);
            if (kept->slot != JW_NO_SLOT) {
                require(plan_kept_names[i], jw_store_keep(executor->store, i, arena + address,
                                                          JW_ARENA_BYTES - address));
            }
        }
        at += whole_bytes(plan, i);
    }
}

/* Load tensors with their home in storage first: they pass through the start of the arena. */
static void load_initial_values(const training_data *data, const jw_executor *executor) {
    load_kept(data, executor, true);
    load_kept(data, executor, false);
    if (executor->store) {
        require("storage", jw_store_complete(executor->store));
    }
}

/* Load the values of the last complete step in storage; false if there is none. */
static bool resume(const jw_executor *executor) {
    const jw_plan *plan = executor->plan;
    if (!executor->store) {
        return false;
    }
    const char *error = jw_store_recover(executor->store);
    if (error == jw_store_has_no_step) {
        return false;
    }
    require("storage", error);
    for (uint16_t i = 0; i < plan->kept_count; i++) {
        const jw_place address = plan->kept[i].address;
        if (address != JW_NO_PLACE) {
            require(plan_kept_names[i],
                    jw_store_fetch(executor->store, i, arena + address * JW_PLACE_BYTES));
        }
    }
    return true;
}

/* --- steps -------------------------------------------------------------------------------- */

static void run_step(jw_executor *executor) {
    const char *error = jw_executor_step(executor, true);
    if (!error) {
        error = jw_executor_afterwards(executor);
    }
    if (error && executor->failed) {
        fprintf(stderr, "action %td: ", executor->failed - executor->plan->actions);
    }
    require("the step failed", error);
}

static void print_step(const jw_plan *plan, uint32_t number) {
    printf("step %" PRIu32, number);
    for (const plan_value *value = plan_losses; value->name; value++) {
        float loss;
        uint32_t bits;
        memcpy(&loss, arena + value->address, sizeof loss);
        memcpy(&bits, &loss, sizeof bits);
        printf("  %s %.9g (%08" PRIx32 ")", value->name, (double)loss, bits);
    }
    printf("  checksums %08" PRIx32 "\n",
           jw_checksum_of(plan->memory->probed, plan->probe_count * sizeof(uint32_t)));
}

static void print_checksums(const jw_plan *plan) {
    for (uint16_t i = 0; i < plan->probe_count; i++) {
        printf("%08" PRIx32 "  %s\n", plan->memory->probed[i], plan_probe_names[i]);
    }
}

int main(int argc, char **argv) {
    const jw_plan *plan = jw_plans[0];
    const uint32_t steps = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 10;
    const char *storage_path = argc > 3 ? argv[3] : "storage.bin";
    const char *lacking = plan_lacks_workspace();
    require(lacking, lacking ? "its kernel needs more workspace than the plan has, which is for"
                               " another machine; " WITH_ENOUGH_WORKSPACE
                             : NULL);
    const training_data data = open_training(argc > 2 ? argv[2] : "training.bin", plan);

    static storage_file storage;
    static jw_store store;
    jw_executor executor = {.plan = plan, .arena = arena, .clock_ns = clock_ns};
    if (plan->step_bytes) {
        require(storage_path, storage_file_open(&storage, storage_path, plan->page_bytes,
                                                (uint64_t)STORED_STEPS * plan->step_bytes +
                                                    plan->table_bytes + plan->frozen_bytes));
        require(storage_path, jw_store_open(&store, plan, &storage.medium));
        executor.store = &store;
    }
    require(plan->name, jw_executor_begin(&executor));

    uint32_t number = 0;
    load_frozen(&data, &executor);
    if (resume(&executor)) {
        number = executor.steps = store.step;
        fprintf(stderr, "%s: continues after step %" PRIu32 "\n", storage_path, number);
    } else {
        load_initial_values(&data, &executor);
    }
    const uint64_t begin_ns = clock_ns();
    for (uint32_t i = 0; i < steps; i++) {
        executor.learning_rate = plan_learning_rate(number);
        load_batch(&data, number++);
        run_step(&executor);
        print_step(plan, number);
    }
    if (steps) {
        const double seconds = 1e-9 * (double)(clock_ns() - begin_ns);
        print_checksums(plan);
        fprintf(stderr, "%.6g s a step, including reading its batch\n", seconds / steps);
    }
    if (plan->step_bytes) {
        storage_file_close(&storage);
    }
    fclose(data.file);
    return EXIT_SUCCESS;
}
