/* First fit: blocks are placed one after the other, in some order, each as low in the arena as it
 * fits; and a local search over orders. search.py says what is searched.
 *
 * A block has one offset from its first moment to its last. Most have the same bytes all the time;
 * spans give those of a block whose bytes change.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    int32_t block_count;
    const int32_t *span_start;          /* of each block, and one more */
    const int32_t *span_from, *span_to; /* of each span: moments, the second not included */
    const int64_t *span_bytes;
    int64_t target;
} Problem;

/* What is made small: the arena, or the bytes beyond the target, summed over blocks. The arena says
 * little while many blocks are beyond the target, and the sum says little about the last one. */
enum { ARENA, BEYOND, AIMS };

/* Orders to begin from: those given, and the latest of those that were the best. */
enum { BEGINNINGS = 32 };

typedef struct {
    int64_t low, high;
    int32_t from, to, block;
} Place;

typedef struct {
    int64_t low, high;
} Range;

typedef struct {
    double key;
    int32_t block;
} Ranked;

typedef struct {
    int32_t *order;
    int64_t *offset;
    double value[AIMS];
} Packed;

typedef struct {
    Problem problem;
    uint64_t random;
    int32_t *from, *to; /* of each block */
    int64_t *size;      /* most bytes at any moment */
    uint8_t *changes;   /* whether the bytes change */
    /* Blocks at the same time, listed only for those that change or have few. */
    int64_t *beside_start;
    int32_t *beside;
    Place *places; /* by offset; of those placed so far */
    int32_t place_count;
    Range *taken;
    int32_t *chosen;
    Ranked *ranked;
    Packed now, next, best[AIMS];
    int32_t *beginnings[BEGINNINGS];
    int beginning_count, given_count, latest;
    int64_t placements_left;
    double until_s;
} Search;

/* Blocks beside which a list is shorter to look through than all places. */
enum { FEW = 8 };
/* Orders in a round of promotions, and in the shortest and longest round of moves. */
enum { PROMOTIONS = 60, LEAST_MOVES = 200, DOUBLINGS = 6 };
/* Share of rounds that promote, and of those that begin with the best order. */
static const double PROMOTING = 0.6, FROM_BEST = 0.2;
/* Temperatures relative to the target, of which a round of moves has one. */
static const double COLDEST = 1e-4, WARMEST = 5e-3;
/* How far a promotion moves any block, relative to their number. */
static const double SHAKE = 0.05;

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Uniform in [0, 1): xorshift64*, Vigna, ACM TOMS 2016. */
static double chance(Search *s) {
    uint64_t x = s->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    s->random = x;
    return (double)((x * 0x2545F4914F6CDD1DULL) >> 11) * 0x1p-53;
}

static int32_t pick(Search *s, int32_t count) {
    return (int32_t)(chance(s) * count);
}

static int is_beside(const Search *s, int32_t one, int32_t other) {
    return s->from[one] < s->to[other] && s->from[other] < s->to[one];
}

/* Most bytes of a block between two moments. */
static int64_t height(const Search *s, int32_t block, int32_t from, int32_t to) {
    const Problem *p = &s->problem;
    int64_t most = 0;
    for (int32_t i = p->span_start[block]; i < p->span_start[block + 1]; i++) {
        int is_within = p->span_from[i] < to && from < p->span_to[i];
        if (is_within && p->span_bytes[i] > most) {
            most = p->span_bytes[i];
        }
    }
    return most;
}

/* --- first fit -------------------------------------------------------------------------------- */

/* Lowest offset of a block whose bytes do not change. */
static int64_t fit_among_all(const Search *s, int32_t block) {
    int32_t from = s->from[block], to = s->to[block];
    int64_t offset = 0, size = s->size[block];
    for (int32_t i = 0; i < s->place_count; i++) {
        const Place *place = &s->places[i];
        if (place->from >= to || from >= place->to) {
            continue;
        }
        if (place->low - offset >= size) {
            break;
        }
        int64_t high = place->high;
        if (s->changes[place->block]) {
            high = place->low + height(s, place->block, from, to);
        }
        if (high > offset) {
            offset = high;
        }
    }
    return offset;
}

