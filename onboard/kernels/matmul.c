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

/* Defines a function of the register tile's columns and of `ROWS` of its rows:
 * tile[i][j] = BEFORE + sum over p of rows[i][p * step] * panel[p][j]
 * BEFORE is 0, or tile[i][j] if the sums are continued. */
#define DEFINE_MULTIPLY(NAME, ROWS, CONTINUES)                                                     \
    static void NAME(float *restrict tile, const float *const rows[ROWS], jw_index step,           \
                     const float *restrict panel, jw_index depth) {                                \
        float sums[ROWS][TILE_COLUMNS] = {{0.0f}};                                                 \
        if (CONTINUES) {                                                                           \
            memcpy(sums, tile, sizeof sums);                                                       \
        }                                                                                          \
        const float *restrict row[ROWS];                                                           \
        for (int i = 0; i < (ROWS); i++) {                                                         \
            row[i] = rows[i];                                                                      \
        }                                                                                          \
        for (jw_index p = 0; p < depth; p++) {                                                     \
            for (int i = 0; i < (ROWS); i++) {                                                     \
                for (int j = 0; j < TILE_COLUMNS; j++) {                                           \
                    sums[i][j] = JW_FMA(row[i][p * step], panel[j], sums[i][j]);                   \
                }                                                                                  \
            }                                                                                      \
            panel += TILE_COLUMNS;                                                                 \
        }                                                                                          \
        memcpy(tile, sums, sizeof sums);                                                           \
    }

/* Tiles of fewer rows serve small batches and the last rows. Sums are the same in each. */
#define HALF_ROWS (TILE_ROWS / 2)
DEFINE_MULTIPLY(multiply_tile, TILE_ROWS, 0)
DEFINE_MULTIPLY(multiply_half, HALF_ROWS, 0)
DEFINE_MULTIPLY(multiply_row, 1, 0)
DEFINE_MULTIPLY(continue_tile, TILE_ROWS, 1)
DEFINE_MULTIPLY(continue_half, HALF_ROWS, 1)
DEFINE_MULTIPLY(continue_row, 1, 1)

/* tile = rows * panel, for the first `count` rows at least. */
static void multiply_rows(float *restrict tile, const float *const rows[TILE_ROWS], jw_index count,
                          jw_index step, const float *restrict panel, jw_index depth) {
    if (count > HALF_ROWS) {
        multiply_tile(tile, rows, step, panel, depth);
    } else if (count > 1) {
        multiply_half(tile, rows, step, panel, depth);
    } else {
        multiply_row(tile, rows, step, panel, depth);
    }
}

