#include "linux_replay_channel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "linux_support.h"
#include "platform.h"

#define WARM_UP_NS UINT64_C(50000000)   /* a governor raises the frequency meanwhile */
#define STACK_BYTES ((size_t)256 << 10) /* above the minimum of every C library */

typedef struct {
    jw_channel channel; /* first: its functions get a pointer to it */
    jw_executor *executor;
    pthread_t thread;
    pthread_cond_t submitted, over;
    pthread_mutex_t lock; /* guards the members below */
    uint32_t head, tail;  /* of the queue: head - tail transfers are under way */
    const char *error;    /* of `failed`; later transfers are then discarded */
    const jw_action *failed;
    bool stop;
    const jw_action *queue[]; /* has room for a step; restarts when no transfer is under way */
} thread_channel;

static void *carry_out(void *context) {
    thread_channel *c = context;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (c->head == c->tail && !c->stop) {
            pthread_cond_wait(&c->submitted, &c->lock);
        }
        if (c->head == c->tail) {
            break;
        }
        const jw_action *transfer = c->queue[c->tail];
        if (!c->error) {
            pthread_mutex_unlock(&c->lock);
            const char *error = transfer ? jw_executor_transfer(c->executor, transfer) : NULL;
            pthread_mutex_lock(&c->lock);
            c->error = error;
            c->failed = error ? transfer : NULL;
        }
        c->tail++;
        pthread_cond_signal(&c->over);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void submit(jw_channel *channel, const jw_action *transfer) {
    thread_channel *c = (thread_channel *)channel;
    pthread_mutex_lock(&c->lock);
    if (c->head == c->tail) {
        c->head = c->tail = 0;
    }
    c->queue[c->head++] = transfer;
    pthread_cond_signal(&c->submitted);
    pthread_mutex_unlock(&c->lock);
}

/* Called with the lock. */
static bool has_more_than(const thread_channel *c, uint16_t left) {
    return c->head - c->tail > (c->error ? 0u : left);
}

static bool is_over(jw_channel *channel, uint16_t left) {
    thread_channel *c = (thread_channel *)channel;
    pthread_mutex_lock(&c->lock);
    const bool waits = has_more_than(c, left);
    pthread_mutex_unlock(&c->lock);
    return !waits;
}

static const char *wait_until_left(jw_channel *channel, uint16_t left, const jw_action **failed) {
    thread_channel *c = (thread_channel *)channel;
    pthread_mutex_lock(&c->lock);
    while (has_more_than(c, left)) {
        pthread_cond_wait(&c->over, &c->lock);
    }
    const char *error = c->error;
    if (error) {
        *failed = c->failed;
        c->error = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    return error;
}

static uint32_t asynchronous_count(const jw_plan *plan) {
    uint32_t count = 0;
    for (uint16_t i = 0; i < plan->action_count; i++) {
        count += plan->actions[i].asynchronous;
    }
    return count;
}

static thread_channel *channel_of(jw_executor *executor, size_t count) {
    thread_channel *c = calloc(1, sizeof *c + count * sizeof c->queue[0]);
    if (!c) {
        jw_fail(JW_EXIT_MEMORY, "no memory for a queue of transfers");
    }
    c->channel = (jw_channel){submit, wait_until_left, is_over};
    c->executor = executor;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->submitted, NULL);
    pthread_cond_init(&c->over, NULL);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    const int error = pthread_create(&c->thread, &attributes, carry_out, c);
    pthread_attr_destroy(&attributes);
    if (error) {
        jw_fail(JW_EXIT_MEMORY, "cannot start a thread for transfers: %s", strerror(error));
    }
    jw_count_running(c->thread);
    return c;
}

jw_channel *jw_linux_channel_open(jw_executor *executor) {
    const size_t count = asynchronous_count(executor->plan);
    return count ? &channel_of(executor, count)->channel : NULL;
}

void jw_linux_channel_close(jw_channel *channel) {
    thread_channel *c = (thread_channel *)channel;
    if (!c) {
        return;
    }
    jw_count_running_alone();
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_signal(&c->submitted);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->over);
    pthread_cond_destroy(&c->submitted);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static int compare(const void *one, const void *other) {
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static uint64_t hand_over_nothing(jw_channel *channel) {
    const jw_action *failed;
    const uint64_t start_ns = jw_clock_ns();
    submit(channel, NULL);
    jw_running_ns();
    wait_until_left(channel, 0, &failed);
    jw_running_ns();
    return jw_clock_ns() - start_ns;
}

uint64_t jw_linux_handover_ns(void) {
    enum { ROUNDS = 1001 };
    static uint64_t took_ns[ROUNDS];
    jw_channel *channel = &channel_of(NULL, 1)->channel;
    const uint64_t warm_ns = jw_clock_ns() + WARM_UP_NS;
    while (jw_clock_ns() < warm_ns) {
        hand_over_nothing(channel);
    }
    for (int round = 0; round < ROUNDS; round++) {
        took_ns[round] = hand_over_nothing(channel);
    }
    jw_linux_channel_close(channel);
    qsort(took_ns, ROUNDS, sizeof *took_ns, compare);
    return took_ns[ROUNDS / 2];
}
