#include "cluster/copy.h"
#include "base/cleanup.h"

ProtobufCMessage *ms_proto_copy(const ProtobufCMessage *m)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    MS_CLEANUP(ms_cleanup_free) uint8_t *packed = malloc(len ? len : 1);

    if (!packed)
        return NULL;
    protobuf_c_message_pack(m, packed);
    return protobuf_c_message_unpack(m->descriptor, NULL, len, packed);
}
