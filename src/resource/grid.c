/* grid.c - text in columns */
#include "resource/grid.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS_MIN = 64, COLUMNS_MAX = 16, GAP = 2 };

struct ms_grid_cell {
    char *text;
    const char *style;
    size_t width;
};

void ms_grid_init(struct ms_grid *g, const char *align)
{
    *g = (struct ms_grid){.align = align, .columns = strlen(align)};
    assert(g->columns > 0 && g->columns <= COLUMNS_MAX);
}

void ms_grid_finish(struct ms_grid *g)
{
    for (size_t i = 0; i < g->count; i++)
        free(g->cells[i].text);
    free(g->cells);
    *g = (struct ms_grid){0};
}

/* Blank what a terminal would act on; the number of code points. */
static size_t tame(char *text)
{
    size_t width = 0;

    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if (*p < 0x20 || *p == 0x7f)
            *p = ' ';
        width += (*p & 0xc0) != 0x80;
    }
    return width;
}

static int grow(struct ms_grid *g)
{
    size_t capacity = g->capacity ? 2 * g->capacity : CELLS_MIN;
    struct ms_grid_cell *cells = realloc(g->cells, capacity * sizeof *cells);

    if (!cells)
        return -ENOMEM;
    g->cells = cells;
    g->capacity = capacity;
    return 0;
}

void ms_grid_add(struct ms_grid *g, const char *style, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    int n;

    if (g->failed)
        return;
    if (g->count == g->capacity)
        g->failed = grow(g);
    if (g->failed)
        return;
    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        g->failed = -ENOMEM;
        return;
    }
    g->cells[g->count++] =
        (struct ms_grid_cell){.text = text, .style = style, .width = tame(text)};
}

void ms_grid_move(struct ms_grid *g, struct ms_buf *text)
{
    const char *s = ms_buf_str(text);

    if (s)
        ms_grid_add(g, NULL, "%s", *s ? s : "-");
    else
        g->failed = -ENOMEM;
    text->len = 0;
}

void ms_grid_add_titles(struct ms_grid *g, const char *const *titles)
{
    for (size_t i = 0; i < g->columns; i++)
        ms_grid_add(g, NULL, "%s", titles[i]);
}

struct column {
    size_t width;
    bool is_hidden;
};

/* Is there room for it behind `at`? Text is cut; a part of a number is another one. */
static void fit(struct column *c, size_t room, size_t at, char align)
{
    size_t left = room > at ? room - at : 0;

    if (c->width <= left && left)
        return;
    c->is_hidden |= !left || align == 'r';
    c->width = left;
}

static void measure(const struct ms_grid *g, struct column columns[COLUMNS_MAX])
{
    size_t at = 0;

    for (size_t i = 0; i < COLUMNS_MAX; i++)
        columns[i] = (struct column){.is_hidden = g->hides_empty};
    for (size_t i = 0; i < g->count; i++) {
        struct column *c = &columns[i % g->columns];

        if (g->cells[i].width > c->width)
            c->width = g->cells[i].width;
        if (i >= g->columns && g->cells[i].width)
            c->is_hidden = false;
    }
    for (size_t i = 0; i < g->columns && g->room; i++) {
        fit(&columns[i], g->room, at, g->align[i]);
        at += columns[i].is_hidden ? 0 : columns[i].width + GAP;
    }
}

/* The bytes of its first `width` code points. */
static int cut(const struct ms_grid_cell *c, size_t width)
{
    const char *p = c->text;

    if (c->width <= width)
        return (int)strlen(p);
    for (; *p && (width || (*p & 0xc0) == 0x80); p++)
        width -= (*p & 0xc0) != 0x80;
    return (int)(p - c->text);
}

/* Append one cell; *owed are the blanks that come before the next thing printed. */
static void print_cell(const struct ms_grid *g,
                       const struct ms_grid_cell *c,
                       size_t width,
                       char align,
                       size_t *owed,
                       struct ms_buf *out)
{
    bool styled = g->colour && c->style;
    size_t pad = c->width < width ? width - c->width : 0;

    if (align == 'r')
        *owed += pad;
    if (c->width == 0) {
        *owed += align == 'r' ? 0 : pad;
        return;
    }
    ms_buf_printf(out, "%*s", (int)*owed, "");
    if (styled)
        ms_buf_printf(out, "\033[%sm%.*s\033[0m", c->style, cut(c, width), c->text);
    else
        ms_buf_printf(out, "%.*s", cut(c, width), c->text);
    *owed = align == 'r' ? 0 : pad;
}

int ms_grid_print(const struct ms_grid *g, struct ms_buf *out)
{
    struct column columns[COLUMNS_MAX];
    size_t owed = 0;

    measure(g, columns);
    for (size_t i = 0; !g->failed && i < g->count; i++) {
        size_t at = i % g->columns;
        bool last = at + 1 == g->columns || i + 1 == g->count;

        if (!columns[at].is_hidden) {
            print_cell(g, &g->cells[i], columns[at].width, g->align[at], &owed, out);
            owed += GAP;
        }
        if (!last)
            continue;
        owed = 0;
        ms_buf_printf(out, "\n");
    }
    return g->failed ? g->failed : out->failed;
}

void ms_grid_end(struct ms_grid *g, struct ms_buf *out)
{
    out->failed = ms_grid_print(g, out);
    ms_grid_finish(g);
}
