/* Matrix product in C. b is cut into panels, which are packed one at a time where that pays, and
 * through which a register tile moves; a is read in place. */
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

/* Size of the block of b whose products with all rows of a are added up together, in rows and in
 * panels: that of a's columns which they share stays in a cache. */
#if JW_SMALL_MEMORY
#define BLOCK_DEPTH 72
#define BLOCK_PANELS 4
#else
#define BLOCK_DEPTH 256
#define BLOCK_PANELS 8
#endif
#define BLOCK_COLUMNS (BLOCK_PANELS * TILE_COLUMNS)

/* Floats from one row of a packed panel to the next. The rows of a narrow one overlap: beyond its
 * columns, a register tile multiplies what follows, and these sums are not used. */
static jw_index packed_leading(jw_index columns) {
    return 2 * columns <= TILE_COLUMNS ? TILE_COLUMNS / 2 : TILE_COLUMNS;
}

jw_index jw_matmul_workspace(jw_index columns, jw_index depth) {
    const jw_index leading = packed_leading(columns);
    return jw_padded(leading * jw_min(depth, BLOCK_DEPTH) + TILE_COLUMNS - leading);
}

/* A copy of columns of b, with `leading` floats from one row to the next. Called with constants
 * where the panel is whole. */
static inline void pack_columns(float *restrict panel, jw_index leading, jw_matrix b,
                                jw_index depth, jw_index columns) {
    if (b.transposed && columns < TILE_COLUMNS) {
        for (jw_index j = 0; j < columns; j++) {
            for (jw_index p = 0; p < depth; p++) {
                panel[p * leading + j] = b.data[j * b.leading + p];
            }
        }
        return;
    }
    if (!b.transposed && columns < TILE_COLUMNS) {
        jw_copy_rows(panel, leading, b.data, b.leading, depth, columns);
        return;
    }
    for (jw_index p = 0; p < depth; p++) {
        for (jw_index j = 0; j < columns; j++) {
            panel[p * leading + j] =
                b.transposed ? b.data[j * b.leading + p] : b.data[p * b.leading + j];
        }
    }
}

/* panel[p][j] = b[first_depth + p, first_column + j], zero beyond the last column of all. */
static void pack_panel(float *restrict panel, jw_index leading, jw_matrix b, jw_index first_depth,
                       jw_index depth, jw_index first_column, jw_index columns) {
    b.data += b.transposed ? first_column * b.leading + first_depth
                           : first_depth * b.leading + first_column;
    if (columns >= TILE_COLUMNS) {
        pack_columns(panel, TILE_COLUMNS, b, depth, TILE_COLUMNS);
        return;
    }
    pack_columns(panel, leading, b, depth, columns);
    for (jw_index p = 0; p < depth; p++) {
        for (jw_index j = columns; j < leading; j++) {
            panel[p * leading + j] = 0.0f;
        }
    }
    for (jw_index j = leading; j < TILE_COLUMNS; j++) { /* what follows the last row */
        panel[(depth - 1) * leading + j] = 0.0f;
    }
}

/* TILE_COLUMNS columns of b; `leading`: floats from one row to the next. */
typedef struct {
    const float *data;
    jw_index leading;
} panel_of_b;

/* Whether panels of `columns` columns are read where they are. A machine without vectors and caches
 * gains nothing from a copy, and others only if many rows use it. */
static int is_read_in_place(jw_matrix b, jw_index rows, jw_index columns) {
    return !b.transposed && columns >= TILE_COLUMNS && (JW_SMALL_MEMORY || rows <= 4 * TILE_ROWS);
}

/* Unrolls a loop over the sums early, so that GCC keeps them in registers while they are loaded and
 * stored. Longer rows are vectorised instead. */
#if JW_SMALL_MEMORY && defined(__GNUC__) && !defined(__clang__)
#define UNROLLED _Pragma("GCC unroll 4")
#else
#define UNROLLED
#endif

/* Defines a function of the register tile's columns and of `ROWS` of its rows:
 * c[i][j] = BEFORE + sum over p of rows[i][AT] * panel[p][j]
 * BEFORE is 0, or c[i][j] if the sums are continued; AT is p * step, or step[p]. */
