#include "transfer.h"

#include <string.h>

#include "checksum.h"
#include "platform.h"

jw_method jw_method_named(const char *name) {
    static const char *const names[JW_METHOD_COUNT] = {"read", "write", "erase", "write-buffered"};
    size_t method = 0;
    while (method < JW_METHOD_COUNT && strcmp(name, names[method]) != 0) {
        method++;
    }
    return (jw_method)method;
}

/* Alignment of the offsets of transfers. */
static uint64_t slot_bytes(const jw_medium *medium, jw_method method, uint64_t bytes) {
    const uint64_t erase = medium->erase_block_bytes;
    return method == JW_READ || !erase ? bytes : (bytes + erase - 1) / erase * erase;
}

/* Offset of the next transfer. Reads go to random offsets, which caches cannot predict. Flash that
 * needs erasing is written from one end to the other, so that wear is even. Other media level wear
 * themselves and are written at random offsets. */
static uint64_t next_offset(jw_medium *medium, jw_method method, uint64_t bytes) {
    const uint64_t slot = slot_bytes(medium, method, bytes);
    const uint64_t slots = medium->scratch_bytes / slot;
    if (method == JW_READ || !medium->erase_block_bytes) {
        medium->random = medium->random * 1664525u + 1013904223u; /* Numerical Recipes' LCG */
        return ((uint64_t)medium->random * slots >> 32) * slot;
    }
    uint64_t offset = medium->next / medium->erase_block_bytes * medium->erase_block_bytes;
    if (offset + slot > medium->scratch_bytes) {
        offset = 0;
    }
    medium->next = offset + slot;
    return offset;
}

static const char *refusal(const jw_medium *medium, jw_method method, uint64_t bytes) {
    const uint32_t unit = method == JW_ERASE ? medium->erase_block_bytes : medium->page_bytes;
    if (!medium->transfer[method]) {
        return "the medium has no such method";
    }
    if (!bytes || bytes % unit) {
        return "the size of a transfer is not a multiple of the page or erase block";
    }
    if (slot_bytes(medium, method, bytes) > medium->scratch_bytes) {
        return "a transfer is larger than the range that may be overwritten";
    }
    return NULL;
}

/* One transfer as replays make it: with the checksum of its bytes, which the compiler must keep. */
static const char *transfer(jw_medium *medium, jw_method method, uint64_t offset, void *memory,
                            size_t bytes) {
    static volatile uint32_t checksum;
    const bool is_write = method == JW_WRITE || method == JW_WRITE_BUFFERED;
    if (is_write) {
        checksum = jw_checksum_of(memory, bytes);
    }
    const char *error = medium->transfer[method](medium, offset, memory, bytes);
    if (!error && method == JW_READ) {
        checksum = jw_checksum_of(memory, bytes);
    }
    (void)checksum;
    return error;
}

const char *jw_medium_measure(jw_medium *medium, jw_method method, void *memory, size_t bytes,
                              uint64_t most, uint64_t min_ns, uint64_t tail_ns, jw_window *window,
                              uint64_t *tail_end_ns) {
    const char *error = refusal(medium, method, bytes);
    if (error) {
        return error;
    }
    *window = (jw_window){.tries = 1};
    window->frequency_before_khz = jw_frequency_khz();
    /* Erasing between writes would count in time and energy: the whole range that the window may
     * write is erased before the window and then written from its start. */
    const bool erases = method == JW_WRITE && medium->erase_block_bytes;
    uint64_t stretch = bytes;
    if (erases) {
        const uint64_t room = medium->scratch_bytes / bytes;
        most = most < room ? most : room;
        stretch = slot_bytes(medium, JW_ERASE, most * bytes);
    }
    uint64_t offset = next_offset(medium, method, stretch);
    if (erases) {
        error = medium->transfer[JW_ERASE](medium, offset, NULL, (size_t)stretch);
        if (error) {
            return error;
        }
    }
    if (tail_ns) { /* readings of an averaging sensor still contain what was before */
        jw_sleep_until(jw_clock_ns() + tail_ns);
    }
    jw_sync_line(true);
    window->start_ns = jw_clock_ns();
    for (;;) {
        error = transfer(medium, method, offset, memory, bytes);
        window->executions++;
        window->end_ns = jw_clock_ns();
        if (error || window->executions >= most || window->end_ns - window->start_ns >= min_ns) {
            break;
        }
        offset = erases ? offset + bytes : next_offset(medium, method, bytes);
    }
    jw_sync_line(false);
    window->frequency_after_khz = jw_frequency_khz();
    window->running_ns = window->end_ns - window->start_ns; /* waiting for the medium counts */
    if (tail_ns && !error) {
        jw_sleep_until(window->end_ns + tail_ns);
    }
    *tail_end_ns = tail_ns ? jw_clock_ns() : window->end_ns;
    return error;
}
