/* exp, tanh, sigmoid and the normal distribution, without calls and branches, so that compilers
 * vectorise them. The polynomials are minimax fits in the relative error. */
#ifndef JW_EXPONENTIAL_H
#define JW_EXPONENTIAL_H

#include "internal.h"

/* exp(x) within 2 ulp; 0 below -86.6 (where the result would be subnormal), infinity above 88.72.
 * exp(x) = 2^n exp(r) with |r| <= ln(2)/2. */
static inline float jw_exp(float x) {
    const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    const float shifted = JW_FMA(x, 1.44269504f, shifter);
    const float n = shifted - shifter;
    const float r =
        JW_FMA(n, -1.42860677e-6f, JW_FMA(n, -0.693145752f, x)); /* ln 2, in two parts */
    float q = 0.0013950726f;
    q = JW_FMA(q, r, 0.008369025f);
    q = JW_FMA(q, r, 0.041666202f);
    q = JW_FMA(q, r, 0.16666518f);
    q = JW_FMA(q, r, 0.5f);
    const float fraction = 1.0f + JW_FMA(r * r, q, r);
    /* 2^n as 2 * 2^(n-1), whose exponent fits for every n up to 128. */
    const float half_power = jw_float_of_bits((jw_bits_of_float(shifted) + 126u) << 23);
    const float result = fraction * half_power * 2.0f;
    const float bounded = x > 88.7228317f ? HUGE_VALF : result;
    return x < -86.6f ? 0.0f : bounded;
}

static inline float jw_sigmoid(float x) {
    return 1.0f / (1.0f + jw_exp(-x));
}

/* tanh(x) within 4 ulp. */
static inline float jw_tanh(float x) {
    const float size = fabsf(x);
    const float square = x * x;
    float q = -0.0057170447f;
    q = JW_FMA(q, square, 0.020650586f);
    q = JW_FMA(q, square, -0.053743497f);
    q = JW_FMA(q, square, 0.13331491f);
    q = JW_FMA(q, square, -0.33333284f);
    const float small = JW_FMA(x * square, q, x);
    const float large = 1.0f - 2.0f / (jw_exp(2.0f * size) + 1.0f);
    const float signed_large = x < 0.0f ? -large : large;
    return size < 0.625f ? small : signed_large;
}

/* Density and cumulative function of the standard normal distribution. The cumulative function
 * follows from erfc(z) = exp(-z²) t p(t) with t = 1 / (1 + 0.3 z), and keeps its relative accuracy
 * in the left tail. */
typedef struct {
    float density, cumulative;
} jw_normal;

static inline jw_normal jw_normal_of(float x) {
    const float z = fabsf(x) * 0.707106781f;
    const float t = 1.0f / JW_FMA(0.3f, z, 1.0f);
    const float decay = jw_exp(-0.5f * x * x);
    float p = -0.12952277f;
    p = JW_FMA(p, t, 0.48556256f);
    p = JW_FMA(p, t, -0.51227677f);
    p = JW_FMA(p, t, 0.5477186f);
    p = JW_FMA(p, t, -0.09464974f);
    p = JW_FMA(p, t, 0.21492565f);
    p = JW_FMA(p, t, 0.14833927f);
    p = JW_FMA(p, t, 0.17071521f);
    p = JW_FMA(p, t, 0.16918801f);
    const float tail = 0.5f * decay * (t * p);
    const jw_normal normal = {0.398942280f * decay, x < 0.0f ? tail : 1.0f - tail};
    return normal;
}

#endif
