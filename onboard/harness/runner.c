#include "runner.h"

#include <string.h>

#include "plan.h"
#include "platform.h"
#include "transfer.h"

#define MOST_NS UINT64_C(3600000000000)

/* --- settings ----------------------------------------------------------------------------- */

static jw_line_result refused(jw_text *text, const char *key, const char *error) {
    jw_text_fail(text, key, error);
    return JW_LINE_REFUSED;
}

static jw_line_result take_arena(jw_runner *runner, jw_text *text) {
    const uint64_t bytes = jw_text_number(text, "bytes", JW_ALIGNMENT, SIZE_MAX / 2);
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    if (bytes > runner->memory.size) {
        return refused(text, "bytes", "is more than the memory that this board has for an arena");
    }
    runner->arena = (jw_arena){runner->memory.base, (size_t)bytes, 0};
    return JW_LINE_READ;
}

static jw_line_result take_tries(jw_runner *runner, jw_text *text) {
    runner->tries = (uint32_t)jw_text_number(text, "count", 1, 1000);
    return jw_text_end(text) ? JW_LINE_READ : JW_LINE_REFUSED;
}

/* --- windows ------------------------------------------------------------------------------ */

static jw_line_result measure(jw_runner *runner, jw_execute *execute, void *context,
                              const jw_limits *limits, jw_record *record) {
    record->window = jw_measure(execute, context, limits, runner->tries);
    record->tail_end_ns = record->window.end_ns;
    return JW_LINE_RECORDED;
}

static jw_line_result run_op(jw_runner *runner, jw_text *text, jw_record *record) {
    jw_limits limits;
    jw_op op;
    jw_op_run prepared;
    if (!jw_plan_op(text, &record->id, &limits, &op)) {
        return JW_LINE_REFUSED;
    }
    const char *error = jw_op_prepare(&prepared, &op, &runner->arena);
    if (error) {
        return refused(text, "", error);
    }
    return measure(runner, jw_op_execute, &prepared, &limits, record);
}

static jw_line_result begin_step(jw_runner *runner, jw_text *text) {
    uint32_t buffers, calls;
    if (!jw_plan_step(text, &runner->step_id, &runner->step_limits, &buffers, &calls)) {
        return JW_LINE_REFUSED;
    }
    const char *error = jw_step_begin(&runner->step, &runner->arena, buffers, calls);
    runner->in_step = !error;
    return error ? refused(text, "", error) : JW_LINE_READ;
}

static jw_line_result add_buffer(jw_runner *runner, jw_text *text) {
    size_t bytes;
    jw_fill fill;
    if (!jw_plan_buffer(text, &bytes, &fill)) {
        return JW_LINE_REFUSED;
    }
    const char *error = runner->in_step ? jw_step_buffer(&runner->step, bytes, &fill)
                                        : "a buffer belongs to a step";
    return error ? refused(text, "", error) : JW_LINE_READ;
}

/* Add a call; the last call runs the step. */
static jw_line_result add_call(jw_runner *runner, jw_text *text, jw_record *record) {
    jw_step_call call;
    if (!jw_plan_call(text, &call)) {
        return JW_LINE_REFUSED;
    }
    const char *error =
        runner->in_step ? jw_step_add(&runner->step, &call) : "a call belongs to a step";
    if (!error && !jw_step_complete(&runner->step)) {
        return JW_LINE_READ;
    }
    runner->in_step = false;
    error = error ? error : jw_step_end(&runner->step);
    if (error) {
        return refused(text, "", error);
    }
    record->id = runner->step_id;
    return measure(runner, jw_step_execute, &runner->step, &runner->step_limits, record);
}

static jw_window window_until(uint64_t start_ns) {
    jw_window window = {.executions = 1, .tries = 1, .start_ns = start_ns};
    window.end_ns = jw_clock_ns();
    window.running_ns = window.end_ns - start_ns;
    return window;
}

static jw_line_result run_idle(jw_text *text, jw_record *record) {
    record->id = (uint32_t)jw_text_number(text, "id", 0, UINT32_MAX);
    const uint64_t duration_ns = jw_text_number(text, "duration_ns", 1, MOST_NS);
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    jw_sync_line(true);
    const uint64_t start_ns = jw_clock_ns();
    jw_sleep_until(start_ns + duration_ns);
    record->window = window_until(start_ns);
    jw_sync_line(false);
    record->tail_end_ns = record->window.end_ns;
    return JW_LINE_RECORDED;
}

/* Every bit ends at a fixed time after the start, so that delays do not add up. */
static jw_line_result run_marker(jw_text *text, jw_record *record) {
    record->id = (uint32_t)jw_text_number(text, "id", 0, UINT32_MAX);
    const uint64_t bit_ns = jw_text_number(text, "bit_ns", 1, MOST_NS);
    const char *bits = jw_text_value(text, "bits");
    if (!*bits || bits[strspn(bits, "01")]) {
        jw_text_fail(text, "bits", "is not a sequence of 0 and 1");
    }
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    jw_sync_line(true);
    const uint64_t start_ns = jw_clock_ns();
    uint64_t end_ns = start_ns;
    for (; *bits; bits++) {
        end_ns += bit_ns;
        if (*bits == '0') {
            jw_sleep_until(end_ns);
        }
        while (jw_clock_ns() < end_ns) {
        }
    }
    record->window = window_until(start_ns);
    jw_sync_line(false);
    record->tail_end_ns = record->window.end_ns;
    return JW_LINE_RECORDED;
}

