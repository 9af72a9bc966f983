#include "store_rows.h"

#include <string.h>

#include "checksum.h"
#include "store_frozen.h"
#include "store_pages.h"
#include "store_record.h"

bool jw_store_has_tables(const jw_plan *plan) {
    return plan->table_bytes > 0;
}

void jw_store_forget_rows(jw_store *store) {
    for (uint32_t i = 0; i < store->plan->row_count; i++) {
        store->plan->memory->rows[i] = JW_NOWHERE;
    }
}

/* --- one row ------------------------------------------------------------------------------ */

uint32_t jw_store_row_stride(const jw_plan *plan, const jw_table *table) {
    return jw_store_rounded_up(table->row_bytes + (uint32_t)sizeof(uint32_t), plan->page_bytes);
}

static uint32_t stride(const jw_store *store, const jw_table *table) {
    return jw_store_row_stride(store->plan, table);
}

static uint64_t place_of(const jw_store *store, const jw_table *table, uint32_t row) {
    return table->offset + (uint64_t)row * stride(store, table);
}

/* Checksum of a row and of its number, so that rows are not mistaken. */
static uint32_t checksum_of(const jw_table *table, uint32_t row, const void *values) {
    jw_checksum sum;
    jw_checksum_begin(&sum);
    jw_checksum_add(&sum, &row, sizeof row);
    jw_checksum_add(&sum, values, table->row_bytes);
    return jw_checksum_end(&sum);
}

/* Complete the pages of a row: its checksum, and zeros. */
static void finish(const jw_store *store, const jw_table *table, uint32_t row,
                   unsigned char *pages) {
    const uint32_t checksum = checksum_of(table, row, pages);
    memset(pages + table->row_bytes, 0, stride(store, table) - table->row_bytes);
    memcpy(pages + table->row_bytes, &checksum, sizeof checksum);
}

static const char *check(jw_store *store, const jw_table *table, uint32_t row,
                         const unsigned char *pages) {
    uint32_t checksum;
    memcpy(&checksum, pages + table->row_bytes, sizeof checksum);
    if (checksum == checksum_of(table, row, pages)) {
        return NULL;
    }
    jw_message message = jw_store_about(store, "row ", row, place_of(store, table, row));
    jw_message_text(&message, "holds other data than was written");
    return store->sentence;
}

/* Transfer the whole pages of adjacent rows. */
static const char *transfer(jw_store *store, const jw_table *table, jw_method method, uint32_t row,
                            uint32_t count, unsigned char *pages) {
    const uint64_t at = place_of(store, table, row);
    const size_t bytes = (size_t)count * stride(store, table);
    const char *why = store->medium->transfer[method](store->medium, at, pages, bytes);
    if (!why && method == JW_READ) {
        store->bytes_in += bytes;
    } else if (!why) {
        store->bytes_out += bytes;
    }
    return jw_store_explain(store, "row ", row, at,
                            method == JW_READ ? "cannot be read" : "cannot be written", why);
}

/* Write the row in the plan's buffer. */
static const char *write_row(jw_store *store, const jw_table *table, uint32_t row) {
    finish(store, table, row, store->plan->memory->row);
    return transfer(store, table, JW_WRITE, row, 1, store->plan->memory->row);
}

static const char *read_row(jw_store *store, const jw_table *table, uint32_t row, void *memory) {
    unsigned char *buffer = store->plan->memory->row;
    const char *error = transfer(store, table, JW_READ, row, 1, buffer);
    if (!error) {
        error = check(store, table, row, buffer);
    }
    if (!error) {
        memcpy(memory, buffer, table->row_bytes);
    }
    return error;
}

/* --- adjacent rows ------------------------------------------------------------------------ */

uint32_t jw_store_rows_in(const jw_store *store, uint16_t table, size_t room) {
    const size_t count = room / stride(store, &store->plan->tables[table]);
    return count > UINT32_MAX ? UINT32_MAX : count ? (uint32_t)count : 1;
}