/* Lowest offset of a block whose neighbours are listed. `offsets` of those not placed are -1. */
static int64_t fit_beside(Search *s, int32_t block, const int64_t *offsets) {
    int32_t count = 0;
    for (int64_t i = s->beside_start[block]; i < s->beside_start[block + 1]; i++) {
        int32_t other = s->beside[i];
        if (offsets[other] < 0) {
            continue;
        }
        /* The offset may not be within this range. */
        Range range = {offsets[other] - height(s, block, s->from[other], s->to[other]),
                       offsets[other] + height(s, other, s->from[block], s->to[block])};
        int32_t at = count++;
        for (; at > 0 && s->taken[at - 1].low > range.low; at--) {
            s->taken[at] = s->taken[at - 1];
        }
        s->taken[at] = range;
    }
    int64_t offset = 0;
    for (int32_t i = 0; i < count && s->taken[i].low < offset; i++) {
        if (s->taken[i].high > offset) {
            offset = s->taken[i].high;
        }
    }
    return offset;
}

static void keep_place(Search *s, int32_t block, int64_t offset) {
    int32_t low = 0, high = s->place_count;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (s->places[middle].low < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    memmove(s->places + low + 1, s->places + low,
            sizeof *s->places * (size_t)(s->place_count - low));
    s->places[low] = (Place){offset, offset + s->size[block], s->from[block], s->to[block], block};
    s->place_count++;
}

/* Place the blocks in the order of `packed`. */
static void place(Search *s, Packed *packed) {
    int32_t count = s->problem.block_count;
    int64_t arena = 0;
    double beyond = 0.0;
    for (int32_t i = 0; i < count; i++) {
        packed->offset[i] = -1;
    }
    s->place_count = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t block = packed->order[i];
        int is_listed = s->beside_start[block] < s->beside_start[block + 1];
        int64_t offset = is_listed ? fit_beside(s, block, packed->offset) : fit_among_all(s, block);
        packed->offset[block] = offset;
        keep_place(s, block, offset);
        int64_t end = offset + s->size[block];
        if (end > arena) {
            arena = end;
        }
        if (end > s->problem.target) {
            beyond += (double)(end - s->problem.target);
        }
    }
    packed->value[ARENA] = (double)arena;
    packed->value[BEYOND] = beyond;
    s->placements_left--;
}

/* --- search ----------------------------------------------------------------------------------- */

static void copy(const Search *s, Packed *to, const Packed *from) {
    size_t count = (size_t)s->problem.block_count;
    memcpy(to->order, from->order, sizeof *to->order * count);
    memcpy(to->offset, from->offset, sizeof *to->offset * count);
    memcpy(to->value, from->value, sizeof to->value);
}

static void keep_beginning(Search *s, const int32_t *order) {
    int at = s->beginning_count;
    if (at < BEGINNINGS) {
        s->beginning_count++;
    } else {
        s->latest = (s->latest + 1) % (BEGINNINGS - s->given_count);
        at = s->given_count + s->latest;
    }
    memcpy(s->beginnings[at], order, sizeof *order * (size_t)s->problem.block_count);
}

/* Place, and keep what is better than the best. */
static void try_order(Search *s, Packed *packed) {
    place(s, packed);
    if (s->beginning_count && packed->value[ARENA] < s->best[ARENA].value[ARENA]) {
        keep_beginning(s, packed->order);
    }
    for (int aim = 0; aim < AIMS; aim++) {
        double value = packed->value[aim], best = s->best[aim].value[aim];
        int other = AIMS - 1 - aim;
        int is_better =
            value < best || (value == best && packed->value[other] < s->best[aim].value[other]);
        if (!s->beginning_count || is_better) {
            copy(s, &s->best[aim], packed);
        }
    }
}

static int is_over(const Search *s) {
    return s->best[ARENA].value[ARENA] <= (double)s->problem.target || s->placements_left <= 0 ||
           seconds_now() > s->until_s;
}

/* Blocks that end above what is wanted; returns their number, which is never 0. */
static int32_t sticking_out(Search *s, const Packed *packed, int aim) {
    int64_t limit = s->problem.target;
    if (aim == ARENA && packed->value[ARENA] - 1.0 > (double)limit) {
        limit = (int64_t)packed->value[ARENA] - 1;
    }
    int32_t count = 0;
    for (int32_t i = 0; i < s->problem.block_count; i++) {
        if (packed->offset[i] + s->size[i] > limit) {
            s->chosen[count++] = i;
        }
    }
    return count;
}

static int by_key(const void *one, const void *other) {
    double a = ((const Ranked *)one)->key, b = ((const Ranked *)other)->key;
    return (a > b) - (a < b);
}

