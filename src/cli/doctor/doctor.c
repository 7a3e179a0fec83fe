/* doctor.c - `muster doctor`: run the checks, print what they find */
#include "cli/doctor/doctor.h"
#include "base/cleanup.h"
#include "cli/out.h"

#include <stdarg.h>

static const struct ms_check *const checks[] = {
    ms_checks_muster, ms_checks_host, ms_checks_network};

static const struct {
    const char *name, *style;
} levels[] = {
    [MS_FINDING_OK] = {"ok", MS_STYLE_GOOD},
    [MS_FINDING_WARN] = {"warn", MS_STYLE_WARN},
    [MS_FINDING_FAIL] = {"fail", MS_STYLE_BAD},
};

void ms_finding_set(struct ms_finding *f,
                    enum ms_finding_level level,
                    const char *advice,
                    const char *fmt,
                    ...)
{
    va_list ap;

    f->level = level;
    f->advice = advice;
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
}

static json_t *finding_json(const struct ms_check *check, const struct ms_finding *f)
{
    return MS_JSON({"check", json_string(check->name)},
                   {"level", json_string(levels[f->level].name)},
                   {"text", ms_json_string(f->text)},
                   {"advice", ms_json_string(f->advice ? f->advice : "")});
}

static void
add_rows(struct ms_grid *g, const struct ms_check *check, const struct ms_finding *f)
{
    ms_grid_add(g, levels[f->level].style, "%s", levels[f->level].name);
    ms_grid_add(g, NULL, "%s", check->name);
    ms_grid_add(g, NULL, "%s", f->text);
    if (!f->advice)
        return;
    ms_grid_add(g, NULL, "%s", "");
    ms_grid_add(g, NULL, "%s", "");
    ms_grid_add(g, levels[f->level].style, "-> %s", f->advice);
}

/* Takes both. */
static enum ms_exit
print(bool json, json_t *list, struct ms_grid *g, const size_t counts[MS_COUNT(levels)])
{
    size_t ok = counts[MS_FINDING_OK], warn = counts[MS_FINDING_WARN],
           fail = counts[MS_FINDING_FAIL];
    enum ms_exit code;

    if (json) {
        ms_grid_finish(g);
        return ms_out_json(MS_JSON({"checks", list},
                                   {"ok", json_integer((json_int_t)ok)},
                                   {"warn", json_integer((json_int_t)warn)},
                                   {"fail", json_integer((json_int_t)fail)}));
    }
    json_decref(list);
    code = ms_out_grid(g);
    printf("%zu ok, %zu warn, %zu fail\n", ok, warn, fail);
    return code;
}

enum ms_exit ms_cmd_doctor(const struct ms_cli *cli)
{
    size_t counts[MS_COUNT(levels)] = {0};
    json_t *list = json_array();
    struct ms_grid g;
    enum ms_exit code;

    ms_grid_init(&g, "lll");
    for (size_t i = 0; i < MS_COUNT(checks); i++)
        for (const struct ms_check *check = checks[i]; check->name; check++) {
            struct ms_finding f = {.python = cli->values[MS_OPT_PYTHON]};

            check->run(&f);
            counts[f.level]++;
            json_array_append_new(list, finding_json(check, &f));
            add_rows(&g, check, &f);
        }
    code = print(ms_cli_has(cli, MS_OPT_JSON), list, &g, counts);
    return code == MS_EXIT_OK && counts[MS_FINDING_FAIL] ? MS_EXIT_FAILED : code;
}
