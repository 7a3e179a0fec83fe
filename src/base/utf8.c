/* utf8.c - check UTF-8 text */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

size_t ms_utf8_sequence(const char *text, size_t len)
{
    static const uint8_t lead_min[] = {0, 0x00, 0xc2, 0xe0, 0xf0};
    const uint8_t *p = (const uint8_t *)text;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

    if (p[0] < lead_min[n] || p[0] > 0xf4 || n > len)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0; /* an overlong form, a surrogate, beyond the last code point */
    return n;
}

bool ms_utf8_is_valid(const char *text, size_t len)
{
    const char *at = text, *end = text + len;

    while (at < end) {
        uint64_t eight;
        size_t n;

        if (end - at >= 8) { /* eight ASCII characters at once */
            memcpy(&eight, at, sizeof eight);
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                at += 8;
                continue;
            }
        }
        n = ms_utf8_sequence(at, (size_t)(end - at));
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}
