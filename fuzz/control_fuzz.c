/* Control messages: what unpacks is packed to something that unpacks the same. The first
 * byte picks the message. */
#include "base/cleanup.h"
#include "proto/muster.pb-c.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const messages[] = {
    &muster__failure__descriptor,
    &muster__head_to_agent__descriptor,
    &muster__agent_to_head__descriptor,
    &muster__zygote_request__descriptor,
    &muster__zygote_event__descriptor,
    &muster__worker_boot__descriptor,
    &muster__agent_to_worker__descriptor,
    &muster__worker_to_agent__descriptor,
    &muster__alloc_ports__descriptor,
    &muster__ports__descriptor,
    &muster__stack__descriptor,
    &muster__status__descriptor,
    &muster__status_request__descriptor,
    &muster__health__descriptor,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const ProtobufCMessageDescriptor *d;
    ProtobufCMessage *m, *again;
    MS_CLEANUP(ms_cleanup_free) uint8_t *packed = NULL;
    MS_CLEANUP(ms_cleanup_free) uint8_t *repacked = NULL;
    size_t len;

    if (size == 0)
        return 0;
    d = messages[data[0] % MS_COUNT(messages)];
    m = protobuf_c_message_unpack(d, NULL, size - 1, data + 1);
    if (!m)
        return 0;
    len = protobuf_c_message_get_packed_size(m);
    packed = malloc(len + 1);
    repacked = malloc(len + 1);
    assert(packed && repacked);
    assert(protobuf_c_message_pack(m, packed) == len);
    /* protobuf-c takes an unknown field of number 0, and cannot read what it makes of it */
    again = protobuf_c_message_unpack(d, NULL, len, packed);
    if (again) {
        assert(protobuf_c_message_pack(again, repacked) == len);
        assert(memcmp(packed, repacked, len) == 0);
        protobuf_c_message_free_unpacked(again, NULL);
    }
    protobuf_c_message_free_unpacked(m, NULL);
    return 0;
}
