/* times.h - how long each round took, and what that comes to */
#ifndef BENCH_C_TIMES_H
#define BENCH_C_TIMES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static inline int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static inline void print_times(int64_t *times, size_t count)
{
    qsort(times, count, sizeof *times, compare_times);
    printf("%.2f %.2f\n",
           (double)times[count / 2] / 1e3,
           (double)times[count * 99 / 100] / 1e3);
}

#endif
