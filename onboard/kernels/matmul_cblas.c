/* Matrix product with a BLAS, selected by -DJW_CBLAS. -DJW_CBLAS_SGEMM=name sets another name of
 * cblas_sgemm, as in Python wheels that rename their symbols. No BLAS header is needed. */
#include "internal.h"

#ifdef JW_CBLAS

#ifndef JW_CBLAS_SGEMM
#define JW_CBLAS_SGEMM cblas_sgemm
#endif

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

void JW_CBLAS_SGEMM(int order, int transpose_a, int transpose_b, int rows, int columns, int depth,
                    float alpha, const float *a, int a_leading, const float *b, int b_leading,
                    float beta, float *c, int c_leading);

const char *const jw_matmul_name = "cblas";

jw_index jw_matmul_workspace(jw_index columns, jw_index depth) {
    (void)columns;
    (void)depth;
    return 0;
}

void jw_matmul(jw_index rows, jw_index columns, jw_index depth, float alpha, jw_matrix a,
               jw_matrix b, float beta, float *c, jw_index c_leading, float *workspace) {
    (void)workspace;
    JW_CBLAS_SGEMM(ROW_MAJOR, a.transposed ? TRANSPOSED : PLAIN, b.transposed ? TRANSPOSED : PLAIN,
                   (int)rows, (int)columns, (int)depth, alpha, a.data, (int)a.leading, b.data,
                   (int)b.leading, beta, c, (int)c_leading);
}

void jw_matmul_chained(jw_index rows, jw_index columns, jw_index depth, jw_matrix a, jw_matrix b,
                       int continues, float *c, jw_index c_leading, float *workspace) {
    jw_matmul(rows, columns, depth, 1.0f, a, b, continues ? 1.0f : 0.0f, c, c_leading, workspace);
}

/* A BLAS needs the filters in rows. */

jw_index jw_flipped_workspace(jw_index rows, jw_index columns, jw_index depth) {
    (void)columns;
    return jw_padded(rows * depth);
}

void jw_flip(jw_filters a, float *workspace) {
    /* Each product copies its filters: a library has no other way to read them backwards. */
    (void)a;
    (void)workspace;
}

void jw_matmul_flipped(jw_index rows, jw_index columns, jw_index channels, jw_filters a,
                       jw_matrix b, int continues, float *c, jw_index c_leading,
                       float *restrict workspace) {
    const jw_index depth = channels * a.taps;
    for (jw_index channel = 0; channel < channels; channel++) {
        for (jw_index row = 0; row < rows; row++) {
            const float *from = a.data + channel * a.leading + row * a.taps;
            float *to = workspace + row * depth + channel * a.taps;
            for (jw_index tap = 0; tap < a.taps; tap++) {
                to[tap] = from[a.taps - 1 - tap];
            }
        }
    }
    jw_matmul(rows, columns, depth, 1.0f, jw_plain(workspace, depth), b, continues ? 1.0f : 0.0f, c,
              c_leading, NULL);
}

/* Libraries pack a transposed matrix slowly, which few rows cannot make up for. */

jw_index jw_prepared_floats(jw_index columns, jw_index depth, int transposed) {
    return transposed ? jw_padded(columns * depth) : 0;
}

jw_prepared jw_prepare(jw_index columns, jw_index depth, jw_matrix b, float *restrict workspace) {
    jw_prepared prepared = {b, columns, depth, workspace};
    if (b.transposed) {
        for (jw_index p = 0; p < depth; p++) {
            for (jw_index j = 0; j < columns; j++) {
                workspace[p * columns + j] = b.data[j * b.leading + p];
            }
        }
        prepared.b = jw_plain(workspace, columns);
    }
    return prepared;
}

void jw_matmul_prepared(jw_index rows, jw_matrix a, const jw_prepared *prepared, float beta,
                        float *c, jw_index c_leading) {
    jw_matmul(rows, prepared->columns, prepared->depth, 1.0f, a, prepared->b, beta, c, c_leading,
              prepared->panels);
}

#endif