/* Let all blocks that stick out move forward in the order, and two others anywhere near. */
static void promote(Search *s, int aim) {
    int32_t count = s->problem.block_count;
    if (chance(s) < FROM_BEST) {
        copy(s, &s->now, &s->best[aim]);
    } else {
        const int32_t *order = s->beginnings[pick(s, s->beginning_count)];
        memcpy(s->now.order, order, sizeof *order * (size_t)count);
        place(s, &s->now);
    }
    for (int round = 0; round < PROMOTIONS && !is_over(s); round++) {
        int32_t out = sticking_out(s, &s->now, aim);
        for (int32_t rank = 0; rank < count; rank++) {
            s->ranked[s->now.order[rank]].key = rank;
        }
        for (int32_t i = 0; i < out; i++) {
            s->ranked[s->chosen[i]].key *= chance(s);
        }
        for (int i = 0; i < 2; i++) { /* Box and Muller's normal numbers */
            double normal = sqrt(-2.0 * log(1.0 - chance(s))) * cos(2.0 * acos(-1.0) * chance(s));
            s->ranked[pick(s, count)].key += normal * SHAKE * count;
        }
        for (int32_t i = 0; i < count; i++) {
            s->ranked[i].block = i;
        }
        qsort(s->ranked, (size_t)count, sizeof *s->ranked, by_key);
        for (int32_t i = 0; i < count; i++) {
            s->now.order[i] = s->ranked[i].block;
        }
        try_order(s, &s->now);
    }
}

/* A block of the pile under `top`, down to offset 0. */
static int32_t of_the_pile(Search *s, const Packed *packed, int32_t top) {
    int32_t count = 0, block = top;
    while (block >= 0) {
        s->chosen[count++] = block;
        int32_t below = -1;
        for (int32_t i = 0; packed->offset[block] > 0 && i < s->problem.block_count; i++) {
            int is_under = i != block && packed->offset[i] < packed->offset[block] &&
                           is_beside(s, i, block) &&
                           packed->offset[i] + height(s, i, s->from[block], s->to[block]) ==
                               packed->offset[block];
            if (is_under) {
                below = i;
                break;
            }
        }
        block = below;
    }
    return s->chosen[pick(s, count)];
}

static void shift(int32_t *order, int32_t from, int32_t to) {
    int32_t block = order[from];
    if (to < from) {
        memmove(order + to + 1, order + to, sizeof *order * (size_t)(from - to));
    } else {
        memmove(order + from, order + from + 1, sizeof *order * (size_t)(to - from));
    }
    order[to] = block;
}

/* Move a block forward, or backward, or exchange it for one beside it. */
static void move(Search *s, int32_t *order, int32_t block) {
    int32_t count = s->problem.block_count, at = 0;
    while (order[at] != block) {
        at++;
    }
    double kind = chance(s);
    if (kind < 0.5) {
        shift(order, at, pick(s, at + 1));
    } else if (kind < 0.6) {
        shift(order, at, at + pick(s, count - at));
    } else {
        int32_t other = pick(s, count), first = other;
        while (other == at || !is_beside(s, order[other], block)) {
            other = (other + 1) % count;
            if (other == first) {
                return;
            }
        }
        order[at] = order[other];
        order[other] = block;
    }
}

/* Anneal from the best order at one temperature. */
static void anneal(Search *s, int aim) {
    int32_t moves = LEAST_MOVES << pick(s, DOUBLINGS);
    double temperature = (double)s->problem.target * COLDEST * pow(WARMEST / COLDEST, chance(s));
    copy(s, &s->now, &s->best[aim]);
    for (int32_t i = 0; i < moves && !is_over(s); i++) {
        int32_t block = s->chosen[pick(s, sticking_out(s, &s->now, aim))];
        if (chance(s) < 0.5) {
            block = of_the_pile(s, &s->now, block);
        }
        copy(s, &s->next, &s->now);
        move(s, s->next.order, block);
        try_order(s, &s->next);
        double worse = s->next.value[aim] - s->now.value[aim];
        if (worse <= 0.0 || chance(s) < exp(-worse / temperature)) {
            Packed before = s->now;
            s->now = s->next;
            s->next = before;
        }
    }
}

/* --- interface -------------------------------------------------------------------------------- */

static int make_packed(Packed *packed, size_t count) {
    packed->order = malloc(sizeof *packed->order * count);
    packed->offset = malloc(sizeof *packed->offset * count);
    return packed->order && packed->offset;
}

static void free_packed(Packed *packed) {
    free(packed->order);
    free(packed->offset);
}