#define DEFINE_MULTIPLY(NAME, ROWS, CONTINUES, STEP, AT)                                           \
    static JW_APART void NAME(float *restrict c, jw_index c_leading,                               \
                              const float *const rows[ROWS], STEP step, panel_of_b b,              \
                              jw_index depth) {                                                    \
        const float *restrict panel = b.data;                                                      \
        float sums[ROWS][TILE_COLUMNS];                                                            \
        UNROLLED for (int i = 0; i < (ROWS); i++) {                                                \
            UNROLLED for (int j = 0; j < TILE_COLUMNS; j++) {                                      \
                sums[i][j] = (CONTINUES) ? c[i * c_leading + j] : 0.0f;                            \
            }                                                                                      \
        }                                                                                          \
        const float *restrict row[ROWS];                                                           \
        for (int i = 0; i < (ROWS); i++) {                                                         \
            row[i] = rows[i];                                                                      \
        }                                                                                          \
        for (jw_index p = 0; p < depth; p++) {                                                     \
            for (int i = 0; i < (ROWS); i++) {                                                     \
                for (int j = 0; j < TILE_COLUMNS; j++) {                                           \
                    sums[i][j] = JW_FMA(row[i][AT], panel[j], sums[i][j]);                         \
                }                                                                                  \
            }                                                                                      \
            panel += b.leading;                                                                    \
        }                                                                                          \
        UNROLLED for (int i = 0; i < (ROWS); i++) {                                                \
            UNROLLED for (int j = 0; j < TILE_COLUMNS; j++) {                                      \
                c[i * c_leading + j] = sums[i][j];                                                 \
            }                                                                                      \
        }                                                                                          \
    }

