#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the sequence that begins with `lead`; 0: none does. */
static size_t sequence_size(uint8_t lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead < 0xe0)
        return 2;
    if ((lead & 0xf0) == 0xe0)
        return 3;
    return lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
}

/* Too long a form, a surrogate, beyond the last character. */
static bool second_is_valid(uint8_t lead, uint8_t second)
{
    switch (lead) {
    case 0xe0:
        return second >= 0xa0;
    case 0xed:
        return second < 0xa0;
    case 0xf0:
        return second >= 0x90;
    case 0xf4:
        return second < 0x90;
    default:
        return true;
    }
}

bool ms_utf8_is_valid(const char *text, size_t len)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + len;

    while (at < end) {
        uint64_t eight;
        size_t n;

        if (end - at >= 8) {
            memcpy(&eight, at, sizeof eight);
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                at += 8;
                continue;
            }
        }
        n = sequence_size(*at);
        if (n == 0 || n > (size_t)(end - at) ||
            (n > 1 && !second_is_valid(at[0], at[1])))
            return false;
        for (size_t i = 1; i < n; i++)
            if ((at[i] & 0xc0) != 0x80)
                return false;
        at += n;
    }
    return true;
}
