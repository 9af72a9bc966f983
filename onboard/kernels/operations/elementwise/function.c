/* Element-wise functions of one tensor, arithmetic with numbers; NaNs propagate. */
#include "exponential.h"
#include "kernels.h"
#include "logarithm.h"

/* Defines a kernel that maps every element x to `value`. */
#define FORWARD(name, value)                                                                       \
    void jw_##name##_forward(const jw_call *call) {                                                \
        const jw_index elements = call->attributes[0];                                             \
        const float *in = call->reads[0];                                                          \
        float *out = call->writes[0];                                                              \
        JW_INDEPENDENT                                                                             \
        for (jw_index i = 0; i < elements; i++) {                                                  \
            const float x = in[i];                                                                 \
            out[i] = (value);                                                                      \
        }                                                                                          \
    }

/* Defines a kernel that maps the output gradient dy and `operand`, the function's input x or its
 * output y, to `value`. */
#define GRADIENT(name, operand, value)                                                             \
    void jw_##name##_input_gradient(const jw_call *call) {                                         \
        const jw_index elements = call->attributes[0];                                             \
        const float *in = call->reads[0], *gradient = call->reads[1];                              \
        float *out = call->writes[0];                                                              \
        JW_INDEPENDENT                                                                             \
        for (jw_index i = 0; i < elements; i++) {                                                  \
            const float operand = in[i], dy = gradient[i];                                         \
            out[i] = (value);                                                                      \
        }                                                                                          \
    }

/* log(1 + u) for u from 0 to 1, with the relative accuracy of the logarithm: the rounding of 1 + u
 * is made good by a factor (Kahan). */
static inline float log_of_one_plus(float u) {
    const float w = 1.0f + u;
    const float kept = jw_log(w) * (u / (w - 1.0f));
    return w == 1.0f ? u : kept;
}

/* log(1 + exp(x)). */
static inline float softplus(float x) {
    return (x < 0.0f ? 0.0f : x) + log_of_one_plus(jw_exp(-fabsf(x)));
}

/* exp(x) - 1 for x <= 0, from tanh, which keeps its relative accuracy near 0. */
static inline float exp_minus_one(float x) {
    const float t = jw_tanh(0.5f * x);
    return 2.0f * t / (1.0f - t);
}

FORWARD(absolute, fabsf(x))
GRADIENT(absolute, x, x > 0.0f ? dy : (x < 0.0f ? -dy : 0.0f * x))
FORWARD(exponential, jw_exp(x))
GRADIENT(exponential, y, dy *y)
/* Of a number that is not positive, NaN or, of 0, -infinity. */
FORWARD(logarithm, x > 0.0f ? jw_log(x) : (x == 0.0f ? -HUGE_VALF : x * NAN))
GRADIENT(logarithm, x, dy / x)
FORWARD(reciprocal, 1.0f / x)
GRADIENT(reciprocal, y, -dy *(y *y))
FORWARD(square, x *x)
GRADIENT(square, x, 2.0f * x * dy)
FORWARD(square_root, sqrtf(x))
GRADIENT(square_root, y, 0.5f * dy / y)
FORWARD(reciprocal_root, 1.0f / sqrtf(x))
GRADIENT(reciprocal_root, y, -0.5f * dy * (y * y * y))
FORWARD(softplus, softplus(x))
GRADIENT(softplus, x, dy *jw_sigmoid(x))

/* Clevert, Unterthiner and Hochreiter 2016. */
void jw_elu_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float alpha = call->scalars[0];
    const float *x = call->reads[0];
    float *y = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const float below = alpha * exp_minus_one(x[i] < 0.0f ? x[i] : 0.0f);
        y[i] = x[i] < 0.0f ? below : x[i];
    }
}

/* alpha is positive, so that the output has the sign of the input; the slope at 0 is alpha. */
void jw_elu_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float alpha = call->scalars[0];
    const float *y = call->reads[0], *dy = call->reads[1];
    float *dx = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        dx[i] = y[i] <= 0.0f ? dy[i] * (y[i] + alpha) : dy[i];
    }
}

void jw_add_number_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float addend = call->scalars[0];
    const float *x = call->reads[0];
    float *y = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        y[i] = x[i] + addend;
    }
}

/* The output, and the input gradient, which is the same map of the output gradient. */
void jw_multiply_number(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float factor = call->scalars[0];
    const float *x = call->reads[0];
    float *y = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        y[i] = factor * x[i];
    }
}

/* Mean over all elements of -(t log s(x) + (1 - t) log(1 - s(x))) with the sigmoid s, which equals
 * softplus(x) - t x; times its share of the loss. */
void jw_binary_cross_entropy_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *logits = call->reads[0], *target = call->reads[1];
    float lanes[JW_LANES];
    jw_clear_lanes(lanes);
    JW_ADD_PRODUCTS(lanes, elements, JW_FMA(-target[i], logits[i], softplus(logits[i])), 1.0f);
    *(float *)call->writes[0] = call->scalars[0] * (jw_fold_lanes(lanes) / (float)elements);
}

void jw_binary_cross_entropy_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float share = call->scalars[0] / (float)elements;
    const float *logits = call->reads[0], *target = call->reads[1];
    float *gradient = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        gradient[i] = share * (jw_sigmoid(logits[i]) - target[i]);
    }
}