static const char *check_range(const jw_store *store, uint16_t table, uint32_t first,
                               uint32_t count) {
    const jw_plan *plan = store->plan;
    if (table >= plan->table_count || plan->tables[table].address != JW_NO_PLACE) {
        return "no table in the storage has this number";
    }
    const uint32_t rows = plan->tables[table].row_count;
    return count > rows || first > rows - count ? "the table has fewer rows" : NULL;
}

static const char *write_rows(jw_store *store, const jw_table *kept, uint32_t first, uint32_t count,
                              void *memory, size_t room) {
    const char *error = NULL;
    const size_t bytes = kept->row_bytes, padded = stride(store, kept);
    unsigned char *rows = memory;
    if (count * padded <= room) {
        for (uint32_t i = count; i-- > 0;) {
            memmove(rows + i * padded, rows + i * bytes, bytes);
            finish(store, kept, first + i, rows + i * padded);
        }
        return transfer(store, kept, JW_WRITE, first, count, rows);
    }
    for (uint32_t i = 0; i < count && !error; i++) {
        memcpy(store->plan->memory->row, rows + i * bytes, bytes);
        error = write_row(store, kept, first + i);
    }
    return error;
}

static const char *freeze_rows(jw_store *store, const jw_table *table, uint32_t first,
                               uint32_t count, void *memory, size_t room) {
    if (store->is_frozen) {
        return NULL;
    }
    const uint64_t at = place_of(store, table, first);
    const uint32_t bytes = count * stride(store, table);
    const char *why = jw_store_begin_freezing(store, at, bytes);
    if (why) {
        return jw_store_explain(store, "row ", first, at, "cannot be written", why);
    }
    const char *error = write_rows(store, table, first, count, memory, room);
    return error ? error : jw_store_frozen_up_to(store, at + bytes);
}

const char *jw_store_keep_rows(jw_store *store, uint16_t table, uint32_t first, uint32_t count,
                               void *memory, size_t room) {
    const char *error = check_range(store, table, first, count);
    if (error) {
        return error;
    }
    const jw_table *kept = &store->plan->tables[table];
    if (kept->kept == JW_NOT_KEPT) {
        return freeze_rows(store, kept, first, count, memory, room);
    }
    error = store->begun ? NULL : jw_store_begin_run(store);
    return error ? error : write_rows(store, kept, first, count, memory, room);
}

static const char *read_rows(jw_store *store, const jw_table *kept, uint32_t first, uint32_t count,
                             void *memory, size_t room) {
    const char *error = NULL;
    const size_t bytes = kept->row_bytes, padded = stride(store, kept);
    const bool at_once = count * padded <= room;
    unsigned char *rows = memory;
    if (at_once) {
        error = transfer(store, kept, JW_READ, first, count, rows);
    }
    for (uint32_t i = 0; i < count && !error; i++) {
        if (at_once) {
            error = check(store, kept, first + i, rows + i * padded);
            memmove(rows + i * bytes, rows + i * padded, bytes);
        } else {
            error = read_row(store, kept, first + i, rows + i * bytes);
        }
    }
    return error;
}

const char *jw_store_fetch_rows(jw_store *store, uint16_t table, uint32_t first, uint32_t count,
                                void *memory, size_t room) {
    const char *error = check_range(store, table, first, count);
    if (!error) {
        error = store->complete ? jw_store_settle(store) : "no step is complete yet";
    }
    return error ? error
                 : read_rows(store, &store->plan->tables[table], first, count, memory, room);
}

const char *jw_store_verify_rows(jw_store *store, uint16_t table, uint32_t first, uint32_t count,
                                 void *memory, size_t room) {
    const char *error = check_range(store, table, first, count);
    if (error) {
        return error;
    }
    const jw_table *frozen = &store->plan->tables[table];
    if (frozen->kept != JW_NOT_KEPT) {
        return "steps change the table of this number";
    }
    const bool is_whole =
        !store->is_frozen || !read_rows(store, frozen, first, count, memory, room);
    return is_whole ? NULL : jw_store_forget_frozen(store);
}

