/* Scaled dot-product attention in tiles (Dao et al. 2022, FlashAttention): the weights of all
 * queries and keys are never in memory. The forward pass keeps the log-sum-exp of each row of
 * scores, from which the backward pass computes the weights of a tile again.
 *
 * Heads are side by side in the rows [batch, length, heads * features] of queries, keys and values.
 * A head of keys and values serves heads / key_heads heads of queries. */
#include "dropout.h"
#include "exponential.h"
#include "kernels.h"
#include "logarithm.h"

/* Queries and keys of a tile. A tile of scores fits into a first-level cache. It has more queries
 * than keys, because what is packed for a matrix product serves all queries. */
#if JW_SMALL_MEMORY
#define TILE_QUERIES 16
#define TILE_KEYS 16
#else
#define TILE_QUERIES 128
#define TILE_KEYS 64
#endif

typedef struct {
    jw_index batch, queries, keys, heads, key_heads, features;
    jw_index query_row, key_row, output_row; /* floats from one row to the next */
    int is_causal, has_dropout, is_packed;
    jw_index mask_batch, mask_heads, mask_queries;
} shape;

/* What both directions read. */
typedef struct {
    shape s;
    float scale;
    jw_dropout_mask dropout;
    const float *query, *key, *value, *mask;
} attention;

/* Queries of one head of one sample, and the keys of which their scores are computed at once. */
typedef struct {
    jw_index sample, head;
    jw_index first_query, queries, first_key, keys;
} tile;

static shape shape_of(const int32_t *a) {
    shape s;
    s.batch = a[0];
    s.queries = a[1];
    s.keys = a[2];
    s.heads = a[3];
    s.key_heads = a[4];
    s.features = a[5];
    s.is_causal = a[6] != 0;
    s.has_dropout = a[7] != 0;
    s.is_packed = a[8] != 0;
    s.mask_batch = a[9];
    s.mask_heads = a[10];
    s.mask_queries = a[11];
    s.output_row = s.heads * s.features;
    s.key_row = (s.is_packed ? s.heads + 2 * s.key_heads : s.key_heads) * s.features;
    s.query_row = s.is_packed ? s.key_row : s.output_row;
    return s;
}

/* Number of operands that query, key and value are. */
static int inputs_of(const shape *s) {
    return s->is_packed ? 1 : 3;
}

/* Floats from packed queries to packed keys. */
static jw_index keys_after(const shape *s) {
    return s->heads * s->features;
}

static jw_index values_after(const shape *s) {
    return (s->heads + s->key_heads) * s->features;
}

/* `before`: number of operands after the inputs and before a mask. */
static attention attention_of(const jw_call *call, int before) {
    attention a;
    a.s = shape_of(call->attributes);
    a.scale = call->scalars[0];
    a.dropout = jw_dropout_mask_of(call->scalars + 1);
    a.query = call->reads[0];
    a.key = a.s.is_packed ? a.query + keys_after(&a.s) : call->reads[1];
    a.value = a.s.is_packed ? a.query + values_after(&a.s) : call->reads[2];
    a.mask = a.s.mask_batch > 0 ? call->reads[inputs_of(&a.s) + before] : NULL;
    return a;
}

/* Queries from `first_query` on, without keys. `task`: number of the sample's head. */
static tile queries_of(const shape *s, jw_index task, jw_index first_query) {
    tile t;
    t.sample = task / s->heads;
    t.head = task % s->heads;
    t.first_query = first_query;
    t.queries = jw_min(s->queries - first_query, TILE_QUERIES);
    t.first_key = t.keys = 0;
    return t;
}

/* End of the keys that any of the queries attends to. */
static jw_index last_key(const shape *s, const tile *queries) {
    return s->is_causal ? jw_min(s->keys, queries->first_query + queries->queries) : s->keys;
}

/* The tile of these queries with the keys from `first_key` on. Queries before all of these keys are
 * left out. */
static tile tile_of(const shape *s, const tile *queries, jw_index first_key) {
    tile t = *queries;
    const jw_index skipped = s->is_causal ? jw_max(first_key - t.first_query, 0) : 0;
    t.first_query += skipped;
    t.queries -= skipped;
    t.first_key = first_key;
    t.keys = jw_min(last_key(s, queries) - first_key, TILE_KEYS);
    return t;
}

