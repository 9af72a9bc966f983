#include "store_record.h"

#include <string.h>

#include "checksum.h"
#include "store_pages.h"

#define MAGIC 0x3153574au /* "JWS1" */

enum { RECORD_MAGIC, RECORD_IDENTITY, RECORD_NUMBERS, RECORD_HEAD = RECORD_NUMBERS + 2 };

/* --- any record --------------------------------------------------------------------------- */

/* Words without its own checksum. */
static uint32_t record_words(const jw_saved_record *record) {
    return RECORD_HEAD + record->saved[0].count + record->saved[1].count;
}

/* Place in RAM of a word after magic and identity. */
static uint32_t *word_of(jw_saved_record *record, uint32_t index) {
    if (index < RECORD_HEAD) {
        return &record->numbers[index - RECORD_NUMBERS];
    }
    const uint32_t number = index - RECORD_HEAD, first = record->saved[0].count;
    return number < first ? &record->saved[0].words[number]
                          : &record->saved[1].words[number - first];
}

static uint32_t record_word(const jw_saved_record *record, uint32_t index) {
    jw_saved_record copy = *record;
    return index == RECORD_MAGIC      ? record->magic
           : index == RECORD_IDENTITY ? record->identity
                                      : *word_of(&copy, index);
}

static uint32_t checksum_of(const jw_saved_record *record) {
    const uint32_t words = record_words(record);
    jw_checksum sum;
    jw_checksum_begin(&sum);
    for (uint32_t index = 0; index < words; index++) {
        const uint32_t word = record_word(record, index);
        jw_checksum_add(&sum, &word, sizeof word);
    }
    return jw_checksum_end(&sum);
}

/* The magic is written last: while it is wiped, no page of an older record can make a whole one. */
const char *jw_store_save(jw_store *store, const jw_saved_record *record) {
    const jw_plan *plan = store->plan;
    const uint32_t words = record_words(record), checksum = checksum_of(record);
    const uint32_t page_words = plan->page_bytes / 4;
    jw_word *page = (jw_word *)(void *)plan->memory->page;
    jw_medium *medium = store->medium;
    const char *why = NULL;
    for (uint32_t number = words / page_words + 1; number-- > 0 && !why;) {
        for (uint32_t i = 0; i < page_words; i++) {
            const uint32_t index = number * page_words + i;
            page[i] = index < words ? record_word(record, index) : index == words ? checksum : 0;
        }
        why = medium->transfer[JW_WRITE](medium, record->at + (uint64_t)number * plan->page_bytes,
                                         page, plan->page_bytes);
        store->bytes_out += plan->page_bytes;
    }
    return why;
}

const char *jw_store_load(jw_store *store, jw_saved_record *record, bool take, bool *valid) {
    const jw_plan *plan = store->plan;
    const uint32_t words = record_words(record);
    const uint32_t page_words = plan->page_bytes / 4;
    const jw_word *page = (const jw_word *)(const void *)plan->memory->page;
    jw_medium *medium = store->medium;
    jw_checksum sum;
    jw_checksum_begin(&sum);
    *valid = true;
    for (uint32_t index = 0; index <= words && *valid; index++) {
        if (index % page_words == 0) {
            const char *why = medium->transfer[JW_READ](medium, record->at + 4 * (uint64_t)index,
                                                        plan->memory->page, plan->page_bytes);
            if (why) {
                *valid = false;
                return why;
            }
            store->bytes_in += plan->page_bytes;
        }
        const uint32_t word = page[index % page_words];
        if (index == RECORD_MAGIC) {
            *valid = word == record->magic;
        } else if (index == RECORD_IDENTITY) {
            *valid = word == record->identity;
        } else if (index == words) {
            *valid = word == jw_checksum_end(&sum);
        } else if (index < RECORD_HEAD || take) {
            *word_of(record, index) = word;
        }
        jw_checksum_add(&sum, &word, sizeof word);
    }
    return NULL;
}

/* --- the records of steps ----------------------------------------------------------------- */

static jw_saved_record record_of_step(const jw_store *store, uint32_t part) {
    const jw_plan *plan = store->plan;
    return (jw_saved_record){
        .at = jw_store_part_begin(store, part) + plan->record_offset,
        .magic = MAGIC,
        .identity = store->identity,
        .numbers = {store->run, store->step},
        .saved = {{plan->memory->kept_checksums, plan->kept_count},
                  {plan->memory->rows, plan->row_count}},
    };
}

const char *jw_store_write_record(jw_store *store) {
    const jw_plan *plan = store->plan;
    const jw_saved_record record = record_of_step(store, store->part);
    const uint32_t bytes = jw_store_rounded_up(
        JW_STEP_RECORD_BYTES(plan->kept_count, plan->row_count), plan->page_bytes);
    const char *why = jw_store_erase_up_to(store, plan->record_offset + bytes);
    if (!why) {
        why = jw_store_save(store, &record);
    }
    return jw_store_explain(store, "the record of step ", store->step, record.at,
                            "cannot be written", why);
}

const char *jw_store_read_record(jw_store *store, uint32_t part, bool take,
                                 jw_record_found *found) {
    jw_saved_record record = record_of_step(store, part);
    const char *why = jw_store_load(store, &record, take, &found->valid);
    found->run = record.numbers[0];
    found->step = record.numbers[1];
    return jw_store_explain(store, "the record of part ", part, record.at, "cannot be read", why);
}

/* A page of zeros has no magic. */
const char *jw_store_wipe_record(jw_store *store, uint32_t part) {
    const jw_plan *plan = store->plan;
    jw_medium *medium = store->medium;
    const uint64_t begin = jw_store_part_begin(store, part) + plan->record_offset;
    memset(plan->memory->page, 0, plan->page_bytes);
    const char *why =
        medium->transfer[JW_WRITE](medium, begin, plan->memory->page, plan->page_bytes);
    store->bytes_out += why ? 0 : plan->page_bytes;
    return jw_store_explain(store, "the record of part ", part, begin, "cannot be wiped", why);
}

const char *jw_store_wipe_records(jw_store *store) {
    const char *error = NULL;
    for (uint32_t part = 0; part < store->part_count && !error; part++) {
        jw_record_found found;
        const char *unread = jw_store_read_record(store, part, false, &found);
        error = unread || found.valid ? jw_store_wipe_record(store, part) : NULL;
    }
    return error;
}

static bool is_newer(const jw_record_found *a, const jw_record_found *b) {
    return !b->valid || a->run > b->run || (a->run == b->run && a->step > b->step);
}

/* An unreadable record counts as invalid; it is an error only if all are unreadable. */
const char *jw_store_find_newest(jw_store *store, jw_newest_record *newest) {
    const char *error = NULL;
    *newest = (jw_newest_record){.part = store->part_count - 1};
    for (uint32_t candidate = 0; candidate < store->part_count; candidate++) {
        jw_record_found found;
        const char *why = jw_store_read_record(store, candidate, false, &found);
        if (why) {
            error = why;
            newest->unreadable++;
        } else if (found.valid && is_newer(&found, &newest->record)) {
            newest->record = found;
            newest->part = candidate;
        }
    }
    return newest->unreadable < store->part_count ? NULL : error;
}
