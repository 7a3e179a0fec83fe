/* native_impl.h - what the files of a worker without Python share
 *
 * native.c  the program: start, signals, the loop, operations
 * engine.c  shared libraries, their classes and engines
 * call.c    a call, as muster/worker.h shows it to a method
 * http.c    what came by HTTP; json.h: its JSON
 */
#ifndef MS_WORKER_NATIVE_NATIVE_IMPL_H
#define MS_WORKER_NATIVE_NATIVE_IMPL_H

#include "muster/worker.h"
#include "wire/server/server.h"
#include "worker/host.h"

#include <stdatomic.h>

enum { MS_NATIVE_ENGINES_MAX = 64, MS_NATIVE_DEVICES_MAX = 64 };

struct muster_context {
    const Muster__WorkerBoot *boot;
    uint32_t world_size;
    char *device_text; /* cut into `devices` */
    const char *devices[MS_NATIVE_DEVICES_MAX];
    size_t device_count;
    struct muster_value *config;
};

struct ms_native_engine {
    char *name;
    void *library;
    const struct muster_worker_class *class;
    void *self;
};

/* What a request's method means here. */
struct ms_native_method {
    const struct ms_native_engine *engine; /* NULL: not looked for */
    const struct muster_method *method;
};

struct ms_native_engines {
    struct ms_host *host; /* whose health names them; borrowed */
    struct muster_context context;
    struct ms_native_engine *at[MS_NATIVE_ENGINES_MAX];
    size_t count;
    struct ms_native_method *methods; /* by ms_method.index */
    size_t method_room;
};

/* engine.c. What fails gives the kind of Failure, with type and message in err. */
#define MS_NATIVE_OK ((Muster__Failure__Kind)-1)

void ms_context_init(struct muster_context *ctx, const Muster__WorkerBoot *boot);
Muster__Failure__Kind ms_native_engine_create(struct ms_native_engines *e,
                                              const struct muster_value *spec,
                                              struct muster_error *err);
Muster__Failure__Kind ms_native_engine_destroy(struct ms_native_engines *e,
                                               const char *name,
                                               struct muster_error *err);
void ms_native_engines_destroy_all(struct ms_native_engines *e);
/* Takes `config`. */
void ms_native_engines_configure(struct ms_native_engines *e,
                                 struct muster_value *config);
Muster__Failure__Kind ms_native_engine_find_method(const struct ms_native_engines *e,
                                                   const char *engine_name,
                                                   const char *name,
                                                   struct ms_native_method *out,
                                                   struct muster_error *err);
/* NULL with *kind and err told. */
const struct ms_native_method *ms_native_engine_method(struct ms_native_engines *e,
                                                       const struct ms_method *m,
                                                       Muster__Failure__Kind *kind,
                                                       struct muster_error *err);

/* call.c */
struct muster_call {
    struct ms_request *request; /* NULL: answered */
    const char *method;
    uint8_t codec;
    bool is_http; /* it came as JSON, and is answered so */
    int64_t deadline_ns;
    struct muster_value *arguments; /* a list of a list and a map */
    bool streams;
    int reply_rc; /* why an answer could not be sent */
};

/* SIGTERM has come. */
extern atomic_bool ms_native_ending;

/* Before err is lent: nothing was told yet. */
void ms_report_clear(struct muster_error *err);
void ms_request_fail_report(struct ms_request *r,
                            Muster__Failure__Kind kind,
                            int rc,
                            const struct muster_error *err);
/* Decode the arguments, run the method, see that it is answered. */
void ms_call_run(struct ms_native_engines *e, struct ms_request *r);
/* The last two of these. `err` is lent to the method. Destroys the arguments. */
void ms_call_invoke(struct muster_call *call,
                    const struct ms_native_method *m,
                    struct muster_error *err);

/* http.c */
/* Do what the JSON in its body asks, and answer with JSON (ops MS_OP_HTTP_*). False: it is
 * none of these. */
bool ms_native_http(struct ms_native_engines *e, struct ms_request *r);
/* A result as the answer to a call: the count of pieces, which borrow from *text (malloc'd,
 * yours); or a negative errno as of ms_value_to_json. */
int ms_native_http_result(const struct muster_value *value,
                          char **text,
                          struct iovec iov[2]);

#endif
