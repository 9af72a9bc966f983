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

/* Queries and keys of a tile. A tile of scores, and the features of its queries or keys, fit into a
 * first-level cache. */
#if JW_SMALL_MEMORY
#define TILE_QUERIES 16
#define TILE_KEYS 16
#else
#define TILE_QUERIES 64
#define TILE_KEYS 64
#endif

typedef struct {
    jw_index batch, queries, keys, heads, key_heads, features;
    jw_index row, key_row; /* floats of a query's row and of a key's */
    int is_causal, has_dropout;
    jw_index mask_batch, mask_heads, mask_queries;
} shape;

static shape shape_of(const int32_t *a) {
    const shape s = {
        a[0],      a[1],      a[2], a[3], a[4], a[5], (jw_index)a[3] * a[5], (jw_index)a[4] * a[5],
        a[6] != 0, a[7] != 0, a[8], a[9], a[10]};
    return s;
}

/* One head of one sample, and the part of its scores that is computed at once. */
typedef struct {
    jw_index sample, head;
    jw_index first_query, queries, first_key, keys;
} tile;

static tile tile_of(const shape *s, jw_index sample, jw_index head, jw_index first_query) {
    const tile t = {sample, head, first_query, jw_min(s->queries - first_query, TILE_QUERIES),
                    0,      0};
    return t;
}

/* End of the keys that a query of the tile attends to. */
static jw_index last_key(const shape *s, const tile *t) {
    return s->is_causal ? jw_min(s->keys, t->first_query + t->queries) : s->keys;
}

