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