static jw_index at_query(const shape *s, const tile *t) {
    return (t->sample * s->queries + t->first_query) * s->query_row + t->head * s->features;
}

static jw_index at_output(const shape *s, const tile *t) {
    return (t->sample * s->queries + t->first_query) * s->output_row + t->head * s->features;
}

static jw_index at_key(const shape *s, const tile *t) {
    return (t->sample * s->keys + t->first_key) * s->key_row +
           t->head / (s->heads / s->key_heads) * s->features;
}

/* Number of query `r` of the tile among the queries of all samples and heads. */
static jw_index row_number(const shape *s, const tile *t, jw_index r) {
    return (t->sample * s->heads + t->head) * s->queries + t->first_query + r;
}

/* Position of the weights of query `r` in the matrices of all samples and heads. */
static uint32_t weight_position(const shape *s, const tile *t, jw_index r) {
    return (uint32_t)row_number(s, t, r) * (uint32_t)s->keys + (uint32_t)t->first_key;
}

/* scores = scale * query * key^T + mask, and -infinity where a query does not attend to a key. */
static void compute_scores(const attention *a, const tile *t, float *scores, float *workspace) {
    const shape *s = &a->s;
    jw_matmul(t->queries, t->keys, s->features, a->scale,
              jw_plain(a->query + at_query(s, t), s->query_row),
              jw_transposed(a->key + at_key(s, t), s->key_row), 0.0f, scores, TILE_KEYS, workspace);
    for (jw_index r = 0; r < t->queries; r++) {
        float *restrict row = scores + r * TILE_KEYS;
        const jw_index query = t->first_query + r;
        if (a->mask != NULL) {
            const jw_index sample = s->mask_batch > 1 ? t->sample : 0;
            const jw_index head = s->mask_heads > 1 ? t->head : 0;
            const jw_index line = s->mask_queries > 1 ? query : 0;
            const float *restrict added =
                a->mask + ((sample * s->mask_heads + head) * s->mask_queries + line) * s->keys +
                t->first_key;
            for (jw_index j = 0; j < t->keys; j++) {
                row[j] += added[j];
            }
        }
        if (s->is_causal) {
            for (jw_index j = query + 1 - t->first_key; j < t->keys; j++) {
                row[j] = -HUGE_VALF;
            }
        }
    }
}

static void scale_row(float *row, float factor, jw_index count) {
    for (jw_index f = 0; f < count; f++) {
        row[f] *= factor;
    }
}

/* Replace the scores of a row by exp(score - maximum), where the maximum is that of this and all
 * earlier tiles. Returns by what the earlier tiles' sum of values is to be multiplied. */
static JW_APART float exponentials(float *row, jw_index count, float *maximum, float *sum) {
    const float highest = jw_maximum(row[0], row, count);
    const float next = highest > *maximum ? highest : *maximum;
    /* where all keys are masked so far: exp(-infinity - 0) = 0 */
    const float base = next == -HUGE_VALF ? 0.0f : next;
    const float kept = jw_exp(*maximum - base);
    JW_INDEPENDENT
    for (jw_index j = 0; j < count; j++) {
        row[j] = jw_exp(row[j] - base);
    }
    *sum = JW_FMA(*sum, kept, jw_sum(row, count));
    *maximum = next;
    return kept;
}

static JW_APART float dot(const float *x, const float *y, jw_index count) {
    float lanes[JW_LANES];
    jw_clear_lanes(lanes);
    JW_ADD_PRODUCTS(lanes, count, x[i], y[i]);
    return jw_fold_lanes(lanes);
}

/* Add the values of a tile's keys to its queries' output, scaled by exp(-maximum) and by what the
 * maximum of a row was before: the softmax is computed online. */
