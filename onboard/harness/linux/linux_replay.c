#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* files over 2 GiB on 32-bit systems */
#include "linux_replay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "linux_replay_channel.h"
#include "linux_replay_limit.h"
#include "linux_replay_store.h"
#include "linux_support.h"

#define LEAST_ANSWER_BYTES 256

static jw_line_result done(jw_text *text, const char *error) {
    if (error) {
        jw_text_fail(text, "", error);
    }
    return text->error ? JW_LINE_REFUSED : JW_LINE_READ;
}

/* --- loads and dumps -------------------------------------------------------------------------- */

/* Read `address=... bytes=...`, and `at=...` for `load`. */
static unsigned char *read_place(const jw_linux_replay *r, jw_text *text, size_t *bytes,
                                 uint64_t *at) {
    if (!r->replay.executor.plan) {
        jw_text_fail(text, "", "a `replay` line must come before this line");
        return NULL;
    }
    const uint64_t address = jw_text_number(text, "address", 0, UINT32_MAX);
    *bytes = (size_t)jw_text_number(text, "bytes", 1, UINT32_MAX);
    if (at) {
        *at = jw_text_number(text, "at", 0, INT64_MAX);
    }
    return jw_replay_place(&r->replay, text, *bytes, address);
}

static jw_line_result load(const jw_linux_replay *r, jw_text *text) {
    size_t bytes;
    uint64_t at;
    unsigned char *memory = read_place(r, text, &bytes, &at);
    while (memory && bytes) {
        const ssize_t length = pread(r->data, memory, bytes, (off_t)at);
        if (length <= 0) {
            return done(text, r->data < 0   ? "the plan has no data"
                              : length == 0 ? "the plan's data end before that"
                                            : strerror(errno));
        }
        memory += length;
        bytes -= (size_t)length;
        at += (uint64_t)length;
    }
    return done(text, NULL);
}

static void append(FILE *file, const unsigned char *memory, size_t bytes) {
    if (fwrite(memory, 1, bytes, file) != bytes || fflush(file) != 0) {
        jw_fail(JW_EXIT_RESULTS, "the dump cannot be written: %s", strerror(errno));
    }
}

static jw_line_result dump(const jw_linux_replay *r, jw_text *text) {
    size_t bytes;
    const unsigned char *memory = read_place(r, text, &bytes, NULL);
    if (memory && !r->dump) {
        return done(text, "there is no file to dump to");
    }
    if (memory) {
        append(r->dump, memory, bytes);
    }
    return done(text, NULL);
}

static void append_gradient(void *file, const unsigned char *gradient, uint32_t bytes) {
    append(file, gradient, bytes);
}

static jw_line_result take_gradients(jw_linux_replay *r, jw_text *text) {
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    r->replay.executor.take_gradient = append_gradient;
    r->replay.executor.taker = r->dump;
    return done(text, r->dump ? NULL : "there is no file to dump to");
}

/* --- storage ---------------------------------------------------------------------------------- */

static jw_line_result open_store(jw_linux_replay *r, jw_text *text) {
    bool is_direct = true;
    if (r->replay.medium) {
        return done(text, "the plan has a second `store` line");
    }
    r->replay.medium = jw_store_file_open(text, &is_direct);
    if (r->replay.medium) {
        fprintf(r->results, "scratch direct=%d\n", is_direct);
    }
    return done(text, NULL);
}

static jw_line_result forget(jw_linux_replay *r, jw_text *text) {
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    return done(text, r->replay.medium ? jw_store_file_forget(r->replay.medium)
                                       : "there is no store to forget");
}

/* --- replays ---------------------------------------------------------------------------------- */

static void make_answer(jw_linux_replay *r, size_t bytes) {
    free(r->answer);
    r->answer = malloc(bytes);
    r->answer_bytes = bytes;
    if (!r->answer) {
        jw_fail(JW_EXIT_MEMORY, "no memory for an answer of %zu bytes", bytes);
    }
}

static jw_message no_answer(const jw_linux_replay *r) {
    jw_message answer;
    jw_message_begin(&answer, r->answer, r->answer_bytes);
    return answer;
}

