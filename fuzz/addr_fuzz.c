/* Lists of addresses: whatever is taken can be written and is then read as the same. */
#include "io/addr.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct ms_addr_list l;
    struct ms_error err;

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    if (ms_addr_list_parse(text, &l, &err) == 0) {
        assert(l.count >= 1 && l.count <= MS_ADDRS_MAX);
        for (size_t i = 0; i < l.count; i++) {
            char out[MS_ADDR_TEXT_MAX];
            struct ms_addr again;

            assert(ms_addr_format(&l.at[i], out, sizeof out));
            assert(ms_addr_parse(out, &again, &err) == 0);
            assert(again.is_unix == l.at[i].is_unix && again.port == l.at[i].port &&
                   strcmp(again.name, l.at[i].name) == 0 &&
                   strcmp(again.host_id, l.at[i].host_id) == 0);
        }
    }
    free(text);
    return 0;
}
