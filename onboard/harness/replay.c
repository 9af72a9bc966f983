#include "replay.h"

#include <string.h>

#include "platform.h"

#define MOST_ROOM 4096u
#define LEAST_ANSWER 192u /* answers without a list */

/* --- lines that prepare ------------------------------------------------------------------- */

static jw_line_result refused(jw_text *text, const char *key, const char *error) {
    jw_text_fail(text, key, error);
    return JW_LINE_REFUSED;
}

static jw_line_result done(jw_text *text, const char *error) {
    return error ? refused(text, "", error) : JW_LINE_READ;
}

static bool is_little_endian(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, sizeof first);
    return first == 1;
}

static jw_line_result begin(jw_replay *replay, const jw_runner *runner, jw_text *text) {
    const size_t index = (size_t)jw_text_number(text, "plan", 0, UINT16_MAX);
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    if (!is_little_endian()) {
        return refused(text, "", "only little-endian boards replay");
    }
    if (index >= jw_plan_count) {
        return refused(text, "plan", "is not a plan of this program");
    }
    const jw_plan *plan = jw_plans[index];
    const jw_arena *arena = &runner->arena;
    if (plan->arena_bytes > arena->size) {
        return refused(text, "", "the plan needs a larger arena");
    }
    jw_executor *executor = &replay->executor;
    memset(executor, 0, sizeof *executor);
    if (plan->step_bytes) {
        const char *error = replay->medium ? jw_store_open(&replay->store, plan, replay->medium)
                                           : "the plan pages, but there is no storage to page to";
        if (error) {
            return refused(text, "", error);
        }
    }
    const size_t room_after = runner->memory.size - plan->arena_bytes + replay->room;
    *executor = (jw_executor){.plan = plan,
                              .arena = arena->base,
                              .room_before = replay->room,
                              .room_after =
                                  room_after < MOST_ROOM ? (uint32_t)room_after / 4 * 4 : MOST_ROOM,
                              .store = plan->step_bytes ? &replay->store : NULL,
                              .clock_ns = jw_clock_ns,
                              .running_ns = jw_running_ns,
                              .working_ns = jw_working_ns};
    replay->steps = 0;
    replay->is_paused = false;
    return done(text, jw_executor_begin(executor));
}

unsigned char *jw_replay_place(const jw_replay *replay, jw_text *text, size_t bytes,
                               uint64_t address) {
    const jw_plan *plan = replay->executor.plan;
    if (bytes > plan->arena_bytes || address > plan->arena_bytes - bytes || address % 4) {
        jw_text_fail(text, "address", "is not in the arena for that many bytes");
    }
    return jw_text_end(text) ? replay->executor.arena + address : NULL;
}

static jw_line_result begin_frozen(jw_replay *replay, jw_text *text) {
    const uint64_t key = jw_text_number(text, "key", 0, UINT64_MAX);
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    return done(text, replay->executor.store ? jw_store_begin_frozen(&replay->store, key)
                                             : "this plan keeps nothing in storage");
}

/* `kept=... address=...` */
static unsigned char *read_kept(const jw_replay *replay, jw_text *text, uint16_t *kept) {
    const jw_plan *plan = replay->executor.plan;
    *kept = (uint16_t)jw_text_number(text, "kept", 0, UINT16_MAX);
    const uint64_t address = jw_text_number(text, "address", 0, UINT32_MAX);
    if (!text->error && (*kept >= plan->kept_count || !replay->executor.store)) {
        jw_text_fail(text, "kept", "is not a tensor that this plan keeps in storage");
    }
    const size_t bytes = text->error ? 0 : (size_t)plan->kept[*kept].words * JW_PLACE_BYTES;
    return jw_replay_place(replay, text, bytes, address);
}

/* Bytes of the arena from `memory` on. */
static size_t room_from(const jw_replay *replay, const unsigned char *memory) {
    return (size_t)(replay->executor.arena + replay->executor.plan->arena_bytes - memory);
}

static jw_line_result keep(jw_replay *replay, jw_text *text) {
    uint16_t kept;
    unsigned char *memory = read_kept(replay, text, &kept);
    if (!memory) {
        return JW_LINE_REFUSED;
    }
    return done(text, jw_store_keep(&replay->store, kept, memory, room_from(replay, memory)));
}

