#include "store.h"

#include <string.h>

#include "checksum.h"
#include "packing.h"
#include "store_frozen.h"
#include "store_pages.h"
#include "store_record.h"
#include "store_rows.h"

/* Parts of a medium that needs no erasing: what levels its wear is its controller, if any. A run
 * begins by reading the record of each part. */
#define MOST_PARTS_UNERASED 8u

/* --- places ------------------------------------------------------------------------------- */

uint32_t jw_store_part_before(const jw_store *store, uint32_t part) {
    return (part ? part : store->part_count) - 1;
}

static uint32_t part_after(const jw_store *store, uint32_t part) {
    return part + 1 < store->part_count ? part + 1 : 0;
}

/* --- slots -------------------------------------------------------------------------------- */

/* Number of packed words that this step has written to a slot; NULL if it is not packed. */
static uint32_t *packed_words_of(const jw_store *store, uint16_t slot) {
    const jw_plan *plan = store->plan;
    for (uint16_t i = 0; i < plan->packed_count; i++) {
        if (plan->packed_slots[i] == slot) {
            return &plan->memory->packed_words[i];
        }
    }
    return NULL;
}

/* A tensor of a slot in RAM; the buffer of a page, which no transfer uses meanwhile, is its ring. */
static jw_packing packing_of(const jw_store *store, uint16_t slot, void *memory) {
    const jw_plan *plan = store->plan;
    const jw_packing tensor = {memory, plan->slots[slot].bytes / (uint32_t)sizeof(uint32_t),
                               (jw_packed *)(void *)plan->memory->page,
                               plan->page_bytes / (uint32_t)sizeof(uint32_t)};
    return tensor;
}

/* Write `bytes` to a slot, which has room for all of its tensor. */
static const char *write_slot(jw_store *store, uint16_t slot, void *memory, uint32_t bytes,
                              size_t readable) {
    const jw_slot *place = &store->plan->slots[slot];
    store->plan->memory->slot_checksums[slot] = jw_checksum_of(memory, bytes);
    const uint64_t at = jw_store_part_begin(store, store->part) + place->offset;
    const char *why = jw_store_erase_up_to(
        store, place->offset + jw_store_rounded_up(place->bytes, store->medium->page_bytes));
    if (!why) {
        why = jw_store_write_pages(store, at, memory, bytes, readable);
    }
    return jw_store_explain(store, "slot ", slot, at, "cannot be written", why);
}

const char *jw_store_page_out(jw_store *store, uint16_t slot, void *memory, size_t readable) {
    uint32_t *packed = packed_words_of(store, slot);
    if (!packed) {
        return write_slot(store, slot, memory, store->plan->slots[slot].bytes, readable);
    }
    const jw_packing tensor = packing_of(store, slot, memory);
    *packed = jw_packed_words(tensor.words, tensor.count, tensor.ring_words);
    const bool shorter = *packed < tensor.count;
    if (shorter) {
        jw_pack(&tensor);
    }
    const uint32_t bytes = *packed * (uint32_t)sizeof(uint32_t);
    const char *error = write_slot(store, slot, memory, bytes, readable);
    if (shorter) { /* the tensor may be read on */
        jw_unpack(&tensor, *packed);
    }
    return error;
}

static const char *read_slot(jw_store *store, uint16_t slot, uint32_t part, uint32_t checksum,
                             void *memory, uint32_t bytes) {
    const uint64_t at = jw_store_part_begin(store, part) + store->plan->slots[slot].offset;
    return jw_store_read_checked(store, "slot ", slot, at, memory, bytes, checksum);
}