/* --- selected rows ------------------------------------------------------------------------ */

const char *jw_store_page_in_rows(jw_store *store, uint16_t table, void *memory) {
    const jw_table *kept = &store->plan->tables[table];
    const jw_selection *selected = &store->plan->selections[kept->selection];
    const uint32_t *rows = store->plan->memory->rows + selected->first;
    const char *error = kept->kept == JW_NOT_KEPT ? jw_store_require_frozen(store) : NULL;
    for (uint32_t i = 0; i < selected->count && !error; i++) {
        unsigned char *place = (unsigned char *)memory + (size_t)i * kept->row_bytes;
        if (rows[i] == JW_NOWHERE) {
            memset(place, 0, kept->row_bytes);
        } else {
            error = read_row(store, kept, rows[i], place);
        }
    }
    return error;
}

/* Reads a slot from its begin to its end; the newest page is in the plan's buffer. */
typedef struct {
    jw_store *store;
    uint64_t begin;
    uint32_t at; /* bytes read so far */
} slot_reader;

static const char *read_next(slot_reader *reader, void *memory, uint32_t bytes) {
    jw_store *store = reader->store;
    const uint32_t page_bytes = store->plan->page_bytes;
    unsigned char *to = memory;
    while (bytes) {
        const uint32_t within = reader->at % page_bytes;
        const uint32_t piece = bytes < page_bytes - within ? bytes : page_bytes - within;
        if (!within) {
            const char *why = store->medium->transfer[JW_READ](
                store->medium, reader->begin + reader->at, store->plan->memory->page, page_bytes);
            if (why) {
                return why;
            }
            store->bytes_in += page_bytes;
        }
        memcpy(to, store->plan->memory->page + within, piece);
        reader->at += piece;
        to += piece;
        bytes -= piece;
    }
    return NULL;
}

/* Read the changed rows of a table, and compare their checksum; then again, and write them. */
static const char *settle_table(jw_store *store, const jw_table *table) {
    const jw_plan *plan = store->plan;
    const uint16_t slot = plan->kept[table->kept].slot;
    const jw_selection *selected = &plan->selections[table->selection];
    const uint32_t *rows = plan->memory->rows + selected->first;
    if (!selected->count || rows[0] == JW_NOWHERE) {
        return NULL; /* initial values: no step has changed a row yet */
    }
    const uint64_t begin = jw_store_part_begin(store, jw_store_part_before(store, store->part)) +
                           plan->slots[slot].offset;
    for (int writes = 0; writes < 2; writes++) {
        slot_reader reader = {store, begin, 0};
        jw_checksum sum;
        jw_checksum_begin(&sum);
        for (uint32_t i = 0; i < selected->count; i++) {
            const char *why = read_next(&reader, plan->memory->row, table->row_bytes);
            if (why) {
                return jw_store_explain(store, "slot ", slot, begin, "cannot be read", why);
            }
            jw_checksum_add(&sum, plan->memory->row, table->row_bytes);
            const char *error =
                writes && rows[i] != JW_NOWHERE ? write_row(store, table, rows[i]) : NULL;
            if (error) {
                return error;
            }
        }
        if (jw_checksum_end(&sum) != plan->memory->kept_checksums[table->kept]) {
            jw_message message = jw_store_about(store, "slot ", slot, begin);
            jw_message_text(&message, "holds other rows than were written");
            return store->sentence;
        }
    }
    return NULL;
}

/* The step before becomes incomplete first, since the tables are then no longer as it left them. */
const char *jw_store_settle(jw_store *store) {
    if (store->settled || !jw_store_has_tables(store->plan)) {
        return NULL;
    }
    const uint32_t newest = jw_store_part_before(store, store->part);
    const char *error = jw_store_wipe_record(store, jw_store_part_before(store, newest));
    for (uint16_t i = 0; i < store->plan->table_count && !error; i++) {
        const jw_table *table = &store->plan->tables[i];
        error = table->kept == JW_NOT_KEPT ? NULL : settle_table(store, table);
    }
    store->settled = !error;
    return error;
}