/* `frozen=... address=...` */
static unsigned char *read_frozen(const jw_replay *replay, jw_text *text, uint16_t *frozen) {
    const jw_plan *plan = replay->executor.plan;
    *frozen = (uint16_t)jw_text_number(text, "frozen", 0, UINT16_MAX);
    const uint64_t address = jw_text_number(text, "address", 0, UINT32_MAX);
    if (!text->error && (*frozen >= plan->frozen_count || !replay->executor.store)) {
        jw_text_fail(text, "frozen", "is not a frozen tensor of this plan");
    }
    const size_t bytes = text->error ? 0 : plan->frozen[*frozen].bytes;
    return jw_replay_place(replay, text, bytes, address);
}

static jw_line_result verify(jw_replay *replay, jw_text *text) {
    uint16_t frozen;
    unsigned char *memory = read_frozen(replay, text, &frozen);
    return memory ? done(text, jw_store_verify_frozen(&replay->store, frozen, memory))
                  : JW_LINE_REFUSED;
}

static jw_line_result freeze(jw_replay *replay, jw_text *text) {
    uint16_t frozen;
    unsigned char *memory = read_frozen(replay, text, &frozen);
    if (!memory) {
        return JW_LINE_REFUSED;
    }
    return done(text, jw_store_freeze(&replay->store, frozen, memory, room_from(replay, memory)));
}

static jw_line_result fetch(jw_replay *replay, jw_text *text) {
    uint16_t kept;
    unsigned char *memory = read_kept(replay, text, &kept);
    return memory ? done(text, jw_store_fetch(&replay->store, kept, memory)) : JW_LINE_REFUSED;
}

/* `table=... first=... count=... address=...` */
typedef struct {
    uint16_t table;
    uint32_t first, count;
    unsigned char *memory;
} row_range;

static bool read_rows(const jw_replay *replay, jw_text *text, row_range *range) {
    const jw_plan *plan = replay->executor.plan;
    range->table = (uint16_t)jw_text_number(text, "table", 0, UINT16_MAX);
    range->first = (uint32_t)jw_text_number(text, "first", 0, UINT32_MAX);
    range->count = (uint32_t)jw_text_number(text, "count", 1, UINT32_MAX);
    const uint64_t address = jw_text_number(text, "address", 0, UINT32_MAX);
    if (!text->error && (range->table >= plan->table_count || !replay->executor.store)) {
        jw_text_fail(text, "table", "is not a table that this plan keeps in storage");
    }
    const uint64_t bytes =
        text->error ? 0 : (uint64_t)range->count * plan->tables[range->table].row_bytes;
    range->memory =
        jw_replay_place(replay, text, bytes <= SIZE_MAX ? (size_t)bytes : SIZE_MAX, address);
    return range->memory;
}

typedef const char *transfer_of_rows(jw_store *store, uint16_t table, uint32_t first,
                                     uint32_t count, void *memory, size_t room);

static jw_line_result transfer_rows(jw_replay *replay, jw_text *text, transfer_of_rows *transfer) {
    row_range rows;
    return read_rows(replay, text, &rows)
               ? done(text, transfer(&replay->store, rows.table, rows.first, rows.count,
                                     rows.memory, room_from(replay, rows.memory)))
               : JW_LINE_REFUSED;
}

static jw_line_result rate(jw_replay *replay, jw_text *text) {
    const char *bits = jw_text_value(text, "learning_rate");
    float learning_rate = 0;
    if (!text->error && !jw_parse_float_bits(bits, &learning_rate)) {
        jw_text_fail(text, "learning_rate", "is not a number of eight hexadecimal digits");
    }
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    replay->learning_rate = learning_rate;
    replay->executor.learning_rate = &replay->learning_rate;
    return JW_LINE_READ;
}

static jw_line_result go_on_after(jw_replay *replay, jw_text *text) {
    const uint32_t steps = (uint32_t)jw_text_number(text, "steps", 0, UINT32_MAX);
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    replay->executor.steps = steps;
    return JW_LINE_READ;
}

static jw_line_result commit(jw_replay *replay, jw_text *text) {
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    if (!replay->executor.store || !replay->store.begun) {
        return refused(text, "", "a commit needs a `keep` before it");
    }
    return done(text, jw_store_complete(&replay->store));
}

/* --- steps -------------------------------------------------------------------------------- */

static jw_line_result blame(jw_replay *replay, jw_text *text, const char *error) {
    const jw_executor *executor = &replay->executor;
    jw_message key;
    jw_message_begin(&key, replay->blamed, sizeof replay->blamed);
    if (executor->failed) {
        jw_message_text(&key, "action ");
        jw_message_number(&key, (uint64_t)(executor->failed - executor->plan->actions));
        jw_message_text(&key, ":");
    }
    return refused(text, replay->blamed, error);
}