static void add_values(const attention *a, const tile *t, float *maximum, float *sum, float *output,
                       float *weights, float *workspace) {
    const shape *s = &a->s;
    compute_scores(a, t, weights, workspace);
    for (jw_index r = 0; r < t->queries; r++) {
        float *row = weights + r * TILE_KEYS;
        const float kept = exponentials(row, t->keys, &maximum[r], &sum[r]);
        if (t->first_key > 0) {
            scale_row(output + r * s->output_row, kept, s->features);
        }
        if (s->has_dropout) {
            const uint32_t position = weight_position(s, t, r);
            JW_INDEPENDENT
            for (jw_index j = 0; j < t->keys; j++) {
                row[j] = jw_dropped(a->dropout, position + (uint32_t)j, row[j]);
            }
        }
    }
    jw_matmul(t->queries, s->features, t->keys, 1.0f, jw_plain(weights, TILE_KEYS),
              jw_plain(a->value + at_key(s, t), s->key_row), t->first_key > 0 ? 1.0f : 0.0f, output,
              s->output_row, workspace);
}

void jw_attention_forward(const jw_call *call) {
    const attention a = attention_of(call, 0);
    const shape *s = &a.s;
    float *output = call->writes[0], *log_sum_exp = call->writes[1];
    float *weights = call->workspace;
    float *maximum = weights + jw_min(s->queries, TILE_QUERIES) * TILE_KEYS;
    float *sum = maximum + TILE_QUERIES, *workspace = sum + TILE_QUERIES;

    for (jw_index task = 0; task < s->batch * s->heads; task++) {
        for (jw_index first = 0; first < s->queries; first += TILE_QUERIES) {
            const tile queries = queries_of(s, task, first);
            jw_fill(maximum, -HUGE_VALF, queries.queries);
            jw_fill(sum, 0.0f, queries.queries);
            for (jw_index key = 0; key < last_key(s, &queries); key += TILE_KEYS) {
                const tile t = tile_of(s, &queries, key);
                const jw_index skipped = t.first_query - first;
                add_values(&a, &t, maximum + skipped, sum + skipped, output + at_output(s, &t),
                           weights, workspace);
            }
            for (jw_index r = 0; r < queries.queries; r++) {
                const int is_masked = maximum[r] == -HUGE_VALF;
                scale_row(output + at_output(s, &queries) + r * s->output_row,
                          is_masked ? 0.0f : 1.0f / sum[r], s->features);
                log_sum_exp[row_number(s, &queries, r)] =
                    is_masked ? HUGE_VALF : maximum[r] + jw_log(sum[r]);
            }
        }
    }
}

/* Of a tile of weights, two numbers for each of its rows, and the largest matrix product. */
size_t jw_attention_forward_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    const jw_index queries = jw_min(s.queries, TILE_QUERIES), keys = jw_min(s.keys, TILE_KEYS);
    const jw_index products =
        jw_max(jw_matmul_workspace(keys, s.features), jw_matmul_workspace(s.features, keys));
    return (size_t)(queries * TILE_KEYS + 2 * TILE_QUERIES + products) * sizeof(float);
}

/* Gradients, and what only the backward pass reads. */
typedef struct {
    const float *output, *log_sum_exp, *output_gradient;
    float *query, *key, *value;
    float *weights, *scores, *workspace; /* of a tile; `scores` is a gradient */
} gradients;

/* Add the gradients of a tile. With weights p = exp(scores - log_sum_exp) and
 * dp = output_gradient * value^T, the gradient of the scores is p * (dp - sum(p * dp)).
 * `projection` is that sum of each row, `query_gradient` [queries, features]. */
