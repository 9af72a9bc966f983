/* Products of two matrices for every batch and head: output = left * right. */
#include "kernels.h"

typedef struct {
    jw_index batch, heads, rows, depth, columns;
} shape;

/* Where the matrices of an operand are; `rows` and `columns` are those in memory. */
typedef struct {
    jw_index rows, columns, heads;
    int is_transposed, is_interleaved;
} layout;

static shape shape_of(const int32_t *a) {
    const shape s = {a[0], a[1], a[2], a[3], a[4]};
    return s;
}

static layout layout_of(const shape *s, jw_index rows, jw_index columns, int32_t is_transposed,
                        int32_t is_interleaved) {
    const layout l = {is_transposed ? columns : rows, is_transposed ? rows : columns, s->heads,
                      is_transposed != 0, is_interleaved != 0};
    return l;
}

static layout left_layout(const int32_t *a) {
    const shape s = shape_of(a);
    return layout_of(&s, s.rows, s.depth, a[5], a[6]);
}

static layout right_layout(const int32_t *a) {
    const shape s = shape_of(a);
    return layout_of(&s, s.depth, s.columns, a[7], a[8]);
}

static layout output_layout(const int32_t *a) {
    const shape s = shape_of(a);
    return layout_of(&s, s.rows, s.columns, 0, 0);
}

static jw_index leading_of(layout l) {
    return l.is_interleaved ? l.heads * l.columns : l.columns;
}

/* Floats before the matrix of this number, counted over heads and then batches. */
static jw_index offset_of(layout l, jw_index number) {
    const jw_index head = number % l.heads, size = l.rows * l.columns;
    return (number - head) * size + head * (l.is_interleaved ? l.columns : size);
}

static jw_matrix matrix_of(const float *data, layout l, jw_index number) {
    const jw_matrix matrix = {data + offset_of(l, number), leading_of(l), l.is_transposed};
    return matrix;
}

static jw_matrix transpose(jw_matrix matrix) {
    matrix.transposed = !matrix.transposed;
    return matrix;
}

/* The matrix that l describes = a * b, or in memory its transpose = b^T * a^T. */
static void multiply(float *data, layout l, jw_index number, jw_index depth, jw_matrix a,
                     jw_matrix b, float *workspace) {
    jw_matmul(l.rows, l.columns, depth, 1.0f, l.is_transposed ? transpose(b) : a,
              l.is_transposed ? transpose(a) : b, 0.0f, data + offset_of(l, number), leading_of(l),
              workspace);
}

static size_t workspace_bytes(layout l, jw_index depth) {
    return (size_t)jw_matmul_workspace(l.columns, depth) * sizeof(float);
}

void jw_matmul_forward(const jw_call *call) {
    const int32_t *a = call->attributes;
    const shape s = shape_of(a);
    for (jw_index i = 0; i < s.batch * s.heads; i++) {
        multiply(call->writes[0], output_layout(a), i, s.depth,
                 matrix_of(call->reads[0], left_layout(a), i),
                 matrix_of(call->reads[1], right_layout(a), i), call->workspace);
    }
}

size_t jw_matmul_forward_workspace(const int32_t *attributes) {
    return workspace_bytes(output_layout(attributes), shape_of(attributes).depth);
}

void jw_matmul_left_gradient(const jw_call *call) {
    const int32_t *a = call->attributes;
    const shape s = shape_of(a);
    for (jw_index i = 0; i < s.batch * s.heads; i++) {
        multiply(call->writes[0], left_layout(a), i, s.columns,
                 matrix_of(call->reads[0], output_layout(a), i),
                 transpose(matrix_of(call->reads[1], right_layout(a), i)), call->workspace);
    }
}

size_t jw_matmul_left_gradient_workspace(const int32_t *attributes) {
    return workspace_bytes(left_layout(attributes), shape_of(attributes).columns);
}

void jw_matmul_right_gradient(const jw_call *call) {
    const int32_t *a = call->attributes;
    const shape s = shape_of(a);
    for (jw_index i = 0; i < s.batch * s.heads; i++) {
        multiply(call->writes[0], right_layout(a), i, s.rows,
                 transpose(matrix_of(call->reads[1], left_layout(a), i)),
                 matrix_of(call->reads[0], output_layout(a), i), call->workspace);
    }
}

size_t jw_matmul_right_gradient_workspace(const int32_t *attributes) {
    return workspace_bytes(right_layout(attributes), shape_of(attributes).rows);
}
