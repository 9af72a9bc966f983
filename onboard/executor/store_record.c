#include "store_record.h"

#include <string.h>

#include "checksum.h"
#include "store_pages.h"

#define MAGIC 0x3153574au /* "JWS1" */

enum { RECORD_MAGIC, RECORD_IDENTITY, RECORD_RUN, RECORD_STEP, RECORD_HEAD };

static uint32_t record_words(const jw_plan *plan) {
    /* without its own checksum */
    return JW_STEP_RECORD_BYTES(plan->kept_count, plan->row_count) / 4 - 1;
}

/* Place in RAM of a word after the head: a checksum of a kept tensor, or a selected row. */
static uint32_t *word_after_head(const jw_plan *plan, uint32_t index) {
    const uint32_t number = index - RECORD_HEAD;
    return number < plan->kept_count ? &plan->memory->kept_checksums[number]
                                     : &plan->memory->rows[number - plan->kept_count];
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
        return *word_after_head(store->plan, index);
    }
}

const char *jw_store_write_record(jw_store *store) {
    const jw_plan *plan = store->plan;
    const uint32_t words = record_words(plan);
    const uint32_t page_words = plan->page_bytes / 4;
    jw_word *page = (jw_word *)(void *)plan->memory->page;
    jw_medium *medium = store->medium;
    const uint64_t begin = jw_store_part_begin(store, store->part) + plan->record_offset;
    jw_checksum sum;
    jw_checksum_begin(&sum);
    const uint32_t bytes = jw_store_rounded_up(4 * (words + 1), plan->page_bytes);
    const char *why = jw_store_erase_up_to(store, plan->record_offset + bytes);
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
        why =
            medium->transfer[JW_WRITE](medium, begin + 4 * (uint64_t)first, page, plan->page_bytes);
        store->bytes_out += plan->page_bytes;
    }
    return jw_store_explain(store, "the record of step ", store->step, begin, "cannot be written",
                            why);
}

const char *jw_store_read_record(jw_store *store, uint32_t part, bool take,
                                 jw_record_found *found) {
    const jw_plan *plan = store->plan;
    const uint32_t words = record_words(plan);
    const uint32_t page_words = plan->page_bytes / 4;
    const jw_word *page = (const jw_word *)(const void *)plan->memory->page;
    jw_medium *medium = store->medium;
    const uint64_t begin = jw_store_part_begin(store, part) + plan->record_offset;
    jw_checksum sum;
    jw_checksum_begin(&sum);
    *found = (jw_record_found){true, 0, 0};
    for (uint32_t index = 0; index <= words && found->valid; index++) {
        if (index % page_words == 0) {
            const char *why = medium->transfer[JW_READ](medium, begin + 4 * (uint64_t)index,
                                                        plan->memory->page, plan->page_bytes);
            if (why) {
                return jw_store_explain(store, "the record of part ", part, begin, "cannot be read",
                                        why);
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
            *word_after_head(plan, index) = word;
        }
        jw_checksum_add(&sum, &word, sizeof word);
    }
    return NULL;
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
