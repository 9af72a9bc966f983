#include "store_pages.h"

#include <string.h>

#include "checksum.h"

/* --- sentences ---------------------------------------------------------------------------- */

jw_message jw_store_about(jw_store *store, const char *what, uint32_t number, uint64_t offset) {
    jw_message message;
    jw_message_begin(&message, store->sentence, sizeof store->sentence);
    jw_message_text(&message, what);
    jw_message_number(&message, number);
    jw_message_text(&message, " at byte ");
    jw_message_number(&message, offset);
    jw_message_text(&message, " of the storage ");
    return message;
}

const char *jw_store_explain(jw_store *store, const char *what, uint32_t number, uint64_t offset,
                             const char *cannot, const char *why) {
    if (!why) {
        return NULL;
    }
    jw_message message = jw_store_about(store, what, number, offset);
    jw_message_text(&message, cannot);
    jw_message_text(&message, ": ");
    jw_message_text(&message, why);
    return store->sentence;
}

/* --- places ------------------------------------------------------------------------------- */

uint64_t jw_store_part_begin(const jw_store *store, uint32_t part) {
    const jw_plan *plan = store->plan;
    return (uint64_t)plan->frozen_bytes + plan->table_bytes + (uint64_t)part * plan->step_bytes;
}

uint32_t jw_store_rounded_up(uint32_t bytes, uint32_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/* --- pages -------------------------------------------------------------------------------- */

const char *jw_store_erase(jw_store *store, uint64_t at, uint32_t bytes) {
    jw_medium *medium = store->medium;
    if (!medium->erase_block_bytes || !bytes) {
        return NULL;
    }
    const char *error = medium->transfer[JW_ERASE](medium, at, NULL, bytes);
    store->erased_blocks += error ? 0 : bytes / store->plan->erase_block_bytes;
    return error;
}

const char *jw_store_erase_up_to(jw_store *store, uint32_t end) {
    if (!store->medium->erase_block_bytes || end <= store->erased) {
        return NULL;
    }
    const uint32_t begin = store->erased;
    const uint32_t bytes = jw_store_rounded_up(end - begin, store->plan->erase_block_bytes);
    const char *error =
        jw_store_erase(store, jw_store_part_begin(store, store->part) + begin, bytes);
    store->erased += error ? 0 : bytes;
    return error;
}

/* If the bytes after the tensor are readable, they are written too, up to the end of the last page:
 * one transfer is faster than two, and they are never read back. */
const char *jw_store_write_pages(jw_store *store, uint64_t at, void *memory, uint32_t bytes,
                                 size_t readable) {
    jw_medium *medium = store->medium;
    const uint32_t page_bytes = medium->page_bytes;
    const uint32_t padded = jw_store_rounded_up(bytes, page_bytes);
    const uint32_t whole = padded <= readable ? padded : bytes / page_bytes * page_bytes;
    const char *error = NULL;
    if (whole) {
        error = medium->transfer[JW_WRITE](medium, at, memory, whole);
    }
    if (!error && whole < bytes) {
        unsigned char *page = store->plan->memory->page;
        memset(page, 0, page_bytes);
        memcpy(page, (unsigned char *)memory + whole, bytes - whole);
        error = medium->transfer[JW_WRITE](medium, at + whole, page, page_bytes);
    }
    if (!error) {
        store->bytes_out += jw_store_rounded_up(bytes, store->plan->page_bytes);
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
        store->bytes_in += jw_store_rounded_up(bytes, store->plan->page_bytes);
    }
    return error;
}

const char *jw_store_read_checked(jw_store *store, const char *what, uint32_t number, uint64_t at,
                                  void *memory, uint32_t bytes, uint32_t checksum) {
    const char *why = read_pages(store, at, memory, bytes);
    if (why) {
        return jw_store_explain(store, what, number, at, "cannot be read", why);
    }
    const uint32_t found = jw_checksum_of(memory, bytes);
    if (found == checksum) {
        return NULL;
    }
    jw_message message = jw_store_about(store, what, number, at);
    jw_message_text(&message, "holds other data than was written: checksum ");
    jw_message_bits(&message, found);
    jw_message_text(&message, " instead of ");
    jw_message_bits(&message, checksum);
    return store->sentence;
}
