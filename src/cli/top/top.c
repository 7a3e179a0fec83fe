/* top.c - `muster top`: what the workers do, again and again */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/out.h"
#include "cli/target.h"
#include "cli/top/frame.h"
#include "cli/top/screen.h"
#include "head/rest/view.h"

#include <string.h>

enum { INTERVAL_S = 1 };

struct top {
    struct ms_target *target;
    struct ms_top_view view;
    Muster__Status *before, *now;
};

/* The last one becomes the one before it. */
static enum ms_exit look(struct top *t)
{
    Muster__Status *next = NULL;
    enum ms_exit code = ms_target_activity(t->target, &next);

    if (code)
        return code;
    muster__status__free_unpacked(t->before, NULL);
    t->before = t->now;
    t->now = next;
    return MS_EXIT_OK;
}

static enum ms_exit fail_memory(const struct top *t)
{
    return ms_out_fail(t->target->cli, MS_EXIT_FAILED, "out of memory");
}

static bool is_there(const struct top *t)
{
    for (size_t i = 0; i < t->now->n_clusters; i++) {
        const Muster__ClusterStatus *c = t->now->clusters[i];

        for (size_t k = 0; k < c->n_workers; k++)
            if (ms_cli_selector_matches(
                    &t->view.selector, c->name, c->workers[k]->rank))
                return true;
    }
    return false;
}

/* What was asked for has to be there then; later it may go and come. */
static enum ms_exit look_first(struct top *t)
{
    const struct ms_cli *cli = t->target->cli;
    enum ms_exit code = look(t);

    if (!code && cli->operand_count && !is_there(t))
        return ms_out_fail(
            cli,
            MS_EXIT_NOT_FOUND,
            "there is no worker '%s'; `muster status` shows what there is",
            cli->operands[0]);
    return code;
}

/* ---- once ------------------------------------------------------------------------ */

static enum ms_exit print_once(struct top *t)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf frame = {0};
    enum ms_exit code = look_first(t);

    if (code)
        return code;
    if (ms_cli_has(t->target->cli, MS_OPT_JSON))
        return ms_out_json(ms_view_status(t->now));
    t->view.colour = ms_out_is_colour(stdout);
    if (ms_top_frame(&t->view, NULL, t->now, &frame) < 0)
        return fail_memory(t);
    fwrite(frame.data, 1, frame.len, stdout);
    return MS_EXIT_OK;
}

/* ---- live ------------------------------------------------------------------------ */

static int draw(struct top *t)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf frame = {0};
    int rc;

    ms_screen_size(&t->view.lines, &t->view.columns);
    rc = ms_top_frame(&t->view, t->before, t->now, &frame);
    return rc < 0 ? rc : ms_screen_draw(&frame);
}

static void scroll(struct top *t, int key)
{
    size_t page = t->view.lines / 2, skip = t->view.skip;

    if (key == MS_KEY_UP)
        skip -= skip > 0;
    else if (key == MS_KEY_DOWN)
        skip++;
    else if (key == MS_KEY_PAGE_UP)
        skip -= skip < page ? skip : page;
    else if (key == MS_KEY_PAGE_DOWN)
        skip += page;
    t->view.skip = skip;
}

/* False: it is the key that ends it. */
static bool obey(struct top *t, int key)
{
    for (size_t i = 0; i < MS_TOP_SORTS; i++)
        if (ms_top_sorts[i].key == key) {
            t->view.sort = (enum ms_top_sort)i;
            t->view.skip = 0;
        }
    scroll(t, key);
    return key != 'q' && key != 'Q' && key != 4; /* Ctrl-D */
}

/* Keys change what is shown at once; what is known changes once a second. */
static enum ms_exit run(struct top *t)
{
    enum ms_exit code;

    do {
        int64_t until_ns = ms_now_ns() + INTERVAL_S * MS_NS_PER_S;

        do {
            if (draw(t) < 0 || !obey(t, ms_screen_key(until_ns)))
                return MS_EXIT_OK;
        } while (ms_now_ns() < until_ns);
        code = look(t);
    } while (!code);
    return code;
}

static enum ms_exit run_live(struct top *t)
{
    enum ms_exit code =
        look_first(t); /* what fails at once leaves the terminal as it is */

    if (code)
        return code;
    t->view.colour = ms_out_is_colour(stdout);
    t->view.has_keys = true;
    ms_screen_open();
    code = run(t);
    ms_screen_close();
    return code;
}

enum ms_exit ms_cmd_top(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_target_finish) struct ms_target target = {0};
    struct top t = {.target = &target};
    bool once = ms_cli_has(cli, MS_OPT_ONCE) || ms_cli_has(cli, MS_OPT_JSON) ||
                !ms_screen_is_there();
    enum ms_exit code = MS_EXIT_OK;

    if (cli->operand_count)
        code = ms_cli_selector_parse(cli, cli->operands[0], &t.view.selector);
    if (!code)
        code = ms_target_init(&target, cli);
    if (!code)
        code = once ? print_once(&t) : run_live(&t);
    muster__status__free_unpacked(t.before, NULL);
    muster__status__free_unpacked(t.now, NULL);
    return code;
}