static void say_pair(jw_message *answer, const char *key, uint64_t value) {
    jw_message_text(answer, key);
    jw_message_number(answer, value);
}

/* Go on with a step up to its end, or its next pause. Its window, in which the sync line is high,
 * lasts from the first start to the last end; pauses are not running time. */
static jw_line_result go_on(jw_replay *replay, jw_text *text, jw_record *record,
                            jw_message *answer) {
    jw_executor *executor = &replay->executor;
    jw_window *window = &replay->record.window;
    const char *error = NULL;
    const bool begins = !replay->is_paused;
    replay->is_paused = false;
    if (begins || !jw_executor_is_over(executor)) {
        const uint64_t blocked_ns = begins ? 0 : executor->blocked_ns;
        jw_sync_line(true);
        const uint64_t start_ns = jw_clock_ns(), running_ns = jw_running_ns();
        error = begins ? jw_executor_step(executor, replay->watches) : jw_executor_resume(executor);
        window->running_ns += jw_running_ns() - running_ns + executor->blocked_ns - blocked_ns;
        window->end_ns = jw_clock_ns();
        jw_sync_line(!error && !jw_executor_is_over(executor));
        window->start_ns = begins ? start_ns : window->start_ns;
        window->frequency_after_khz = jw_frequency_khz();
        replay->is_paused = !error && jw_executor_is_paused(executor);
    } else {
        error = jw_executor_resume(executor);
    }
    if (!error && !replay->is_paused) {
        error = jw_executor_afterwards(executor);
        replay->is_paused = !error && jw_executor_is_paused(executor);
    }
    if (error) {
        return blame(replay, text, error);
    }
    if (replay->is_paused) {
        say_pair(answer, "watching id=", replay->record.id);
        return JW_LINE_READ;
    }
    replay->record.tail_end_ns = window->end_ns;
    *record = replay->record;
    replay->steps++;
    return JW_LINE_RECORDED;
}

static jw_line_result train(jw_replay *replay, jw_text *text, jw_record *record,
                            jw_message *answer) {
    const uint32_t id = (uint32_t)jw_text_number(text, "id", 0, UINT32_MAX);
    replay->watches = jw_text_number(text, "watched", 0, 1) == 1;
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    replay->is_paused = false;
    jw_sync_line(false); /* a step that was paused has left it high */
    replay->record = (jw_record){.id = id, .window = {.executions = 1, .tries = 1}};
    replay->record.window.frequency_before_khz = jw_frequency_khz();
    return go_on(replay, text, record, answer);
}

static jw_line_result resume(jw_replay *replay, jw_text *text, jw_record *record,
                             jw_message *answer) {
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    return replay->is_paused ? go_on(replay, text, record, answer)
                             : refused(text, "", "no step is paused");
}

/* --- answers ------------------------------------------------------------------------------ */

static jw_line_result recover(jw_replay *replay, jw_text *text, jw_message *answer) {
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    const char *error = replay->executor.store ? jw_store_recover(&replay->store)
                                               : "this plan keeps nothing in storage";
    if (!error) {
        say_pair(answer, "recovered step=", replay->store.step);
    }
    return done(text, error);
}

static jw_line_result say_counters(const jw_replay *replay, jw_text *text, jw_message *answer) {
    const jw_store *store = replay->executor.store;
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    say_pair(answer, "counters steps=", replay->steps);
    say_pair(answer, " bytes_in=", store ? store->bytes_in : 0);
    say_pair(answer, " bytes_out=", store ? store->bytes_out : 0);
    say_pair(answer, " erased_blocks=", store ? store->erased_blocks : 0);
    say_pair(answer, " touched_bytes=", jw_touched_bytes(&replay->executor));
    say_pair(answer, " transfer_ns=", replay->executor.transfer_ns);
    return JW_LINE_READ;
}

enum { PROBE_DIGITS = 1 + 8, SPAN_DIGITS = 1 + 8 + 1 + 8 }; /* with the comma, or the colon */

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void say_probe(jw_message *answer, const jw_executor *executor, uint32_t index) {
    jw_message_bits(answer, executor->plan->memory->probed[index - executor->first_probe]);
}

static void say_span(jw_message *answer, const jw_executor *executor, uint32_t index) {
    const jw_span *span = &executor->plan->memory->spans[index - executor->first];
    jw_message_bits(answer, bits_of(span->start_s));
    jw_message_text(answer, ":");
    jw_message_bits(answer, bits_of(span->time_s));
}

