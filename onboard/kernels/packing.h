/* Tensors without their zeros, for the way to storage.
 *
 * Each 32 words of a tensor, or fewer at its end, become those that have a bit set, followed by a
 * bitmap: bit i is 1 if word i is among them. Negative zeros, NaNs and all other bits are kept.
 *
 * Both directions work in place. After words without zeros the packed tensor is longer than what has
 * been read of it, by a word for every 32; such words wait in a ring. A tensor that would need a
 * larger ring, or would not become shorter, stays as it is. */
#ifndef JW_PACKING_H
#define JW_PACKING_H

#include <stdbool.h>
#include <stdint.h>

enum { JW_PACKED_TOGETHER = 32 };

#if defined(__GNUC__)
typedef uint32_t __attribute__((may_alias)) jw_packed;
#else
typedef uint32_t jw_packed;
#endif

/* Memory of a tensor, and a ring of words that wait for room in it. */
typedef struct {
    jw_packed *words;
    uint32_t count; /* of the whole tensor */
    jw_packed *ring;
    uint32_t ring_words;
} jw_packing;

/* Number of ones: in each two bits, then four, then eight, then all. A compiler's own function would
 * need its library. */
static inline uint32_t jw_count_bits(uint32_t word) {
    word -= word >> 1 & 0x55555555u;
    word = (word & 0x33333333u) + (word >> 2 & 0x33333333u);
    word = (word + (word >> 4)) & 0x0f0f0f0fu;
    return word * 0x01010101u >> 24;
}

static inline uint32_t jw_packed_block(uint32_t count, uint32_t first) {
    const uint32_t rest = count - first;
    return rest < JW_PACKED_TOGETHER ? rest : JW_PACKED_TOGETHER;
}

/* Words of the packed tensor; `count` if it stays as it is. */
static inline uint32_t jw_packed_words(const jw_packed *words, uint32_t count,
                                       uint32_t ring_words) {
    uint32_t packed = 0;
    for (uint32_t first = 0; first < count; first += JW_PACKED_TOGETHER) {
        const uint32_t end = first + jw_packed_block(count, first);
        packed++;
        for (uint32_t i = first; i < end; i++) {
            packed += words[i] != 0;
        }
        if (packed > end + ring_words) {
            return count;
        }
    }
    return packed < count ? packed : count;
}

/* Copy the words of a block other than zero to `to`, which may be the block or begin before it.
 * Returns their bitmap. */
static inline uint32_t jw_pack_block(const jw_packed *block, uint32_t count, jw_packed *to) {
    uint32_t bitmap = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t word = block[i], kept = word != 0;
        *to = word;
        to += kept;
        bitmap |= kept << i;
    }
    return bitmap;
}

/* Pack a tensor of which jw_packed_words is less than its words. */
static inline void jw_pack(const jw_packing *tensor) {
    jw_packed *words = tensor->words, *ring = tensor->ring;
    const uint32_t size = tensor->ring_words;
    uint32_t made = 0, stored = 0; /* words of the packed tensor, and those not in the ring */
    for (uint32_t first = 0; first < tensor->count; first += JW_PACKED_TOGETHER) {
        const uint32_t count = jw_packed_block(tensor->count, first), end = first + count;
        jw_packed own[JW_PACKED_TOGETHER + 1];
        const bool fits = made <= first; /* what is left of the block fits before its end */
        jw_packed *to = fits ? words + made : own;
        const uint32_t bitmap = jw_pack_block(words + first, count, to);
        const uint32_t kept = jw_count_bits(bitmap);
        if (fits) {
            made += kept;
            stored = made;
        } else {
            for (; stored < made && stored < end; stored++) {
                words[stored] = ring[stored % size];
            }
            for (uint32_t i = 0; i < kept; i++, made++) {
                if (made < end) {
                    words[made] = own[i];
                    stored = made + 1;
                } else {
                    ring[made % size] = own[i];
                }
            }
        }
        if (made < end) {
            words[made] = bitmap;
            stored = made + 1;
        } else {
            ring[made % size] = bitmap;
        }
        made++;
    }
    for (; stored < made; stored++) {
        words[stored] = ring[stored % size];
    }
}

/* Unpack a tensor of `packed` words, fewer than its own; their content was checked. */
static inline void jw_unpack(const jw_packing *tensor, uint32_t packed) {
    jw_packed *words = tensor->words, *ring = tensor->ring;
    const uint32_t size = tensor->ring_words;
    uint32_t unread = packed, stored = packed; /* words not read yet, and those not in the ring */
    uint32_t first = (tensor->count - 1) / JW_PACKED_TOGETHER * JW_PACKED_TOGETHER;
    for (uint32_t left = tensor->count; left; left = first, first -= JW_PACKED_TOGETHER) {
        const uint32_t count = left - first;
        unread--;
        const uint32_t bitmap = unread < stored ? words[unread] : ring[unread % size];
        const uint32_t begin = unread - jw_count_bits(bitmap);
        if (begin <= first && unread <= stored) {
            for (uint32_t i = count; i-- > 0;) {
                const uint32_t kept = bitmap >> i & 1u;
                unread -= kept;
                words[first + i] = words[unread] & (0u - kept);
            }
            stored = unread;
            continue;
        }
        jw_packed own[JW_PACKED_TOGETHER];
        for (uint32_t i = count; i-- > 0;) {
            const uint32_t kept = bitmap >> i & 1u;
            unread -= kept;
            own[i] = kept ? unread < stored ? words[unread] : ring[unread % size] : 0;
        }
        stored = unread < stored ? unread : stored;
        for (; stored > first; stored--) {
            ring[(stored - 1) % size] = words[stored - 1];
        }
        for (uint32_t i = 0; i < count; i++) {
            words[first + i] = own[i];
        }
    }
}

#endif
