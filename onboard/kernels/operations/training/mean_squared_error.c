/* Mean over all elements of (prediction - target)^2, times its share of the loss. */
#include "kernels.h"

void jw_mean_squared_error_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *prediction = call->reads[0], *target = call->reads[1];
    float lanes[JW_LANES];
    jw_clear_lanes(lanes);
    JW_ADD_PRODUCTS(lanes, elements, prediction[i] - target[i], prediction[i] - target[i]);
    *(float *)call->writes[0] = call->scalars[0] * (jw_fold_lanes(lanes) / (float)elements);
}

void jw_mean_squared_error_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float factor = call->scalars[0] * 2.0f / (float)elements;
    const float *prediction = call->reads[0], *target = call->reads[1];
    float *gradient = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        gradient[i] = factor * (prediction[i] - target[i]);
    }
}
