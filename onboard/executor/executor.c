#include "executor.h"

#include <string.h>

#include "checksum.h"
#include "packing.h"

#define UNTOUCHED 0xa5c3965au
#define CANARY 0xdeadcafeu
#define NOT_A_NUMBER 0x7fc0badfu
#define SEED_STRIDE 0x9e3779b9u /* odd, so that no two steps have the same seed, and large */

/* --- memory ------------------------------------------------------------------------------- */

/* Bytes in the arena. */
static unsigned char *at(const jw_executor *e, jw_place address) {
    return e->arena + (size_t)address * JW_PLACE_BYTES;
}

static uint32_t bytes_of(const jw_action *action) {
    return action->words * JW_PLACE_BYTES;
}

static void fill(unsigned char *memory, uint32_t bytes, uint32_t pattern) {
    jw_word *word = (jw_word *)(void *)memory;
    for (uint32_t i = 0; i < bytes / sizeof pattern; i++) {
        word[i] = pattern;
    }
}

static bool holds(const unsigned char *memory, uint32_t bytes, uint32_t pattern) {
    const jw_word *word = (const jw_word *)(const void *)memory;
    for (uint32_t i = 0; i < bytes / sizeof pattern; i++) {
        if (word[i] != pattern) {
            return false;
        }
    }
    return true;
}

uint32_t jw_touched_bytes(const jw_executor *executor) {
    const jw_word *word = (const jw_word *)(const void *)executor->arena;
    uint32_t count = executor->plan->arena_bytes / sizeof *word;
    while (count && word[count - 1] == UNTOUCHED) {
        count--;
    }
    return count * (uint32_t)sizeof *word;
}

static const char *check_surroundings(const jw_executor *e) {
    if (!holds(e->arena - e->room_before, e->room_before, CANARY)) {
        return "bytes before the arena were overwritten";
    }
    return holds(e->arena + e->plan->arena_bytes, e->room_after, CANARY)
               ? NULL
               : "bytes after the arena were overwritten";
}

/* --- transfers ---------------------------------------------------------------------------- */

static float seconds(uint64_t ns) {
    return (float)ns * 1e-9f;
}

static uint64_t now(const jw_executor *e) {
    return e->clock_ns ? e->clock_ns() : 0;
}

static void note_span(const jw_executor *e, const jw_action *action, uint64_t start_ns) {
    e->plan->memory->spans[action - e->plan->actions - e->first] =
        (jw_span){seconds(start_ns - e->begin_ns), seconds(now(e) - start_ns)};
}

static const char *page(const jw_executor *e, const jw_action *transfer) {
    unsigned char *memory = at(e, transfer->address);
    if (transfer->verb == JW_DO_PAGE_OUT) {
        return jw_store_page_out(e->store, transfer->index, memory,
                                 (size_t)(e->arena + e->plan->arena_bytes - memory));
    }
    return transfer->verb == JW_DO_PAGE_IN
               ? jw_store_page_in(e->store, transfer->index, (jw_copy)transfer->copy, memory)
               : jw_store_page_in_rows(e->store, transfer->index, memory);
}

/* Carry out a transfer; `idle_ns`: how long the calling thread used no processor meanwhile. On Linux,
 * each reading of the processor's time is a system call. The span has both, so that a watched transfer
 * takes as long as others. */
static const char *carry_out(jw_executor *e, const jw_action *transfer, uint64_t *idle_ns) {
    const uint64_t start_ns = now(e);
    const uint64_t working_ns = e->working_ns ? e->working_ns() : 0;
    const uint64_t begin_ns = now(e);
    const char *error = page(e, transfer);
    const uint64_t lasted_ns = now(e) - begin_ns;
    const uint64_t worked_ns = e->working_ns ? e->working_ns() - working_ns : lasted_ns;
    e->transfer_ns += e->working_ns ? worked_ns : 0;
    *idle_ns = lasted_ns > worked_ns ? lasted_ns - worked_ns : 0;
    if (e->watched) {
        note_span(e, transfer, start_ns);
    }
    return error;
}

const char *jw_executor_transfer(jw_executor *e, const jw_action *transfer) {
    uint64_t idle_ns;
    return carry_out(e, transfer, &idle_ns);
}

