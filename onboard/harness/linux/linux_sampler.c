#include "linux_sampler.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "linux_support.h"
#include "platform.h"

#define RING_SAMPLES 32768u /* a power of two */

/* Beyond this many waiting samples, the thread writes some itself, a few after each sample, so that
 * it takes the next one in time: a window may be longer than the ring. */
#define MOST_WAITING (RING_SAMPLES / 2)
#define WRITTEN_AT_ONCE 4

typedef struct {
    uint64_t clock_ns;
    int64_t values[JW_MAX_SOURCES];
} sample;

struct jw_sampler {
    jw_source *sources[JW_MAX_SOURCES];
    int count;
    uint64_t period_ns;
    int processor;
    pthread_t thread;
    pthread_cond_t has_begun;
    pthread_mutex_t writing; /* held by whoever writes samples, so that they stay in order */
    FILE *output;
    pthread_mutex_t lock; /* guards the members below */
    bool begun, stop;
    uint32_t head, tail; /* free-running; head - tail samples are waiting */
    sample ring[RING_SAMPLES];
};

/* Read all sources, one after the other; the sample's time is the middle of that time. */
static bool take_sample(const jw_sampler *sampler, sample *taken) {
    const uint64_t before_ns = jw_clock_ns();
    for (int i = 0; i < sampler->count; i++) {
        if (!jw_source_read(sampler->sources[i], &taken->values[i])) {
            return false;
        }
    }
    taken->clock_ns = before_ns + (jw_clock_ns() - before_ns) / 2;
    return true;
}

/* Take the oldest waiting sample out of the ring; false if there is none. */
static bool next_waiting(jw_sampler *sampler, sample *taken) {
    pthread_mutex_lock(&sampler->lock);
    const bool waiting = sampler->head != sampler->tail;
    if (waiting) {
        *taken = sampler->ring[sampler->tail % RING_SAMPLES];
        sampler->tail++;
    }
    pthread_mutex_unlock(&sampler->lock);
    return waiting;
}

/* Write waiting samples, at most `most` of them. */
static void write_samples(jw_sampler *sampler, uint32_t most) {
    sample taken;
    pthread_mutex_lock(&sampler->writing);
    for (uint32_t i = 0; i < most && next_waiting(sampler, &taken); i++) {
        fprintf(sampler->output, "%" PRIu64, taken.clock_ns);
        for (int source = 0; source < sampler->count; source++) {
            fprintf(sampler->output, " %" PRId64, taken.values[source]);
        }
        fputc('\n', sampler->output);
    }
    pthread_mutex_unlock(&sampler->writing);
}

static void *run(void *context) {
    jw_sampler *sampler = context;
    jw_run_on(sampler->processor);
    uint64_t next_ns = jw_clock_ns();
    for (bool stop = false; !stop;) {
        sample taken;
        const bool valid = take_sample(sampler, &taken);
        pthread_mutex_lock(&sampler->lock);
        if (valid && sampler->head - sampler->tail < RING_SAMPLES) {
            sampler->ring[sampler->head % RING_SAMPLES] = taken;
            sampler->head++;
        }
        stop = sampler->stop;
        const bool is_filling = sampler->head - sampler->tail > MOST_WAITING;
        if (!sampler->begun) {
            sampler->begun = true;
            pthread_cond_signal(&sampler->has_begun);
        }
        pthread_mutex_unlock(&sampler->lock);
        if (is_filling) {
            write_samples(sampler, WRITTEN_AT_ONCE);
        }
        next_ns += sampler->period_ns;
        const uint64_t now_ns = jw_clock_ns();
        if (next_ns < now_ns) {
            next_ns = now_ns; /* the sensor is too slow for the period: skip samples */
        }
        jw_sleep_until(next_ns);
    }
    return NULL;
}

jw_sampler *jw_sampler_start(jw_source *const *sources, int count, uint64_t period_ns,
                             int processor, FILE *output) {
    jw_sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler) {
        jw_fail(JW_EXIT_MEMORY, "no memory for the samples of the meter");
    }
    sampler->count = count;
    sampler->period_ns = period_ns;
    sampler->processor = processor;
    sampler->output = output;
    memcpy(sampler->sources, sources, (size_t)count * sizeof *sources);
    pthread_mutex_init(&sampler->writing, NULL);
    pthread_mutex_init(&sampler->lock, NULL);
    pthread_cond_init(&sampler->has_begun, NULL);
    const int error = pthread_create(&sampler->thread, NULL, run, sampler);
    if (error) {
        jw_fail(JW_EXIT_METER, "meter: cannot start a thread for samples: %s", strerror(error));
    }
    /* Wait for the first sample: otherwise a window could begin before it, and always would on a
     * single processor. */
    pthread_mutex_lock(&sampler->lock);
    while (!sampler->begun) {
        pthread_cond_wait(&sampler->has_begun, &sampler->lock);
    }
    pthread_mutex_unlock(&sampler->lock);
    return sampler;
}

void jw_sampler_drain(jw_sampler *sampler) {
    write_samples(sampler, UINT32_MAX);
}

void jw_sampler_stop(jw_sampler *sampler) {
    jw_sleep_until(jw_clock_ns() + 2 * sampler->period_ns);
    pthread_mutex_lock(&sampler->lock);
    sampler->stop = true;
    pthread_mutex_unlock(&sampler->lock);
    pthread_join(sampler->thread, NULL);
    jw_sampler_drain(sampler);
    for (int i = 0; i < sampler->count; i++) {
        jw_source_close(sampler->sources[i]);
    }
    pthread_cond_destroy(&sampler->has_begun);
    pthread_mutex_destroy(&sampler->lock);
    pthread_mutex_destroy(&sampler->writing);
    free(sampler);
}
