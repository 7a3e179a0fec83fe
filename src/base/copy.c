/* copy.c - copy past the cache */
#include "base/copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

enum { LINE = 64, WORD = 16 };

/* Whole lines, to where a line begins. */
static void stream(uint8_t *to, const uint8_t *from, size_t len)
{
    for (size_t at = 0; at < len; at += LINE)
        for (size_t i = at; i < at + LINE; i += WORD)
            _mm_stream_si128(
                (__m128i *)(void *)(to + i),
                _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
    _mm_sfence();
}

void ms_copy_past_cache(void *to, const void *from, size_t len)
{
    size_t head = -(uintptr_t)to % LINE, lines;

    if (head > len)
        head = len;
    lines = (len - head) / LINE * LINE;
    memcpy(to, from, head);
    stream((uint8_t *)to + head, (const uint8_t *)from + head, lines);
    memcpy((uint8_t *)to + head + lines,
           (const uint8_t *)from + head + lines,
           len - head - lines);
}
#else
void ms_copy_past_cache(void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
}
#endif