static const char *page_in_of_this_step(jw_store *store, uint16_t slot, void *memory) {
    const uint32_t checksum = store->plan->memory->slot_checksums[slot];
    const uint32_t *packed = packed_words_of(store, slot);
    if (!packed) {
        const uint32_t bytes = store->plan->slots[slot].bytes;
        return read_slot(store, slot, store->part, checksum, memory, bytes);
    }
    const jw_packing tensor = packing_of(store, slot, memory);
    const uint32_t bytes = *packed * (uint32_t)sizeof(uint32_t);
    const char *error = read_slot(store, slot, store->part, checksum, memory, bytes);
    if (!error && *packed < tensor.count) {
        jw_unpack(&tensor, *packed);
    }
    return error;
}

const char *jw_store_fetch(jw_store *store, uint16_t kept, void *memory) {
    const jw_plan *plan = store->plan;
    if (!store->complete) {
        return "no step is complete yet";
    }
    if (kept >= plan->kept_count || plan->kept[kept].slot == JW_NO_SLOT) {
        return "nothing is kept under this number";
    }
    const uint16_t slot = plan->kept[kept].slot;
    return read_slot(store, slot, jw_store_part_before(store, store->part),
                     plan->memory->kept_checksums[kept], memory, plan->slots[slot].bytes);
}

const char *jw_store_page_in(jw_store *store, uint16_t index, jw_copy copy, void *memory) {
    const jw_plan *plan = store->plan;
    if (copy == JW_OF_FROZEN) {
        return jw_store_page_in_frozen(store, index, memory);
    }
    if (copy == JW_OF_THIS_STEP) {
        return page_in_of_this_step(store, index, memory);
    }
    uint16_t kept = 0;
    while (kept < plan->kept_count && plan->kept[kept].slot != index) {
        kept++;
    }
    return jw_store_fetch(store, kept, memory);
}

/* --- steps -------------------------------------------------------------------------------- */

void jw_store_begin_step(jw_store *store) {
    store->erased = 0;
}

/* Begin a run in the part after the newest step of all runs, so that wear stays even. Each
 * unreadable record may be of one more run, which the new run's number takes into account. */
const char *jw_store_begin_run(jw_store *store) {
    jw_newest_record newest = {.part = store->part_count - 1};
    const char *error = jw_store_require_frozen(store);
    if (error) {
        return error;
    }
    error = store->plan->kept_count ? jw_store_find_newest(store, &newest) : NULL;
    store->begun = !error;
    store->complete = false;
    store->run = (newest.record.valid ? newest.record.run + 1 : 0) + newest.unreadable;
    store->part = part_after(store, newest.part);
    jw_store_begin_step(store);
    jw_store_forget_rows(store);
    if (!error && jw_store_has_tables(store->plan)) {
        error = jw_store_wipe_records(store);
        store->begun = !error;
    }
    return error;
}

const char *jw_store_keep(jw_store *store, uint16_t kept, void *memory, size_t readable) {
    const jw_plan *plan = store->plan;
    if (kept >= plan->kept_count || plan->kept[kept].slot == JW_NO_SLOT) {
        return "nothing is kept under this number";
    }
    const char *error = store->begun ? NULL : jw_store_begin_run(store);
    return error ? error : jw_store_page_out(store, plan->kept[kept].slot, memory, readable);
}

const char *jw_store_complete(jw_store *store) {
    const jw_plan *plan = store->plan;
    const jw_plan_memory *memory = plan->memory;
    const char *error = store->begun || store->complete ? NULL : jw_store_begin_run(store);
    if (error) {
        return error;
    }
    for (uint16_t kept = 0; kept < plan->kept_count; kept++) {
        const uint16_t slot = plan->kept[kept].slot;
        memory->kept_checksums[kept] = slot == JW_NO_SLOT ? 0 : memory->slot_checksums[slot];
    }
    store->step = store->complete ? store->step + 1 : 0;
    error = plan->kept_count ? jw_store_write_record(store) : NULL;
    if (error) {
        store->complete = false; /* jw_store_recover finds the step before */
        return error;
    }
    store->begun = false;
    store->complete = true;
    store->settled = false;
    store->part = part_after(store, store->part);
    jw_store_begin_step(store);
    return NULL;
}

