/* A worker for capi_test.c: what examples/c/reward.c does not do. */
#include <muster/worker.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int create(const struct muster_context *ctx,
                  const struct muster_value *args,
                  const struct muster_value *kwargs,
                  void **self,
                  struct muster_error *err)
{
    int64_t unlucky = -1;

    (void)kwargs;
    muster_value_get_int(muster_list_at(args, 0), &unlucky);
    if (unlucky == (int64_t)muster_context_rank(ctx))
        return muster_error_set(err, -EPERM, "Unlucky", "rank %d", (int)unlucky);
    *self = (void *)(uintptr_t)ctx;
    printf("made\n");
    return 0;
}

static int echo(void *self, struct muster_call *call, struct muster_error *err)
{
    struct muster_value *both = muster_value_list();

    (void)self;
    (void)err;
    muster_list_append(both, muster_value_copy(muster_call_args(call)));
    muster_list_append(both, muster_value_copy(muster_call_kwargs(call)));
    return muster_call_reply(call, both);
}

static int rank(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)err;
    return muster_call_reply(call, muster_value_int(muster_context_rank(self)));
}

/* fail_on(rank) */
static int fail_on(void *self, struct muster_call *call, struct muster_error *err)
{
    int64_t which = -1;

    muster_value_get_int(muster_call_arg(call, 0), &which);
    if (which == (int64_t)muster_context_rank(self))
        return muster_error_set(err, -EDOM, "Chosen", "it is rank %d", (int)which);
    while (!muster_call_is_cancelled(call) && muster_call_arg(call, 1))
        usleep(1000);
    return 0;
}

static int hang(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self;
    (void)err;
    while (!muster_call_is_cancelled(call))
        usleep(1000);
    return 0;
}

static int count(void *self, struct muster_call *call, struct muster_error *err)
{
    int64_t n = 0;
    int rc = 0;

    (void)self;
    muster_value_get_int(muster_call_arg(call, 0), &n);
    for (int64_t i = 0; rc == 0 && i < n; i++)
        rc = muster_call_item(call, muster_value_int(i));
    if (rc == 0 && muster_call_arg(call, 1))
        return muster_error_set(err, -EIO, "Tired", "after %d", (int)n);
    return rc;
}

static int reverse(void *self, struct muster_call *call, struct muster_error *err)
{
    size_t len = 0;
    const char *from = muster_value_get_bytes(muster_call_arg(call, 0), &len);
    char *to = malloc(len + 1);

    (void)self;
    (void)err;
    for (size_t i = 0; to && i < len; i++)
        to[i] = from[len - 1 - i];
    muster_call_reply_bytes(call, to, len);
    free(to);
    return 0;
}

static int leave(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self;
    (void)call;
    (void)err;
    fprintf(stderr, "leaving\n");
    _exit(7);
}

static int say(void *self, struct muster_call *call, struct muster_error *err)
{
    (void)self;
    (void)err;
    printf("%s\n", muster_value_get_text(muster_call_arg(call, 0), NULL));
    return 0;
}

static int64_t int_of(const struct muster_value *map, const char *key, int64_t none)
{
    muster_value_get_int(muster_map_find(map, key), &none);
    return none;
}

/* The next token is what is there so far, added up. */
static int64_t sum_of(const struct muster_value *list)
{
    int64_t sum = 0, n = 0;

    for (size_t i = 0; i < muster_list_count(list); i++) {
        muster_value_get_int(muster_list_at(list, i), &n);
        sum += n;
    }
    return sum;
}

/* generate(request) with sampling {length, pace_us, fail} */
static int generate(void *self, struct muster_call *call, struct muster_error *err)
{
    const struct muster_value *request = muster_call_arg(call, 0),
                              *sampling = muster_map_find(request, "sampling"),
                              *before = muster_map_find(request, "tokens");
    int64_t sum = sum_of(muster_map_find(request, "prompt")) + sum_of(before);
    int64_t have = (int64_t)muster_list_count(before),
            most = have + int_of(request, "max_new_tokens", 0),
            length = int_of(sampling, "length", 10);
    int rc = 0;

    (void)self;
    if (int_of(sampling, "fail", 0))
        return muster_error_set(err, -EDOM, "Sick", "no tokens today");
    for (; rc == 0 && have < most && have < length; have++) {
        struct muster_value *chunk = muster_value_map(), *tokens = muster_value_list();
        int64_t token = sum % 10007 + 1;

        sum += token;
        muster_list_append(tokens, muster_value_int(token));
        muster_map_set(chunk, "tokens", tokens);
        usleep((useconds_t)int_of(sampling, "pace_us", 0));
        rc = muster_call_item(call, chunk);
    }
    return rc;
}

MUSTER_EXPORT const struct muster_worker_class test = {
    MUSTER_WORKER_CLASS,
    .name = "Test",
    .create = create,
    .methods = (const struct muster_method[]){{"echo", echo},
                                              {"rank", rank},
                                              {"fail_on", fail_on},
                                              {"hang", hang},
                                              {"count", count},
                                              {"reverse", reverse},
                                              {"leave", leave},
                                              {"say", say},
                                              {"generate", generate},
                                              {0}},
};
