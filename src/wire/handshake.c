/* handshake.c - both sides prove the secret */
#include "wire/handshake.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

static const uint8_t magic[4] = {'M', 'S', 'T', 'R'};

enum { STATUS_OK = 0, STATUS_VERSION = 1, STATUS_TLS = 2 };

/* Offsets in the two hellos. */
enum { AT_MAJOR = 4, AT_LANE = 5, AT_STATUS = 5, AT_MINOR = 6, AT_NONCE = 8 };
enum { AT_SESSION = 40, AT_IDENTITY = 40, AT_PROOF = 48 };

/* The HMAC that this side sends: over the other's hello and what it has said itself. */
static int prove(const struct ms_handshake *h,
                 bool by_server,
                 uint8_t out[MS_PROOF_SIZE],
                 struct ms_error *err)
{
    uint8_t text[6 + MS_HELLO_CLIENT_SIZE + MS_HELLO_SERVER_SIZE], *end = text;
    unsigned len = MS_PROOF_SIZE;

    if (by_server) {
        end = mempcpy(end, "server", 6);
        end = mempcpy(end, h->hello_client, MS_HELLO_CLIENT_SIZE);
        end = mempcpy(end, h->hello_server, AT_PROOF);
    } else {
        end = mempcpy(end, "client", 6);
        end = mempcpy(end, h->hello_server, MS_HELLO_SERVER_SIZE);
        end = mempcpy(end, h->hello_client + AT_NONCE, 32);
    }
    return HMAC(EVP_sha256(),
                h->secret,
                MS_SECRET_SIZE,
                text,
                (size_t)(end - text),
                out,
                &len)
               ? 0
               : ms_error_sys(err, -ENOMEM, "cannot compute a proof");
}

static int check_proof(const struct ms_handshake *h,
                       bool by_server,
                       const uint8_t *in,
                       struct ms_error *err)
{
    uint8_t want[MS_PROOF_SIZE];
    int rc = prove(h, by_server, want, err);

    if (rc == 0 && CRYPTO_memcmp(want, in, MS_PROOF_SIZE) != 0)
        rc = ms_error_set(err,
                          -EACCES,
                          "the %s does not know the secret",
                          by_server ? "server" : "client");
    return rc;
}

static void init(struct ms_handshake *h, const uint8_t *secret, const uint8_t *nonce)
{
    *h = (struct ms_handshake){0};
    memcpy(h->secret, secret, MS_SECRET_SIZE);
    memcpy(h->nonce, nonce, 32);
}

/* What both hellos begin with. */
static void
build_hello(uint8_t *out, uint8_t lane_or_status, const struct ms_handshake *h)
{
    memcpy(out, magic, sizeof magic);
    out[AT_MAJOR] = MS_HANDSHAKE_MAJOR;
    out[AT_LANE] = lane_or_status;
    out[AT_MINOR] = MS_HANDSHAKE_MINOR;
    memcpy(out + AT_NONCE, h->nonce, 32);
}

void ms_handshake_init_client(struct ms_handshake *h,
                              const uint8_t secret[MS_SECRET_SIZE],
                              const uint8_t nonce[32],
                              const uint8_t session[MS_SESSION_SIZE],
                              uint8_t lane,
                              uint64_t expected_identity)
{
    init(h, secret, nonce);
    h->lane = lane;
    h->expected_identity = expected_identity;
    memcpy(h->session, session, MS_SESSION_SIZE);
    build_hello(h->hello_client, lane, h);
    memcpy(h->hello_client + AT_SESSION, session, MS_SESSION_SIZE);
}

void ms_handshake_init_server(struct ms_handshake *h,
                              const uint8_t secret[MS_SECRET_SIZE],
                              const uint8_t nonce[32],
                              uint64_t identity)
{
    init(h, secret, nonce);
    h->is_server = true;
    h->identity = identity;
}

void ms_handshake_finish(struct ms_handshake *h)
{
    OPENSSL_cleanse(h->secret, sizeof h->secret);
}

size_t ms_handshake_need(const struct ms_handshake *h)
{
    if (h->done)
        return 0;
    if (!h->is_server)
        return MS_HELLO_SERVER_SIZE;
    return h->step == 0 ? (size_t)MS_HELLO_CLIENT_SIZE : (size_t)MS_PROOF_SIZE;
}

