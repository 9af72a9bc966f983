#include "lines.h"

#include <string.h>

#include "clock.h"
#include "plan.h"
#include "platform.h"
#include "replay.h"
#include "runner.h"
#include "sizes.h"
#include "start.h"
#include "storage.h"

_Static_assert(JW_TEXT_BYTES >= JW_RECORD_BYTES, "a record is said in one answer");

static jw_runner runner;
static jw_replay replay;
static jw_medium medium;
static bool storage_ready;

static jw_text text;
static const char *word;

void jw_lines_begin(void) {
    memset(&runner, 0, sizeof runner);
    memset(&replay, 0, sizeof replay);
    runner.memory = (jw_arena){jw_arena_begin, (size_t)(jw_arena_end - jw_arena_begin), 0};
    runner.arena = runner.memory;
    runner.tries = 1;
    storage_ready = false;
}

unsigned char *jw_lines_memory(size_t *bytes) {
    *bytes = runner.memory.size;
    return runner.memory.base;
}

/* --- lines of firmware's own ------------------------------------------------------------------ */

static bool refused(const char *error) {
    if (error) {
        jw_text_fail(&text, "", error);
    }
    return error != NULL;
}

/* And with it the replay that pages to it. */
static void forget_medium(void) {
    runner.medium = NULL;
    replay.medium = NULL;
    replay.executor.plan = NULL;
}

static bool run_storage(jw_writer *writer) {
    jw_storage_facts facts;
    memset(&facts, 0, sizeof facts);
    if (!jw_text_end(&text)) {
        return false;
    }
    forget_medium();
    storage_ready = !refused(jw_storage_init(&facts));
    if (!storage_ready) {
        return false;
    }
    jw_write_pair(writer, ' ', "card", facts.card);
    jw_write_count(writer, ' ', "capacity_bytes", facts.capacity_bytes);
    jw_write_count(writer, ' ', "page_bytes", facts.page_bytes);
    jw_write_count(writer, ' ', "erase_block_bytes", facts.erase_block_bytes);
    return true;
}

static bool run_scratch(void) {
    const uint64_t bytes = jw_text_number(&text, "bytes", 1, UINT64_C(1) << 48);
    const uint64_t offset = jw_text_number(&text, "offset", 0, UINT64_C(1) << 48);
    if (!jw_text_end(&text)) {
        return false;
    }
    forget_medium();
    jw_storage_facts facts;
    if (!storage_ready && refused(jw_storage_init(&facts))) {
        return false;
    }
    storage_ready = true;
    memset(&medium, 0, sizeof medium);
    if (refused(jw_storage_open(&medium, offset, bytes))) {
        return false;
    }
    runner.medium = &medium;
    replay.medium = &medium;
    return true;
}

static bool run_kernel(jw_writer *writer) {
    size_t bytes;
    const bool read_well = jw_plan_workspace(&text, &bytes);
    if (read_well) {
        jw_write_number(writer, bytes);
    }
    return read_well;
}

static bool run_health(jw_writer *writer) {
    const long temperature_mc = jw_temperature_mc();
    if (!jw_text_end(&text)) {
        return false;
    }
    jw_write_count(writer, ' ', "clock_ns", jw_clock_ns());
    jw_write_pair(writer, ' ', "temperature_mc", temperature_mc < 0 ? "-" : "");
    jw_write_number(writer, (uint64_t)(temperature_mc < 0 ? -temperature_mc : temperature_mc));
    jw_write_count(writer, ' ', "stack_unused_bytes", jw_stack_unused());
    return true;
}

/* --- lines ------------------------------------------------------------------------------------ */

static bool run_foreign(jw_writer *writer) {
    if (strcmp(word, "storage") == 0) {
        return run_storage(writer);
    }
    if (strcmp(word, "scratch") == 0) {
        return run_scratch();
    }
    if (strcmp(word, "kernel") == 0) {
        return run_kernel(writer);
    }
    if (strcmp(word, "health") == 0) {
        return run_health(writer);
    }
    jw_text_fail(&text, word, "is no line that is known");
    return false;
}

static bool measures(void) {
    return jw_runner_measures(&runner, word) || jw_replay_measures(word);
}

static bool run(jw_writer *writer) {
    jw_record record;
    if (measures() && !jw_clock_moves()) {
        return !refused("no counter of this board moves: it cannot measure time");
    }
    jw_line_result result = jw_runner_line(&runner, word, &text, &record);
    if (result == JW_LINE_FOREIGN) {
        result = jw_replay_line(&replay, &runner, word, &text, &record, writer->text,
                                writer->capacity);
    }
    switch (result) {
    case JW_LINE_FOREIGN:
        return run_foreign(writer);
    case JW_LINE_READ:
        return true;
    case JW_LINE_RECORDED:
        jw_record_text(writer->text, &record);
        return true;
    default:
        return false;
    }
}

bool jw_line_begin(char *line) {
    word = jw_text_begin(&text, line);
    return measures();
}

bool jw_line_run(jw_writer *writer) {
    const bool done = run(writer);
    if (jw_stack_unused() == 0) {
        jw_writer_begin(writer, writer->text, writer->capacity);
        jw_write_text(writer, "the stack has run over: raise firmware.stack_bytes");
        return false;
    }
    if (!done) {
        jw_write_text(writer, text.key);
        jw_write_text(writer, *text.key ? " " : "");
        jw_write_text(writer, text.error);
    }
    return done;
}
