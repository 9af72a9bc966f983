#include "store_frozen.h"

#include <string.h>

#include "checksum.h"
#include "store_pages.h"
#include "store_record.h"
#include "store_rows.h"

#define MAGIC 0x3146574au /* "JWF1" */

static const char nothing_frozen[] = "nothing is frozen under this number";

bool jw_store_has_frozen(const jw_plan *plan) {
    return plan->frozen_bytes > 0;
}

/* --- the record --------------------------------------------------------------------------- */

/* Checksum of the places of all frozen values. They are the same for all schedules of a network, so
 * that another schedule finds the values that an earlier one has left. */
static uint32_t identity_of_places(const jw_plan *plan) {
    jw_checksum sum;
    jw_checksum_begin(&sum);
    jw_checksum_add(&sum, &plan->page_bytes, sizeof plan->page_bytes);
    jw_checksum_add(&sum, &plan->frozen_record_offset, sizeof plan->frozen_record_offset);
    jw_checksum_add(&sum, plan->frozen, plan->frozen_count * sizeof *plan->frozen);
    for (uint16_t i = 0; i < plan->table_count; i++) {
        const jw_table *table = &plan->tables[i];
        if (table->kept == JW_NOT_KEPT) {
            jw_checksum_add(&sum, &table->offset, sizeof table->offset);
            jw_checksum_add(&sum, &table->row_bytes, sizeof table->row_bytes);
            jw_checksum_add(&sum, &table->row_count, sizeof table->row_count);
        }
    }
    return jw_checksum_end(&sum);
}

static jw_saved_record record_of(const jw_store *store) {
    const jw_plan *plan = store->plan;
    return (jw_saved_record){
        .at = plan->frozen_record_offset,
        .magic = MAGIC,
        .identity = identity_of_places(plan),
        .numbers = {(uint32_t)store->frozen_key, (uint32_t)(store->frozen_key >> 32)},
        .saved = {{plan->memory->frozen_checksums, plan->frozen_count}},
    };
}

/* Read the record; store->is_frozen says whether it is whole, store->frozen_key what it states. */
static const char *read_record(jw_store *store) {
    jw_saved_record record = record_of(store);
    const char *why = jw_store_load(store, &record, true, &store->is_frozen);
    if (why) {
        return jw_store_explain(store, "the record of frozen part ", 0, record.at, "cannot be read",
                                why);
    }
    store->frozen_key = (uint64_t)record.numbers[1] << 32 | record.numbers[0];
    store->identity = jw_store_identity(store);
    return NULL;
}

/* Erase the record's blocks, or overwrite its first page: a page of zeros has no magic. */
static const char *wipe_record(jw_store *store) {
    const jw_plan *plan = store->plan;
    const uint32_t begin = plan->frozen_record_offset;
    const char *why;
    if (store->medium->erase_block_bytes) {
        why = jw_store_erase(store, begin, plan->frozen_bytes - begin);
    } else {
        memset(plan->memory->page, 0, plan->page_bytes);
        why = store->medium->transfer[JW_WRITE](store->medium, begin, plan->memory->page,
                                                plan->page_bytes);
        store->bytes_out += why ? 0 : plan->page_bytes;
    }
    return jw_store_explain(store, "the record of frozen part ", 0, begin, "cannot be wiped", why);
}

static const char *write_record(jw_store *store) {
    const jw_saved_record record = record_of(store);
    const char *why = jw_store_save(store, &record);
    store->is_frozen = !why;
    store->identity = jw_store_identity(store);
    return jw_store_explain(store, "the record of frozen part ", 0, record.at, "cannot be written",
                            why);
}

const char *jw_store_require_frozen(jw_store *store) {
    return !jw_store_has_frozen(store->plan) || store->is_frozen
               ? NULL
               : "the frozen values must be written to the storage first";
}

const char *jw_store_recover_frozen(jw_store *store) {
    if (!jw_store_has_frozen(store->plan)) {
        return NULL;
    }
    const char *error = read_record(store);
    return error || store->is_frozen ? error
                                     : "the storage does not hold all frozen values of this plan";
}