static int check_start(const uint8_t *in, const char *who, struct ms_error *err)
{
    if (memcmp(in, magic, sizeof magic) != 0)
        return ms_error_set(err, -EPROTO, "the %s does not speak this protocol", who);
    if (in[AT_MAJOR] != MS_HANDSHAKE_MAJOR)
        return ms_error_set(err,
                            -EPROTONOSUPPORT,
                            "the %s speaks protocol %u.%u, this side %u.%u: the first "
                            "numbers must be the same, so install the same version of "
                            "Muster on both",
                            who,
                            in[AT_MAJOR],
                            in[AT_MINOR],
                            MS_HANDSHAKE_MAJOR,
                            MS_HANDSHAKE_MINOR);
    return 0;
}

static uint8_t status_of(int rc)
{
    if (rc == 0)
        return STATUS_OK;
    return rc == -ENOKEY ? STATUS_TLS : STATUS_VERSION;
}

static int server_hello(struct ms_handshake *h,
                        const uint8_t *in,
                        uint8_t *out,
                        size_t *out_len,
                        struct ms_error *err)
{
    uint64_t identity = htole64(h->identity);
    int rc = check_start(in, "client", err);

    if (rc == -EPROTO)
        return rc;
    if (rc == 0 && in[AT_LANE] > MS_LANE_LINK)
        return ms_error_set(err, -EPROTO, "the client asks for an unknown lane");
    if (rc == 0 && h->refuses_plain)
        rc = ms_error_set(
            err, -ENOKEY, "the client came without TLS, which is due here");
    memcpy(h->hello_client, in, MS_HELLO_CLIENT_SIZE);
    memcpy(h->session, in + AT_SESSION, MS_SESSION_SIZE);
    h->lane = in[AT_LANE];
    h->minor = in[AT_MINOR];
    build_hello(h->hello_server, status_of(rc), h);
    memcpy(h->hello_server + AT_IDENTITY, &identity, sizeof identity);
    if (rc == 0 && (rc = prove(h, true, h->hello_server + AT_PROOF, err)) < 0)
        return rc;
    memcpy(out, h->hello_server, MS_HELLO_SERVER_SIZE);
    *out_len = MS_HELLO_SERVER_SIZE;
    h->step = 1;
    return rc;
}

static int client_step(struct ms_handshake *h,
                       const uint8_t *in,
                       uint8_t *out,
                       size_t *out_len,
                       struct ms_error *err)
{
    uint64_t identity;
    int rc = check_start(in, "server", err);

    if (rc < 0)
        return rc;
    if (in[AT_STATUS] == STATUS_TLS)
        return ms_error_set(
            err, -ENOKEY, "the server wants TLS, and this side is set to go without");
    if (in[AT_STATUS] != STATUS_OK)
        return ms_error_set(err,
                            -EPROTONOSUPPORT,
                            "the server (protocol %u.%u) refuses protocol %u.%u",
                            in[AT_MAJOR],
                            in[AT_MINOR],
                            MS_HANDSHAKE_MAJOR,
                            MS_HANDSHAKE_MINOR);
    h->minor = in[AT_MINOR];
    memcpy(h->hello_server, in, MS_HELLO_SERVER_SIZE);
    rc = check_proof(h, true, in + AT_PROOF, err);
    if (rc < 0)
        return rc;
    memcpy(&identity, in + AT_IDENTITY, sizeof identity);
    h->identity = le64toh(identity);
    if (h->expected_identity && h->identity != h->expected_identity)
        return ms_error_set(err, -ESTALE, "another server answers at this address");
    rc = prove(h, false, out, err);
    if (rc < 0)
        return rc;
    *out_len = MS_PROOF_SIZE;
    h->done = true;
    return 0;
}

int ms_handshake_step(struct ms_handshake *h,
                      const uint8_t *in,
                      uint8_t *out,
                      size_t *out_len,
                      struct ms_error *err)
{
    int rc;

    assert(!h->done);
    *out_len = 0;
    if (!h->is_server)
        return client_step(h, in, out, out_len, err);
    if (h->step == 0)
        return server_hello(h, in, out, out_len, err);
    rc = check_proof(h, false, in, err);
    h->done = rc == 0;
    return rc;
}