static jw_index at_query(const shape *s, const tile *t) {
    return (t->sample * s->queries + t->first_query) * s->row + t->head * s->features;
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
static void compute_scores(const shape *s, const tile *t, float scale, const float *query,
                           const float *key, const float *mask, float *scores, float *workspace) {
    jw_matmul(t->queries, t->keys, s->features, scale, jw_plain(query + at_query(s, t), s->row),
              jw_transposed(key + at_key(s, t), s->key_row), 0.0f, scores, TILE_KEYS, workspace);
    for (jw_index r = 0; r < t->queries; r++) {
        float *restrict row = scores + r * TILE_KEYS;
        const jw_index query_number = t->first_query + r;
        if (s->mask_batch > 0) {
            const jw_index sample = s->mask_batch > 1 ? t->sample : 0;
            const jw_index head = s->mask_heads > 1 ? t->head : 0;
            const jw_index line = s->mask_queries > 1 ? query_number : 0;
            const float *restrict added =
                mask + ((sample * s->mask_heads + head) * s->mask_queries + line) * s->keys +
                t->first_key;
            for (jw_index j = 0; j < t->keys; j++) {
                row[j] += added[j];
            }
        }
        if (s->is_causal) {
            for (jw_index j = jw_max(query_number + 1 - t->first_key, 0); j < t->keys; j++) {
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

/* Workspace: the tile, and that of the largest matrix product. */
size_t jw_attention_forward_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    const jw_index queries = jw_min(s.queries, TILE_QUERIES), keys = jw_min(s.keys, TILE_KEYS);
    const jw_index products =
        jw_max(jw_matmul_workspace(keys, s.features), jw_matmul_workspace(s.features, keys));
    return (size_t)(queries * TILE_KEYS + products) * sizeof(float);
}

/* The softmax of a row is computed online: with every tile of keys, what was summed before is
 * scaled to the new maximum. */
void jw_attention_forward(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float scale = call->scalars[0];
    const jw_dropout_mask dropout = jw_dropout_mask_of(call->scalars + 1);
    const float *query = call->reads[0], *key = call->reads[1], *value = call->reads[2];
    const float *mask = s.mask_batch > 0 ? call->reads[3] : NULL;
    float *output = call->writes[0], *log_sum_exp = call->writes[1];
    float *weights = call->workspace;
    float *workspace = weights + jw_min(s.queries, TILE_QUERIES) * TILE_KEYS;
    float maximum[TILE_QUERIES], sum[TILE_QUERIES];

    for (jw_index task = 0; task < s.batch * s.heads; task++) {
        for (jw_index first = 0; first < s.queries; first += TILE_QUERIES) {
            tile t = tile_of(&s, task / s.heads, task % s.heads, first);
            float *result = output + at_query(&s, &t);
            for (jw_index r = 0; r < t.queries; r++) {
                maximum[r] = -HUGE_VALF;
                sum[r] = 0.0f;
            }
            for (; t.first_key < last_key(&s, &t); t.first_key += TILE_KEYS) {
                t.keys = jw_min(last_key(&s, &t) - t.first_key, TILE_KEYS);
                compute_scores(&s, &t, scale, query, key, mask, weights, workspace);
                for (jw_index r = 0; r < t.queries; r++) {
                    float *row = weights + r * TILE_KEYS;
                    const float highest = jw_maximum(row, t.keys);
                    const float next = highest > maximum[r] ? highest : maximum[r];
                    /* a row of which all is masked so far: exp(-infinity - 0) = 0 */
                    const float base = next == -HUGE_VALF ? 0.0f : next;
                    JW_INDEPENDENT
                    for (jw_index j = 0; j < t.keys; j++) {
                        row[j] = jw_exp(row[j] - base);
                    }
                    const float kept = jw_exp(maximum[r] - base);
                    sum[r] = JW_FMA(sum[r], kept, jw_sum(row, t.keys));
                    maximum[r] = next;
                    if (t.first_key > 0) {
                        scale_row(result + r * s.row, kept, s.features);
                    }
                    if (s.has_dropout) {
                        const uint32_t position = weight_position(&s, &t, r);
                        JW_INDEPENDENT
                        for (jw_index j = 0; j < t.keys; j++) {
                            row[j] = jw_dropped(dropout, position + (uint32_t)j, row[j]);
                        }
                    }
                }
                jw_matmul(t.queries, s.features, t.keys, 1.0f, jw_plain(weights, TILE_KEYS),
                          jw_plain(value + at_key(&s, &t), s.key_row),
                          t.first_key > 0 ? 1.0f : 0.0f, result, s.row, workspace);
            }
            for (jw_index r = 0; r < t.queries; r++) {
                const int is_masked = maximum[r] == -HUGE_VALF;
                scale_row(result + r * s.row, is_masked ? 0.0f : 1.0f / sum[r], s.features);
                log_sum_exp[row_number(&s, &t, r)] =
                    is_masked ? HUGE_VALF : maximum[r] + jw_log(sum[r]);
            }
        }
    }
}

/* Workspace: the weights and their gradient in a tile, the gradient of its queries, and that of the
 * largest matrix product. */
size_t jw_attention_input_gradient_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    const jw_index queries = jw_min(s.queries, TILE_QUERIES), keys = jw_min(s.keys, TILE_KEYS);
    const jw_index products = jw_max(jw_matmul_workspace(keys, s.features),
                                     jw_matmul_workspace(s.features, jw_max(queries, keys)));
    return (size_t)(queries * (2 * TILE_KEYS + jw_padded(s.features)) + products) * sizeof(float);
}

/* With weights p = exp(scores - log_sum_exp) and dp = output_gradient * value^T, the gradient of the
 * scores is p * (dp - sum(p * dp)), where sum(p * dp) = sum(output * output_gradient) of the row. The
 * query gradient may be the output gradient, of which no row is read after its tile of queries. */
void jw_attention_input_gradient(const jw_call *call) {
    const shape s = shape_of(call->attributes);
    const float scale = call->scalars[0];
    const jw_dropout_mask dropout = jw_dropout_mask_of(call->scalars + 1);
    const float *query = call->reads[0], *key = call->reads[1], *value = call->reads[2];
    const float *output = call->reads[3], *log_sum_exp = call->reads[4];
    const float *output_gradient = call->reads[5];
    const float *mask = s.mask_batch > 0 ? call->reads[6] : NULL;
    float *query_gradient = call->writes[0];
    float *key_gradient = call->writes[1], *value_gradient = call->writes[2];
    const jw_index queries = jw_min(s.queries, TILE_QUERIES);
    float *weights = call->workspace, *scores_gradient = weights + queries * TILE_KEYS;
    float *sums = scores_gradient + queries * TILE_KEYS;
    float *workspace = sums + queries * jw_padded(s.features);
    float projection[TILE_QUERIES];

    jw_fill(key_gradient, 0.0f, s.batch * s.keys * s.key_row);
    jw_fill(value_gradient, 0.0f, s.batch * s.keys * s.key_row);
    for (jw_index task = 0; task < s.batch * s.heads; task++) {
        for (jw_index first = 0; first < s.queries; first += TILE_QUERIES) {
            tile t = tile_of(&s, task / s.heads, task % s.heads, first);
            const float *y = output + at_query(&s, &t), *x = query + at_query(&s, &t);
            const float *dy = output_gradient + at_query(&s, &t);
            for (jw_index r = 0; r < t.queries; r++) {
                const float *y_row = y + r * s.row, *dy_row = dy + r * s.row;
                float lanes[JW_LANES];
                jw_clear_lanes(lanes);
                JW_ADD_PRODUCTS(lanes, s.features, y_row[i], dy_row[i]);
                projection[r] = jw_fold_lanes(lanes);
            }
            for (; t.first_key < last_key(&s, &t); t.first_key += TILE_KEYS) {
                t.keys = jw_min(last_key(&s, &t) - t.first_key, TILE_KEYS);
                const jw_index at = at_key(&s, &t);
                compute_scores(&s, &t, scale, query, key, mask, weights, workspace);
                jw_matmul(t.queries, t.keys, s.features, 1.0f, jw_plain(dy, s.row),
                          jw_transposed(value + at, s.key_row), 0.0f, scores_gradient, TILE_KEYS,
                          workspace);
                for (jw_index r = 0; r < t.queries; r++) {
                    float *restrict p = weights + r * TILE_KEYS;
                    float *restrict dp = scores_gradient + r * TILE_KEYS;
                    const float base = log_sum_exp[row_number(&s, &t, r)];
                    const float subtracted = projection[r];
                    if (s.has_dropout) {
                        const uint32_t position = weight_position(&s, &t, r);
                        for (jw_index j = 0; j < t.keys; j++) {
                            const float weight = jw_exp(p[j] - base);
                            const uint32_t at_weight = position + (uint32_t)j;
                            p[j] = jw_dropped(dropout, at_weight, weight);
                            dp[j] = weight * (jw_dropped(dropout, at_weight, dp[j]) - subtracted);
                        }
                    } else {
                        for (jw_index j = 0; j < t.keys; j++) {
                            p[j] = jw_exp(p[j] - base);
                            dp[j] = p[j] * (dp[j] - subtracted);
                        }
                    }
                }
                jw_matmul(t.keys, s.features, t.queries, 1.0f, jw_transposed(weights, TILE_KEYS),
                          jw_plain(dy, s.row), 1.0f, value_gradient + at, s.key_row, workspace);
                jw_matmul(t.keys, s.features, t.queries, scale,
                          jw_transposed(scores_gradient, TILE_KEYS), jw_plain(x, s.row), 1.0f,
                          key_gradient + at, s.key_row, workspace);
                jw_matmul(t.queries, s.features, t.keys, scale,
                          jw_plain(scores_gradient, TILE_KEYS), jw_plain(key + at, s.key_row),
                          t.first_key > 0 ? 1.0f : 0.0f, sums, s.features, workspace);
            }
            for (jw_index r = 0; r < t.queries; r++) {
                memcpy(query_gradient + at_query(&s, &t) + r * s.row, sums + r * s.features,
                       (size_t)s.features * sizeof(float));
            }
        }
    }
}
