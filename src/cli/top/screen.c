/* screen.c - a terminal that is drawn anew again and again */
#include "cli/top/screen.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define HIDE_CURSOR "\033[?25l"
#define SHOW_CURSOR "\033[?25h"
#define CLEAR       "\033[H\033[2J"
#define HOME        "\033[H"
#define END_OF_LINE "\033[K"
#define END_OF_ALL  "\033[J"

enum { LINES_USUAL = 24, COLUMNS_USUAL = 80 };

/* Signal handlers read these. */
static struct {
    volatile sig_atomic_t is_open;
    bool has_keys; /* stdin is a terminal, whose settings were: */
    struct termios before;
    char typed[64]; /* keys that were read and not taken yet */
} screen;

bool ms_screen_is_there(void)
{
    const char *term = getenv("TERM");

    return isatty(STDOUT_FILENO) && term && term[0] && strcmp(term, "dumb") != 0;
}

static void put(const char *text, size_t len)
{
    ssize_t n = write(STDOUT_FILENO, text, len);

    (void)n; /* a terminal that is gone needs nothing */
}

/* Also from a signal handler. */
static void restore(void)
{
    static const char after[] = "\r\n" SHOW_CURSOR;

    if (!screen.is_open)
        return;
    screen.is_open = 0;
    put(after, sizeof after - 1);
    if (screen.has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &screen.before);
}

/* Ctrl-C is how one leaves it; other signals end it as they would without us. */
static void on_end(int sig)
{
    restore();
    if (sig == SIGINT)
        _exit(0);
    signal(sig, SIG_DFL);
    raise(sig);
}

static void on_resize(int sig)
{
    (void)sig; /* it interrupts the wait for a key */
}

static void handle_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction end = {.sa_handler = on_end}, resize = {.sa_handler = on_resize};

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        sigaction(ends[i], &end, NULL);
    sigaction(SIGWINCH, &resize, NULL);
    signal(SIGPIPE, SIG_IGN);
}

void ms_screen_open(void)
{
    struct termios raw;

    screen.has_keys =
        isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen.before) == 0;
    screen.is_open = 1;
    handle_signals();
    if (screen.has_keys) {
        raw = screen.before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        raw.c_cc[VSUSP] = _POSIX_VDISABLE; /* a stopped one would leave it as it is */
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    put(HIDE_CURSOR CLEAR, sizeof HIDE_CURSOR CLEAR - 1);
}

void ms_screen_close(void)
{
    restore();
}

void ms_screen_size(size_t *lines, size_t *columns)
{
    struct winsize size = {0};

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
        size = (struct winsize){0};
    *lines = size.ws_row ? size.ws_row : LINES_USUAL;
    *columns = size.ws_col ? size.ws_col : COLUMNS_USUAL;
}

static int write_all(const uint8_t *at, size_t len)
{
    while (len) {
        ssize_t n = write(STDOUT_FILENO, at, len);

        if (n < 0 && errno != EINTR)
            return -errno;
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* With one write, so that nobody sees half of it. */
int ms_screen_draw(const struct ms_buf *frame)
{
    struct ms_buf out = {0};
    int rc;

    ms_buf_printf(&out, HOME);
    for (size_t i = 0; i < frame->len; i++)
        if (frame->data[i] == '\n')
            ms_buf_printf(&out, END_OF_LINE "\n");
        else
            ms_buf_printf(&out, "%c", frame->data[i]);
    ms_buf_printf(&out, END_OF_LINE END_OF_ALL);
    rc = out.failed ? out.failed : write_all(out.data, out.len);
    ms_buf_finish(&out);
    return rc;
}

/* ---- keys ------------------------------------------------------------------------ */

/* The first key of what was typed, which is taken away. */
static int take_key(void)
{
    static const struct {
        const char *text;
        int key;
    } known[] = {
        {"\033[A", MS_KEY_UP},
        {"\033OA", MS_KEY_UP},
        {"k", MS_KEY_UP},
        {"\033[B", MS_KEY_DOWN},
        {"\033OB", MS_KEY_DOWN},
        {"j", MS_KEY_DOWN},
        {"\033[5~", MS_KEY_PAGE_UP},
        {"\033[6~", MS_KEY_PAGE_DOWN},
        {" ", MS_KEY_PAGE_DOWN},
    };

    size_t len = screen.typed[0] == '\033' ? strlen(screen.typed) : 1;
    int key = len == 1 ? (unsigned char)screen.typed[0] : MS_KEY_NONE;

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(screen.typed, known[i].text, strlen(known[i].text)) == 0) {
            len = strlen(known[i].text);
            key = known[i].key;
            break;
        }
    memmove(screen.typed, screen.typed + len, strlen(screen.typed + len) + 1);
    return key;
}

/* A terminal that has gone away ends us, as SIGHUP would. */
int ms_screen_key(int64_t until_ns)
{
    int64_t left_ns = until_ns - ms_now_ns();
    struct timespec left = {left_ns / MS_NS_PER_S, left_ns % MS_NS_PER_S};
    struct pollfd p = {.fd = screen.has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    ssize_t n;

    if (screen.typed[0])
        return take_key();
    if (left_ns <= 0 || ppoll(&p, 1, &left, NULL) <= 0)
        return MS_KEY_NONE;
    n = read(STDIN_FILENO, screen.typed, sizeof screen.typed - 1);
    if (n <= 0)
        return 'q';
    screen.typed[n] = 0;
    return screen.typed[0] ? take_key() : MS_KEY_NONE;
}
