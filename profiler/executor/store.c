#include "store.h"

#include <string.h>

#include "checksum.h"
#include "message.h"

#define MAGIC 0x3153574au /* "JWS1" */

enum { RECORD_MAGIC, RECORD_IDENTITY, RECORD_RUN, RECORD_STEP, RECORD_HEAD };

/* --- sentences ---------------------------------------------------------------------------- */

static jw_message said_about(jw_store *store, const char *what, uint32_t number, uint64_t offset) {
    jw_message message;
    jw_message_begin(&message, store->sentence, sizeof store->sentence);
    jw_message_text(&message, what);
    jw_message_number(&message, number);
    jw_message_text(&message, " at byte ");
    jw_message_number(&message, offset);
    jw_message_text(&message, " of the storage ");
    return message;
}

/* `why` may be NULL: then all is well. */
static const char *explain(jw_store *store, const char *what, uint32_t number, uint64_t offset,
                           const char *cannot, const char *why) {
    if (!why) {
        return NULL;
    }
    jw_message message = said_about(store, what, number, offset);
    jw_message_text(&message, cannot);
    jw_message_text(&message, ": ");
    jw_message_text(&message, why);
    return store->sentence;
}

/* --- places ------------------------------------------------------------------------------- */

static uint64_t part_begin(const jw_store *store, uint32_t part) {
    return (uint64_t)part * store->plan->step_bytes;
}

static uint32_t part_before(const jw_store *store, uint32_t part) {
    return (part ? part : store->part_count) - 1;
}

static uint32_t part_behind(const jw_store *store, uint32_t part) {
    return part + 1 < store->part_count ? part + 1 : 0;
}

