/* The natural logarithm, from additions, multiplications and one division. A loss therefore has the
 * same bits on all machines that fuse products and sums alike (JW_FMA), which no C library's logf
 * guarantees. */
#ifndef JW_LOGARITHM_H
#define JW_LOGARITHM_H

#include "internal.h"

/* The natural logarithm of a positive normal number, within 1 ulp; infinity and NaN are returned.
 *
 * x = 2^e (1 + f) with 1 + f from sqrt(1/2) to sqrt(2), and log(1 + f) = 2 atanh(s) with
 * s = f / (2 + f). Since 2s = f - s f, this equals f - s (f - r), in which only a small term is
 * rounded before it is added to f; r = 2 atanh(s)/s - 2 is a minimax fit in s². */
static inline float jw_log(float x) {
    const uint32_t root_half = 0x3f3504f3u, one = 0x3f800000u;
    const uint32_t bits = jw_bits_of_float(x) + (one - root_half);
    const float e = (float)((int32_t)(bits >> 23) - 127);
    const float f = jw_float_of_bits((bits & 0x7fffffu) + root_half) - 1.0f;
    const float s = f / (2.0f + f);
    const float z = s * s;
    float q = 0.29871728f;
    q = JW_FMA(q, z, 0.39977542f);
    q = JW_FMA(q, z, 0.66666776f);
    const float small = JW_FMA(e, 1.42860677e-6f, -s * JW_FMA(-q, z, f)); /* ln 2, in two parts */
    const float result = JW_FMA(e, 0.693145752f, f + small);
    return x < HUGE_VALF ? result : x;
}

#endif