/* Tiles of fewer rows serve small batches and the last rows. Sums are the same in each. */
#define HALF_ROWS (TILE_ROWS / 2)
#define DEFINE_MULTIPLIES(NAME, CONTINUES, STEP, AT)                                               \
    DEFINE_MULTIPLY(NAME##_tile, TILE_ROWS, CONTINUES, STEP, AT)                                   \
    DEFINE_MULTIPLY(NAME##_half, HALF_ROWS, CONTINUES, STEP, AT)                                   \
    DEFINE_MULTIPLY(NAME##_row, 1, CONTINUES, STEP, AT)                                            \
    /* The same for the first `count` rows at least. */                                            \
    static void NAME##_rows(float *restrict c, jw_index c_leading,                                 \
                            const float *const rows[TILE_ROWS], jw_index count, STEP step,         \
                            panel_of_b panel, jw_index depth) {                                    \
        if (count > HALF_ROWS) {                                                                   \
            NAME##_tile(c, c_leading, rows, step, panel, depth);                                   \
        } else if (count > 1) {                                                                    \
            NAME##_half(c, c_leading, rows, step, panel, depth);                                   \
        } else {                                                                                   \
            NAME##_row(c, c_leading, rows, step, panel, depth);                                    \
        }                                                                                          \
    }
DEFINE_MULTIPLIES(multiply, 0, jw_index, p *step)
DEFINE_MULTIPLIES(continue, 1, jw_index, p *step)
DEFINE_MULTIPLIES(flipped, 1, const int32_t *, step[p])

/* Whether one of these functions has exactly so many rows. */
static int is_whole(jw_index rows) {
    return rows == TILE_ROWS || rows == HALF_ROWS || rows == 1;
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

/* A part of c as a whole tile; beyond c, or if there is none, the tile is zero. */
static void load_tile(float tile[TILE_ROWS * TILE_COLUMNS], const float *c, jw_index c_leading,
                      jw_index rows, jw_index columns) {
    if (!c || rows < TILE_ROWS || columns < TILE_COLUMNS) {
        memset(tile, 0, TILE_ROWS * TILE_COLUMNS * sizeof *tile);
    }
    for (jw_index r = 0; c && r < rows; r++) {
        memcpy(tile + r * TILE_COLUMNS, c + r * c_leading, (size_t)columns * sizeof *tile);
    }
}

typedef struct {
    const float *data;
    jw_index row_step, depth_step;
    const int32_t *steps; /* from the first weight of a row of flipped filters to each, or NULL */
} left_matrix;

typedef struct {
    jw_index rows, columns, depth;
    float alpha, beta;
    int chained; /* whether sums go on from c; then alpha is 1, and beta is 0 or 1 */
} product;

/* The panel of b that begins with these, for so many rows of a; packed into `room` if need be. */
static panel_of_b panel_at(jw_matrix b, jw_index first_depth, jw_index depth, jw_index first_column,
                           jw_index columns, jw_index rows, float *room) {
    panel_of_b panel = {room, packed_leading(columns)};
    if (is_read_in_place(b, rows, columns)) {
        panel.data = b.data + first_depth * b.leading + first_column;
        panel.leading = b.leading;
    } else {
        pack_panel(room, panel.leading, b, first_depth, depth, first_column, columns);
    }
    return panel;
}

/* A tile of a chained product: sums that go on from c if `continues`. `steps` of flipped filters, or
 * NULL; `tile`: room for one. */
static void chain_tile(const left_matrix *a, const float *const row[TILE_ROWS],
                       const int32_t *steps, panel_of_b panel, jw_index depth, float *c,
                       jw_index c_leading, jw_index rows, jw_index columns, int continues,
                       float *tile) {
    const int begins = !continues && !steps;
    const int in_place = columns == TILE_COLUMNS && is_whole(rows) && (continues || begins);
    float *sums = in_place ? c : tile;
    const jw_index leading = in_place ? c_leading : TILE_COLUMNS;
    if (!in_place && !begins) {
        load_tile(tile, continues ? c : NULL, c_leading, rows, columns);
    }
    if (steps) {
        flipped_rows(sums, leading, row, rows, steps, panel, depth);
    } else if (begins) {
        multiply_rows(sums, leading, row, rows, a->depth_step, panel, depth);
    } else {
        continue_rows(sums, leading, row, rows, a->depth_step, panel, depth);
    }
    for (jw_index r = 0; !in_place && r < rows; r++) {
        memcpy(c + r * c_leading, tile + r * TILE_COLUMNS, (size_t)columns * sizeof *tile);
    }
}

/* Some of the depth: rows of b from `first` on. `beta` is that of the sums before. */
typedef struct {
    jw_index first, depth;
    float beta;
} stretch;

/* Products of all rows of a with a panel of b, of which `columns` columns are of c. */
static void multiply_panel(const product *m, const left_matrix *a, const stretch *s,
                           panel_of_b panel, jw_index columns, float *c, jw_index c_leading) {
    float tile[TILE_ROWS * TILE_COLUMNS];
    const int32_t *steps = a->steps ? a->steps + s->first : NULL;
    for (jw_index i = 0; i < m->rows; i += TILE_ROWS) {
        const jw_index rows = jw_min(m->rows - i, TILE_ROWS);
        float *target = c + i * c_leading;
        const float *row[TILE_ROWS];
        for (jw_index r = 0; r < TILE_ROWS; r++) { /* past the last row: repeat it */
            row[r] = a->data + jw_min(i + r, m->rows - 1) * a->row_step +
                     (steps ? 0 : s->first * a->depth_step);
        }
        if (m->chained) {
            chain_tile(a, row, steps, panel, s->depth, target, c_leading, rows, columns,
                       s->beta == 1.0f, tile);
            continue;
        }
        if (m->alpha == 1.0f && s->beta == 0.0f && columns == TILE_COLUMNS && is_whole(rows)) {
            multiply_rows(target, c_leading, row, rows, a->depth_step, panel, s->depth);
            continue;
        }
        multiply_rows(tile, TILE_COLUMNS, row, rows, a->depth_step, panel, s->depth);
        for (jw_index r = 0; r < rows; r++) {
            const float *source = tile + r * TILE_COLUMNS;
            if (columns == TILE_COLUMNS) {
                store_row(target + r * c_leading, source, TILE_COLUMNS, m->alpha, s->beta);
            } else {
                store_row(target + r * c_leading, source, columns, m->alpha, s->beta);
            }
        }
    }
}

static void multiply(const product *m, const left_matrix *a, const jw_matrix *b, float *c,
                     jw_index c_leading, float *workspace) {
    for (jw_index column = 0; column < m->columns; column += BLOCK_COLUMNS) {
        const jw_index end = jw_min(column + BLOCK_COLUMNS, m->columns);
        for (jw_index first = 0; first < m->depth; first += BLOCK_DEPTH) {
            const stretch s = {first, jw_min(m->depth - first, BLOCK_DEPTH),
                               first == 0 ? m->beta : 1.0f};
            for (jw_index j = column; j < end; j += TILE_COLUMNS) {
                const panel_of_b panel =
                    panel_at(*b, first, s.depth, j, m->columns - j, m->rows, workspace);
                multiply_panel(m, a, &s, panel, jw_min(m->columns - j, TILE_COLUMNS), c + j,
                               c_leading);
            }
        }
    }
}

static left_matrix left_of(jw_matrix a) {
    const left_matrix left = {a.data, a.transposed ? 1 : a.leading, a.transposed ? a.leading : 1,
                              NULL};
    return left;
}

void jw_matmul(jw_index rows, jw_index columns, jw_index depth, float alpha, jw_matrix a,
               jw_matrix b, float beta, float *c, jw_index c_leading, float *workspace) {
    const product m = {rows, columns, depth, alpha, beta, 0};
    const left_matrix left = left_of(a);
    multiply(&m, &left, &b, c, c_leading, workspace);
}

void jw_matmul_chained(jw_index rows, jw_index columns, jw_index depth, jw_matrix a, jw_matrix b,
                       int continues, float *c, jw_index c_leading, float *workspace) {
    const product m = {rows, columns, depth, 1.0f, continues ? 1.0f : 0.0f, 1};
    const left_matrix left = left_of(a);
    multiply(&m, &left, &b, c, c_leading, workspace);
}

void jw_flip(jw_filters a, float *workspace) {
    int32_t *steps = (int32_t *)(void *)workspace;
    for (jw_index channel = 0; channel < a.most; channel++) {
        for (jw_index tap = a.taps - 1; tap >= 0; tap--) {
            *steps++ = (int32_t)(channel * a.leading + tap);
        }
    }
}

void jw_matmul_flipped(jw_index rows, jw_index columns, jw_index channels, jw_filters a,
                       jw_matrix b, int continues, float *c, jw_index c_leading, float *workspace) {
    const product m = {rows, columns, channels * a.taps, 1.0f, continues ? 1.0f : 0.0f, 1};
    const int32_t *steps = (const int32_t *)(const void *)workspace; /* of jw_flip */
    const left_matrix left = {a.data, a.taps, a.leading, steps};
    multiply(&m, &left, &b, c, c_leading, workspace + jw_padded(a.most * a.taps));
}

jw_index jw_flipped_workspace(jw_index rows, jw_index columns, jw_index depth) {
    (void)rows;
    return jw_matmul_workspace(columns, depth) + jw_padded(depth);
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
        pack_panel(workspace + j * depth, TILE_COLUMNS, b, 0, depth, j, columns - j);
    }
    return prepared;
}

void jw_matmul_prepared(jw_index rows, jw_matrix a, const jw_prepared *prepared, float beta,
                        float *c, jw_index c_leading) {
    const jw_index row_step = a.transposed ? 1 : a.leading;
    const jw_index depth_step = a.transposed ? a.leading : 1;
    float tile[TILE_ROWS * TILE_COLUMNS];

    for (jw_index j = 0; j < prepared->columns; j += TILE_COLUMNS) {
        const panel_of_b panel = {prepared->panels + j * prepared->depth, TILE_COLUMNS};
        const jw_index columns = jw_min(prepared->columns - j, TILE_COLUMNS);
        for (jw_index i = 0; i < rows; i += TILE_ROWS) {
            const jw_index count = jw_min(rows - i, TILE_ROWS);
            const float *row[TILE_ROWS];
            for (jw_index r = 0; r < TILE_ROWS; r++) { /* past the last row: repeat it */
                row[r] = a.data + jw_min(i + r, rows - 1) * row_step;
            }
            multiply_rows(tile, TILE_COLUMNS, row, count, depth_step, panel, prepared->depth);
            for (jw_index r = 0; r < count; r++) {
                store_row(c + (i + r) * c_leading + j, tile + r * TILE_COLUMNS, columns, 1.0f,
                          beta);
            }
        }
    }
}

#endif

#endif