static jw_line_result run_transfer(jw_runner *runner, jw_text *text, jw_record *record) {
    record->id = (uint32_t)jw_text_number(text, "id", 0, UINT32_MAX);
    const jw_method method = jw_method_named(jw_text_value(text, "method"));
    if (method == JW_METHOD_COUNT) {
        jw_text_fail(text, "method", "is not a known method");
    }
    const size_t bytes = (size_t)jw_text_number(text, "bytes", 1, SIZE_MAX / 64);
    const uint64_t most = jw_text_number(text, "most", 1, UINT32_MAX);
    const uint64_t min_ns = jw_text_number(text, "min_ns", 0, MOST_NS);
    const uint64_t tail_ns = jw_text_number(text, "tail_ns", 0, MOST_NS);
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    if (!runner->medium) {
        return refused(text, "", "a transfer needs a `scratch` line before it");
    }
    void *memory = NULL;
    if (method != JW_ERASE) {
        runner->arena.used = 0;
        memory = jw_arena_take(&runner->arena, bytes);
        if (!memory) {
            return refused(text, "bytes", "does not fit into the arena");
        }
        const jw_fill noise = {JW_FILL_INDEX, 0.0f, INT32_MAX};
        jw_fill_memory(memory, bytes, &noise, record->id + 1);
    }
    const char *error = jw_medium_measure(runner->medium, method, memory, bytes, most, min_ns,
                                          tail_ns, &record->window, &record->tail_end_ns);
    return error ? refused(text, "", error) : JW_LINE_RECORDED;
}

/* --- lines -------------------------------------------------------------------------------- */

bool jw_runner_measures(const jw_runner *runner, const char *word) {
    if (strcmp(word, "call") == 0) {
        const jw_step *step = &runner->step;
        return runner->in_step && step->call_count + 1 == step->call_capacity;
    }
    return strcmp(word, "op") == 0 || strcmp(word, "idle") == 0 || strcmp(word, "marker") == 0 ||
           strcmp(word, "transfer") == 0;
}

static jw_line_result run_line(jw_runner *runner, const char *word, jw_text *text,
                               jw_record *record) {
    if (strcmp(word, "buffer") == 0) {
        return add_buffer(runner, text);
    }
    if (strcmp(word, "call") == 0) {
        return add_call(runner, text, record);
    }
    if (runner->in_step) {
        return refused(text, "", "a buffer or a call is expected here");
    }
    if (strcmp(word, "arena") == 0) {
        return take_arena(runner, text);
    }
    if (strcmp(word, "tries") == 0) {
        return take_tries(runner, text);
    }
    if (strcmp(word, "op") == 0) {
        return run_op(runner, text, record);
    }
    if (strcmp(word, "step") == 0) {
        return begin_step(runner, text);
    }
    if (strcmp(word, "idle") == 0) {
        return run_idle(text, record);
    }
    if (strcmp(word, "marker") == 0) {
        return run_marker(text, record);
    }
    return strcmp(word, "transfer") == 0 ? run_transfer(runner, text, record) : JW_LINE_FOREIGN;
}

jw_line_result jw_runner_line(jw_runner *runner, const char *word, jw_text *text,
                              jw_record *record) {
    const jw_line_result result = run_line(runner, word, text, record);
    if (result == JW_LINE_REFUSED) {
        runner->in_step = false;
    }
    return result;
}

/* --- records ------------------------------------------------------------------------------ */

/* Without printf, which firmware does not have; newlib's small one has no 64-bit numbers. */
static char *write_pair(char *at, const char *key, uint64_t value) {
    char digits[20];
    size_t count = 0;
    const size_t length = strlen(key);
    memcpy(at, key, length);
    at += length;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    while (count) {
        *at++ = digits[--count];
    }
    return at;
}

void jw_record_text(char *text, const jw_record *record) {
    const jw_window *window = &record->window;
    const long temperature_mc = jw_temperature_mc();
    char *at = write_pair(text, "window id=", record->id);
    at = write_pair(at, " executions=", window->executions);
    at = write_pair(at, " start_ns=", window->start_ns);
    at = write_pair(at, " end_ns=", window->end_ns);
    at = write_pair(at, " tail_end_ns=", record->tail_end_ns);
    at = write_pair(at, " running_ns=", window->running_ns);
    at = write_pair(at, " frequency_before_khz=", window->frequency_before_khz);
    at = write_pair(at, " frequency_after_khz=", window->frequency_after_khz);
    at = write_pair(at, temperature_mc < 0 ? " temperature_mc=-" : " temperature_mc=",
                    (uint64_t)(temperature_mc < 0 ? -temperature_mc : temperature_mc));
    at = write_pair(at, " tries=", window->tries);
    *at = '\0';
}
