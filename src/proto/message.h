/* message.h - protobuf messages: copying, packing and filling them
 *
 * A message is either owned, as if it had been unpacked (freed with
 * protobuf_c_message_free_unpacked(m, NULL) or its own free_unpacked; NULL is nothing), or it
 * stands on the stack and borrows all that it points to, to be packed or copied. The ms_field
 * functions are for the second kind: protobuf-c's fields are not const, and nothing is changed
 * through them.
 */
#ifndef MS_PROTO_MESSAGE_H
#define MS_PROTO_MESSAGE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Owned and empty; NULL: out of memory. */
ProtobufCMessage *ms_message_create(const ProtobufCMessageDescriptor *d);
/* A deep copy, owned; NULL: out of memory. */
ProtobufCMessage *ms_message_copy(const ProtobufCMessage *m);
/* Its bytes, malloc'd; NULL: out of memory. */
uint8_t *ms_message_pack(const ProtobufCMessage *m, size_t *len);

/* Set a text of an owned message that has none yet, to a copy. False: out of memory. */
bool ms_message_set_text(char **field, const char *text);
/* Add to a repeated field of an owned message: `list` is the address of the field, and `item`
 * an owned message, which is taken. False: out of memory (also if `item` is NULL). */
bool ms_message_append(void *list, size_t *count, void *item);

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