static void add_gradients(const attention *a, const gradients *g, const tile *t,
                          const float *projection, float *query_gradient) {
    const shape *s = &a->s;
    const jw_index query = at_query(s, t), key = at_key(s, t);
    const jw_matrix dy = jw_plain(g->output_gradient + at_output(s, t), s->output_row);
    compute_scores(a, t, g->weights, g->workspace);
    jw_matmul(t->queries, t->keys, s->features, 1.0f, dy, jw_transposed(a->value + key, s->key_row),
              0.0f, g->scores, TILE_KEYS, g->workspace);
    for (jw_index r = 0; r < t->queries; r++) {
        float *restrict p = g->weights + r * TILE_KEYS;
        float *restrict dp = g->scores + r * TILE_KEYS;
        const float base = g->log_sum_exp[row_number(s, t, r)], subtracted = projection[r];
        if (s->has_dropout) {
            const uint32_t first = weight_position(s, t, r);
            for (jw_index j = 0; j < t->keys; j++) {
                const uint32_t position = first + (uint32_t)j;
                const float weight = jw_exp(p[j] - base);
                p[j] = jw_dropped(a->dropout, position, weight);
                dp[j] = weight * (jw_dropped(a->dropout, position, dp[j]) - subtracted);
            }
        } else {
            for (jw_index j = 0; j < t->keys; j++) {
                p[j] = jw_exp(p[j] - base);
                dp[j] = p[j] * (dp[j] - subtracted);
            }
        }
    }
    jw_matmul(t->keys, s->features, t->queries, 1.0f, jw_transposed(g->weights, TILE_KEYS), dy,
              1.0f, g->value + key, s->key_row, g->workspace);
    jw_matmul(t->keys, s->features, t->queries, a->scale, jw_transposed(g->scores, TILE_KEYS),
              jw_plain(a->query + query, s->query_row), 1.0f, g->key + key, s->key_row,
              g->workspace);
    jw_matmul(t->queries, s->features, t->keys, a->scale, jw_plain(g->scores, TILE_KEYS),
              jw_plain(a->key + key, s->key_row), t->first_key > 0 ? 1.0f : 0.0f, query_gradient,
              s->features, g->workspace);
}

/* Unless it is packed, the query gradient may be the output gradient, whose rows are not read after their tile. */
void jw_attention_input_gradient(const jw_call *call) {
    const attention a = attention_of(call, 3);
    const shape *s = &a.s;
    const jw_index most = jw_min(s->queries, TILE_QUERIES);
    float *weights = call->workspace, *scores = weights + most * TILE_KEYS;
    float *query_gradient = scores + most * TILE_KEYS;
    float *projection = query_gradient + most * s->features;
    float *first_gradient = call->writes[0];
    const gradients g = {
        .output = call->reads[inputs_of(s)],
        .log_sum_exp = call->reads[inputs_of(s) + 1],
        .output_gradient = call->reads[inputs_of(s) + 2],
        .query = first_gradient,
        .key = s->is_packed ? first_gradient + keys_after(s) : call->writes[1],
        .value = s->is_packed ? first_gradient + values_after(s) : call->writes[2],
        .weights = weights,
        .scores = scores,
        .workspace = projection + TILE_QUERIES,
    };

    if (s->is_packed) {
        jw_fill(g.query, 0.0f, s->batch * s->keys * s->key_row);
    } else {
        jw_fill(g.key, 0.0f, s->batch * s->keys * s->key_row);
        jw_fill(g.value, 0.0f, s->batch * s->keys * s->key_row);
    }
    for (jw_index task = 0; task < s->batch * s->heads; task++) {
        for (jw_index first = 0; first < s->queries; first += TILE_QUERIES) {
            const tile queries = queries_of(s, task, first);
            const jw_index at = at_output(s, &queries);
            /* sum(p * dp) of a row = sum(output * output_gradient) */
            for (jw_index r = 0; r < queries.queries; r++) {
                const jw_index row = at + r * s->output_row;
                projection[r] = dot(g.output + row, g.output_gradient + row, s->features);
            }
            for (jw_index key = 0; key < last_key(s, &queries); key += TILE_KEYS) {
                const tile t = tile_of(s, &queries, key);
                const jw_index skipped = t.first_query - first;
                add_gradients(&a, &g, &t, projection + skipped,
                              query_gradient + skipped * s->features);
            }
            for (jw_index r = 0; r < queries.queries; r++) {
                memcpy(g.query + at_query(s, &queries) + r * s->query_row,
                       query_gradient + r * s->features, (size_t)s->features * sizeof(float));
            }
        }
    }
}

/* Of a tile of weights and its gradient, the gradient of its queries, a number for each of its rows,
 * and the largest matrix product. */
size_t jw_attention_input_gradient_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    const jw_index queries = jw_min(s.queries, TILE_QUERIES), keys = jw_min(s.keys, TILE_KEYS);
    const jw_index products = jw_max(jw_matmul_workspace(keys, s.features),
                                     jw_matmul_workspace(s.features, jw_max(queries, keys)));
    return (size_t)(queries * (2 * TILE_KEYS + s.features) + TILE_QUERIES + products) *
           sizeof(float);
}
