/* message.c - what protobuf-c leaves to its users */
#include "proto/message.h"
#include "base/cleanup.h"

#include <string.h>

ProtobufCMessage *ms_message_create(const ProtobufCMessageDescriptor *d)
{
    ProtobufCMessage *m = calloc(1, d->sizeof_message);

    if (m)
        protobuf_c_message_init(d, m);
    return m;
}

uint8_t *ms_message_pack(const ProtobufCMessage *m, size_t *len)
{
    uint8_t *packed;

    *len = protobuf_c_message_get_packed_size(m);
    packed = malloc(*len + 1);
    if (packed)
        protobuf_c_message_pack(m, packed);
    return packed;
}

ProtobufCMessage *ms_message_copy(const ProtobufCMessage *m)
{
    size_t len;
    MS_CLEANUP(ms_cleanup_free) uint8_t *packed = ms_message_pack(m, &len);

    return packed ? protobuf_c_message_unpack(m->descriptor, NULL, len, packed) : NULL;
}

bool ms_message_set_text(char **field, const char *text)
{
    char *copy;

    if (!text || !text[0])
        return true; /* as the empty text of the descriptor, which is never freed */
    copy = strdup(text);
    if (copy)
        *field = copy;
    return copy;
}

bool ms_message_append(void *list, size_t *count, void *item)
{
    void **all = NULL;

    if (item)
        all = realloc(*(void **)list, (*count + 1) * sizeof *all);
    if (!all) {
        protobuf_c_message_free_unpacked(item, NULL);
        return false;
    }
    *(void **)list = all;
    all[(*count)++] = item;
    return true;
}