/* Wait until at most `left` transfers are under way. */
static const char *wait_for(jw_executor *e, uint16_t left) {
    const char *error = NULL;
    if (e->submitted - e->over > left) {
        error = e->channel->wait(e->channel, left, &e->failed);
        e->over = (uint16_t)(e->submitted - (error ? 0 : left));
    }
    return error;
}

typedef const char *blocking(jw_executor *executor, const void *of);

static const char *block_until_left(jw_executor *e, const void *of) {
    return wait_for(e, *(const uint16_t *)of);
}

/* Wait, and add the waiting time to blocked_ns, except for processor time used meanwhile. */
static const char *block(jw_executor *e, blocking *wait, const void *of) {
    if (!e->clock_ns || !e->running_ns) {
        return wait(e, of);
    }
    const uint64_t running_ns = e->running_ns();
    const uint64_t start_ns = e->clock_ns();
    const char *error = wait(e, of);
    const uint64_t lasted_ns = e->clock_ns() - start_ns;
    const uint64_t worked_ns = e->running_ns() - running_ns;
    e->blocked_ns += lasted_ns > worked_ns ? lasted_ns - worked_ns : 0;
    return error;
}

static const char *wait_until_over(jw_executor *e, uint16_t count) {
    if (e->over >= count || e->over == e->submitted) {
        return NULL;
    }
    const uint16_t left = (uint16_t)(e->submitted > count ? e->submitted - count : 0);
    return e->channel->is_over(e->channel, left) ? wait_for(e, left)
                                                 : block(e, block_until_left, &left);
}

/* The table of a transfer of rows if it is in RAM, else NULL. */
static unsigned char *table_in_ram(const jw_executor *e, const jw_action *transfer) {
    const jw_place address = e->plan->tables[transfer->index].address;
    return address == JW_NO_PLACE ? NULL : at(e, address);
}

static bool is_transfer(const jw_executor *e, const jw_action *action) {
    return action->verb == JW_DO_PAGE_OUT || action->verb == JW_DO_PAGE_IN ||
           (action->verb == JW_DO_ROWS_IN && !table_in_ram(e, action));
}

/* Whether the processor has anything to do before an action waits for the next transfer, which is
 * `transfer`. If not, handing it over to the channel would only cost time. */
static bool has_company(const jw_executor *e, const jw_action *transfer) {
    const jw_action *end = e->plan->actions + e->plan->step_action_count;
    for (const jw_action *action = transfer + 1; action < end; action++) {
        if (action->waits_for > e->submitted) {
            return false;
        }
        if (action->verb != JW_DO_PROBE && !is_transfer(e, action)) {
            return true;
        }
    }
    return false;
}

/* Carry out a transfer here, after all that are under way. */
static const char *transfer_alone(jw_executor *e, const jw_action *action) {
    const char *error = wait_until_over(e, e->submitted);
    if (error) {
        return error;
    }
    e->submitted++;
    e->over++;
    uint64_t idle_ns;
    error = carry_out(e, action, &idle_ns);
    e->blocked_ns += idle_ns;
    e->failed = error ? action : NULL;
    return error;
}

static const char *transfer(jw_executor *e, const jw_action *action) {
    if (!action->asynchronous || !e->channel || !has_company(e, action)) {
        return transfer_alone(e, action);
    }
    e->submitted++;
    e->channel->submit(e->channel, action);
    return NULL;
}

/* --- rows --------------------------------------------------------------------------------- */

static const char *block_until_settled(jw_executor *e, const void *nothing) {
    (void)nothing;
    return jw_store_settle(e->store);
}

/* Take the rows that the batch names, each at the position at which it is named first. The store is
 * settled first, since it needs the rows of the last step for that. */
static const char *select_rows(jw_executor *e, const jw_action *action) {
    const jw_selection *selection = &e->plan->selections[action->index];
    uint32_t *rows = e->plan->memory->rows + selection->first;
    jw_word *indices = (jw_word *)(void *)at(e, action->address);
    const char *error = e->store ? block(e, block_until_settled, NULL) : NULL;
    for (uint32_t i = 0; i < selection->count && !error; i++) {
        const uint32_t row = indices[i];
        if (row >= selection->row_count) {
            error = "the batch has an index beyond the last row of its table";
        } else {
            uint32_t position = 0;
            rows[i] = row;
            while (rows[position] != row) {
                position++;
            }
            if (position < i) {
                rows[i] = JW_NOWHERE;
            }
            indices[i] = position;
        }
    }
    if (error) {
        e->failed = action;
    }
    return error;
}

