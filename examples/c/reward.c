/* reward.c - a worker in C: rewards for texts, and sums of tensors
 *
 * cc -shared -fPIC $(pkg-config --cflags muster) -o libreward.so reward.c
 */
#include <muster/worker.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reward {
    const struct muster_context *ctx;
    double scale;
    uint64_t scored;
};

static int create(const struct muster_context *ctx,
                  const struct muster_value *args,
                  const struct muster_value *kwargs,
                  void **self,
                  struct muster_error *err)
{
    struct reward *r = calloc(1, sizeof *r);
    const struct muster_value *scale = muster_map_find(kwargs, "scale");

    (void)args;
    if (!r)
        return muster_error_set(err, -ENOMEM, "MemoryError", "out of memory");
    r->ctx = ctx;
    r->scale = 1;
    if (scale && muster_value_get_float(scale, &r->scale) < 0) {
        free(r);
        return muster_error_set(err, -EINVAL, "TypeError", "scale is no number");
    }
    printf("rank %u of %u\n", muster_context_rank(ctx), muster_context_world_size(ctx));
    *self = r;
    return 0;
}

static void destroy(void *self)
{
    free(self);
}

/* score(["a text", ...]) -> [reward, ...]: the share of different letters. */
static int score(void *self, struct muster_call *call, struct muster_error *err)
{
    struct reward *r = self;
    const struct muster_value *texts = muster_call_arg(call, 0);
    struct muster_value *rewards;

    if (muster_value_kind(texts) != MUSTER_LIST)
        return muster_error_set(
            err, -EINVAL, "TypeError", "score wants a list of texts");
    rewards = muster_value_list();
    for (size_t i = 0; i < muster_list_count(texts); i++) {
        const char *text = muster_value_get_text(muster_list_at(texts, i), NULL);
        bool seen[256] = {false};
        size_t different = 0;

        if (!text) {
            muster_value_destroy(rewards);
            return muster_error_set(
                err, -EINVAL, "TypeError", "texts[%zu] is no text", i);
        }
        for (const char *c = text; *c; c++) {
            different += !seen[(unsigned char)*c];
            seen[(unsigned char)*c] = true;
        }
        r->scored++;
        muster_list_append(rewards,
                           muster_value_float(r->scale * (double)different /
                                              (double)(strlen(text) + 1)));
    }
    return muster_call_reply(call, rewards);
}

/* sum(float32 tensor) -> float */
static int sum(void *self, struct muster_call *call, struct muster_error *err)
{
    const struct muster_value *tensor = muster_call_arg(call, 0);
    const float *numbers = muster_tensor_data(tensor, NULL);
    double total = 0;

    (void)self;
    if (!numbers || muster_tensor_dtype(tensor) != MUSTER_FLOAT32)
        return muster_error_set(
            err, -EINVAL, "TypeError", "sum wants a float32 tensor");
    for (uint64_t i = 0; i < muster_tensor_count(tensor); i++)
        total += (double)numbers[i];
    return muster_call_reply(call, muster_value_float(total));
}

/* count(n): a stream of 0 .. n - 1 */
static int count(void *self, struct muster_call *call, struct muster_error *err)
{
    int64_t n = 0;
    int rc = 0;

    (void)self;
    if (muster_value_get_int(muster_call_arg(call, 0), &n) < 0)
        return muster_error_set(err, -EINVAL, "TypeError", "count wants an int");
    for (int64_t i = 0; rc == 0 && i < n; i++)
        rc = muster_call_item(call, muster_value_int(i));
    return rc == -ECANCELED ? 0 : rc;
}

/* crash(): what a driver sees of that */
static int crash(void *self, struct muster_call *call, struct muster_error *err)
{
    struct reward *r = self;

    (void)call;
    (void)err;
    fprintf(stderr, "crashing after %llu texts\n", (unsigned long long)r->scored);
    abort();
}

MUSTER_EXPORT const struct muster_worker_class reward = {
    MUSTER_WORKER_CLASS,
    .name = "Reward",
    .create = create,
    .destroy = destroy,
    .methods =
        (const struct muster_method[]){
            {"score", score}, {"sum", sum}, {"count", count}, {"crash", crash}, {0}},
};
