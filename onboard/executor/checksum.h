/* A checksum of 32-bit words in the machine's byte order, in four independent lanes. Each lane is
 * FNV-1a (Fowler, Noll, Vo) over words instead of bytes:
 *
 *     h[lane] = 0x811c9dc5 ^ lane                      for lane 0..3
 *     h[i % 4] = (h[i % 4] ^ word[i]) * 0x01000193     for every word, modulo 2^32
 *     sum = 0x811c9dc5 ^ word_count
 *     sum = (sum ^ h[lane]) * 0x01000193               for lane 0..3
 *
 * Each line is a bijection, so that two contents which differ in one word have different sums.
 */
#ifndef JW_CHECKSUM_H
#define JW_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* A word of memory that kernels access as floats, and media as bytes. */
#if defined(__GNUC__)
typedef uint32_t __attribute__((may_alias)) jw_word;
#else
typedef uint32_t jw_word;
#endif

/* A checksum being computed. */
typedef struct {
    uint32_t lanes[4];
    uint32_t count; /* words so far */
} jw_checksum;

/* Begin a checksum, add words to it, return it; `bytes` is a multiple of four. */
void jw_checksum_begin(jw_checksum *sum);
void jw_checksum_add(jw_checksum *sum, const void *words, size_t bytes);
uint32_t jw_checksum_end(const jw_checksum *sum);

/* Checksum of `bytes` bytes, a multiple of four. */
uint32_t jw_checksum_of(const void *words, size_t bytes);

#endif
