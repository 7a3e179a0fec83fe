#include "resource/visible.h"
#include "resource/shape.h"

#include <stdbool.h>
#include <string.h>

static bool has(const char *const *texts, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(texts[i], text) == 0)
            return true;
    return false;
}

size_t ms_shape_variables(const Muster__NodeShape *s,
                          const char *out[MS_DEVICE_VARIABLES_MAX])
{
    size_t count = 0;

    for (size_t i = 0; s && i < s->n_devices && count < MS_DEVICE_VARIABLES_MAX; i++)
        if (!has(out, count, s->devices[i]->variable))
            out[count++] = s->devices[i]->variable;
    if (count == 0)
        out[count++] = ms_device_variable("gpu", "");
    return count;
}

int ms_shape_visible(const Muster__NodeShape *s,
                     const char *variable,
                     const uint32_t *devices,
                     size_t count,
                     struct ms_buf *out)
{
    bool is_first = true;
    int rc = 0;

    for (size_t i = 0; s && rc == 0 && i < count; i++) {
        const Muster__Device *d =
            devices[i] < s->n_devices ? s->devices[devices[i]] : NULL;

        if (!d || strcmp(d->variable, variable) != 0)
            continue;
        if (!is_first)
            rc = ms_buf_append(out, ",", 1);
        if (rc == 0)
            rc = ms_buf_append(out, d->id, strlen(d->id));
        is_first = false;
    }
    return rc;
}