static uint32_t rounded_up(uint32_t bytes, uint32_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/* --- pages -------------------------------------------------------------------------------- */

/* Up to `end` in the part that is written, all in one go from where the last time has ended. */
static const char *erase_up_to(jw_store *store, uint32_t end) {
    jw_medium *medium = store->medium;
    if (!medium->erase_block_bytes || end <= store->erased) {
        return NULL;
    }
    const uint32_t begin = store->erased;
    const uint32_t bytes = rounded_up(end - begin, store->plan->erase_block_bytes);
    const char *error = medium->transfer[JW_ERASE](
        medium, part_begin(store, store->part) + begin, NULL, bytes);
    if (!error) {
        store->erased += bytes;
        store->erased_blocks += bytes / store->plan->erase_block_bytes;
    }
    return error;
}

/* To `offset` in the part that is written. Where what lies behind may be read too, it goes along to
 * the end of the last page: one transfer is faster than two, and nobody reads it. */
static const char *write_pages(jw_store *store, uint32_t offset, void *memory, uint32_t bytes,
                               size_t readable) {
    jw_medium *medium = store->medium;
    const uint32_t page_bytes = medium->page_bytes;
    const uint32_t padded = rounded_up(bytes, page_bytes);
    const uint32_t whole = padded <= readable ? padded : bytes / page_bytes * page_bytes;
    const uint64_t at = part_begin(store, store->part) + offset;
    const char *error = erase_up_to(store, offset + padded);
    if (!error && whole) {
        error = medium->transfer[JW_WRITE](medium, at, memory, whole);
    }
    if (!error && whole < bytes) {
        unsigned char *page = store->plan->memory->page;
        memset(page, 0, page_bytes);
        memcpy(page, (unsigned char *)memory + whole, bytes - whole);
        error = medium->transfer[JW_WRITE](medium, at + whole, page, page_bytes);
    }
    if (!error) {
        store->bytes_out += rounded_up(bytes, store->plan->page_bytes);
    }
    return error;
}

static const char *read_pages(jw_store *store, uint64_t at, void *memory, uint32_t bytes) {
    jw_medium *medium = store->medium;
    const uint32_t page_bytes = medium->page_bytes;
    const uint32_t whole = bytes / page_bytes * page_bytes;
    const char *error = NULL;
    if (whole) {
        error = medium->transfer[JW_READ](medium, at, memory, whole);
    }
    if (!error && whole < bytes) {
        unsigned char *page = store->plan->memory->page;
        error = medium->transfer[JW_READ](medium, at + whole, page, page_bytes);
        if (!error) {
            memcpy((unsigned char *)memory + whole, page, bytes - whole);
        }
    }
    if (!error) {
        store->bytes_in += rounded_up(bytes, store->plan->page_bytes);
    }
    return error;
}

/* --- slots -------------------------------------------------------------------------------- */

const char *jw_store_page_out(jw_store *store, uint16_t slot, void *memory, size_t readable) {
    const jw_slot *place = &store->plan->slots[slot];
    store->plan->memory->slot_checksums[slot] = jw_checksum_of(memory, place->bytes);
    const char *why = write_pages(store, place->offset, memory, place->bytes, readable);
    return explain(store, "slot ", slot, part_begin(store, store->part) + place->offset,
                   "cannot be written", why);
}

static const char *read_slot(jw_store *store, uint16_t slot, uint32_t part, uint32_t checksum,
                             void *memory) {
    const jw_slot *place = &store->plan->slots[slot];
    const uint64_t at = part_begin(store, part) + place->offset;
    const char *why = read_pages(store, at, memory, place->bytes);
    if (why) {
        return explain(store, "slot ", slot, at, "cannot be read", why);
    }
    const uint32_t found = jw_checksum_of(memory, place->bytes);
    if (found == checksum) {
        return NULL;
    }
    jw_message message = said_about(store, "slot ", slot, at);
    jw_message_text(&message, "holds other data than was written: checksum ");
    jw_message_bits(&message, found);
    jw_message_text(&message, " instead of ");
    jw_message_bits(&message, checksum);
    return store->sentence;
}

const char *jw_store_fetch(jw_store *store, uint16_t kept, void *memory) {
    const jw_plan *plan = store->plan;
    if (!store->complete) {
        return "no step is complete yet";
    }
    if (kept >= plan->kept_count || plan->kept[kept].slot == JW_NOWHERE) {
        return "nothing is kept under this number";
    }
    return read_slot(store, (uint16_t)plan->kept[kept].slot, part_before(store, store->part),
                     plan->memory->kept_checksums[kept], memory);
}

const char *jw_store_page_in(jw_store *store, uint16_t slot, bool last_step, void *memory) {
    const jw_plan *plan = store->plan;
    if (!last_step) {
        return read_slot(store, slot, store->part, plan->memory->slot_checksums[slot], memory);
    }
    uint16_t kept = 0;
    while (kept < plan->kept_count && plan->kept[kept].slot != slot) {
        kept++;
    }
    return jw_store_fetch(store, kept, memory);
}

/* --- records ------------------------------------------------------------------------------ */

static uint32_t record_words(const jw_plan *plan) {
    return JW_STEP_RECORD_BYTES(plan->kept_count) / 4 - 1; /* all but its own checksum */
}

static uint32_t record_word(const jw_store *store, uint32_t index) {
    switch (index) {
    case RECORD_MAGIC:
        return MAGIC;
    case RECORD_IDENTITY:
        return store->identity;
    case RECORD_RUN:
        return store->run;
    case RECORD_STEP:
        return store->step;
    default:
        return store->plan->memory->kept_checksums[index - RECORD_HEAD];
    }
}

/* Page by page, of what `store` says to be complete. */
static const char *write_record(jw_store *store) {
    const jw_plan *plan = store->plan;
    const uint32_t words = record_words(plan);
    const uint32_t page_words = plan->page_bytes / 4;
    uint32_t *page = (uint32_t *)(void *)plan->memory->page;
    jw_medium *medium = store->medium;
    const uint64_t begin = part_begin(store, store->part) + plan->record_offset;
    jw_checksum sum;
    jw_checksum_begin(&sum);
    const char *why =
        erase_up_to(store, plan->record_offset + rounded_up(4 * (words + 1), plan->page_bytes));
    for (uint32_t first = 0; first <= words && !why; first += page_words) {
        for (uint32_t i = 0; i < page_words; i++) {
            const uint32_t index = first + i;
            page[i] = index < words    ? record_word(store, index)
                      : index == words ? jw_checksum_end(&sum)
                                       : 0;
            if (index < words) {
                jw_checksum_add(&sum, &page[i], sizeof page[i]);
            }
        }
        why = medium->transfer[JW_WRITE](medium, begin + 4 * (uint64_t)first, page,
                                         plan->page_bytes);
        store->bytes_out += plan->page_bytes;
    }
    return explain(store, "the record of step ", store->step, begin, "cannot be written", why);
}

typedef struct {
    bool valid;
    uint32_t run, step;
} record;

/* With `take`, the checksums of what is kept go to the plan's memory. */
static const char *read_record(jw_store *store, uint32_t part, bool take, record *found) {
    const jw_plan *plan = store->plan;
    const uint32_t words = record_words(plan);
    const uint32_t page_words = plan->page_bytes / 4;
    const uint32_t *page = (const uint32_t *)(const void *)plan->memory->page;
    jw_medium *medium = store->medium;
    const uint64_t begin = part_begin(store, part) + plan->record_offset;
    jw_checksum sum;
    jw_checksum_begin(&sum);
    *found = (record){true, 0, 0};
    for (uint32_t index = 0; index <= words && found->valid; index++) {
        if (index % page_words == 0) {
            const char *why = medium->transfer[JW_READ](medium, begin + 4 * (uint64_t)index,
                                                        plan->memory->page, plan->page_bytes);
            if (why) {
                return explain(store, "the record of part ", part, begin, "cannot be read", why);
            }
            store->bytes_in += plan->page_bytes;
        }
        const uint32_t word = page[index % page_words];
        if (index == RECORD_MAGIC) {
            found->valid = word == MAGIC;
        } else if (index == RECORD_IDENTITY) {
            found->valid = word == store->identity;
        } else if (index == RECORD_RUN) {
            found->run = word;
        } else if (index == RECORD_STEP) {
            found->step = word;
        } else if (index == words) {
            found->valid = word == jw_checksum_end(&sum);
        } else if (take) {
            plan->memory->kept_checksums[index - RECORD_HEAD] = word;
        }
        jw_checksum_add(&sum, &word, sizeof word);
    }
    return NULL;
}

static bool is_newer(const record *a, const record *b) {
    return !b->valid || a->run > b->run || (a->run == b->run && a->step > b->step);
}

/* A part whose record cannot be read holds none: only where no part's can, that is told. */
static const char *find_newest(jw_store *store, record *newest, uint32_t *part) {
    const char *error = NULL;
    bool readable = false;
    *newest = (record){false, 0, 0};
    for (uint32_t candidate = 0; candidate < store->part_count; candidate++) {
        record found;
        const char *why = read_record(store, candidate, false, &found);
        if (why) {
            error = why;
            continue;
        }
        readable = true;
        if (found.valid && is_newer(&found, newest)) {
            *newest = found;
            *part = candidate;
        }
    }
    return readable ? NULL : error;
}

/* --- steps -------------------------------------------------------------------------------- */

void jw_store_begin_step(jw_store *store) {
    store->erased = 0;
}

/* Behind the newest step of all runs, so that wear goes on where it was. */
static const char *begin_run(jw_store *store) {
    record newest = {false, 0, 0};
    uint32_t part = store->part_count - 1;
    const char *error = store->plan->kept_count ? find_newest(store, &newest, &part) : NULL;
    store->begun = !error;
    store->complete = false;
    store->run = newest.valid ? newest.run + 1 : 0;
    store->part = part_behind(store, part);
    jw_store_begin_step(store);
    return error;
}

const char *jw_store_keep(jw_store *store, uint16_t kept, void *memory, size_t readable) {
    const jw_plan *plan = store->plan;
    if (kept >= plan->kept_count || plan->kept[kept].slot == JW_NOWHERE) {
        return "nothing is kept under this number";
    }
    const char *error = store->begun ? NULL : begin_run(store);
    return error ? error
                 : jw_store_page_out(store, (uint16_t)plan->kept[kept].slot, memory, readable);
}

const char *jw_store_complete(jw_store *store) {
    const jw_plan *plan = store->plan;
    const jw_plan_memory *memory = plan->memory;
    const char *error = store->begun || store->complete ? NULL : begin_run(store);
    if (error) {
        return error;
    }
    for (uint16_t kept = 0; kept < plan->kept_count; kept++) {
        const uint32_t slot = plan->kept[kept].slot;
        memory->kept_checksums[kept] = slot == JW_NOWHERE ? 0 : memory->slot_checksums[slot];
    }
    store->step = store->complete ? store->step + 1 : 0;
    error = plan->kept_count ? write_record(store) : NULL;
    if (error) {
        store->complete = false; /* jw_store_recover finds the one before */
        return error;
    }
    store->begun = false;
    store->complete = true;
    store->part = part_behind(store, store->part);
    jw_store_begin_step(store);
    return NULL;
}

const char *jw_store_recover(jw_store *store) {
    record newest;
    uint32_t part = 0;
    const char *error = find_newest(store, &newest, &part);
    store->begun = store->complete = false;
    if (!error && newest.valid) {
        error = read_record(store, part, true, &newest);
    }
    if (error) {
        return error;
    }
    if (!newest.valid) {
        return "the storage holds no complete step of this plan";
    }
    store->complete = true;
    store->run = newest.run;
    store->step = newest.step;
    store->part = part_behind(store, part);
    jw_store_begin_step(store);
    return NULL;
}

/* --- opening ------------------------------------------------------------------------------ */

static void add_word(jw_checksum *sum, uint32_t word) {
    jw_checksum_add(sum, &word, sizeof word);
}

/* Of everything that says what a step leaves where, and how it comes to it; not of the kernels. */
static uint32_t identity(const jw_plan *plan) {
    jw_checksum sum;
    jw_checksum_begin(&sum);
    for (const char *letter = plan->name; *letter; letter++) {
        add_word(&sum, (uint32_t)(unsigned char)*letter);
    }
    add_word(&sum, plan->arena_bytes);
    add_word(&sum, plan->step_bytes);
    add_word(&sum, plan->record_offset);
    add_word(&sum, plan->page_bytes);
    for (uint16_t i = 0; i < plan->slot_count; i++) {
        add_word(&sum, plan->slots[i].offset);
        add_word(&sum, plan->slots[i].bytes);
    }
    for (uint16_t i = 0; i < plan->kept_count; i++) {
        add_word(&sum, plan->kept[i].address);
        add_word(&sum, plan->kept[i].bytes);
        add_word(&sum, plan->kept[i].slot);
    }
    for (uint16_t i = 0; i < plan->action_count; i++) {
        const jw_action *action = &plan->actions[i];
        add_word(&sum, (uint32_t)action->verb << 16 | action->index);
        add_word(&sum, action->address);
    }
    return jw_checksum_end(&sum);
}

const char *jw_store_open(jw_store *store, const jw_plan *plan, jw_medium *medium) {
    const uint32_t block_bytes = plan->erase_block_bytes;
    memset(store, 0, sizeof *store);
    if (plan->page_bytes % medium->page_bytes || plan->page_bytes % 4 || !plan->step_bytes) {
        return "the plan's pages are not whole pages of the storage";
    }
    if (medium->erase_block_bytes &&
        (!block_bytes || block_bytes % medium->erase_block_bytes ||
         plan->step_bytes % block_bytes)) {
        return "the plan's erase blocks are not whole erase blocks of the storage";
    }
    store->plan = plan;
    store->medium = medium;
    store->part_count = (uint32_t)(medium->scratch_bytes / plan->step_bytes);
    if (store->part_count < (plan->kept_count ? 2u : 1u)) {
        jw_message message;
        jw_message_begin(&message, store->sentence, sizeof store->sentence);
        jw_message_text(&message, "the storage has ");
        jw_message_number(&message, medium->scratch_bytes);
        jw_message_text(&message, " bytes for steps that write ");
        jw_message_number(&message, plan->step_bytes);
        jw_message_text(&message, plan->kept_count ? " each; two have to fit" : "");
        return store->sentence;
    }
    store->identity = identity(plan);
    return NULL;
}
