/* Embedding: rows of a table, selected by index. */
#include "kernels.h"

void jw_embedding_forward(const jw_call *call) {
    const jw_index rows = call->attributes[0], features = call->attributes[2];
    const int32_t *indices = call->reads[0];
    const float *table = call->reads[1];
    float *output = call->writes[0];
    for (jw_index r = 0; r < rows; r++) {
        memcpy(output + r * features, table + indices[r] * features,
               (size_t)features * sizeof(float));
    }
}

/* The gradient is dense: rows of the table that no index selects are zero, as is that of the padding
 * index, which is negative if there is none. */
static void gradient(const jw_call *call, int32_t padding) {
    const jw_index rows = call->attributes[0], vocabulary = call->attributes[1];
    const jw_index features = call->attributes[2];
    const int32_t *indices = call->reads[0];
    const float *restrict output_gradient = call->reads[1];
    float *restrict table_gradient = call->writes[0];
    jw_fill(table_gradient, 0.0f, vocabulary * features);
    for (jw_index r = 0; r < rows; r++) {
        if (indices[r] == padding) {
            continue;
        }
        for (jw_index f = 0; f < features; f++) {
            table_gradient[indices[r] * features + f] += output_gradient[r * features + f];
        }
    }
}

void jw_embedding_parameter_gradient(const jw_call *call) {
    gradient(call, -1);
}

void jw_embedding_padded_parameter_gradient(const jw_call *call) {
    gradient(call, call->attributes[3]);
}