/* Copy the selected rows between a table in RAM and the bytes of the action. */
static void copy_rows(const jw_executor *e, const jw_action *action) {
    const jw_table *table = &e->plan->tables[action->index];
    const jw_selection *selection = &e->plan->selections[table->selection];
    const uint32_t *rows = e->plan->memory->rows + selection->first;
    const size_t bytes = table->row_bytes;
    for (uint32_t i = 0; i < selection->count; i++) {
        unsigned char *selected = at(e, action->address) + i * bytes;
        unsigned char *row =
            rows[i] == JW_NOWHERE ? NULL : table_in_ram(e, action) + rows[i] * bytes;
        if (row && action->verb == JW_DO_ROWS_OUT) {
            memcpy(row, selected, bytes);
        } else if (row) {
            memcpy(selected, row, bytes);
        } else if (action->verb == JW_DO_ROWS_IN) {
            memset(selected, 0, bytes);
        }
    }
}

/* --- actions ------------------------------------------------------------------------------ */

/* Set scalars with the seed of this step: masks differ between steps, but not within a step. */
static void move_seed_on(float *scalars, const jw_operation *op, uint32_t steps) {
    uint32_t seed;
    memcpy(scalars, op->scalars, op->seeded * sizeof *scalars);
    memcpy(&seed, &scalars[op->seeded - 1], sizeof seed);
    seed += steps * SEED_STRIDE;
    memcpy(&scalars[op->seeded - 1], &seed, sizeof seed);
}

/* Scalars of an operation in this step; `own` has room for those that differ between steps. */
static const float *scalars_of(const jw_executor *e, const jw_operation *op, float *own) {
    if (op->seeded) {
        move_seed_on(own, op, e->steps);
        return own;
    }
    if (op->rated && e->learning_rate) {
        memcpy(own, op->scalars, op->rated * sizeof *own);
        own[0] = *e->learning_rate;
        return own;
    }
    return op->scalars;
}

static void compute(jw_executor *e, const jw_action *action) {
    const jw_operation *op = &e->plan->operations[action->index];
    float own[JW_MAX_SCALARS];
    const void *reads[JW_MAX_OPERANDS];
    void *writes[JW_MAX_OPERANDS];
    for (uint8_t i = 0; i < op->read_count; i++) {
        reads[i] = at(e, *e->operands++);
    }
    for (uint8_t i = 0; i < op->write_count; i++) {
        writes[i] = at(e, *e->operands++);
    }
    void *workspace = action->address == JW_NO_PLACE ? NULL : at(e, action->address);
    const jw_call call = {op->attributes, scalars_of(e, op, own), reads, writes, workspace};
    op->run(&call);
}

static const char *block_while_taken(jw_executor *e, const void *of) {
    const jw_action *probe = of;
    e->take_gradient(e->taker, at(e, probe->address), bytes_of(probe));
    return NULL;
}

/* Words of a tensor if the store packed it, with a page as the ring. */
static uint32_t words_if_packed(const jw_executor *e, const void *memory, uint32_t words) {
    const uint32_t ring_words = e->plan->counted_page_bytes / (uint32_t)sizeof(uint32_t);
    return jw_packed_words(memory, words, ring_words);
}

