/* SPDX-License-Identifier: Apache-2.0 */
/* `tide why`: what the words of error messages mean. */
#include "base/cleanup.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "cli/why/why.h"

#include <stdio.h>
#include <string.h>

#define ERROR_WORD "usage"

#define WIDTH     80
#define WORDS_MAX 400

/* Prints @label, then @text folded at blanks and indented. */
static void paragraph(const char *label, const char *text)
{
    int indent = printf("%s", label);
    int column = indent;

    while (*text) {
        int len = (int)strcspn(text, " ");

        if (column > indent && column + 1 + len > WIDTH)
            column = printf("\n%*s", indent, "") - 1;
        column += printf("%s%.*s", column > indent ? " " : "", len, text);
        text += len;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static int unknown(const char *word)
{
    const char *words[WORDS_MAX];
    const char *nearest;
    const struct why *w;
    size_t n = 0;

    for (size_t i = 0; n < WORDS_MAX && (w = why_at(i)); i++)
        if (w->word)
            words[n++] = w->word;
    nearest = suggest_nearest(word, words, n);
    return cli_error(&command_why, CLI_USAGE, "'tide why' lists the words.",
                     nearest ? "no error has the word '%.64s': did you mean '%s'?"
                             : "no error has the word '%.64s'",
                     word, nearest);
}

static int why_run(int argc, char **argv)
{
    const struct why *w;

    option_none(&command_why, argc, argv, 0, 1);
    for (size_t i = 0; (w = why_at(i)); i++) {
        if (optind == argc && !w->word) {
            printf("%s== %s ==\n\n", i ? "\n" : "", w->cause);
        } else if (optind == argc) {
            printf("%s\n", w->word);
            paragraph("    ", w->cause);
        } else if (w->word && strcmp(argv[optind], w->word) == 0) {
            paragraph("cause: ", w->cause);
            paragraph("cure:  ", w->cure);
            return CLI_OK;
        }
    }
    return optind == argc ? CLI_OK : unknown(argv[optind]);
}

const struct command command_why = {
    .name = "why",
    .usage = "[WORD]",
    .brief = "explain an error by the word at its end: its cause and cure",
    .help = "Without WORD, all words with what causes the errors.\n\n"
            "Examples:\n"
            "  tide why                 all of them\n"
            "  tide why no-such-job     an error that ends with this word\n",
    .far = FAR_SAME,
    .run = why_run,
};
