/* Element-wise activations; NaNs propagate. */
#include "exponential.h"
#include "kernels.h"

void jw_relu_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *x = call->reads[0];
    float *y = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        y[i] = x[i] < 0.0f ? 0.0f : x[i];
    }
}

void jw_relu_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *y = call->reads[0], *dy = call->reads[1];
    float *dx = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
    }
}

/* The slope is not negative, so that the output has the sign of the input. */
void jw_leaky_relu_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float slope = call->scalars[0];
    const float *x = call->reads[0];
    float *y = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        y[i] = x[i] > 0.0f ? x[i] : slope * x[i];
    }
}

void jw_leaky_relu_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float slope = call->scalars[0];
    const float *y = call->reads[0], *dy = call->reads[1];
    float *dx = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        dx[i] = y[i] > 0.0f ? dy[i] : slope * dy[i];
    }
}

/* x, or the bound that it exceeds; NaN if x is. */
static inline float clamp(float x, float lowest, float highest) {
    const float raised = x < lowest ? lowest : x;
    return raised > highest ? highest : raised;
}

/* dy if y is between the bounds, 0 if it is one of them. */
static inline float gradient_between(float y, float dy, float lowest, float highest) {
    const float below = y >= highest ? 0.0f : dy;
    return y <= lowest ? 0.0f : below;
}

void jw_clamp_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float lowest = call->scalars[0], highest = call->scalars[1];
    const float *x = call->reads[0];
    float *y = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        y[i] = clamp(x[i], lowest, highest);
    }
}

void jw_clamp_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float lowest = call->scalars[0], highest = call->scalars[1];
    const float *y = call->reads[0], *dy = call->reads[1];
    float *dx = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        dx[i] = gradient_between(y[i], dy[i], lowest, highest);
    }
}

#define SIXTH 0.166666672f

/* (x + 3) / 6 from 0 to 1, Howard et al. 2019. */
static inline float hard_sigmoid(float x) {
    return clamp(x + 3.0f, 0.0f, 6.0f) * SIXTH;
}

void jw_hard_sigmoid_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *x = call->reads[0];
    float *y = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        y[i] = hard_sigmoid(x[i]);
    }
}

void jw_hard_sigmoid_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *y = call->reads[0], *dy = call->reads[1];
    float *dx = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        dx[i] = gradient_between(y[i], dy[i] * SIXTH, 0.0f, 1.0f);
    }
}

/* x times its hard sigmoid; the derivative is x / 3 + 1 / 2 from -3 to 3, else 0 or 1. */
void jw_hard_swish_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *restrict x = call->reads[0];
    float *restrict y = call->writes[0];
    for (jw_index i = 0; i < elements; i++) {
        y[i] = x[i] * hard_sigmoid(x[i]);
    }
}

void jw_hard_swish_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *x = call->reads[0], *dy = call->reads[1];
    float *dx = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const float within = JW_FMA(x[i], 2.0f * SIXTH, 0.5f);
        const float below = x[i] >= 3.0f ? 1.0f : within;
        dx[i] = dy[i] * (x[i] <= -3.0f ? 0.0f : below);
    }
}

void jw_tanh_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *x = call->reads[0];
    float *y = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        y[i] = jw_tanh(x[i]);
    }
}

void jw_tanh_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *y = call->reads[0], *dy = call->reads[1];
    float *dx = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        dx[i] = dy[i] * (1.0f - y[i] * y[i]);
    }
}

void jw_sigmoid_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *x = call->reads[0];
    float *y = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        y[i] = jw_sigmoid(x[i]);
    }
}

void jw_sigmoid_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *y = call->reads[0], *dy = call->reads[1];
    float *dx = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        dx[i] = dy[i] * (y[i] * (1.0f - y[i]));
    }
}

/* x * sigmoid(x), Elfwing, Uchibe and Doya 2018; with s = sigmoid(x) its derivative is
 * s * (1 + x * (1 - s)). */
void jw_silu_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *restrict x = call->reads[0];
    float *restrict y = call->writes[0];
    for (jw_index i = 0; i < elements; i++) {
        y[i] = x[i] * jw_sigmoid(x[i]);
    }
}

void jw_silu_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *x = call->reads[0], *dy = call->reads[1];
    float *dx = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const float sigmoid = jw_sigmoid(x[i]);
        dx[i] = dy[i] * (sigmoid * JW_FMA(x[i], 1.0f - sigmoid, 1.0f));
    }
}

/* x * Phi(x), Hendrycks and Gimpel 2016; its derivative is Phi(x) + x * phi(x). */
void jw_gelu_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *restrict x = call->reads[0];
    float *restrict y = call->writes[0];
    for (jw_index i = 0; i < elements; i++) {
        y[i] = x[i] * jw_normal_of(x[i]).cumulative;
    }
}

void jw_gelu_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *x = call->reads[0], *dy = call->reads[1];
    float *dx = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const jw_normal normal = jw_normal_of(x[i]);
        dx[i] = dy[i] * JW_FMA(x[i], normal.density, normal.cumulative);
    }
}

/* The same with Phi(x) replaced by the sigmoid of 2 u, u = sqrt(2 / pi) (x + 0.044715 x^3): gelu in the
 * form that its authors give with a hyperbolic tangent. */
static inline float twice_u(float x) {
    return 1.59576912f * JW_FMA(0.044715f * x, x * x, x);
}

void jw_gelu_tanh_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *restrict x = call->reads[0];
    float *restrict y = call->writes[0];
    for (jw_index i = 0; i < elements; i++) {
        y[i] = x[i] * jw_sigmoid(twice_u(x[i]));
    }
}

void jw_gelu_tanh_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *x = call->reads[0], *dy = call->reads[1];
    float *dx = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const float s = jw_sigmoid(twice_u(x[i]));
        const float slope = 1.59576912f * JW_FMA(0.134145f, x[i] * x[i], 1.0f);
        dx[i] = dy[i] * JW_FMA(x[i] * slope, s * (1.0f - s), s);
    }
}
