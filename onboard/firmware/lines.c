#include "lines.h"

#include <string.h>

#include "clock.h"
#include "pairs.h"
#include "plan.h"
#include "platform.h"
#include "replay.h"
#include "runner.h"
#include "sizes.h"
#include "start.h"
#include "storage.h"

_Static_assert(JW_TEXT_BYTES >= JW_RECORD_BYTES, "a record must fit into one answer");

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
    jw_sync_line(false); /* a step that was paused has left it high */
}

unsigned char *jw_lines_memory(size_t *bytes) {
    *bytes = runner.memory.size;
    return runner.memory.base;
}

/* --- lines of the firmware -------------------------------------------------------------------- */

static bool refused(const char *error) {
    if (error) {
        jw_text_fail(&text, "", error);
    }
    return error != NULL;
}

/* Forget the medium, and the replay that pages to it. */
static void forget_medium(void) {
    runner.medium = NULL;
    replay.medium = NULL;
    replay.executor.plan = NULL;
}

static bool run_storage(jw_message *answer) {
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
    jw_write_pair(answer, ' ', "card", facts.card);
    jw_write_count(answer, ' ', "capacity_bytes", facts.capacity_bytes);
    jw_write_count(answer, ' ', "page_bytes", facts.page_bytes);
    jw_write_count(answer, ' ', "erase_block_bytes", facts.erase_block_bytes);
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

static bool run_kernel(jw_message *answer) {
    size_t bytes;
    const bool read_well = jw_plan_workspace(&text, &bytes);
    if (read_well) {
        jw_message_number(answer, bytes);
    }
    return read_well;
}

static bool run_health(jw_message *answer) {
    const long temperature_mc = jw_temperature_mc();
    if (!jw_text_end(&text)) {
        return false;
    }
    jw_write_count(answer, ' ', "clock_ns", jw_clock_ns());
    jw_write_pair(answer, ' ', "temperature_mc", temperature_mc < 0 ? "-" : "");
    jw_message_number(answer, (uint64_t)(temperature_mc < 0 ? -temperature_mc : temperature_mc));
    jw_write_count(answer, ' ', "stack_unused_bytes", jw_stack_unused());
    return true;
}

/* --- lines ------------------------------------------------------------------------------------ */

static bool run_foreign(jw_message *answer) {
    if (strcmp(word, "storage") == 0) {
        return run_storage(answer);
    }
    if (strcmp(word, "scratch") == 0) {
        return run_scratch();
    }
    if (strcmp(word, "kernel") == 0) {
        return run_kernel(answer);
    }
    if (strcmp(word, "health") == 0) {
        return run_health(answer);
    }
    jw_text_fail(&text, word, "is not a known line");
    return false;
}

static bool measures(void) {
    return jw_runner_measures(&runner, word) || jw_replay_measures(word);
}

static bool run(jw_message *answer) {
    jw_record record;
    if (measures() && !jw_clock_moves()) {
        return !refused("the board's counter does not move: it cannot measure time");
    }
    jw_line_result result = jw_runner_line(&runner, word, &text, &record);
    if (result == JW_LINE_FOREIGN) {
        result = jw_replay_line(&replay, &runner, word, &text, &record, answer);
    }
    switch (result) {
    case JW_LINE_FOREIGN:
        return run_foreign(answer);
    case JW_LINE_READ:
        return true;
    case JW_LINE_RECORDED:
        jw_record_text(answer->text, &record);
        return true;
    default:
        return false;
    }
}

bool jw_line_begin(char *line) {
    word = jw_text_begin(&text, line);
    return measures();
}

bool jw_line_run(jw_message *answer) {
    const bool done = run(answer);
    if (jw_stack_unused() == 0) {
        jw_message_begin(answer, answer->text, answer->capacity);
        jw_message_text(answer, "the stack has overflowed: increase firmware.stack_bytes");
        return false;
    }
    if (!done) {
        jw_message_text(answer, text.key);
        jw_message_text(answer, *text.key ? " " : "");
        jw_message_text(answer, text.error);
    }
    return done;
}