static const char *act(jw_executor *e, const jw_action *action) {
    unsigned char *memory = at(e, action->address);
    const uint32_t bytes = bytes_of(action);
    switch ((jw_verb)action->verb) {
    case JW_DO_COMPUTE:
        compute(e, action);
        break;
    case JW_DO_PAGE_OUT:
    case JW_DO_PAGE_IN:
        return transfer(e, action);
    case JW_DO_SELECT:
        return select_rows(e, action);
    case JW_DO_ROWS_IN:
    case JW_DO_ROWS_OUT:
        if (is_transfer(e, action)) {
            return transfer(e, action);
        }
        copy_rows(e, action);
        break;
    case JW_DO_MOVE:
        memmove(at(e, e->plan->moves[action->index]), memory, bytes);
        break;
    case JW_DO_PROBE:
        if (e->watched) {
            e->next_probe = (uint16_t)(action->index + 1);
            e->plan->memory->probed[action->index - e->first_probe] =
                action->counted ? words_if_packed(e, memory, action->words)
                                : jw_checksum_of(memory, bytes);
        }
        if (action->gradient && e->take_gradient) {
            return block(e, block_while_taken, action);
        }
        break;
    case JW_DO_GUARD:
        fill(memory, bytes, CANARY);
        break;
    case JW_DO_CHECK:
        if (!holds(memory, bytes, CANARY)) {
            e->failed = action;
            return "a canary was overwritten by the operation before it";
        }
        break;
    case JW_DO_POISON:
        fill(memory, bytes, NOT_A_NUMBER);
        break;
    }
    return NULL;
}

/* Run an action and note its span; transfers note theirs themselves. */
static const char *act_watched(jw_executor *e, const jw_action *action) {
    const uint64_t start_ns = now(e);
    const char *error = act(e, action);
    if (!is_transfer(e, action)) {
        note_span(e, action, start_ns);
    }
    return error;
}

/* Run the actions up to `limit`, or as many as can be watched, and wait until all transfers are
 * over. */
static const char *run(jw_executor *e, uint16_t limit) {
    const uint16_t room = e->plan->memory->watched_count;
    const uint16_t end =
        e->watched && limit - e->first > room ? (uint16_t)(e->first + room) : limit;
    const char *error = NULL;
    while (e->next < end && !error) {
        const jw_action *action = &e->plan->actions[e->next++];
        error = wait_until_over(e, action->waits_for);
        if (!error) {
            error = e->watched ? act_watched(e, action) : act(e, action);
        }
    }
    const jw_action *failed = e->failed;
    const char *last = wait_until_over(e, e->submitted);
    if (error) {
        e->failed = failed;
    }
    e->paused_ns = e->watched ? now(e) : 0;
    return error ? error : last;
}

/* --- steps -------------------------------------------------------------------------------- */

const char *jw_executor_begin(jw_executor *e) {
    if (e->plan->step_bytes && !e->store) {
        return "the plan pages, but there is no storage to page to";
    }
    fill(e->arena, e->plan->arena_bytes, UNTOUCHED);
    fill(e->arena - e->room_before, e->room_before, CANARY);
    fill(e->arena + e->plan->arena_bytes, e->room_after, CANARY);
    e->failed = NULL;
    return NULL;
}

const char *jw_executor_step(jw_executor *e, bool watched) {
    e->watched = watched;
    e->failed = NULL;
    e->submitted = e->over = 0;
    e->next = e->first = e->next_probe = e->first_probe = 0;
    e->operands = e->plan->operands;
    e->blocked_ns = 0;
    e->begin_ns = watched ? now(e) : 0;
    if (e->store) {
        if (e->plan->kept_count && !e->store->complete) {
            return "the step needs values of an earlier step, but none is complete";
        }
        jw_store_begin_step(e->store);
    }
    e->steps++;
    return run(e, e->plan->step_action_count);
}

bool jw_executor_is_paused(const jw_executor *e) {
    const jw_plan *plan = e->plan;
    return e->watched && e->next < plan->action_count &&
           plan->action_count - e->first > plan->memory->watched_count;
}

bool jw_executor_is_over(const jw_executor *e) {
    return e->next >= e->plan->step_action_count;
}

const char *jw_executor_resume(jw_executor *e) {
    e->first = e->next;
    e->first_probe = e->next_probe;
    e->begin_ns += now(e) - e->paused_ns;
    return jw_executor_is_over(e) ? NULL : run(e, e->plan->step_action_count);
}

const char *jw_executor_afterwards(jw_executor *e) {
    const uint64_t blocked_ns = e->blocked_ns, transfer_ns = e->transfer_ns;
    const char *error = run(e, e->plan->action_count);
    e->blocked_ns = blocked_ns;
    e->transfer_ns = transfer_ns;
    if (!error && e->next < e->plan->action_count) {
        return NULL;
    }
    if (!error) {
        error = check_surroundings(e);
    }
    if (!error && e->store) {
        error = jw_store_complete(e->store);
    }
    return error;
}
