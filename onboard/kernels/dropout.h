/* Masks of dropout: functions of a seed and an element's position. They are not stored, and every
 * execution repeats them. */
#ifndef JW_DROPOUT_H
#define JW_DROPOUT_H

#include "internal.h"

typedef struct {
    uint32_t first_key, second_key;
    int32_t threshold;
    float scale; /* of the elements that are kept */
} jw_dropout_mask;

/* A bijection of 32-bit integers in which each input bit flips each output bit about half of the
 * time (the finaliser of MurmurHash3: multiply and xor-shift). */
static inline uint32_t jw_mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    return x;
}

/* `scalars`: the probability of an element to be dropped, and the seed. */
static inline jw_dropout_mask jw_dropout_mask_of(const float *scalars) {
    const float probability = scalars[0];
    const uint32_t seed = jw_bits_of_float(scalars[1]);
    jw_dropout_mask mask;
    mask.first_key = jw_mix(seed ^ 0x9e3779b9u);
    mask.second_key = jw_mix(mask.first_key + seed);
    mask.threshold = (int32_t)(probability * 16777216.0f);
    mask.scale = probability < 1.0f ? 1.0f / (1.0f - probability) : 0.0f;
    return mask;
}

/* x scaled, or 0 if `mask` drops the element at `position`. It keeps an element with probability
 * 1 - p, by comparing p with a 24-bit number that two keyed rounds of mixing make. */
static inline float jw_dropped(jw_dropout_mask mask, uint32_t position, float x) {
    const uint32_t random = jw_mix(jw_mix(position ^ mask.first_key) + mask.second_key);
    return (int32_t)(random >> 8) < mask.threshold ? 0.0f : x * mask.scale;
}

#endif
