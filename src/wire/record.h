/* record.h - TLS 1.3 records (RFC 8446, 5.2) under TLS_AES_128_GCM_SHA256
 *
 * The TLS library agrees on the secrets; after that a record needs no more than a nonce and
 * one pass of the cipher, which the library's own layers make three times as dear. A key is
 * one direction of one connection and belongs to one thread at a time. It is renewed
 * (KeyUpdate) after MS_RECORD_KEY_MAX records, and when the other side says so.
 */
#ifndef MS_WIRE_RECORD_H
#define MS_WIRE_RECORD_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
    MS_RECORD_HEAD = 5,
    MS_RECORD_TAIL = 17,              /* type and tag */
    MS_RECORD_PLAIN_MAX = 16384,      /* in one record */
    MS_RECORD_BODY_MAX = 16384 + 256, /* behind the head, from anybody */
    MS_RECORD_SECRET = 32,
    MS_RECORD_KEY_MAX = 1 << 24 /* records until a key is renewed */
};

enum ms_record_type {
    MS_RECORD_ALERT = 21,
    MS_RECORD_HANDSHAKE = 22,
    MS_RECORD_DATA = 23
};

struct ms_record_key {
    EVP_CIPHER_CTX *ctx; /* NULL: not there yet */
    bool seals;
    uint8_t secret[MS_RECORD_SECRET], iv[12];
    uint64_t count; /* of records under this key */
};

/* 0 or -ENOMEM. */
int ms_record_key_init(struct ms_record_key *k,
                       const uint8_t secret[MS_RECORD_SECRET],
                       bool seals);
void ms_record_key_finish(struct ms_record_key *k);
/* The next generation. 0 or -ENOMEM. */
int ms_record_key_renew(struct ms_record_key *k);

/* at[MS_RECORD_HEAD..] has `len` bytes, at most MS_RECORD_PLAIN_MAX, and room for
 * MS_RECORD_TAIL behind them: make a record of them. 0 or -EIO. */
int ms_record_seal(struct ms_record_key *k,
                   enum ms_record_type type,
                   uint8_t *at,
                   size_t len);
/* The same of `len` bytes that are elsewhere: those of a list behind the first `skip`. They
 * are read once, and not copied before. */
int ms_record_seal_from(struct ms_record_key *k,
                        enum ms_record_type type,
                        uint8_t *at,
                        const struct iovec *iov,
                        size_t skip,
                        size_t len);

/* How long the record at `at` is, with its head; 0: that is not yet to be seen; -EPROTO: it
 * is none of ours. */
ssize_t ms_record_length(const uint8_t *at, size_t len);

/* Open a whole record in its place: what it holds is then at at[MS_RECORD_HEAD..]. Its
 * length, or -EBADMSG: somebody has changed it. */
ssize_t ms_record_open(struct ms_record_key *k,
                       uint8_t *at,
                       size_t len,
                       enum ms_record_type *type);
/* The same to another place, which has room for ms_record_inner of it. What was written
 * there is nothing worth if it fails. */
ssize_t ms_record_open_to(struct ms_record_key *k,
                          const uint8_t *at,
                          size_t len,
                          uint8_t *to,
                          enum ms_record_type *type);
/* The most that a record of this length may hold. */
static inline size_t ms_record_inner(size_t len)
{
    return len - MS_RECORD_HEAD - MS_RECORD_TAIL;
}

#endif