const char jw_store_has_no_step[] = "the storage holds no complete step of this plan";

const char *jw_store_recover(jw_store *store) {
    jw_newest_record newest = {.part = 0};
    store->begun = store->complete = store->settled = false;
    const char *error = jw_store_recover_frozen(store);
    if (!error) {
        error = jw_store_find_newest(store, &newest);
    }
    if (!error && newest.record.valid) {
        error = jw_store_read_record(store, newest.part, true, &newest.record);
    }
    if (error) {
        return error;
    }
    if (!newest.record.valid) {
        return jw_store_has_no_step;
    }
    store->complete = true;
    store->run = newest.record.run;
    store->step = newest.record.step;
    store->part = part_after(store, newest.part);
    jw_store_begin_step(store);
    return NULL;
}

/* --- opening ------------------------------------------------------------------------------ */

static void add_word(jw_checksum *sum, uint32_t word) {
    jw_checksum_add(sum, &word, sizeof word);
}

/* Checksum of what defines a step's values and their places: the plan, without the kernels, and the
 * frozen values. */
uint32_t jw_store_identity(const jw_store *store) {
    const jw_plan *plan = store->plan;
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
    for (uint16_t i = 0; i < plan->packed_count; i++) {
        add_word(&sum, plan->packed_slots[i]);
    }
    for (uint16_t i = 0; i < plan->kept_count; i++) {
        add_word(&sum, plan->kept[i].address);
        add_word(&sum, plan->kept[i].words);
        add_word(&sum, plan->kept[i].slot);
    }
    for (uint16_t i = 0; i < plan->table_count; i++) {
        add_word(&sum, plan->tables[i].offset);
        add_word(&sum, plan->tables[i].row_bytes);
        add_word(&sum, plan->tables[i].row_count);
    }
    for (uint16_t i = 0; i < plan->action_count; i++) {
        const jw_action *action = &plan->actions[i];
        add_word(&sum, (uint32_t)action->verb << 16 | action->index);
        add_word(&sum, action->address);
    }
    if (jw_store_has_frozen(plan)) {
        add_word(&sum, plan->frozen_bytes);
        add_word(&sum, (uint32_t)store->frozen_key);
        add_word(&sum, (uint32_t)(store->frozen_key >> 32));
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
         plan->step_bytes % block_bytes || plan->frozen_bytes % block_bytes)) {
        return "the plan's erase blocks are not whole erase blocks of the storage";
    }
    if (medium->erase_block_bytes && jw_store_has_tables(plan)) {
        return "the plan writes single rows of tables, which storage that is erased in blocks "
               "cannot";
    }
    store->plan = plan;
    store->medium = medium;
    const uint64_t before = jw_store_part_begin(store, 0);
    const uint64_t parts =
        medium->scratch_bytes < before ? 0 : (medium->scratch_bytes - before) / plan->step_bytes;
    const uint32_t most = medium->erase_block_bytes ? UINT32_MAX : MOST_PARTS_UNERASED;
    store->part_count = parts < most ? (uint32_t)parts : most;
    if (store->part_count < (plan->kept_count ? 2u : 1u)) {
        jw_message message;
        jw_message_begin(&message, store->sentence, sizeof store->sentence);
        jw_message_text(&message, "the storage has ");
        jw_message_number(&message, medium->scratch_bytes);
        jw_message_text(&message, " bytes for steps that write ");
        jw_message_number(&message, plan->step_bytes);
        jw_message_text(&message, plan->kept_count ? " each; two must fit" : "");
        if (before) {
            jw_message_text(&message, plan->frozen_bytes ? ", after the frozen values of "
                                                         : ", after the tables of ");
            jw_message_number(&message, before);
            jw_message_text(&message, " bytes");
        }
        return store->sentence;
    }
    store->identity = jw_store_identity(store);
    return NULL;
}
