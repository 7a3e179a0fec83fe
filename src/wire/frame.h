/* frame.h - the fixed header in front of every piece of a message
 *
 * A message is cut into frames of at most MS_CHUNK_MAX bytes of body, so that a small
 * message can pass a big one on the same connection. The first frame of a message
 * carries `total`; the later ones (MS_FRAME_MORE_OF) carry their offset instead. Frames
 * of one message (same kind and call id) come in order; frames of several messages may
 * be mixed. All numbers are little-endian. DATA is cut by the side that asked for it: it is one
 * frame of at most MS_DATA_MAX.
 *
 *  0 magic   u8      1 version u8     2 kind u8     3 codec u8
 *  4 op      u16     6 flags   u16    8 length u32 (body of this frame)
 * 12 core    u32    16 call_id u64   24 total u64 (or offset)
 * 32 budget_ns u64  40 ack     u64
 *
 * Encoding and decoding are pure.
 */
#ifndef MS_WIRE_FRAME_H
#define MS_WIRE_FRAME_H

#include "base/error.h"

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MS_FRAME_SIZE = 48, MS_FRAME_MAGIC = 0xA7, MS_FRAME_VERSION = 1 };

enum ms_frame_kind {
    MS_KIND_CALL = 1,    /* client: run op; body is the payload */
    MS_KIND_REPLY = 2,   /* server: the result; ends the call */
    MS_KIND_ERROR = 3,   /* server: body is a packed Failure; ends the call */
    MS_KIND_ITEM = 4,    /* server: one item of a stream */
    MS_KIND_CANCEL = 5,  /* client: nobody waits for this call any more */
    MS_KIND_ACK = 6,     /* client: body is u64 call ids whose replies have arrived */
    MS_KIND_CREDIT = 7,  /* client: op items of this stream were consumed */
    MS_KIND_METHOD = 8,  /* client: from now on op means body, "engine\0method" */
    MS_KIND_CONTROL = 9, /* body is a packed control message */
    MS_KIND_PING = 10,   /* answered by PONG with the same call id */
    MS_KIND_PONG = 11,
    MS_KIND_ATTACH =
        12,            /* client, after a reconnect: body is u64 `after` and u64 ids; of
             * the calls after..call_id only those are still waited for */
    MS_KIND_DATA = 13, /* bulk link: bytes that were asked for, to a place that the
                        * asker has for them; one frame, whole */
    MS_KIND_LEAVE =
        14, /* client: the session ends. Answers that it has not acknowledged
                           have not arrived */
    MS_KIND_LAST = MS_KIND_LEAVE,
    MS_KIND_IGNORED = 128, /* from here on: passed over; what a newer version may add */
    MS_KIND_BEAT = 128     /* link: "I am here"; not answered */
};

enum ms_frame_flag {
    MS_FRAME_MORE_OF = 1, /* a later piece of a message; `total` is its offset */
    MS_FRAME_RESEND = 2,  /* CALL, CANCEL: sent again after a reconnect */
    MS_FRAME_SPIN = 4,    /* CALL: the caller holds a spin lease for this pair */
    MS_FRAME_CHAIN = 8,   /* CALL: body begins with the chain of waiting workers */
    MS_FRAME_STREAM = 16, /* CALL: a stream is welcome. REPLY: ends a stream */
    MS_FRAME_BARE = 32,   /* CALL, RESEND: without its body, which was not kept */
    MS_FRAME_FLAGS = 63,
    MS_FRAME_IGNORED = 0xFF00 /* of a newer version, not needed; passed over */
};

/* Payload codecs. */
enum ms_codec {
    MS_CODEC_BYTES = 0,  /* as it is */
    MS_CODEC_PICKLE = 1, /* pickle protocol 5 */
    MS_CODEC_PLAIN = 2,  /* plain data */
    MS_CODEC_PROTO = 3,  /* a control message; built-in operations */
    MS_CODEC_STORED = 4, /* pickle with buffers, perhaps in a store: store/stored.h */
    MS_CODEC_LAST = MS_CODEC_STORED
};

/* Operations below MS_OP_METHOD are built in; others are interned methods. */
enum ms_op {
    MS_OP_NONE = 0,
    MS_OP_HEALTH = 1,         /* -> Health; answered by the I/O thread */
    MS_OP_STACK = 2,          /* -> Stack; answered by the I/O thread */
    MS_OP_ALLOC_PORTS = 3,    /* AllocPorts -> Ports; answered by the I/O thread */
    MS_OP_DEBUG = 4,          /* Debug -> DebugState; answered by the I/O thread */
    MS_OP_CONFIGURE = 16,     /* engine thread */
    MS_OP_SET_ENV = 17,       /* engine thread */
    MS_OP_CREATE_ENGINE = 18, /* engine thread */
    MS_OP_DESTROY_ENGINE = 19,
    MS_OP_LOOK = 20,   /* engine thread: what dispatch wants to know of an engine */
    MS_OP_FINISH = 21, /* engine thread: the engines' clean-up, before the end */
    MS_OP_HTTP_CONFIGURE =
        32, /* engine thread: JSON -> three digits of a status, JSON */
    MS_OP_HTTP_SET_ENV = 33,
    MS_OP_HTTP_CREATE_ENGINE = 34,
    MS_OP_HTTP_CALL = 35,
    MS_OP_METHOD = 256 /* the first interned method */
};

/* As it travels, but for the order of bytes; magic and version are ms_frame_encode's. */
struct ms_frame {
    uint8_t magic, version, kind, codec;
    uint16_t op, flags;
    uint32_t length;
    uint32_t core; /* CALL with SPIN, REPLY: the sender's CPU core + 1; 0: not told */
    uint64_t call_id;
    uint64_t total;     /* of the message; its offset with MS_FRAME_MORE_OF */
    uint64_t budget_ns; /* CALL: time left until the deadline; 0: none */
    uint64_t ack;       /* a call id whose reply has arrived; 0: none */
};

/* Number `i` of a row of them in a body. */
static inline uint64_t ms_le64_at(const uint8_t *body, size_t i)
{
    uint64_t n;

    memcpy(&n, body + i * sizeof n, sizeof n);
    return le64toh(n);
}

void ms_frame_encode(const struct ms_frame *f, uint8_t out[MS_FRAME_SIZE]);

/* The biggest body of one frame of a kind, and the biggest message. */
uint64_t ms_frame_length_max(uint8_t kind);
uint64_t ms_frame_total_max(uint8_t kind);

/* 0; -EPROTO (not a frame), -EPROTONOSUPPORT (another version), -EMSGSIZE (a length
 * beyond its limit). */
int ms_frame_decode(const uint8_t in[MS_FRAME_SIZE],
                    struct ms_frame *f,
                    struct ms_error *err);

#endif