/* What the memory holds of a list: the elements [from, count). */
static jw_line_result say_list(const jw_replay *replay, jw_text *text, const char *word,
                               uint32_t from, uint32_t count, size_t digits,
                               void (*say)(jw_message *, const jw_executor *, uint32_t),
                               jw_message *answer) {
    const uint32_t first = (uint32_t)jw_text_number(text, "first", 0, UINT16_MAX);
    if (!text->error && first >= count) {
        jw_text_fail(text, "first", "is past the last one");
    }
    if (!text->error && first < from) {
        jw_text_fail(text, "first", "is before the last pause of the step");
    }
    if (!jw_text_end(text)) {
        return JW_LINE_REFUSED;
    }
    jw_message_text(answer, word);
    say_pair(answer, " first=", first);
    jw_message_text(answer, " values=");
    for (uint32_t i = first; i < count && answer->length + digits < answer->capacity; i++) {
        jw_message_text(answer, i > first ? "," : "");
        say(answer, &replay->executor, i);
    }
    return JW_LINE_READ;
}

size_t jw_replay_answer_bytes(const jw_plan *plan) {
    const size_t probes = (size_t)plan->probe_count * PROBE_DIGITS;
    const size_t spans = (size_t)plan->action_count * SPAN_DIGITS;
    return LEAST_ANSWER + (probes > spans ? probes : spans);
}

/* --- lines -------------------------------------------------------------------------------- */

bool jw_replay_measures(const char *word) {
    return strcmp(word, "train") == 0 || strcmp(word, "resume") == 0;
}

static bool is_known(const char *word) {
    static const char *const known[] = {
        "keep",     "commit",  "rate",      "train",      "probes",     "spans",
        "counters", "recover", "keep_rows", "fetch_rows", "fetch",      "frozen",
        "freeze",   "resume",  "after",     "verify",     "verify_rows"};
    size_t i = 0;
    while (i < sizeof known / sizeof known[0] && strcmp(word, known[i]) != 0) {
        i++;
    }
    return i < sizeof known / sizeof known[0];
}

jw_line_result jw_replay_line(jw_replay *replay, const jw_runner *runner, const char *word,
                              jw_text *text, jw_record *record, jw_message *answer) {
    if (strcmp(word, "replay") == 0) {
        return begin(replay, runner, text);
    }
    if (!is_known(word)) {
        return JW_LINE_FOREIGN;
    }
    const jw_executor *executor = &replay->executor;
    if (!executor->plan) {
        return refused(text, "", "a `replay` line must come before this line");
    }
    if (strcmp(word, "frozen") == 0) {
        return begin_frozen(replay, text);
    }
    if (strcmp(word, "freeze") == 0) {
        return freeze(replay, text);
    }
    if (strcmp(word, "verify") == 0) {
        return verify(replay, text);
    }
    if (strcmp(word, "verify_rows") == 0) {
        return transfer_rows(replay, text, jw_store_verify_rows);
    }
    if (strcmp(word, "keep") == 0) {
        return keep(replay, text);
    }
    if (strcmp(word, "keep_rows") == 0) {
        return transfer_rows(replay, text, jw_store_keep_rows);
    }
    if (strcmp(word, "fetch_rows") == 0) {
        return transfer_rows(replay, text, jw_store_fetch_rows);
    }
    if (strcmp(word, "commit") == 0) {
        return commit(replay, text);
    }
    if (strcmp(word, "after") == 0) {
        return go_on_after(replay, text);
    }
    if (strcmp(word, "rate") == 0) {
        return rate(replay, text);
    }
    if (strcmp(word, "train") == 0) {
        return train(replay, text, record, answer);
    }
    if (strcmp(word, "resume") == 0) {
        return resume(replay, text, record, answer);
    }
    if (strcmp(word, "probes") == 0) {
        return say_list(replay, text, word, executor->first_probe, executor->next_probe,
                        PROBE_DIGITS, say_probe, answer);
    }
    if (strcmp(word, "spans") == 0) {
        return say_list(replay, text, word, executor->first, executor->next, SPAN_DIGITS, say_span,
                        answer);
    }
    if (strcmp(word, "counters") == 0) {
        return say_counters(replay, text, answer);
    }
    return strcmp(word, "recover") == 0 ? recover(replay, text, answer) : fetch(replay, text);
}
