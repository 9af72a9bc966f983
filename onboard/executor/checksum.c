#include "checksum.h"

#define OFFSET_BASIS 0x811c9dc5u
#define PRIME 0x01000193u

void jw_checksum_begin(jw_checksum *sum) {
    for (uint32_t lane = 0; lane < 4; lane++) {
        sum->lanes[lane] = OFFSET_BASIS ^ lane;
    }
    sum->count = 0;
}

/* GCC would make one vector of the four lanes, which SSE2 takes five times as long to multiply. */
#if defined(__GNUC__) && !defined(__clang__)
#define LANES_APART __attribute__((optimize("no-tree-slp-vectorize")))
#else
#define LANES_APART
#endif

static const jw_word *add_one(jw_checksum *sum, const jw_word *word) {
    uint32_t *lane = &sum->lanes[sum->count++ & 3];
    *lane = (*lane ^ *word) * PRIME;
    return word + 1;
}

LANES_APART void jw_checksum_add(jw_checksum *sum, const void *words, size_t bytes) {
    const jw_word *word = words;
    const jw_word *const end = word + bytes / sizeof *word;
    while (word < end && sum->count & 3) {
        word = add_one(sum, word);
    }
    const size_t rounds = (size_t)(end - word) / 4;
    uint32_t a = sum->lanes[0], b = sum->lanes[1], c = sum->lanes[2], d = sum->lanes[3];
    for (const jw_word *const last = word + 4 * rounds; word < last; word += 4) {
        a = (a ^ word[0]) * PRIME;
        b = (b ^ word[1]) * PRIME;
        c = (c ^ word[2]) * PRIME;
        d = (d ^ word[3]) * PRIME;
    }
    sum->lanes[0] = a;
    sum->lanes[1] = b;
    sum->lanes[2] = c;
    sum->lanes[3] = d;
    sum->count += (uint32_t)(4 * rounds);
    while (word < end) {
        word = add_one(sum, word);
    }
}

uint32_t jw_checksum_end(const jw_checksum *sum) {
    uint32_t folded = OFFSET_BASIS ^ sum->count;
    for (int lane = 0; lane < 4; lane++) {
        folded = (folded ^ sum->lanes[lane]) * PRIME;
    }
    return folded;
}

uint32_t jw_checksum_of(const void *words, size_t bytes) {
    jw_checksum sum;
    jw_checksum_begin(&sum);
    jw_checksum_add(&sum, words, bytes);
    return jw_checksum_end(&sum);
}