/* Begin a replay: allocate all that it needs, then limit memory. */
static jw_line_result begin(jw_linux_replay *r, const jw_runner *runner, jw_text *text) {
    jw_executor *executor = &r->replay.executor;
    jw_record none;
    jw_linux_channel_close(executor->channel);
    executor->channel = NULL;
    jw_unlimit_memory();
    jw_message nothing = no_answer(r);
    const jw_line_result result =
        jw_replay_line(&r->replay, runner, "replay", text, &none, &nothing);
    if (result == JW_LINE_REFUSED) {
        return result;
    }
    const jw_plan *plan = executor->plan;
    if (executor->store && !jw_store_file_pages(r->replay.medium, plan->page_bytes)) {
        return done(text, "the plan's page size does not divide the size of the buffers");
    }
    make_answer(r, jw_replay_answer_bytes(plan));
    executor->channel = jw_linux_channel_open(executor);
    r->limit_bytes = jw_limit_memory();
    return result;
}

static void say_process(const jw_linux_replay *r) {
    fprintf(r->results,
            "process limit_bytes=%" PRIu64 " overhead_bytes=%" PRIu64
            " peak_resident_bytes=%" PRIu64 "\n",
            r->limit_bytes, r->limit_bytes - r->replay.executor.plan->arena_bytes,
            jw_peak_resident_bytes());
}

static jw_line_result run_line(jw_linux_replay *r, const jw_runner *runner, const char *word,
                               jw_text *text, jw_record *record) {
    jw_message answer = no_answer(r);
    const jw_line_result result = jw_replay_line(&r->replay, runner, word, text, record, &answer);
    if (strcmp(word, "train") == 0) {
        r->replay.executor.take_gradient = NULL;
    }
    if (result == JW_LINE_READ && answer.length) {
        fprintf(r->results, "%s\n", answer.text);
        if (strcmp(word, "counters") == 0) {
            say_process(r);
        }
    }
    return result;
}

/* --- lines ------------------------------------------------------------------------------------ */

void jw_linux_replay_begin(jw_linux_replay *r, FILE *results, const char *data, const char *dump) {
    *r = (jw_linux_replay){.replay = {.room = JW_REPLAY_ROOM}, .results = results, .data = -1};
    make_answer(r, LEAST_ANSWER_BYTES);
    if (data && (r->data = open(data, O_RDONLY | O_CLOEXEC)) < 0) {
        jw_fail(JW_EXIT_PLAN, "%s: %s", data, strerror(errno));
    }
    if (dump && !(r->dump = fopen(dump, "wb"))) {
        jw_fail(JW_EXIT_RESULTS, "%s: %s", dump, strerror(errno));
    }
}

jw_line_result jw_linux_replay_line(jw_linux_replay *r, const jw_runner *runner, const char *word,
                                    jw_text *text, jw_record *record) {
    if (strcmp(word, "store") == 0) {
        return open_store(r, text);
    }
    if (strcmp(word, "forget") == 0) {
        return forget(r, text);
    }
    if (strcmp(word, "load") == 0) {
        return load(r, text);
    }
    if (strcmp(word, "dump") == 0) {
        return dump(r, text);
    }
    if (strcmp(word, "gradients") == 0) {
        return take_gradients(r, text);
    }
    if (strcmp(word, "replay") == 0) {
        return begin(r, runner, text);
    }
    return run_line(r, runner, word, text, record);
}

int jw_linux_replay_exit_code(const char *word) {
    const bool is_work = strcmp(word, "train") == 0 || strcmp(word, "keep") == 0 ||
                         strcmp(word, "commit") == 0 || strcmp(word, "recover") == 0 ||
                         strcmp(word, "fetch") == 0 || strcmp(word, "keep_rows") == 0 ||
                         strcmp(word, "fetch_rows") == 0 || strcmp(word, "frozen") == 0 ||
                         strcmp(word, "freeze") == 0 || strcmp(word, "verify") == 0 ||
                         strcmp(word, "verify_rows") == 0;
    return is_work ? JW_EXIT_STEP : JW_EXIT_PLAN;
}

void jw_linux_replay_end(jw_linux_replay *r) {
    jw_linux_channel_close(r->replay.executor.channel);
    jw_unlimit_memory();
    free(r->answer);
    if (r->data >= 0) {
        close(r->data);
    }
    if (r->dump && fclose(r->dump) != 0) {
        jw_fail(JW_EXIT_RESULTS, "the dump cannot be written: %s", strerror(errno));
    }
}
