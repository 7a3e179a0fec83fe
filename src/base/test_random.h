/* test_random.h - for tests: numbers that look random and are the same each time */
#ifndef MS_BASE_TEST_RANDOM_H
#define MS_BASE_TEST_RANDOM_H

#include <stdint.h>

/* The next one (xorshift); a seed is not 0. */
static inline uint64_t test_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* 0 to sides - 1. */
static inline uint32_t test_roll(uint64_t *seed, uint32_t sides)
{
    return (uint32_t)((test_random(seed) >> 33) % sides);
}

/* A seed from the number of a case; neighbours have nothing in common. */
static inline uint64_t test_seed(uint64_t number)
{
    uint64_t seed = number * UINT64_C(0x9E3779B97F4A7C15) + 1;

    test_random(&seed);
    test_random(&seed);
    return seed;
}

#endif
