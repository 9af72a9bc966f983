/* Activations that also write one bit for each element of their output, and gradients from these bits.
 *
 * Bit i of word w belongs to element 32 w + i. Bits after the last element are 0. */
#include "kernels.h"

enum { WORD = 32, CHUNK = 32 * WORD }; /* a chunk stays in the processor's cache */

/* Words of bits of `count` outputs. */
typedef void (*packing)(const float *y, jw_index count, const float *scalars, uint32_t *bits);

/* Defines a packing. `passes` is 1 if the gradient of an element passes, whose output is `y`. */
#define JW_PACKING(name, passes)                                                                   \
    static void name(const float *restrict outputs, jw_index count, const float *scalars,          \
                     uint32_t *restrict bits) {                                                    \
        (void)scalars;                                                                             \
        for (jw_index first = 0; first < count; first += WORD) {                                   \
            const jw_index rest = jw_min(count - first, WORD);                                     \
            uint32_t word = 0;                                                                     \
            for (jw_index i = 0; i < rest; i++) {                                                  \
                const float y = outputs[first + i];                                                \
                word |= (uint32_t)(passes) << i;                                                   \
            }                                                                                      \
            bits[first / WORD] = word;                                                             \
        }                                                                                          \
    }

JW_PACKING(pack_positive_or_nan, !(y <= 0.0f))
JW_PACKING(pack_positive, y > 0.0f)
JW_PACKING(pack_between, !(y <= scalars[0]) & !(y >= scalars[1]))

/* Runs an activation in chunks, and packs the outputs of each. */
static void with_bits(const jw_call *call, void (*activation)(const jw_call *), packing pack) {
    const jw_index elements = call->attributes[0];
    const float *x = call->reads[0];
    float *y = call->writes[0];
    uint32_t *bits = call->writes[1];
    for (jw_index first = 0; first < elements; first += CHUNK) {
        const int32_t count = (int32_t)jw_min(elements - first, CHUNK);
        const void *const reads[] = {x + first};
        void *const writes[] = {y + first};
        const jw_call part = {&count, call->scalars, reads, writes, NULL};
        activation(&part);
        pack(y + first, count, call->scalars, bits + first / WORD);
    }
}

void jw_relu_bits_forward(const jw_call *call) {
    with_bits(call, jw_relu_forward, pack_positive_or_nan);
}

void jw_leaky_relu_bits_forward(const jw_call *call) {
    with_bits(call, jw_leaky_relu_forward, pack_positive);
}

void jw_clamp_bits_forward(const jw_call *call) {
    with_bits(call, jw_clamp_forward, pack_between);
}

/* Of relu and clamp: dy where the bit is 1, else 0. */
void jw_bits_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const uint32_t *bits = call->reads[0];
    const float *dy = call->reads[1];
    float *dx = call->writes[0];
    for (jw_index first = 0; first < elements; first += WORD) {
        const jw_index count = jw_min(elements - first, WORD);
        const uint32_t word = bits[first / WORD];
        JW_INDEPENDENT
        for (jw_index i = 0; i < count; i++) {
            dx[first + i] = word >> i & 1 ? dy[first + i] : 0.0f;
        }
    }
}

void jw_leaky_relu_bits_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float slope = call->scalars[0];
    const uint32_t *bits = call->reads[0];
    const float *dy = call->reads[1];
    float *dx = call->writes[0];
    for (jw_index first = 0; first < elements; first += WORD) {
        const jw_index count = jw_min(elements - first, WORD);
        const uint32_t word = bits[first / WORD];
        JW_INDEPENDENT
        for (jw_index i = 0; i < count; i++) {
            dx[first + i] = word >> i & 1 ? dy[first + i] : slope * dy[first + i];
        }
    }
}