void first_fit_close(void *handle) {
    Search *s = handle;
    if (!s) {
        return;
    }
    free(s->from);
    free(s->to);
    free(s->size);
    free(s->changes);
    free(s->beside_start);
    free(s->beside);
    free(s->places);
    free(s->taken);
    free(s->chosen);
    free(s->ranked);
    for (int i = 0; i < BEGINNINGS; i++) {
        free(s->beginnings[i]);
    }
    free_packed(&s->now);
    free_packed(&s->next);
    for (int aim = 0; aim < AIMS; aim++) {
        free_packed(&s->best[aim]);
    }
    free(s);
}

/* List the blocks beside each one for which that is worth it; returns 0 without memory. */
static int list_beside(Search *s) {
    int32_t count = s->problem.block_count;
    int64_t listed = 0, capacity = 0;
    for (int32_t i = 0; i < count; i++) {
        s->beside_start[i] = listed;
        for (int32_t j = 0; j < count; j++) {
            if (j == i || !is_beside(s, i, j)) {
                continue;
            }
            if (!s->changes[i] && listed - s->beside_start[i] > count / FEW) {
                listed = s->beside_start[i];
                break;
            }
            if (listed == capacity) {
                capacity = 2 * capacity + count;
                int32_t *beside = realloc(s->beside, sizeof *beside * (size_t)capacity);
                if (!beside) {
                    return 0;
                }
                s->beside = beside;
            }
            s->beside[listed++] = j;
        }
    }
    s->beside_start[count] = listed;
    return 1;
}

/* A search over the blocks of a problem, of which there is at least one; NULL without memory. */
void *first_fit_open(const Problem *problem, uint64_t seed) {
    size_t count = (size_t)problem->block_count;
    Search *s = calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    s->problem = *problem;
    s->random = seed * 0x9E3779B97F4A7C15ULL + 1;
    s->from = malloc(sizeof *s->from * count);
    s->to = malloc(sizeof *s->to * count);
    s->size = malloc(sizeof *s->size * count);
    s->changes = malloc(count);
    s->beside_start = malloc(sizeof *s->beside_start * (count + 1));
    s->places = malloc(sizeof *s->places * count);
    s->taken = malloc(sizeof *s->taken * count);
    s->chosen = malloc(sizeof *s->chosen * count);
    s->ranked = malloc(sizeof *s->ranked * count);
    int is_made = s->from && s->to && s->size && s->changes && s->beside_start && s->places &&
                  s->taken && s->chosen && s->ranked && make_packed(&s->now, count) &&
                  make_packed(&s->next, count) && make_packed(&s->best[ARENA], count) &&
                  make_packed(&s->best[BEYOND], count);
    for (int i = 0; is_made && i < BEGINNINGS; i++) {
        s->beginnings[i] = malloc(sizeof **s->beginnings * count);
        is_made = s->beginnings[i] != NULL;
    }
    for (int32_t i = 0; is_made && i < problem->block_count; i++) {
        int32_t first = problem->span_start[i], end = problem->span_start[i + 1];
        s->from[i] = problem->span_from[first];
        s->to[i] = problem->span_to[end - 1];
        s->size[i] = height(s, i, s->from[i], s->to[i]);
        s->changes[i] = end - first > 1;
    }
    if (!is_made || !list_beside(s)) {
        first_fit_close(s);
        return NULL;
    }
    return s;
}

/* Place the blocks in an order. */
void first_fit_place(void *handle, const int32_t *order) {
    Search *s = handle;
    memcpy(s->now.order, order, sizeof *order * (size_t)s->problem.block_count);
    try_order(s, &s->now);
    if (s->given_count < BEGINNINGS / 2) {
        memcpy(s->beginnings[s->given_count++], order,
               sizeof *order * (size_t)s->problem.block_count);
        s->beginning_count = s->given_count;
    }
}

/* Search from the orders placed so far until the arena is as small as the target, for so many
 * placements and seconds at most; returns how many placements are left. */
int64_t first_fit_search(void *handle, int64_t placements, double seconds) {
    Search *s = handle;
    s->placements_left = placements;
    s->until_s = seconds_now() + seconds;
    while (!is_over(s)) {
        int aim = pick(s, AIMS);
        if (chance(s) < PROMOTING) {
            promote(s, aim);
        } else {
            anneal(s, aim);
        }
    }
    return s->placements_left;
}

/* The arena of the best order; writes the offsets in it. */
int64_t first_fit_best(const void *handle, int64_t *offsets) {
    const Search *s = handle;
    const Packed *best = &s->best[ARENA];
    memcpy(offsets, best->offset, sizeof *offsets * (size_t)s->problem.block_count);
    return (int64_t)best->value[ARENA];
}
