/* Sums, products, copies and dropout. */
#include "exponential.h"
#include "kernels.h"

static void add(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *left = call->reads[0], *right = call->reads[1];
    float *sum = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        sum[i] = left[i] + right[i];
    }
}

void jw_add_forward(const jw_call *call) {
    add(call);
}

void jw_gradient_accumulate(const jw_call *call) {
    add(call);
}

/* The output, and the gradient of either factor: the output gradient times the other one. */
void jw_multiply(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *left = call->reads[0], *right = call->reads[1];
    float *product = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        product[i] = left[i] * right[i];
    }
}

/* Copies the elements, whose shape alone changes; in place there is nothing to copy. */
void jw_flatten(const jw_call *call) {
    if (call->writes[0] != call->reads[0]) {
        memcpy(call->writes[0], call->reads[0], (size_t)call->attributes[0] * sizeof(float));
    }
}

void jw_concat_forward(const jw_call *call) {
    const jw_index outer = call->attributes[0];
    const jw_index left = call->attributes[1], right = call->attributes[2];
    const float *left_source = call->reads[0], *right_source = call->reads[1];
    float *target = call->writes[0];
    for (jw_index o = 0; o < outer; o++) {
        memcpy(target, left_source + o * left, (size_t)left * sizeof(float));
        target += left;
        memcpy(target, right_source + o * right, (size_t)right * sizeof(float));
        target += right;
    }
}

void jw_concat_input_gradient(const jw_call *call) {
    const jw_index outer = call->attributes[0];
    const jw_index left = call->attributes[1], right = call->attributes[2];
    const float *source = call->reads[0];
    float *left_target = call->writes[0], *right_target = call->writes[1];
    for (jw_index o = 0; o < outer; o++) {
        memcpy(left_target + o * left, source, (size_t)left * sizeof(float));
        source += left;
        memcpy(right_target + o * right, source, (size_t)right * sizeof(float));
        source += right;
    }
}

/* A bijection of 32-bit integers in which each input bit flips each output bit about half of the
 * time (the finaliser of MurmurHash3: multiply and xor-shift). */
static inline uint32_t mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    return x;
}

/* Keeps element i with probability 1 - p, by comparing p with a 24-bit number that two keyed rounds
 * of mixing make from the seed and i. The backward pass is the same map, with the same mask. */
void jw_dropout(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float probability = call->scalars[0];
    const uint32_t seed = jw_bits_of_float(call->scalars[1]);
    const uint32_t first_key = mix(seed ^ 0x9e3779b9u), second_key = mix(first_key + seed);
    const int32_t threshold = (int32_t)(probability * 16777216.0f);
    const float scale = probability < 1.0f ? 1.0f / (1.0f - probability) : 0.0f;
    const float *x = call->reads[0];
    float *y = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const uint32_t random = mix(mix((uint32_t)i ^ first_key) + second_key);
        y[i] = (int32_t)(random >> 8) < threshold ? 0.0f : x[i] * scale;
    }
}