/* The same, added to the tile, whose sums go on. */
static void continue_rows(float *restrict tile, const float *const rows[TILE_ROWS], jw_index count,
                          jw_index step, const float *restrict panel, jw_index depth) {
    if (count > HALF_ROWS) {
        continue_tile(tile, rows, step, panel, depth);
    } else if (count > 1) {
        continue_half(tile, rows, step, panel, depth);
    } else {
        continue_row(tile, rows, step, panel, depth);
    }
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

/* A part of c as a whole tile; beyond c, the tile is zero. */
static void load_tile(float tile[TILE_ROWS * TILE_COLUMNS], const float *c, jw_index c_leading,
                      jw_index rows, jw_index columns) {
    if (rows < TILE_ROWS || columns < TILE_COLUMNS) {
        memset(tile, 0, TILE_ROWS * TILE_COLUMNS * sizeof *tile);
    }
    for (jw_index r = 0; r < rows; r++) {
        memcpy(tile + r * TILE_COLUMNS, c + r * c_leading, (size_t)columns * sizeof *tile);
    }
}

typedef struct {
    jw_index rows, columns, depth;
    float alpha, beta;
    int chained; /* whether sums go on from c; then alpha is 1, and beta is 0 or 1 */
} product;

static void multiply(product m, jw_matrix a, jw_matrix b, float *c, jw_index c_leading,
                     float *workspace) {
    const jw_index row_step = a.transposed ? 1 : a.leading;
    const jw_index depth_step = a.transposed ? a.leading : 1;
    float tile[TILE_ROWS * TILE_COLUMNS];

    for (jw_index column = 0; column < m.columns; column += BLOCK_COLUMNS) {
        const jw_index block_columns = jw_min(m.columns - column, BLOCK_COLUMNS);
        for (jw_index first = 0; first < m.depth; first += BLOCK_DEPTH) {
            const jw_index block_depth = jw_min(m.depth - first, BLOCK_DEPTH);
            const float beta = first == 0 ? m.beta : 1.0f;
            const int continues = m.chained && beta == 1.0f;
            for (jw_index j = 0; j < block_columns; j += TILE_COLUMNS) {
                pack_panel(workspace + j * block_depth, b, first, block_depth, column + j,
                           block_columns - j);
            }
            for (jw_index i = 0; i < m.rows; i += TILE_ROWS) {
                const jw_index tile_rows = jw_min(m.rows - i, TILE_ROWS);
                const float *row[TILE_ROWS];
                for (jw_index r = 0; r < TILE_ROWS; r++) { /* past the last row: repeat it */
                    row[r] = a.data + jw_min(i + r, m.rows - 1) * row_step + first * depth_step;
                }
                for (jw_index j = 0; j < block_columns; j += TILE_COLUMNS) {
                    const jw_index tile_columns = jw_min(block_columns - j, TILE_COLUMNS);
                    const float *panel = workspace + j * block_depth;
                    float *target = c + i * c_leading + column + j;
                    if (continues) {
                        load_tile(tile, target, c_leading, tile_rows, tile_columns);
                        continue_rows(tile, row, tile_rows, depth_step, panel, block_depth);
                    } else {
                        multiply_rows(tile, row, tile_rows, depth_step, panel, block_depth);
                    }
                    for (jw_index r = 0; r < tile_rows; r++) {
                        const float *source = tile + r * TILE_COLUMNS;
                        if (tile_columns == TILE_COLUMNS) {
                            store_row(target + r * c_leading, source, TILE_COLUMNS, m.alpha,
                                      continues ? 0.0f : beta);
                        } else {
                            store_row(target + r * c_leading, source, tile_columns, m.alpha,
                                      continues ? 0.0f : beta);
                        }
                    }
                }
            }
        }
    }
}

void jw_matmul(jw_index rows, jw_index columns, jw_index depth, float alpha, jw_matrix a,
               jw_matrix b, float beta, float *c, jw_index c_leading, float *workspace) {
    const product m = {rows, columns, depth, alpha, beta, 0};
    multiply(m, a, b, c, c_leading, workspace);
}

void jw_matmul_chained(jw_index rows, jw_index columns, jw_index depth, jw_matrix a, jw_matrix b,
                       int continues, float *c, jw_index c_leading, float *workspace) {
    const product m = {rows, columns, depth, 1.0f, continues ? 1.0f : 0.0f, 1};
    multiply(m, a, b, c, c_leading, workspace);
}

/* --- a right matrix that many products share ---------------------------------------------------- */

#if JW_SMALL_MEMORY

/* It is read in place: on machines without vectors, a copy costs more than it saves. */

jw_index jw_prepared_floats(jw_index columns, jw_index depth, int transposed) {
    (void)columns;
    (void)depth;
    (void)transposed;
    return 0;
}

jw_prepared jw_prepare(jw_index columns, jw_index depth, jw_matrix b, float *workspace) {
    const jw_prepared prepared = {b, columns, depth, workspace};
    return prepared;
}

/* tile[i][j] = sum over p of a[i][p] * b[p][j] for `rows` rows and `columns` columns. Called with
 * constants where the tile is whole, so that its sums are in registers. */
static inline void multiply_in_place(float *tile, const float *a, jw_index a_row, jw_index a_step,
                                     const float *b, jw_index b_step, jw_index b_column,
                                     jw_index depth, int rows, int columns) {
    float sums[TILE_ROWS][TILE_COLUMNS] = {{0.0f}};
    for (jw_index p = 0; p < depth; p++) {
        for (int i = 0; i < rows; i++) {
            for (int j = 0; j < columns; j++) {
                sums[i][j] =
                    JW_FMA(a[i * a_row + p * a_step], b[p * b_step + j * b_column], sums[i][j]);
            }
        }
    }
    memcpy(tile, sums, sizeof sums);
}

void jw_matmul_prepared(jw_index rows, jw_matrix a, const jw_prepared *prepared, float beta,
                        float *c, jw_index c_leading) {
    const jw_index a_row = a.transposed ? 1 : a.leading;
    const jw_index a_step = a.transposed ? a.leading : 1;
    const jw_index b_column = prepared->b.transposed ? prepared->b.leading : 1;
    const jw_index b_step = prepared->b.transposed ? 1 : prepared->b.leading;
    const jw_index depth = prepared->depth;
    float tile[TILE_ROWS * TILE_COLUMNS];

    for (jw_index j = 0; j < prepared->columns; j += TILE_COLUMNS) {
        const jw_index columns = jw_min(prepared->columns - j, TILE_COLUMNS);
        const float *b = prepared->b.data + j * b_column;
        jw_index count;
        for (jw_index i = 0; i < rows; i += count) {
            const float *from = a.data + i * a_row;
            count = rows - i >= TILE_ROWS ? TILE_ROWS : 1;
            if (columns < TILE_COLUMNS) {
                multiply_in_place(tile, from, a_row, a_step, b, b_step, b_column, depth, (int)count,
                                  (int)columns);
            } else if (count == TILE_ROWS) {
                multiply_in_place(tile, from, a_row, a_step, b, b_step, b_column, depth, TILE_ROWS,
                                  TILE_COLUMNS);
            } else {
                multiply_in_place(tile, from, a_row, a_step, b, b_step, b_column, depth, 1,
                                  TILE_COLUMNS);
            }
            for (jw_index r = 0; r < count; r++) {
                store_row(c + (i + r) * c_leading + j, tile + r * TILE_COLUMNS, columns, 1.0f,
                          beta);
            }
        }
    }
}

#else

/* All its panels are packed. */

jw_index jw_prepared_floats(jw_index columns, jw_index depth, int transposed) {
    (void)transposed;
    return jw_padded(jw_ceil_div(columns, TILE_COLUMNS) * TILE_COLUMNS * depth);
}

jw_prepared jw_prepare(jw_index columns, jw_index depth, jw_matrix b, float *workspace) {
    const jw_prepared prepared = {b, columns, depth, workspace};
    for (jw_index j = 0; j < columns; j += TILE_COLUMNS) {
        pack_panel(workspace + j * depth, b, 0, depth, j, columns - j);
    }
    return prepared;
}

void jw_matmul_prepared(jw_index rows, jw_matrix a, const jw_prepared *prepared, float beta,
                        float *c, jw_index c_leading) {
    const jw_index row_step = a.transposed ? 1 : a.leading;
    const jw_index depth_step = a.transposed ? a.leading : 1;
    float tile[TILE_ROWS * TILE_COLUMNS];

    for (jw_index j = 0; j < prepared->columns; j += TILE_COLUMNS) {
        const float *panel = prepared->panels + j * prepared->depth;
        const jw_index columns = jw_min(prepared->columns - j, TILE_COLUMNS);
        for (jw_index i = 0; i < rows; i += TILE_ROWS) {
            const jw_index count = jw_min(rows - i, TILE_ROWS);
            const float *row[TILE_ROWS];
            for (jw_index r = 0; r < TILE_ROWS; r++) { /* past the last row: repeat it */
                row[r] = a.data + jw_min(i + r, rows - 1) * row_step;
            }
            multiply_rows(tile, row, count, depth_step, panel, prepared->depth);
            for (jw_index r = 0; r < count; r++) {
                store_row(c + (i + r) * c_leading + j, tile + r * TILE_COLUMNS, columns, 1.0f,
                          beta);
            }
        }
    }
}

#endif

#endif