/* --- values ------------------------------------------------------------------------------- */

const char *jw_store_forget_frozen(jw_store *store) {
    store->begun = store->complete = store->is_frozen = false;
    store->frozen_end = store->frozen_erased = 0;
    return wipe_record(store);
}

const char *jw_store_begin_frozen(jw_store *store, uint64_t key) {
    if (!jw_store_has_frozen(store->plan)) {
        return "this plan has no frozen values in storage";
    }
    const char *error = read_record(store);
    if (!error && store->is_frozen && store->frozen_key == key) {
        return NULL;
    }
    store->frozen_key = key;
    return jw_store_forget_frozen(store);
}

const char *jw_store_verify_frozen(jw_store *store, uint16_t frozen, void *memory) {
    if (frozen >= store->plan->frozen_count) {
        return nothing_frozen;
    }
    const bool is_whole = !store->is_frozen || !jw_store_page_in_frozen(store, frozen, memory);
    return is_whole ? NULL : jw_store_forget_frozen(store);
}

const char *jw_store_begin_freezing(jw_store *store, uint64_t at, uint32_t bytes) {
    const jw_plan *plan = store->plan;
    const uint32_t block = plan->erase_block_bytes;
    if (at != store->frozen_end || store->is_frozen) {
        return "frozen values must be written in the order of their places";
    }
    const uint64_t end = at + bytes;
    if (!store->medium->erase_block_bytes || end <= store->frozen_erased) {
        return NULL;
    }
    const uint32_t up_to = jw_store_rounded_up((uint32_t)end, block);
    const char *error = jw_store_erase(store, store->frozen_erased, up_to - store->frozen_erased);
    store->frozen_erased = error ? store->frozen_erased : up_to;
    return error;
}

/* End of the last frozen value. */
static uint64_t end_of_values(const jw_plan *plan) {
    for (uint16_t i = plan->table_count; i-- > 0;) {
        const jw_table *table = &plan->tables[i];
        if (table->kept == JW_NOT_KEPT) {
            return table->offset + (uint64_t)table->row_count * jw_store_row_stride(plan, table);
        }
    }
    const jw_slot *last = &plan->frozen[plan->frozen_count - 1];
    return (uint64_t)last->offset + jw_store_rounded_up(last->bytes, plan->page_bytes);
}

const char *jw_store_frozen_up_to(jw_store *store, uint64_t end) {
    store->frozen_end = (uint32_t)end;
    return end == end_of_values(store->plan) ? write_record(store) : NULL;
}

const char *jw_store_freeze(jw_store *store, uint16_t frozen, void *memory, size_t readable) {
    const jw_plan *plan = store->plan;
    if (frozen >= plan->frozen_count) {
        return nothing_frozen;
    }
    if (store->is_frozen) {
        return NULL;
    }
    const jw_slot *place = &plan->frozen[frozen];
    const uint32_t bytes = jw_store_rounded_up(place->bytes, plan->page_bytes);
    const char *why = jw_store_begin_freezing(store, place->offset, bytes);
    if (!why) {
        plan->memory->frozen_checksums[frozen] = jw_checksum_of(memory, place->bytes);
        why = jw_store_write_pages(store, place->offset, memory, place->bytes, readable);
    }
    return why ? jw_store_explain(store, "frozen tensor ", frozen, place->offset,
                                  "cannot be written", why)
               : jw_store_frozen_up_to(store, (uint64_t)place->offset + bytes);
}

const char *jw_store_page_in_frozen(jw_store *store, uint16_t frozen, void *memory) {
    const char *error = jw_store_require_frozen(store);
    if (error) {
        return error;
    }
    const jw_slot *place = &store->plan->frozen[frozen];
    return jw_store_read_checked(store, "frozen tensor ", frozen, place->offset, memory,
                                 place->bytes, store->plan->memory->frozen_checksums[frozen]);
}
