/* Matrix product in C. b is packed into panels, through which a register tile moves; a is read in
 * place. */
#include "internal.h"

#ifndef JW_CBLAS

const char *const jw_matmul_name = "in-tree";

/* The register tile: TILE_ROWS * TILE_COLUMNS sums. They and one row of the panel fit into the
 * vector registers. GCC keeps the sums in registers if a row has more than 16 columns (it unrolls
 * shorter loops too early to vectorise them). With JW_SMALL_MEMORY, tile and workspace are small on
 * every machine, so that a computer can compute the same bits as a microcontroller. */
#if JW_SMALL_MEMORY
#define TILE_ROWS 4
#define TILE_COLUMNS 4
#elif defined(__AVX512F__)
#define TILE_ROWS 6
#define TILE_COLUMNS 32
#elif defined(__AVX__)
#define TILE_ROWS 4
#define TILE_COLUMNS 24
#elif defined(__aarch64__)
#define TILE_ROWS 4
#define TILE_COLUMNS 20
#elif defined(__SSE2__)
#define TILE_ROWS 2
#define TILE_COLUMNS 24
#else
#define TILE_ROWS 4
#define TILE_COLUMNS 4
#endif

/* Size of the packed block of b, in rows and in panels. */
#if JW_SMALL_MEMORY
#define BLOCK_DEPTH 64
#define BLOCK_PANELS 4
#else
#define BLOCK_DEPTH 256
#define BLOCK_PANELS 8
#endif
#define BLOCK_COLUMNS (BLOCK_PANELS * TILE_COLUMNS)

jw_index jw_matmul_workspace(jw_index columns, jw_index depth) {
    const jw_index panels = jw_min(jw_ceil_div(columns, TILE_COLUMNS), BLOCK_PANELS);
    return jw_padded(panels * TILE_COLUMNS * jw_min(depth, BLOCK_DEPTH));
}

/* panel[p][j] = b[first_depth + p, first_column + j], zero beyond the last column. */
static void pack_panel(float *restrict panel, jw_matrix b, jw_index first_depth, jw_index depth,
                       jw_index first_column, jw_index columns) {
    const jw_index count = jw_min(columns, TILE_COLUMNS);
    if (b.transposed) {
        const float *source = b.data + first_column * b.leading + first_depth;
        if (count == TILE_COLUMNS) {
            for (jw_index p = 0; p < depth; p++) {
                for (jw_index j = 0; j < TILE_COLUMNS; j++) {
                    panel[p * TILE_COLUMNS + j] = source[j * b.leading + p];
                }
            }
        } else {
            for (jw_index j = 0; j < count; j++) {
                for (jw_index p = 0; p < depth; p++) {
                    panel[p * TILE_COLUMNS + j] = source[j * b.leading + p];
                }
            }
        }
    } else {
        const float *source = b.data + first_depth * b.leading + first_column;
        if (count == TILE_COLUMNS) {
            for (jw_index p = 0; p < depth; p++) {
                for (jw_index j = 0; j < TILE_COLUMNS; j++) {
                    panel[p * TILE_COLUMNS + j] = source[p * b.leading + j];
                }
            }
        } else {
            for (jw_index p = 0; p < depth; p++) {
                for (jw_index j = 0; j < count; j++) {
                    panel[p * TILE_COLUMNS + j] = source[p * b.leading + j];
                }
            }
        }
    }
    for (jw_index p = 0; p < depth; p++) {
        for (jw_index j = count; j < TILE_COLUMNS; j++) {
            panel[p * TILE_COLUMNS + j] = 0.0f;
        }
    }
}

/* tile[i][j] = sum over p of rows[i][p * step] * panel[p][j] */
static void multiply_tile(float *restrict tile, const float *const rows[TILE_ROWS], jw_index step,
                          const float *restrict panel, jw_index depth) {
    float sums[TILE_ROWS][TILE_COLUMNS] = {{0.0f}};
    const float *restrict row[TILE_ROWS];
    for (int i = 0; i < TILE_ROWS; i++) {
        row[i] = rows[i];
    }
    for (jw_index p = 0; p < depth; p++) {
        for (int i = 0; i < TILE_ROWS; i++) {
            for (int j = 0; j < TILE_COLUMNS; j++) {
                sums[i][j] = JW_FMA(row[i][p * step], panel[j], sums[i][j]);
            }
        }
        panel += TILE_COLUMNS;
    }
    memcpy(tile, sums, sizeof sums);
}

/* c = alpha * tile + beta * c */
static void store_row(float *restrict c, const float *restrict tile, jw_index columns, float alpha,
                      float beta) {
    if (beta == 0.0f) {
        for (jw_index j = 0; j < columns; j++) {
            c[j] = alpha * tile[j];
        }
    } else if (beta == 1.0f) {
        for (jw_index j = 0; j < columns; j++) {
            c[j] = JW_FMA(alpha, tile[j], c[j]);
        }
    } else {
        for (jw_index j = 0; j < columns; j++) {
            c[j] = JW_FMA(alpha, tile[j], beta * c[j]);
        }
    }
}

void jw_matmul(jw_index rows, jw_index columns, jw_index depth, float alpha, jw_matrix a,
               jw_matrix b, float beta, float *c, jw_index c_leading, float *workspace) {
    const jw_index row_step = a.transposed ? 1 : a.leading;
    const jw_index depth_step = a.transposed ? a.leading : 1;
    float tile[TILE_ROWS * TILE_COLUMNS];

    for (jw_index column = 0; column < columns; column += BLOCK_COLUMNS) {
        const jw_index block_columns = jw_min(columns - column, BLOCK_COLUMNS);
        for (jw_index first = 0; first < depth; first += BLOCK_DEPTH) {
            const jw_index block_depth = jw_min(depth - first, BLOCK_DEPTH);
            const float block_beta = first == 0 ? beta : 1.0f;
            for (jw_index j = 0; j < block_columns; j += TILE_COLUMNS) {
                pack_panel(workspace + j * block_depth, b, first, block_depth, column + j,
                           block_columns - j);
            }
            for (jw_index i = 0; i < rows; i += TILE_ROWS) {
                const float *row[TILE_ROWS];
                for (jw_index r = 0; r < TILE_ROWS; r++) { /* past the last row: repeat it */
                    row[r] = a.data + jw_min(i + r, rows - 1) * row_step + first * depth_step;
                }
                for (jw_index j = 0; j < block_columns; j += TILE_COLUMNS) {
                    multiply_tile(tile, row, depth_step, workspace + j * block_depth, block_depth);
                    for (jw_index r = 0; r < jw_min(rows - i, TILE_ROWS); r++) {
                        float *target = c + (i + r) * c_leading + column + j;
                        const float *source = tile + r * TILE_COLUMNS;
                        if (block_columns - j >= TILE_COLUMNS) {
                            store_row(target, source, TILE_COLUMNS, alpha, block_beta);
                        } else {
                            store_row(target, source, block_columns - j, alpha, block_beta);
                        }
                    }
                }
            }
        }
    }
}

#endif
