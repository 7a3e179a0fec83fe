/* proto.h - protobuf messages of any type: copied, packed and filled
 *
 * A message is either owned, as if it had been unpacked (freed with
 * protobuf_c_message_free_unpacked(m, NULL) or its own free_unpacked; NULL is nothing), or it
 * stands on the stack and borrows all that it points to, to be packed or copied. The ms_field
 * functions are for the second kind: protobuf-c's fields are not const, and nothing is changed
 * through them.
 */
#ifndef MS_BASE_PROTO_H
#define MS_BASE_PROTO_H

#include "base/buf.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A deep copy, freed with protobuf_c_message_free_unpacked(m, NULL). NULL: out of
 * memory. */
ProtobufCMessage *ms_proto_copy(const ProtobufCMessage *m);

/* Append the packed message. 0 or -ENOMEM. */
int ms_proto_pack(const ProtobufCMessage *m, struct ms_buf *out);
/* The packed message, malloc'd, also if it is empty. NULL: out of memory, and *len is 0. */
uint8_t *ms_proto_packed(const ProtobufCMessage *m, size_t *len);

/* Owned and empty; NULL: out of memory. */
ProtobufCMessage *ms_proto_create(const ProtobufCMessageDescriptor *d);
/* Set a text of an owned message that has none yet, to a copy. False: out of memory. */
bool ms_proto_set_text(char **field, const char *text);
/* Add to a repeated field of an owned message, which only this function has filled: `list` is
 * the address of the field, and `item` an owned message, which is taken. False: out of memory
 * (also if `item` is NULL). */
bool ms_proto_append(void *list, size_t *count, void *item);

/* ---- borrowing ------------------------------------------------------------------------- */

/* NULL is an empty text. */
static inline char *ms_field_text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

static inline char **ms_field_strings(const char *const *v)
{
    return (char **)(uintptr_t)v;
}

/* Of a list that ends with NULL; NULL itself has none. */
static inline size_t ms_field_count(const char *const *v)
{
    size_t n = 0;

    while (v && v[n])
        n++;
    return n;
}

#endif
